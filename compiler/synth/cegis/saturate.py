"""saturate: HeteCCL's GREEDYHEURISTIC (App. H), the candidate that its search begins with.

In every step every link carries as many chunks that its receiver lacks as it can by itself, blind
to all other transfers. The schedule is short, violates the shared groups, and sends chunks twice
(Fig. 5 b).
"""

from __future__ import annotations

import numpy as np

from hccc.ir.arrays import I8
from hccc.synth.greedy.chunked import Chunked
from hccc.synth.greedy.least_steps import linked_ranks
from hccc.synth.greedy.schedule import CopyDemand, Schedule


def saturate(c: Chunked, demand: CopyDemand) -> Schedule:
    """Returns a complete schedule, hardly ever a valid one. O(chunks · links) a step."""
    src, dst = np.nonzero(linked_ranks(c))
    row = c.use[src * c.n + dst]
    room = np.where(row >= 0, c.capacity[row], np.iinfo(np.int64).max).min(axis=1)
    has = demand.pre.copy()
    parts: list[tuple[I8, I8, I8, I8]] = []
    while (demand.post & ~has).any():
        possible = has[:, src] & ~has[:, dst]
        chunk, link = np.nonzero(possible & (np.cumsum(possible, axis=0) <= room))
        has[chunk, dst[link]] = True
        parts.append((chunk, src[link], dst[link], np.full(len(chunk), len(parts))))
    columns = [np.concatenate(part) for part in zip(*parts, strict=True)]
    return Schedule(*columns) if parts else Schedule(*np.zeros((4, 0), np.int32))
