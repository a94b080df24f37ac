"""lower: one task, one primitive (or a send and a recv), reading the right version."""

from dataclasses import replace
from functools import partial
from operator import itemgetter

import numpy as np
import pytest

from hccc.ir import primitives as primitives_ir
from hccc.ir.arrays import Csr
from hccc.ir.choices import NetworkLowering
from hccc.ir.collective import OpType
from hccc.ir.primitives import Buffer, Operands, Transport
from hccc.ir.transport import PURE
from hccc.passes.depend import depend
from hccc.passes.hpds import hpds
from hccc.passes.lower import lower
from hccc.passes.verify import verify
from tests.passes.textbook import (
    RECV,
    RRC,
    SMALL,
    SWEEP,
    few,
    lowered,
    made,
    on_nodes,
    planned,
    program,
    verdict,
    works,
)

SCRATCH = int(Buffer.SCRATCH)
PAIR = program(OpType.ALLREDUCE, 2, 1, [(1, 0, 0, 0, RRC), (0, 1, 1, 0, RECV)])


def operands(o: Operands, i: int) -> list[tuple[int, int, int]]:
    row = slice(int(o.ptr[i]), int(o.ptr[i + 1]))
    return list(
        zip(o.rank[row].tolist(), o.buffer[row].tolist(), o.slot[row].tolist(), strict=True)
    )


def test_direct_a_copy_is_a_put_and_a_reduction_a_get() -> None:
    p = lowered(PAIR)
    assert p.owner.tolist() == [0, 0]
    assert operands(p.src, 0) == [(0, Buffer.START, 0), (1, Buffer.START, 0)]
    assert operands(p.dst, 0) == [(0, Buffer.VALUE, 0)]
    assert operands(p.src, 1) == [(0, Buffer.VALUE, 0)]
    assert operands(p.dst, 1) == [(1, Buffer.VALUE, 0)]
    assert p.final.tolist() == [1, 0]


def test_staged_a_task_is_a_send_and_a_recv() -> None:
    p = lowered(PAIR, Transport.STAGED)
    assert p.owner.tolist() == [1, 0, 0, 1]
    assert [b for _, b, _ in operands(p.src, 1)] == [Buffer.START, Buffer.QUEUE]
    assert [b for _, b, _ in operands(p.dst, 2)] == [Buffer.QUEUE]
    assert p.final.tolist() == [0, 1, 0, 0]
    assert len(p.queues) == 2


@pytest.mark.parametrize("transport", PURE)
@pytest.mark.parametrize("name", SMALL)
def test_invariants(name: str, transport: Transport) -> None:
    assert primitives_ir.check(lowered(SMALL[name], transport)) == []


def test_check_says_no() -> None:
    p = lowered(SMALL["ring allreduce"])
    assert primitives_ir.check(replace(p, chunk=np.roll(p.chunk, 1)))
    assert primitives_ir.check(replace(p, tasks=replace(p.tasks, index=p.tasks.index[::-1] * 0)))
    late = p.deps.index.copy()
    late[0] = len(p) - 1
    assert primitives_ir.check(replace(p, deps=replace(p.deps, index=late)))


@pytest.mark.parametrize("transport", PURE)
@pytest.mark.parametrize("by", [-1, 1])
def test_a_task_done_too_seldom_or_too_often_is_seen(transport: Transport, by: int) -> None:
    p = lowered(SMALL["ring allreduce"], transport)
    ptr, index = p.tasks.ptr, p.tasks.index
    row = int(p.tasks.owner()[0])
    found = index[1:] if by < 0 else np.insert(index, 0, index[0])
    tasks = Csr(ptr + by * (np.arange(len(ptr)) > row), found)
    assert "a task is missing" in primitives_ir.check(replace(p, tasks=tasks))[0]


@SWEEP
@pytest.mark.parametrize("transport", PURE)
@pytest.mark.parametrize("name", SMALL)
def test_no_wrong_version_survives(name: str, transport: Transport, most: int) -> None:
    """Reading the start for the value, or the value for the start, is refused."""
    dag = depend(SMALL[name])
    rrc = dag.program.transfers["op"] == RRC
    faults = [(i, bit) for i in range(len(dag)) for bit in (1, 2)[: 1 + int(rrc[i])]]
    for i, bit in few(faults, most):
        initial = dag.initial.copy()
        initial[i] ^= bit
        wrong = lower(hpds(replace(dag, initial=initial)), transport)
        plan = made(partial(planned, wrong))
        assert plan is None or verdict(plan) in ("E304", "E306", "E307", "E312"), (i, bit)


