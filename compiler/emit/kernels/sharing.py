"""sharing: a number of every primitive → a table in which thread blocks share equal sequences.

A column has one number for each primitive of a plan. A thread block's part of it is a sequence;
equal sequences are stored once, and every block has the offset of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import B1, I4, I8, entries, places
from hccc.ir.plan import Plan

MIX = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio, odd
SHIFT = np.uint64(29)


@dataclass(frozen=True, slots=True, eq=False)
class PlanBlocks:
    """The thread blocks of a plan.

    rank: i4[blocks]; tb: i8[blocks], their numbers; ptr: i8[blocks + 1], their primitives; of,
    position: i8[P], the block of each primitive and its place in it.
    """

    rank: I4
    tb: I8
    ptr: I8
    of: I4
    position: I8

    @classmethod
    def of_plan(cls, plan: Plan) -> PlanBlocks:
        """Returns the blocks of `plan`."""
        position = places(np.diff(plan.tb_ptr))
        return cls(plan.block_rank(), places(plan.n_tb), plan.tb_ptr, plan.block_of(), position)


def entries_needed(blocks: PlanBlocks, rows: I8, values: I8) -> int:
    """Returns the table entries of a column that has `values` at `rows` (ascending). O(rows log
    rows).

    Assumes that only blocks of one number share: others do not have their offsets in common.
    """
    block = blocks.of[rows]
    first = np.flatnonzero(np.diff(block, prepend=-1))
    digest = _sums(_mixed(values, blocks.position[rows]), np.append(first, len(rows)))
    digest += _mixed(blocks.tb[block[first]], np.zeros(len(first), np.int64))
    _, one = np.unique(digest, return_index=True)
    return int(np.diff(first, append=len(rows))[one].sum())


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """values: i8[n], the different sequences; at: i8[blocks], where each block's begins."""

    values: I8
    at: I8


def shared(blocks: PlanBlocks, column: I8, used: B1, end: int | None = None) -> Shared:
    """Returns the sequences of `column` (i8[P]) in the blocks that are `used`, each followed by
    `end`.

    Unused blocks have the offset 0. O(P + blocks log blocks).
    """
    own = np.flatnonzero(used)
    alike = _alike(blocks, column)[own]
    kept, which = np.unique(alike, return_inverse=True)
    ptr, pick = entries(blocks.ptr, kept)
    tail = 0 if end is None else 1
    begin = ptr + tail * np.arange(len(ptr))
    values = np.full(int(begin[-1]), 0 if end is None else end, np.int64)
    values[places(np.diff(ptr)) + np.repeat(begin[:-1], np.diff(ptr))] = column[pick]
    at = np.zeros(len(used), np.int64)
    at[own] = begin[which]
    return Shared(values, at)


def _alike(blocks: PlanBlocks, column: I8) -> I8:
    """Returns for each block the first one with the same sequence: i8[blocks]."""
    digest = _sums(_mixed(column, blocks.position), blocks.ptr)
    _, first, which = np.unique(digest, return_index=True, return_inverse=True)
    found = first[which]
    length = np.diff(blocks.ptr)
    other = blocks.ptr[found[blocks.of]] + blocks.position
    if np.array_equal(length, length[found]) and np.array_equal(column[other], column):
        return found
    return np.arange(len(length))  # different sequences with one digest: as good as never


def _sums(values: I8, ptr: I8) -> I8:
    """Returns the sum of each group of `values`, which may be empty, modulo 2**64."""
    total = np.zeros(len(values) + 1, np.uint64)
    np.cumsum(values, out=total[1:])
    return total[ptr[1:]] - total[ptr[:-1]]


def _mixed(values: I8, position: I8) -> I8:
    """Returns a digest of each value at its position; the digests of a sequence are added."""
    mixed = (values.astype(np.uint64) + np.uint64(1)) * MIX
    mixed ^= mixed >> SHIFT
    mixed *= (2 * position.astype(np.uint64) + np.uint64(3)) * MIX
    mixed ^= mixed >> SHIFT
    return mixed * MIX
