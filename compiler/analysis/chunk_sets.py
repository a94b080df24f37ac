"""chunk_sets: chunks in sets, so that few of a set go from one rank to one peer at one depth.

Chunks of a thread block go to a peer one after the other; they share a NIC with what other blocks
send as one. Where some blocks have more for a peer than others, NICs are shared by halves that
should be thirds. Sets with blocks of their own make flows alike, and wait less for each other.
"""

from __future__ import annotations

import numpy as np

from hccc.ir.arrays import I4, I8
from hccc.ir.primitives import Primitives, memory_domain
from hccc.jit.compiled import njit


def chunk_sets(p: Primitives, depth: I4, count: int) -> I4:
    """The set of every primitive's chunk, 0 to count - 1: i4[n]. depth: i4[n] of each.

    Chunks are taken one by one, into the set in which they meet fewest that they share flows with:
    of what crosses the network, or of everything where nothing does. O(tasks · count) and sorting.
    """
    if count < 2 or not len(p):
        return np.zeros(len(p), np.int32)
    t, domain = p.dag.program.transfers, memory_domain(p)
    owner, task = p.tasks.owner(), p.tasks.index
    far = domain[t["src"][task]] != domain[t["dst"][task]]
    if far.any():
        owner, task = owner[far], task[far]
    c = p.dag.program.collective
    ranks = t["src"][task].astype(np.int64) * c.n_ranks + t["dst"][task]
    flow = np.unique(ranks * (int(depth.max()) + 1) + depth[owner], return_inverse=True)[1]
    chunk = t["chunk"][task]
    order = np.argsort(chunk, kind="stable")
    ptr = np.searchsorted(chunk[order], np.arange(c.n_chunks + 1))
    return _dealt(ptr, flow[order], count)[p.chunk]


@njit
def _dealt(ptr: I8, flow: I8, count: int) -> I4:
    """The set of each chunk. flow: those of chunk k at ptr[k]:ptr[k + 1]."""
    found = np.zeros(len(ptr) - 1, np.int32)
    met = np.zeros((flow.max() + 1, count), np.int64)
    size = np.zeros(count, np.int64)
    for k in range(len(found)):
        best, least = 0, np.int64(-1)
        for i in range(count):
            shared = size[i]
            for j in range(ptr[k], ptr[k + 1]):
                shared += len(found) * met[flow[j], i]
            if least < 0 or shared < least:
                best, least = i, shared
        found[k] = best
        size[best] += 1
        for j in range(ptr[k], ptr[k + 1]):
            met[flow[j], best] += 1
    return found
