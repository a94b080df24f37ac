"""locations: the memory every operand of a Plan touches, in place or out of place.

A location is one slot at one rank. In place, a send and a receive slot of the same memory are
one location (`Collective.alias_offset`); staged slots are the send buffer out of place and a
copy of it in place. The proofs run once for each of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hccc.compiled import njit
from hccc.ir.arrays import B1, I4, I8, U1
from hccc.ir.collective import OpType
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Guard

SLOTS = 1 << 20  # at a time: temporaries stay small
INPUT, OUTPUT, QUEUE = (int(b) for b in (Buffer.INPUT, Buffer.OUTPUT, Buffer.QUEUE))


@dataclass(frozen=True, slots=True)
class _Widths:
    """Slots of each region of a rank, the same at every rank (the largest).

    Location = rank · rank_width + region offset + slot; queue messages follow all ranks.
    """

    input: int
    output: int
    scratch: int
    stage: int

    @property
    def rank(self) -> int:
        return self.input + self.output + self.scratch + self.stage


@dataclass(frozen=True, slots=True, eq=False)
class Locations:
    """`src`, `dst`: i4 location of every operand; `count` locations in all.

    `start`: i4[count], the chunk a location holds at the start, or -1; `start_rank`: whose
    piece. `want`: i4[count], the chunk it must hold at the end, or -1. `active`: b1[P].
    """

    src: I4
    dst: I4
    count: int
    start: I4
    start_rank: I4
    want: I4
    active: B1


def locate(plan: Plan, *, in_place: bool) -> Locations:
    """The Locations of `plan`. O(operands + slots)."""
    w, c = _widths(plan), plan.collective
    memory = _memory(plan, w, in_place)
    count = plan.n_ranks * w.rank + int(plan.queues.length.sum())
    start, start_rank, want = (np.full(count, -1, np.int32) for _ in range(3))
    for rank, slot in _slots(plan, c.input_blocks):
        begin = _keys(rank, np.full(len(slot), Buffer.INPUT, np.uint8), slot, w.rank, *memory)
        start[begin], start_rank[begin] = c.input_chunk(rank, slot), rank
    if c.op is not OpType.CUSTOM:
        for rank, slot in _slots(plan, c.output_blocks):
            want[rank * w.rank + w.input + slot] = c.output_chunk(rank, slot)
    skipped = Guard.OUT_OF_PLACE if in_place else Guard.IN_PLACE
    src, dst = (_keys(o.rank, o.buffer, o.slot, w.rank, *memory) for o in (plan.src, plan.dst))
    return Locations(src, dst, count, start, start_rank, want, plan.guard != skipped)


def _widths(plan: Plan) -> _Widths:
    c, ranks = plan.collective, range(plan.n_ranks)
    return _Widths(
        max(c.input_blocks(r) for r in ranks) * c.chunks_per_block,
        max(c.output_blocks(r) for r in ranks) * c.chunks_per_block,
        int(plan.scratch_slots.max()),
        int(plan.stage_slots.max()),
    )


def _slots(plan: Plan, blocks: Callable[[int], int]) -> Iterator[tuple[I8, I8]]:
    """(rank, slot) of every slot, `blocks(r)` blocks at rank r, some ranks at a time."""
    per = plan.collective.chunks_per_block
    counts = np.array([blocks(r) * per for r in range(plan.n_ranks)], np.int64)
    step = max(1, SLOTS // max(1, int(counts.max(initial=0))))
    for lo in range(0, plan.n_ranks, step):
        some = counts[lo : lo + step]
        rank = np.repeat(np.arange(lo, lo + len(some), dtype=np.int64), some)
        yield rank, np.arange(len(rank)) - np.repeat(np.cumsum(some) - some, some)


def _memory(plan: Plan, w: _Widths, in_place: bool) -> tuple[I8, I8, I8, I8]:
    """What `_keys` needs to know: for each rank, where send slot 0 is in its receive buffer and
    how many slots that has; where each region of a rank begins, and each queue."""
    c, ranks = plan.collective, range(plan.n_ranks)
    offset, room = np.zeros(plan.n_ranks, np.int64), np.zeros(plan.n_ranks, np.int64)
    if in_place and c.op is not OpType.CUSTOM:
        offset[:] = [c.alias_offset(r) for r in ranks]
        room[:] = [c.output_blocks(r) * c.chunks_per_block for r in ranks]
    base: I8 = np.zeros(8, np.int64)
    base[[Buffer.OUTPUT, Buffer.SCRATCH, Buffer.STAGE]] = (
        w.input, w.input + w.output, w.input + w.output + w.scratch,
    )  # fmt: skip
    if not in_place:
        base[Buffer.STAGE] = base[Buffer.INPUT]
    queue = plan.n_ranks * w.rank + np.cumsum(plan.queues.length, dtype=np.int64)
    return offset, room, base, queue - plan.queues.length


@njit
def _keys(
    rank: I4, buffer: U1, slot: I4, width: int, offset: I8, room: I8, base: I8, queue: I8
) -> I4:
    """The location of every operand. In place a send slot may be a receive slot's memory."""
    keys = np.empty(len(rank), np.int32)
    for k in range(len(rank)):
        if buffer[k] == QUEUE:
            keys[k] = queue[rank[k]] + slot[k]
            continue
        other = slot[k] + offset[rank[k]]
        if buffer[k] == INPUT and 0 <= other < room[rank[k]]:
            keys[k] = rank[k] * width + base[OUTPUT] + other
        else:
            keys[k] = rank[k] * width + base[buffer[k]] + slot[k]
    return keys