def test_a_value_of_another_chunk_is_seen() -> None:
    p = lower(hpds(depend(verify(SMALL["ring allreduce"]))), Transport.DIRECT)
    for side in ("src", "dst"):
        operands = getattr(p, side)
        for kind in (Buffer.VALUE, Buffer.START):
            for i in np.flatnonzero(operands.buffer == kind)[:1]:
                slot = operands.slot.copy()
                slot[i] += 1
                found = primitives_ir.check(replace(p, **{side: replace(operands, slot=slot)}))
                assert found == ["an operand holds another chunk than its primitive moves"]


def test_one_memory_domain_is_direct_and_several_are_mixed() -> None:
    p = on_nodes(SMALL["ring allreduce"], 4, "slots")
    assert p.transport is Transport.DIRECT
    p = on_nodes(SMALL["ring allreduce"], 2, "slots")
    assert p.transport is Transport.MIXED
    ends = set(zip(p.queues.src.tolist(), p.queues.dst.tolist(), strict=True))
    assert ends == {(1, 2), (3, 0)}


@pytest.mark.parametrize("network", NetworkLowering)
@pytest.mark.parametrize("name", SMALL)
def test_mixed_primitives_are_sound_and_right(name: str, network: str) -> None:
    for gpus in (1, 2):
        if SMALL[name].collective.n_ranks % gpus == 0:
            p = on_nodes(SMALL[name], gpus, network)
            assert primitives_ir.check(p) == []
            plan = planned(p)
            assert verdict(plan) is None and works(plan)


def test_a_reduction_lands_in_a_slot_of_its_own() -> None:
    rows = [(1, 0, 0, 0, RRC), (2, 0, 0, 0, RRC), (0, 1, 1, 0, RECV), (0, 2, 1, 0, RECV)]
    p = on_nodes(program(OpType.ALLREDUCE, 3, 1, rows), 1, "put")
    landed = sorted(operands(p.dst, i)[0] for i in range(len(p)) if p.dst.buffer[i] == SCRATCH)
    assert landed == [(0, SCRATCH, 0), (0, SCRATCH, 1)] and p.scratch_slots.tolist() == [2, 0, 0]
    assert not len(p.queues) and len(p) == 6
    assert p.final.sum() == 1 and p.src.counts()[p.final == 1] == 2


def test_what_a_proxy_reads_is_overwritten_after_it_was_used() -> None:
    """Rank 1's value is replaced by rank 2's, which waits for rank 0 to have added the first."""
    rows = [(1, 0, 0, 0, RRC), (2, 1, 1, 0, RECV), (1, 0, 2, 0, RRC), (0, 1, 3, 0, RECV)]
    p = on_nodes(program(OpType.ALLREDUCE, 3, 1, [*rows, (0, 2, 3, 0, RECV)]), 1, "put")
    overwrites = next(
        i
        for i in range(len(p))
        if p.dst.rank[i] == 1 and p.owner[i] in (1, 2) and p.dst.buffer[i] == Buffer.VALUE
    )
    first_add = next(i for i in range(len(p)) if p.src.counts()[i] == 2)
    assert first_add in p.deps.row(overwrites)
    plan = planned(p)
    assert verdict(plan) is None and works(plan)


def test_a_copy_whose_ends_change_later_is_a_message() -> None:
    rows = [(1, 0, 0, 0, RRC), (2, 1, 1, 0, RECV), (1, 0, 2, 0, RRC), (0, 1, 3, 0, RECV)]
    p = on_nodes(program(OpType.ALLREDUCE, 3, 1, [*rows, (0, 2, 3, 0, RECV)]), 1, "put")
    assert list(zip(p.queues.src.tolist(), p.queues.dst.tolist(), strict=True)) == [(2, 1)]


def test_auto_takes_what_it_is_told_to_choose() -> None:
    pipeline = hpds(depend(verify(replace(SMALL["ring allreduce"], gpus_per_node=2))))
    for network, choose in zip(NetworkLowering, (itemgetter(0), itemgetter(1)), strict=True):
        p = lower(pipeline, Transport.AUTO, "auto", choose)
        assert len(p) == len(lower(pipeline, Transport.AUTO, network))
        assert bool(len(p.queues)) == (network == "slots")


def test_what_another_rank_reads_is_a_message() -> None:
    """Rank 1 gets data that came to rank 0: a proxy's flag for rank 1 would not tell of them."""
    rows = [(0, 2, 0, 0, RRC), (3, 2, 1, 0, RRC), (2, 0, 2, 0, RECV), (0, 1, 3, 0, RRC)]
    p = on_nodes(program(OpType.REDUCE, 4, 1, rows, root=1), 2, "put")
    assert list(zip(p.queues.src.tolist(), p.queues.dst.tolist(), strict=True)) == [(2, 0)]
    plan = planned(p)
    assert verdict(plan) is None and works(plan)
