"""images: a schedule moved by the cluster's symmetry, once for each part of the data.

A solver loads alike ranks unlike: one forwards what another could. A call of several parts can give
each part the schedule with the ranks of every node moved on by as many places, if the cluster does
not notice: then every rank of a node has every other's work in turn. Nodes may be of unequal sizes;
a cluster that notices, as where a GPU failed, has the one image that is the schedule itself.
"""

from __future__ import annotations

import numpy as np

from hccc.ir.arrays import I4, I8
from hccc.synth.greedy.chunked import Chunked
from hccc.synth.greedy.schedule import Schedule

MOST = 4  # images: more have more thread blocks than a rank may take


def moves(c: Chunked) -> I8:
    """Returns the most moves, up to MOST, that the cluster does not notice, the first of which
    moves nothing: i8[moves, ranks] where each rank goes. O(ranks² · longest route)."""
    size = np.bincount(c.node)
    first = np.append(0, np.cumsum(size))
    place = np.arange(c.n) - first[c.node]
    for count in range(MOST, 1, -1):
        if (size % count).any():
            continue
        part = size[c.node] // count
        found = np.stack([first[c.node] + (place + k * part) % size[c.node] for k in range(count)])
        if _alike(c, found[1]):
            return found
    return np.arange(c.n)[None]


def _alike(c: Chunked, to: I8) -> bool:
    """Tells whether all routes stay the same, resource for resource, with ranks moved so."""
    n = c.n
    moved = c.use.reshape(n, n, -1)[np.ix_(to, to)].ravel()
    pairs = np.unique(np.stack([c.use.ravel(), moved]), axis=1)
    one_to_one = all(len(np.unique(side)) == pairs.shape[1] for side in pairs)
    none = pairs < 0
    if not one_to_one or (none[0] != none[1]).any() or (pairs[0] != pairs[1])[none[0]].any():
        return False
    here, there = c.capacity[pairs[:, ~none[0]]]
    return bool((here == there).all())


def images(s: Schedule, owner: I4, to: I8, chunk: I8) -> Schedule:
    """Returns all images of `s`, of a chunk a rank, beside each other. owner: the rank of each
    chunk of `s`; to: i8[images, ranks]; chunk: i8[images, ranks] the number of each image's chunk,
    by the rank that owns it."""
    each = [
        (one[move[owner]][s.chunk], move[s.src], move[s.dst])
        for move, one in zip(to, chunk, strict=True)
    ]
    chunks, src, dst = (np.concatenate(part) for part in zip(*each, strict=True))
    return Schedule(chunks, src, dst, np.tile(s.step, len(to)))
