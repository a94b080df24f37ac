"""locations: the memory every operand of a Plan touches, in place or out of place.

A location is one slot at one rank. In place, a send and a receive slot of the same memory are
one location (`Collective.alias_offset`); staged slots are the send buffer out of place and a
copy of it in place. The proofs run once for each of the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import B1, I4, I8
from hccc.ir.collective import OpType
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Guard, Operands


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
    w = _widths(plan)
    holder, slot, chunk = _start(plan)
    count = plan.n_ranks * w.rank + int(plan.queues.length.sum())
    start = np.full(count, -1, np.int32)
    start_rank, want = start.copy(), start.copy()
    begin = _input(plan, w, holder, slot, in_place)
    start[begin], start_rank[begin] = chunk, holder
    if plan.collective.op is not OpType.CUSTOM:
        end, wanted = _wanted(plan, w)
        want[end] = wanted
    skipped = Guard.OUT_OF_PLACE if in_place else Guard.IN_PLACE
    return Locations(
        _keys(plan, w, plan.src, in_place), _keys(plan, w, plan.dst, in_place), count,
        start, start_rank, want, plan.guard != skipped,
    )  # fmt: skip


def _widths(plan: Plan) -> _Widths:
    c, ranks = plan.collective, range(plan.n_ranks)
    return _Widths(
        max(c.input_blocks(r) for r in ranks) * c.chunks_per_block,
        max(c.output_blocks(r) for r in ranks) * c.chunks_per_block,
        int(plan.scratch_slots.max()),
        int(plan.stage_slots.max()),
    )


def _slots(plan: Plan, blocks: list[int]) -> tuple[I8, I8]:
    """(rank, slot) of every slot, blocks[r] blocks at rank r."""
    counts = np.array(blocks, np.int64) * plan.collective.chunks_per_block
    rank = np.repeat(np.arange(plan.n_ranks, dtype=np.int64), counts)
    slot = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return rank, slot


def _start(plan: Plan) -> tuple[I8, I8, I8]:
    """(rank, slot, chunk) of everything in send buffers."""
    c = plan.collective
    rank, slot = _slots(plan, [c.input_blocks(r) for r in range(plan.n_ranks)])
    return rank, slot, c.input_chunk(rank, slot)


def _wanted(plan: Plan, w: _Widths) -> tuple[I8, I8]:
    """(key, chunk) of everything the receive buffers must end with."""
    c = plan.collective
    rank, slot = _slots(plan, [c.output_blocks(r) for r in range(plan.n_ranks)])
    return rank * w.rank + w.input + slot, c.output_chunk(rank, slot)


def _input(plan: Plan, w: _Widths, rank: I8, slot: I8, in_place: bool) -> I8:
    """Keys of send slots: in place those of the receive slot in the same memory, if any."""
    c = plan.collective
    own = rank * w.rank + slot
    if not in_place or c.op is OpType.CUSTOM:
        return own
    offset = np.array([c.alias_offset(r) for r in range(plan.n_ranks)], np.int64)
    room = np.array([c.output_blocks(r) for r in range(plan.n_ranks)], np.int64)
    other = slot + offset[rank]
    shared = (other >= 0) & (other < room[rank] * c.chunks_per_block)
    return np.where(shared, rank * w.rank + w.input + other, own)


def _keys(plan: Plan, w: _Widths, o: Operands, in_place: bool) -> I4:
    """The location of every operand."""
    rank, slot = o.rank.astype(np.int64), o.slot.astype(np.int64)
    base: I8 = np.zeros(8, np.int64)
    base[[Buffer.OUTPUT, Buffer.SCRATCH, Buffer.STAGE]] = (
        w.input, w.input + w.output, w.input + w.output + w.scratch,
    )  # fmt: skip
    keys = rank * w.rank + base[o.buffer] + slot
    reads_input = o.buffer == Buffer.INPUT
    if not in_place:
        reads_input = reads_input | (o.buffer == Buffer.STAGE)
    keys[reads_input] = _input(plan, w, rank[reads_input], slot[reads_input], in_place)
    queue = o.buffer == Buffer.QUEUE
    first = plan.n_ranks * w.rank + np.cumsum(plan.queues.length) - plan.queues.length
    keys[queue] = first[o.rank[queue]] + slot[queue]
    return keys.astype(np.int32)
