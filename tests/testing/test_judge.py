"""The judge of mutants: right plans pass, wrong plans of earlier attacks do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from hccc.base.diagnostics import Source, UserError
from hccc.driver.compilation import compile_text
from hccc.driver.options import Options
from hccc.interop import msccl_plan
from hccc.interop.export_msccl import XmlOptions, export_msccl
from hccc.interop.import_msccl import import_parsed
from hccc.interop.label import label
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Transport
from hccc.ir.transport import PURE
from hccc.lang.msccl import load as msccl_xml
from hccc.lang.msccl.load import Algo
from hccc.lang.transfer import load as transfer
from hccc.proofs.fifo import with_enough_slots
from hccc.proofs.prove import check_plan
from hccc.testing import Hang, Poison, exact_inputs, launch
from hccc.testing.grow import Choose
from hccc.testing.judge import COUNTS, PlanCall, fault, first_fault, xml_fault
from hccc.testing.msccl import run_xml
from hccc.testing.mutate_xml import mutate_xml

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "interop" / "data"


REFUSED_FILES = {
    "allreduce_race_n3": "E304",
    "custom_alias_n2": "E304",
    "reducescatter_wrong_n3": "E315",
}


def chooser(seed: int) -> Choose:
    rng = Random(seed)
    return lambda n: rng.randrange(n + 1) if n > 0 else 0


def example(name: str, options: Options) -> Plan:
    return compile_text(transfer.read(ROOT / "examples" / f"{name}.rccl"), options).plan


def parsed(text: str) -> Algo:
    return msccl_xml.parse(Source("x.xml", text))


@pytest.mark.parametrize("transport", PURE)
@pytest.mark.parametrize("name", ["ring_allreduce", "direct_alltoall", "sendrecv", "direct_gather"])
def test_right_plans_pass_at_every_count(name: str, transport: Transport) -> None:
    plan = example(name, Options(transport=transport))
    for count in COUNTS[::3]:
        for in_place in (False, True):
            assert fault(plan, PlanCall(count, 16, 2, in_place, "sum", count)) is None


def test_channels_are_run() -> None:
    """Two channels with one's flags confused for the other's data would show at odd counts."""
    plan = example("ring_allreduce", Options(channels=3, fuse="none"))
    assert first_fault(plan, chooser(1), 20) is None
    x = [a.reshape(-1) for a in exact_inputs(plan.collective, np.int32, (1,))]
    for channels in (1, 2, 5):
        got = launch(replace(plan, channels=channels), x, count=8)
        assert all(np.array_equal(a, sum(x)) for a in got)


def test_a_message_shorter_than_its_receiver_wants_is_poison() -> None:
    plan = example("ring_allreduce", Options(transport=Transport.STAGED))
    sends = np.isin(np.arange(len(plan)), plan.dst.owner()[plan.dst.buffer == Buffer.QUEUE])
    short = np.where(sends & (plan.chunk == 0), 7, plan.chunk)
    x = exact_inputs(plan.collective, np.int32, (1,))
    with pytest.raises(Poison, match="reads message"):
        launch(replace(plan, chunk=short), [np.resize(a, 9) for a in x], count=9)


@pytest.mark.parametrize("path", sorted(DATA.glob("*.xml")), ids=lambda p: p.stem)
def test_accepted_files_do_what_mscclls_runtimes_do(path: Path) -> None:
    algo = parsed(path.read_text(encoding="utf-8"))
    plan, _ = import_parsed(algo)
    if path.stem in REFUSED_FILES:
        with pytest.raises(UserError, match=REFUSED_FILES[path.stem]):
            check_plan(plan)
        return
    check_plan(plan)
    for seed in range(5):
        assert xml_fault(algo, plan, seed) is None
    assert first_fault(plan, chooser(2), 30) is None


def test_buffers_that_are_one_memory_race() -> None:
    """A plan refused by E304 fails when it runs: two interleavings end with other data."""
    algo = parsed((DATA / "custom_alias_n2.xml").read_text(encoding="utf-8"))
    plan = with_enough_slots(label(msccl_plan.to_plan(algo)))
    found = [fault(plan, PlanCall(5, 16, 1, True, "sum", seed)) for seed in range(40)]
    assert any(found)
    assert not any(fault(plan, PlanCall(5, 16, 1, False, "sum", seed)) for seed in range(40))


SELF = """<algo name="x" nchunksperloop="2" nchannels="1" proto="Simple" ngpus="2"
coll="allgather" inplace="0" outofplace="1">
{gpus}</algo>"""
STEP = (
    '<step s="{s}" type="{t}" srcbuf="{b}" srcoff="{a}" dstbuf="o" dstoff="{d}" cnt="1" '
    'depid="{dep}" deps="{deps}" hasdep="{has}"/>'
)


def waits_for_itself(deps: int) -> Algo:
    """Makes blocks whose step 1, a send, waits for step `deps` of its own block; all signal."""
    gpus = ""
    for r in range(2):
        kinds = [("cpy", "i", 0, r), ("s", "i", 0, r), ("r", "i", 0, 1 - r)]
        steps = [
            STEP.format(s=s, t=t, b=b, a=a, d=d, has=1, **wait)
            for s, (t, b, a, d) in enumerate(kinds)
            for wait in [{"dep": 0, "deps": deps} if s == 1 else {"dep": -1, "deps": -1}]
        ]
        gpus += f'<gpu id="{r}" i_chunks="1" o_chunks="2" s_chunks="0">\n<tb id="0" send="{1 - r}" '
        gpus += f'recv="{1 - r}" chan="0">\n' + "\n".join(steps) + "\n</tb>\n</gpu>\n"
    return parsed(SELF.format(gpus=gpus))


@pytest.mark.parametrize("deps", [-1, 0, 1, 2, 3])
def test_a_step_that_waits_for_its_own_block_gets_what_msccl_gives(deps: int) -> None:
    """An earlier signal is there already; its own or a later one never comes."""
    algo = waits_for_itself(deps)
    x = [np.full((1, 1), r + 1) for r in range(2)]
    if deps <= 0:
        plan, _ = import_parsed(algo)
        check_plan(plan)
        assert xml_fault(algo, plan, 0) is None
        assert run_xml(algo, x, {}, 0)[0, "o", 1][0] == 2
        return
    with pytest.raises(Hang):
        run_xml(algo, x, {}, 0)
    with pytest.raises(UserError, match="waits for ever") as caught:
        import_parsed(algo)
    assert caught.value.problem.code == "E516"
    assert caught.value.problem.span is not None


@pytest.mark.slow
def test_xml_mutants_keep_the_format() -> None:
    """They reach the importer's and the proofs' checks, not only the parser's."""
    plan = example("ring_allgather", Options(transport=Transport.STAGED, allocator="connection"))
    xml, codes, choose = export_msccl(plan, XmlOptions()), set(), chooser(4)
    for _ in range(300):
        mutant, _ = mutate_xml(xml, choose)
        try:
            made, _ = import_parsed(parsed(mutant))
            check_plan(made)
        except UserError as error:
            codes.add(error.problem.code)
    assert {"E502", "E513", "E515"} <= codes
    assert codes & {"E304", "E306", "E307", "E315"}
