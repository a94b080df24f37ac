"""relocate: a value in a slot that is too short for it goes through scratch, and is right."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from hccc.base.diagnostics import Source, UserError
from hccc.interop import msccl_plan
from hccc.interop.import_msccl import import_parsed
from hccc.interop.label import label
from hccc.interop.relocate import relocate
from hccc.ir import plan_check
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer
from hccc.lang.msccl import load as msccl_xml
from hccc.proofs.fifo import with_enough_slots
from hccc.proofs.prove import check_plan
from hccc.testing.judge import first_fault

DATA = Path(__file__).resolve().parents[1] / "interop" / "data"


RNG = Random(5)


def choose(n: int) -> int:
    return RNG.randrange(n + 1) if n > 0 else 0


@pytest.fixture
def parked() -> Plan:
    """Loads a plan whose chunk 0 goes through chunk 1's receive slot, shorter for odd counts."""
    text = (DATA / "allreduce_parked_n2.xml").read_text(encoding="utf-8")
    algo = msccl_xml.parse(Source("parked.xml", text))
    return with_enough_slots(label(msccl_plan.to_plan(algo)))


def test_what_would_overrun_is_refused(parked: Plan) -> None:
    with pytest.raises(UserError, match="may be longer than slot 1 of OUTPUT") as caught:
        plan_check.check(parked)
    assert caught.value.problem.code == "E312"
    assert "leaves the buffer" in (first_fault(parked, choose, 60) or "")


def test_in_scratch_it_is_right(parked: Plan) -> None:
    plan = relocate(parked)
    check_plan(plan)
    assert plan.scratch_slots.tolist() == [1, 1]
    moved = plan.dst.buffer == Buffer.SCRATCH
    assert moved.sum() == 2 and (plan.src.buffer == Buffer.SCRATCH).sum() == 2
    assert np.array_equal(plan.dst.slot[~moved], parked.dst.slot[~moved])
    assert first_fault(plan, choose, 60) is None


def test_what_fits_is_left_alone() -> None:
    text = (DATA / "allreduce_scratch_n3.xml").read_text(encoding="utf-8")
    plan = label(msccl_plan.to_plan(msccl_xml.parse(Source("x.xml", text))))
    assert relocate(plan) is plan


def test_a_schedule_is_proved_as_it_was_written_too() -> None:
    """The value races in MSCCL's runtimes; moved to scratch it would not."""
    text = (DATA / "allreduce_parked_n2.xml").read_text(encoding="utf-8")
    lone = '    <tb id="1" send="-1" recv="-1" chan="0">\n'
    lone += '      <step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="1" cnt="1" '
    lone += 'depid="-1" deps="-1" hasdep="0"/>\n    </tb>\n'
    racing = text.replace("    </tb>\n", f"    </tb>\n{lone}", 1)
    algo = msccl_xml.parse(Source("racing.xml", racing))
    with pytest.raises(UserError, match="nothing orders"):
        import_parsed(algo)


def test_a_value_that_ends_in_the_wrong_slot_is_not_moved_out_of_the_way() -> None:
    """Moved to scratch, the value would leave the slot's earlier content, which is right."""
    text = (DATA / "allreduce_parked_n2.xml").read_text(encoding="utf-8")
    last = '      <step s="7" type="cpy" srcbuf="o" srcoff="0" dstbuf="o" dstoff="1" cnt="1" '
    last += 'depid="-1" deps="-1" hasdep="0"/>\n    </tb>'
    algo = msccl_xml.parse(Source("spoilt.xml", text.replace("    </tb>", last, 1)))
    with pytest.raises(UserError) as caught:
        import_parsed(algo)
    assert caught.value.problem.code in ("E306", "E307")
