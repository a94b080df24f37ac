"""shared_blocks: deals the primitives of a rank to a number of thread blocks, by depth and load.

Each depth of data (`analysis/depth`) has at least one block, and more the more it moves. Within a
depth primitives are dealt so that blocks move alike, and few of one block go to the same peer: the
chunks of a block for one peer share NICs as one flow, and a flow with more to carry than others is
late.
"""

from __future__ import annotations

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8
from hccc.ir.primitives import Primitives, memory_domain

CONFLICT = 4  # what a second chunk for one peer counts, in copies


def shared_blocks(p: Primitives, depth: I4, most: int) -> I4:
    """Labels every primitive, alike for those of one block: i4[n].

    most: blocks of a rank, though each depth has at least one. depth: i4[n]. O(primitives · most +
    tasks).
    """
    if not len(p):
        return np.zeros(0, np.int32)
    load = p.src.counts() + p.dst.counts()
    order = np.lexsort((depth, p.owner))
    rank = p.owner[order].astype(np.int64)
    key = rank * (int(depth.max()) + 1) + depth[order]
    group = np.cumsum(np.diff(key, prepend=key[0]) != 0)
    groups = int(group[-1]) + 1
    total = np.bincount(group, load[order], groups).astype(np.int64)
    size = np.bincount(group, minlength=groups)
    owner = rank[np.searchsorted(group, np.arange(groups))]
    share = _shares(owner, total, size, most)
    label = np.empty(len(p), np.int32)
    label[order] = _dealt(
        group, share, load[order], _peer(p)[order], p.dag.program.collective.n_ranks
    )
    return label


def _peer(p: Primitives) -> I4:
    """Returns the rank that each primitive sends to in another memory domain, else any peer; -1 if
    none: i4[n]."""
    t, domain = p.dag.program.transfers, memory_domain(p)
    row, task = p.tasks.owner(), p.tasks.index
    peer = np.full(len(p), -1, np.int32)
    other = np.where(t["src"][task] == p.owner[row], t["dst"][task], t["src"][task])
    peer[row] = other
    far = domain[t["src"][task]] != domain[t["dst"][task]]
    peer[row[far]] = other[far]
    return peer


@njit
def _shares(owner: I8, total: I8, size: I8, most: int) -> I8:
    """Returns the number of blocks of each group: `most` for a rank together, shared by the data
    moved."""
    share = np.ones(len(owner), np.int64)
    begin = 0
    for end in range(1, len(owner) + 1):
        if end < len(owner) and owner[end] == owner[begin]:
            continue
        for _ in range(most - (end - begin)):
            best = -1
            for g in range(begin, end):
                if share[g] < size[g] and (
                    best < 0 or total[g] * share[best] > total[best] * share[g]
                ):
                    best = g
            if best < 0:
                break
            share[best] += 1
        begin = end
    return share


@njit
def _dealt(group: I8, share: I8, load: I8, peer: I4, ranks: int) -> I4:
    """Deals the primitives, in order of groups, to blocks; returns the block of each."""
    first = np.zeros(len(share) + 1, np.int64)
    first[1:] = np.cumsum(share)
    moved = np.zeros(first[-1], np.int64)
    met = np.zeros((share.max(), ranks + 1), np.int64)
    label = np.empty(len(group), np.int32)
    for i in range(len(group)):
        g = group[i]
        if i == 0 or g != group[i - 1]:
            met[:] = 0
        best, least = 0, np.int64(-1)
        for b in range(share[g]):
            cost = moved[first[g] + b] + CONFLICT * load[i] * met[b, peer[i]]
            if least < 0 or cost < least:
                best, least = b, cost
        label[i] = first[g] + best
        moved[first[g] + best] += load[i]
        met[best, peer[i]] += 1
    return label
