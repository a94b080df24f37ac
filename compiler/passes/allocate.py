"""allocate: gives every primitive a thread block of its rank.

Connection-based (NCCL, MSCCL): one block for each set of peers a rank talks to in one direction.
State-based (ResCCL §4.4, Eq. 7): connections of a rank whose active intervals never overlap
share a block. The intervals come from `timeline`; because it is an estimate, the merged plan is
estimated again and refused when it would take longer.

A block executes its primitives in the Primitives' total order, so no allocation can deadlock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hccc.ir.arrays import I4, I8
from hccc.ir.primitives import Blocks, Buffer, Operands, Primitives
from hccc.passes.grouping import group
from hccc.passes.timeline import F8, timeline

SLACK = 1.02  # a merge may lengthen the estimate by this much
ALLOCATORS = ("state", "connection")


@dataclass(frozen=True, slots=True, eq=False)
class _Connections:
    """`of`: i4[n] connection of each primitive; `rank`: i4[c] of each connection.

    Connections are numbered by rank, then by first use.
    """

    of: I4
    rank: I4


def allocate(p: Primitives, allocator: str = "state", max_blocks: int | None = None) -> Blocks:
    """`p` in thread blocks; at most `max_blocks` a rank where given.

    O(primitives + dependencies) for the two estimates, plus for each rank (blocks × intervals).
    """
    found = connections(p)
    block = np.arange(len(found.rank), dtype=np.int32)
    if allocator == "state" and len(p):
        block = _state_based(p, found)
    if max_blocks is not None:
        block = _capped(p, found, block, max_blocks)
    return Blocks(p, _within_rank(found, block)[found.of])


def connections(p: Primitives) -> _Connections:
    """The connections of `p`; a local copy joins the busiest connection's complement, see below.

    A connection is a rank, a direction and the set of peers a primitive touches. Local copies
    touch none and go to the connection with the fewest primitives of their rank.
    """
    away = _peers(p, p.src, 1) + _peers(p, p.dst, 2)
    local = away == 0
    key = np.stack([p.owner.astype(np.int64), away], 1)
    _, first, inverse = np.unique(key, axis=0, return_index=True, return_inverse=True)
    rank = p.owner[first]
    order = np.lexsort((first, rank))
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    of, rank = number[inverse.ravel()], rank[order]
    return _adopt_local(of, rank, local)


def _peers(p: Primitives, operands: Operands, direction: int) -> NDArray[np.int64]:
    """A hash of the set of other ranks each primitive touches through `operands`; 0 for none."""
    row, rank = operands.owner(), operands.rank.astype(np.int64)
    queue = operands.buffer == Buffer.QUEUE
    if queue.any():
        ends = p.queues.src if direction == 1 else p.queues.dst
        rank = rank.copy()
        rank[queue] = ends[operands.rank[queue]]
    other = rank != p.owner[row]
    mixed = (rank[other] * 4 + direction + 1) * np.int64(-7046029254386353131)
    mixed ^= mixed >> np.int64(29)
    total = np.zeros(len(p), np.int64)
    np.add.at(total, row[other], mixed * np.int64(-4658895280553007687))
    return total


def _adopt_local(of: I4, rank: I4, local: NDArray[np.bool_]) -> _Connections:
    """Moves local copies into their rank's least used other connection, where there is one."""
    if not local.any():
        return _Connections(of, rank)
    use = np.bincount(of, minlength=len(rank))
    is_local = np.zeros(len(rank), np.bool_)
    is_local[of[local]] = True
    adopter = np.arange(len(rank))
    for c in np.flatnonzero(is_local):
        lo, hi = np.searchsorted(rank, [rank[c], rank[c] + 1])
        mates = np.arange(lo, hi)[~is_local[lo:hi]]
        if len(mates):
            adopter[c] = mates[np.argmin(use[mates])]
    kept, dense = np.unique(adopter, return_inverse=True)
    return _Connections(dense.astype(np.int32)[of], rank[kept])


@njit(cache=True)
def _merge_rank(lo: int, hi: int, ptr: I8, rows: I4, start: F8, end: F8, block: I4) -> None:
    """First fit: every connection of one rank joins the first block that is idle whenever it
    is active. Intervals of a connection are sorted and disjoint."""
    for c in range(lo, hi):
        for b in range(lo, c + 1):
            clash = False
            for o in range(lo, c):
                if block[o] != b or clash:
                    continue
                i, j = ptr[c], ptr[o]
                while i < ptr[c + 1] and j < ptr[o + 1]:
                    if end[rows[i]] <= start[rows[j]]:
                        i += 1
                    elif end[rows[j]] <= start[rows[i]]:
                        j += 1
                    else:
                        clash = True
                        break
            if not clash:
                block[c] = b
                break


@njit(cache=True)
def _merge(rank: I4, ptr: I8, rows: I4, start: F8, end: F8) -> I4:
    block = np.arange(len(rank)).astype(np.int32)
    lo = 0
    for c in range(1, len(rank) + 1):
        if c == len(rank) or rank[c] != rank[lo]:
            _merge_rank(lo, c, ptr, rows, start, end, block)
            lo = c
    return block


def _state_based(p: Primitives, found: _Connections) -> I4:
    """The block of each connection, idle connections sharing one."""
    apart = timeline(p, found.of)
    ptr, rows = group(found.of, len(found.rank))
    block = _merge(found.rank, ptr, rows, apart.start, apart.end)
    merged = timeline(p, block[found.of])
    if merged.makespan > SLACK * apart.makespan:
        return np.arange(len(found.rank), dtype=np.int32)
    return block


def _capped(p: Primitives, found: _Connections, block: I4, most: int) -> I4:
    """Merges a rank's least loaded blocks until at most `most` are left."""
    load = np.bincount(block[found.of], minlength=len(block))
    block = block.copy()
    for r in range(p.dag.program.collective.n_ranks):
        lo, hi = np.searchsorted(found.rank, [r, r + 1])
        used = np.unique(block[lo:hi])
        heavy = used[np.argsort(-load[used], kind="stable")]
        bins = heavy[:most]
        weight = load[bins].astype(np.int64)
        for b in heavy[most:]:
            least = int(np.argmin(weight))
            block[lo:hi][block[lo:hi] == b] = bins[least]
            weight[least] += load[b]
    return block


def _within_rank(found: _Connections, block: I4) -> I4:
    """Block numbers from 0 at each rank, by first use: i4[connections]."""
    _, dense = np.unique(block, return_inverse=True)
    first = np.full(len(found.rank), len(block), np.int64)
    np.minimum.at(first, dense, np.arange(len(dense)))
    kept_rank = found.rank[first[first < len(block)]]
    base = np.searchsorted(kept_rank, kept_rank)
    return (dense - base[dense]).astype(np.int32)
