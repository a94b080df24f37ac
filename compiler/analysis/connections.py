"""connections: groups the primitives of a rank that share a thread block before blocks are merged.

NCCL and MSCCL give each connection a thread block; here a connection is a rank, a direction and the
set of peers a primitive touches (a fused primitive touches several).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hccc.ir.arrays import B1, I4
from hccc.ir.hashing import mixed
from hccc.ir.primitives import (
    Buffer,
    Guard,
    Operands,
    Primitives,
    Transport,
    memory_domain,
    network_puts,
)


@dataclass(frozen=True, slots=True, eq=False)
class Connections:
    """`of`: i4[n] connection of each primitive; `rank`: i4[c] of each connection.

    Connections are numbered by rank, then by first use.
    """

    of: I4
    rank: I4


def connections(p: Primitives) -> Connections:
    """Returns the connections of `p`. O(n log n).

    A primitive that adds a value brought by a proxy is on a connection from the sender's rank. A
    local copy with one reading connection is on that one: copies for several are made at once.
    Other local copies join the connection with the fewest primitives of their rank.
    """
    away = _peers(p, p.src, 1) + _peers(p, p.dst, 2)
    if p.transport is Transport.MIXED and not away.all():
        away = np.where(away == 0, _brought(p), away)
    if not away.all():
        away = np.where(away == 0, _only_reader(p, away), away)
    local = away == 0
    return _adopt_local(_numbered(p.owner, away), local)


def copies_apart(p: Primitives, connected: Connections) -> Connections:
    """Returns the connections, and one more at each rank for its copies to its own output. O(n log
    n).

    Nobody waits for those copies; on a connection of their own they delay no others.
    """
    return split(p, connected, (p.guard == Guard.OUT_OF_PLACE).astype(np.int32))


def split(p: Primitives, connected: Connections, label: I4) -> Connections:
    """Cuts every connection into one for each `label` of its primitives: i4[n], at least 0."""
    width = int(label.max(initial=0)) + 1
    return _numbered(p.owner, connected.of.astype(np.int64) * width + label)


def _numbered(owner: I4, key: NDArray[np.int64]) -> Connections:
    """Makes a connection for every key of a rank: owner i4[n], key i8[n]."""
    order = np.lexsort((key, owner))  # stable: first uses lead their connection
    new = np.ones(len(owner), np.bool_)
    new[1:] = (np.diff(owner[order]) != 0) | (np.diff(key[order]) != 0)
    first = order[new]
    by_use = np.lexsort((first, owner[first]))
    number = np.empty(len(first), np.int32)
    number[by_use] = np.arange(len(first), dtype=np.int32)
    of = np.empty(len(owner), np.int32)
    of[order] = number[np.cumsum(new) - 1]
    return Connections(of, owner[first][by_use])


def _peers(p: Primitives, operands: Operands, direction: int) -> NDArray[np.int64]:
    """Hashes the set of other ranks that each primitive touches through `operands`; 0 for none."""
    row, rank = operands.owner(), operands.rank.astype(np.int64)
    queue = operands.buffer == Buffer.QUEUE
    if queue.any():
        ends = p.queues.src if direction == 1 else p.queues.dst
        rank = rank.copy()
        rank[queue] = ends[operands.rank[queue]]
    other = rank != p.owner[row]
    total = np.zeros(len(p), np.int64)
    np.add.at(total, row[other], mixed(rank[other] * 4 + direction + 1).view(np.int64))
    return total


def _brought(p: Primitives) -> NDArray[np.int64]:
    """Returns a negative number of the rank whose network put each primitive reads in scratch
    memory, 0 for none: i8[n]."""
    scratch = (p.dst.buffer == Buffer.SCRATCH) & network_puts(p.dst, p.owner, memory_domain(p))
    place = p.dst.rank[scratch].astype(np.int64) << 32 | p.dst.slot[scratch]
    known, first = np.unique(place, return_index=True)
    sender = p.owner[p.dst.owner()[scratch]][first]
    row = p.src.owner()
    own = np.flatnonzero((p.src.buffer == Buffer.SCRATCH) & (p.src.rank == p.owner[row]))
    key = p.src.rank[own].astype(np.int64) << 32 | p.src.slot[own]
    at = np.searchsorted(known, key)
    hit = at < len(known)
    hit[hit] = known[at[hit]] == key[hit]
    found = np.zeros(len(p), np.int64)
    found[row[own[hit]]] = -1 - sender[at[hit]].astype(np.int64)
    return found


def _only_reader(p: Primitives, away: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns for each primitive the one connection, numbered as in `away`, of all primitives of
    its rank that wait for it; 0 if there are none or several: i8[n]."""
    after, before = p.deps.owner(), p.deps.index
    near = (p.owner[after] == p.owner[before]) & (away[after] != 0)
    reader, copy = away[after[near]], before[near]
    found = np.zeros(len(p), np.int64)
    found[copy] = reader
    several = copy[reader != found[copy]]
    found[several] = 0
    return found


def _adopt_local(connected: Connections, local: B1) -> Connections:
    """Moves local copies into their rank's least used other connection, where there is one."""
    if not local.any():
        return connected
    of, rank = connected.of, connected.rank
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
    return Connections(dense.astype(np.int32)[of], rank[kept])
