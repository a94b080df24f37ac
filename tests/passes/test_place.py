"""place: every value has its buffer, in place and out of place."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from hccc.ir.arrays import Csr
from hccc.ir.collective import OpType
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Guard, Primitives, Transport
from hccc.ir.program import Program
from hccc.passes.allocate import allocate
from hccc.passes.packets import packets
from hccc.passes.place import place
from hccc.passes.sync import sync
from tests.passes.textbook import (
    RECV,
    RRC,
    SMALL,
    SWEEP,
    alltoall,
    few,
    lowered,
    planned,
    program,
    ring_allgather,
    sendrecv,
    verdict,
    with_operands,
    works,
)
from tests.sabotage import changed

# Rank 2 relays in both: values that it does not need itself.
RELAYED = program(
    OpType.GATHER,
    3,
    6,
    [
        (1, 2, 0, 2, RECV),
        (2, 0, 1, 2, RECV),
        (1, 0, 0, 3, RECV),
        (2, 0, 0, 4, RECV),
        (2, 0, 2, 5, RECV),
    ],
)
DETOUR = program(
    OpType.REDUCESCATTER,
    3,
    3,
    [
        (1, 2, 0, 0, RRC),
        (2, 0, 1, 0, RRC),
        (0, 1, 0, 1, RRC),
        (2, 1, 0, 1, RRC),
        (0, 1, 0, 2, RRC),
        (1, 2, 1, 2, RRC),
    ],
)
PROGRAMS = {**SMALL, "relayed gather": RELAYED, "detour reducescatter": DETOUR}


def placed(p: Program) -> Primitives:
    return place(lowered(p))


def test_values_go_home_or_into_scratch() -> None:
    p = placed(RELAYED)
    assert p.scratch_slots.tolist() == [0, 0, 1]
    relayed = p.chunk == 2
    assert set(p.dst.buffer[relayed].tolist()) == {Buffer.SCRATCH, Buffer.OUTPUT}


def test_starts_are_read_from_the_send_buffer() -> None:
    p = placed(DETOUR)
    assert (p.src.buffer == Buffer.INPUT).sum() == 9 + 1 - 1


def test_untouched_chunks_are_copied_out_of_place_only() -> None:
    p = placed(ring_allgather(4))
    copies = p.tasks.counts() == 0
    assert copies.sum() == 4
    assert set(p.guard[copies].tolist()) == {Guard.OUT_OF_PLACE}


@pytest.mark.parametrize("p", [sendrecv(4), alltoall(3)])
def test_swapping_collectives_set_aside_what_is_overwritten_in_place(p: Program) -> None:
    n = placed(p)
    assert (n.guard == Guard.IN_PLACE).sum() == len(p)
    assert not (n.src.buffer[n.src.owner()[:]] == Buffer.INPUT)[
        np.isin(n.src.owner(), np.flatnonzero(n.tasks.counts() > 0))
    ].any()


@pytest.mark.parametrize("name", PROGRAMS)
def test_result(name: str) -> None:
    plan = planned(lowered(PROGRAMS[name]))
    assert verdict(plan) is None
    assert works(plan)


@pytest.mark.parametrize("p", [sendrecv(4), alltoall(3)])
def test_without_setting_aside_in_place_is_refused(p: Program) -> None:
    plan = planned(lowered(p))
    unstaged = np.where(plan.src.buffer == Buffer.STAGE, Buffer.INPUT, plan.src.buffer)
    assert verdict(replace(plan, src=replace(plan.src, buffer=unstaged))) in ("E304", "E306")


@pytest.mark.parametrize("p", [sendrecv(2), alltoall(3), alltoall(4)])
def test_packets_are_sent_before_their_slots_are_overwritten(p: Program) -> None:
    n = packets(lowered(p, Transport.STAGED), Transport.DIRECT)
    assert not place(n).stage_slots.any()
    for allocator in ("state", "connection"):
        plan = planned(n, allocator)
        assert verdict(plan) is None
        assert works(plan, micro_batches=1)
    # In blocks of their own the receives have to wait.
    waits = plan.waits
    assert len(waits.index)
    none = Csr(np.zeros_like(waits.ptr), waits.index[:0])
    assert verdict(replace(plan, waits=none)) == "E304"


@pytest.mark.parametrize("op", [OpType.ALLREDUCE, OpType.REDUCE, OpType.REDUCESCATTER])
def test_a_rank_that_is_alone_has_its_own_sum(op: OpType) -> None:
    assert works(planned(lowered(program(op, 1, 1, []))))


def test_without_own_copies_is_refused() -> None:
    n = placed(ring_allgather(3))
    plan = sync(allocate(replace(n, guard=np.full(len(n), Guard.IN_PLACE)), "connection"))
    assert verdict(plan) is not None


@SWEEP
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_wrong_guard_survives(name: str, most: int) -> None:
    plan = planned(lowered(PROGRAMS[name]))
    faults = [(i, g) for i in range(len(plan)) for g in Guard if g != plan.guard[i]]
    for i, guard in few(faults, most):
        wrong = plan.guard.copy()
        wrong[i] = guard
        mutant = replace(plan, guard=wrong)
        assert verdict(mutant) or works(mutant), (i, guard)


def operand_faults(plan: Plan) -> Iterator[tuple[str, int, dict[str, int]]]:
    """Yields each operand at the next slot, the slot before, the next rank, the other buffers."""
    for side in ("src", "dst"):
        o = getattr(plan, side)
        for k in range(len(o.rank)):
            yield side, k, {"slot": o.slot[k] + 1}
            yield side, k, {"rank": (o.rank[k] + 1) % plan.n_ranks}
            yield from [(side, k, {"slot": o.slot[k] - 1})] * int(o.slot[k] > 0)
            yield from [(side, k, {"buffer": b}) for b in range(Buffer.QUEUE) if b != o.buffer[k]]


@SWEEP
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_wrong_slot_buffer_or_rank_survives(name: str, most: int) -> None:
    plan = planned(lowered(PROGRAMS[name]))
    for side, k, fault in few(operand_faults(plan), most):
        wrong = with_operands(plan, side, changed(getattr(plan, side), k, **fault))
        assert verdict(wrong) or works(wrong), (side, k, fault)
