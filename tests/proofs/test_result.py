"""result: a Plan that computes anything else is refused, with the primitive that does."""

from dataclasses import replace

import numpy as np
import pytest

from hccc.base.diagnostics import Problem, UserError
from hccc.ir.collective import Collective, OpType
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Guard, Transport
from hccc.ir.transport import PURE
from hccc.passes.fuse import fuse
from hccc.proofs.result import result
from tests.passes.textbook import (
    SMALL,
    SWEEP,
    few,
    lowered,
    mesh_allreduce,
    planned,
    verdict,
    with_operands,
    works,
)
from tests.sabotage import changed, without_operand

REDUCING = ["ring reducescatter", "ring allreduce", "mesh allreduce", "hm allreduce"]


def problem(plan: Plan) -> Problem:
    with pytest.raises(UserError) as caught:
        result(plan)
    return caught.value.problem


@pytest.mark.parametrize("transport", PURE)
@pytest.mark.parametrize("name", SMALL)
def test_what_is_compiled_is_right(name: str, transport: Transport) -> None:
    result(planned(lowered(SMALL[name], transport)))


@pytest.mark.parametrize("transport", PURE)
@pytest.mark.parametrize("name", SMALL)
def test_no_wrong_final_mark_survives(name: str, transport: Transport) -> None:
    """Dividing too early, twice or never: avg would be wrong."""
    plan = planned(lowered(SMALL[name], transport))
    for i in range(len(plan)):
        final = plan.final.copy()
        final[i] ^= 1
        assert problem(replace(plan, final=final)).code in ("E306", "E307")


@SWEEP
@pytest.mark.parametrize("level", ["none", "full"])
@pytest.mark.parametrize("name", REDUCING)
def test_no_missing_operand_survives(name: str, level: str, most: int) -> None:
    plan = planned(fuse(lowered(SMALL[name]), level))
    faults = []
    for side in ("src", "dst"):
        o = getattr(plan, side)
        faults += [(side, k) for k in range(len(o.rank)) if o.counts()[o.owner()[k]] > 1]
    for side, k in few(faults, most):
        wrong = with_operands(plan, side, without_operand(getattr(plan, side), k))
        assert verdict(wrong) or works(wrong), (side, k)


@pytest.mark.quick(1)
@SWEEP
@pytest.mark.parametrize("transport", PURE)
@pytest.mark.parametrize("name", SMALL)
def test_no_idle_primitive_survives(name: str, transport: Transport, most: int) -> None:
    """A primitive that waits and posts but moves nothing, in place or out of place."""
    plan = planned(lowered(SMALL[name], transport))
    moves = np.flatnonzero(plan.guard == Guard.ALWAYS)
    for i in few(moves, most):
        for guard in (Guard.IN_PLACE, Guard.OUT_OF_PLACE):
            idle = plan.guard.copy()
            idle[i] = guard
            assert problem(replace(plan, guard=idle)).code in ("E306", "E307")


def test_a_contribution_added_twice() -> None:
    plan = planned(fuse(lowered(mesh_allreduce(4)), "reduce"))
    i = int(np.flatnonzero(plan.src.counts() == 4)[0])
    k = int(plan.src.ptr[i])
    twice = changed(plan.src, k + 1, rank=plan.src.rank[k + 2])
    found = problem(replace(plan, src=twice))
    assert found.code == "E306"
    assert "already in the value" in found.message


def test_two_chunks_combined() -> None:
    plan = planned(lowered(SMALL["ring allreduce"]))
    wrong = changed(plan.src, 0, slot=(plan.src.slot[0] + 1) % 4)
    found = problem(replace(plan, src=wrong))
    assert "two different chunks" in found.message


def test_memory_that_holds_nothing() -> None:
    plan = planned(lowered(SMALL["broadcast"]))
    idle = np.where(plan.rank_of() == 0, Guard.IN_PLACE, plan.guard)
    found = problem(replace(plan, guard=idle))
    assert "holds nothing yet" in found.message
    assert "out of place" in found.message


def test_a_receive_slot_that_ends_wrong_names_its_last_writer() -> None:
    plan = planned(lowered(SMALL["ring allgather"]))
    moves = np.flatnonzero(plan.guard == Guard.ALWAYS)
    idle = plan.guard.copy()
    idle[moves[-1]] = Guard.IN_PLACE
    found = problem(replace(plan, guard=idle))
    assert found.code == "E307"
    assert (
        "ends without all of it; it is last written by rank 3 block 0 primitive 2" in found.message
    )


def test_another_collective_is_not_performed() -> None:
    """An allgather's plan is no alltoall, a reduce to 0 no reduce to 1."""
    plan = planned(lowered(SMALL["hm allreduce"]))
    c = plan.collective
    result(replace(plan, collective=replace(c, op=OpType.ALLREDUCE)))
    broadcast = planned(lowered(SMALL["broadcast"]))
    moved = replace(broadcast, collective=Collective(OpType.BROADCAST, 4, 2, root=1))
    assert problem(moved).code in ("E306", "E307")


def test_the_bitsets_may_be_run_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """More ranks than fit one word, words one at a time: the same verdicts."""
    from hccc.proofs import result as module

    plan = planned(fuse(lowered(mesh_allreduce(66)), "reduce"))
    monkeypatch.setattr(module, "STATE_BYTES", 1)
    result(plan)
    i = int(np.flatnonzero(plan.final)[-1])
    final = plan.final.copy()
    final[i] = 0
    assert problem(replace(plan, final=final)).code in ("E306", "E307")


@pytest.mark.parametrize("transport", PURE)
def test_the_chunk_a_primitive_says_is_the_one_it_moves(transport: Transport) -> None:
    """Kernels take the length from it."""
    plan = planned(lowered(SMALL["ring allreduce"], transport))
    for i in range(0, len(plan), 3):
        chunk = plan.chunk.copy()
        chunk[i] = (chunk[i] + 1) % plan.collective.n_chunks
        found = problem(replace(plan, chunk=chunk))
        assert found.code == "E306"
        assert "another chunk" in found.message


def test_a_custom_collective_reads_nothing_unwritten() -> None:
    plan = planned(lowered(SMALL["broadcast"], Transport.DIRECT))
    c = plan.collective
    custom = replace(plan, collective=Collective(OpType.CUSTOM, c.n_ranks, c.n_ranks * c.n_chunks))
    assert "nothing is read before it is written" in result(custom).claim
    late = np.flatnonzero(custom.src.buffer == Buffer.INPUT)[0]
    empty = changed(custom.src, late, buffer=Buffer.OUTPUT, slot=0)
    found = problem(replace(custom, src=empty, in_place=False))
    assert found.code == "E306" and "holds nothing yet" in found.message
