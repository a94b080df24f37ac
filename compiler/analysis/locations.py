"""locations: the memory every operand of a Plan touches, in place or out of place.

A location is one slot at one rank. In place, a send and a receive slot of the same memory are one
location (`Collective.alias_offset`); staged slots are the send buffer out of place and a copy of it
in place. The proofs run once for each of the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4, I8, U1, places
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Guard

SLOTS = 1 << 20  # at a time: temporaries stay small
INPUT, OUTPUT = int(Buffer.INPUT), int(Buffer.OUTPUT)


class Locations(NamedTuple):
    """The locations that P primitives touch, of L in all; compiled loops take it as it is.

    Primitive i reads the locations `src[src_ptr[i]:src_ptr[i + 1]]` and writes
    `dst[dst_ptr[i]:dst_ptr[i + 1]]`, where `active[i]`: b1[P]. `start`: i4[L], the chunk that a
    location holds at the start, or -1; `start_rank`: i4[L], the rank whose contribution that is.
    `want`: i4[L], the chunk that it must hold at the end, or -1.
    """

    src_ptr: I8
    src: I4
    dst_ptr: I8
    dst: I4
    active: B1
    start: I4
    start_rank: I4
    want: I4

    @property
    def total(self) -> int:
        """L, the number of locations."""
        return len(self.start)


def locate(plan: Plan, *, in_place: bool) -> Locations:
    """Finds the Locations of `plan`. O(operands + slots + messages + ranks)."""
    c, per = plan.collective, plan.collective.chunks_per_block
    ins, outs = (
        np.array([blocks(r) * per for r in range(plan.n_ranks)], np.int64)
        for blocks in (c.input_blocks, c.output_blocks)
    )
    base, count = _bases(plan, ins, outs, in_place)
    offset, room = _aliases(plan, outs, in_place)
    start, start_rank, want = (np.full(count, -1, np.int32) for _ in range(3))
    for rank, slot in _slots(ins):
        buffer = np.full(len(slot), Buffer.INPUT, np.uint8)
        begin = _keys(rank, buffer, slot, base, offset, room)
        start[begin], start_rank[begin] = c.input_chunk(rank, slot), rank
    if c.known:
        for rank, slot in _slots(outs):
            want[base[OUTPUT, rank] + slot] = c.output_chunk(rank, slot)
    skipped = Guard.OUT_OF_PLACE if in_place else Guard.IN_PLACE
    src, dst = (_keys(o.rank, o.buffer, o.slot, base, offset, room) for o in (plan.src, plan.dst))
    active = plan.guard != skipped
    return Locations(plan.src.ptr, src, plan.dst.ptr, dst, active, start, start_rank, want)


def _slots(counts: I8) -> Iterator[tuple[I8, I8]]:
    """Yields (rank, slot) of every slot, `counts[r]` at rank r, some ranks at a time."""
    step = max(1, SLOTS // max(1, int(counts.max(initial=0))))
    for lo in range(0, len(counts), step):
        some = counts[lo : lo + step]
        rank = np.repeat(np.arange(lo, lo + len(some), dtype=np.int64), some)
        yield rank, places(some)


def _bases(plan: Plan, ins: I8, outs: I8, in_place: bool) -> tuple[I8, int]:
    """Returns the location of slot 0 of each buffer of each rank and of each queue, i8[buffer, rank
    or queue], and the number of locations. Each rank has as many as its own slots.

    ins, outs: slots of its send and receive buffer, i8[n_ranks].
    """
    n = plan.n_ranks
    stage = plan.stage_slots if in_place else np.zeros(n, np.int64)
    regions = np.stack([ins, outs, plan.scratch_slots, stage]).astype(np.int64)
    slots = np.concatenate([regions.T.ravel(), plan.queues.length.astype(np.int64)])
    begin = np.cumsum(slots) - slots
    base = np.zeros((len(Buffer), max(n, len(plan.queues))), np.int64)
    base[: len(regions), :n] = begin[: regions.size].reshape(n, -1).T
    if not in_place:
        base[Buffer.STAGE] = base[Buffer.INPUT]
    base[Buffer.QUEUE, : len(plan.queues)] = begin[regions.size :]
    return base, int(slots.sum())


def _aliases(plan: Plan, outs: I8, in_place: bool) -> tuple[I8, I8]:
    """Returns for each rank the place of send slot 0 in its receive buffer, and that buffer's
    slots."""
    c, n = plan.collective, plan.n_ranks
    if not in_place:
        return np.zeros(n, np.int64), np.zeros(n, np.int64)
    offset = np.array([c.alias_offset(r) for r in range(n)], np.int64)
    return offset, outs


@njit
def _keys(rank: I4, buffer: U1, slot: I4, base: I8, offset: I8, room: I8) -> I4:
    """Returns the location of every operand. In place a send slot may be a receive slot's
    memory."""
    keys = np.empty(len(rank), np.int32)
    for k in range(len(rank)):
        if buffer[k] == INPUT and 0 <= slot[k] + offset[rank[k]] < room[rank[k]]:
            keys[k] = base[OUTPUT, rank[k]] + slot[k] + offset[rank[k]]
        else:
            keys[k] = base[buffer[k], rank[k]] + slot[k]
    return keys
