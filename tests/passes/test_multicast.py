"""multicast: what it makes of programs, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hccc.base.diagnostics import UserError
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.ir.choices import Accumulate, Bits
from hccc.ir.collective import MULTICAST, Collective, OpType, block_count
from hccc.ir.digest import digest
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Transport
from hccc.ir.program import Program
from hccc.proofs.prove import check_plan
from hccc.testing.clusters import cluster
from hccc.testing.judge import first_fault
from hccc.testing.strategies import correct_programs
from tests.passes.textbook import RECV, RRC, alltoall, broadcast, mesh_allreduce, ring_allreduce
from tests.passes.textbook import program as textbook

CLUSTERS = Path(__file__).parents[2] / "examples" / "clusters"


def made(program: Program, cluster_text: str = "", **options: object) -> Plan:
    """Compiles for a switch of as many H100 as the program has ranks."""
    n = program.collective.n_ranks
    text = cluster_text or f"define node1 = {n}\ndefine device = H100"
    chosen = Options(transport=Transport.MULTICAST, tune="off", verify_each=True, **options)  # type: ignore[arg-type]
    return driver.compile_program(program, chosen, cluster(text)).plan


def refusal(program: Program, cluster_text: str = "", **options: object) -> str:
    with pytest.raises(UserError) as error:
        made(program, cluster_text, **options)
    assert error.value.problem.code == "E324" and error.value.problem.help
    return error.value.problem.message


@st.composite
def served(draw: st.DrawFn) -> Program:
    op, n, per = draw(st.sampled_from(MULTICAST)), draw(st.integers(3, 6)), draw(st.integers(1, 2))
    root = draw(st.integers(0, n - 1)) if op in (OpType.BROADCAST, OpType.REDUCE) else 0
    return draw(correct_programs(Collective(op, n, block_count(op, n) * per, root)))


@given(served(), st.sampled_from([None, *Bits]))
def test_any_program_of_a_collective_becomes_one_primitive_a_chunk(
    program: Program, bits: Bits | None
) -> None:
    """The proofs hold, and running the plan as hosts do gives what the collective says."""
    c, plan = program.collective, made(program, bits=bits)
    assert sorted(plan.chunk.tolist()) == list(range(c.n_chunks))
    assert plan.multicast is (bits or Bits.SAME)
    loads, stores = plan.at_all_ranks()
    assert loads.all() == loads.any() == c.reduces
    assert stores.all() == stores.any() == c.all_want
    assert not plan.n_flags.any() and not plan.scratch_slots.any()
    assert first_fault(plan, lambda n: n // 2, 2) is None


def test_a_sum_is_made_where_the_program_makes_it() -> None:
    """Rank r of the mesh completes chunk r, of the ring chunk r + 1; each has work at once."""
    for program, ahead in ((mesh_allreduce(5), 0), (ring_allreduce(5), 1)):
        plan = made(program)
        where = dict(zip(plan.chunk.tolist(), plan.rank_of().tolist(), strict=True))
        assert [(where[chunk] + ahead) % 5 for chunk in range(5)] == list(range(5))


def test_a_sum_of_one_rank_is_made_there_whoever_completes_it() -> None:
    """The program sums all at rank 0, and sends the others theirs; by the switch each makes its
    own."""
    rows = [(r, 0, r, chunk, RRC) for chunk in range(3) for r in (1, 2)]
    rows += [(0, chunk, 3, chunk, RECV) for chunk in (1, 2)]
    plan = made(textbook(OpType.REDUCESCATTER, 3, 3, rows))
    assert plan.chunk.tolist() == plan.rank_of().tolist() == [0, 1, 2]


def test_sources_are_in_the_order_of_ranks() -> None:
    plan = made(mesh_allreduce(4))
    assert plan.src.rank.tolist() == [0, 1, 2, 3] * 4
    assert set(plan.src.buffer.tolist()) == {Buffer.INPUT}
    assert set(plan.dst.buffer.tolist()) == {Buffer.OUTPUT}


def test_other_plans_are_as_they_were() -> None:
    """A switch is a part of what a plan is, and no plan without one has a trace of it."""
    plan = made(broadcast(4))
    plain = replace(plan, multicast=None)
    assert len({digest(plain), digest(plan), digest(replace(plan, multicast=Bits.ANY))}) == 3
    assert not any(of.any() for of in plain.at_all_ranks())


def test_what_no_switch_can_do_is_refused() -> None:
    assert "Alltoall is not one of Allreduce, " in refusal(alltoall(4))
    assert "2 ranks" in refusal(mesh_allreduce(2))
    assert "rank 0, a A100, has no switch" in refusal(
        mesh_allreduce(4), "define node1 = 4\ndefine device = A100"
    )
    nodes = (CLUSTERS / "heteccl-h20-4+8.cluster").read_text()
    assert "no switch of the cluster" in refusal(mesh_allreduce(12), nodes)
    assert "--accumulate says float64" in refusal(
        mesh_allreduce(4), bits="any", accumulate="float64"
    )
    assert made(mesh_allreduce(4), accumulate="float64").multicast is Bits.SAME
    with pytest.raises(UserError, match="stores data, and no packets"):
        made(mesh_allreduce(4), protocol="ll")
    with pytest.raises(UserError) as both:
        Options(bits="any", deterministic=True)
    assert both.value.problem.code == "E415"


def test_a_plan_that_a_switch_cannot_run_is_refused() -> None:
    """A plan's file may come from anybody. Of two primitives of a chunk one may have touched memory
    by another address."""
    plan = made(mesh_allreduce(4))
    direct = driver.compile_program(mesh_allreduce(4), Options(tune="off", fuse="none")).plan
    for wrong, code in (
        (replace(plan, multicast=Bits.ANY, accumulate=Accumulate.FLOAT64), "E310"),
        (replace(direct, multicast=Bits.SAME), "E313"),
        (replace(plan, chunk=np.where(plan.chunk == 1, 0, plan.chunk)), "E312"),
    ):
        with pytest.raises(UserError) as error:
            check_plan(wrong)
        assert error.value.problem.code == code
