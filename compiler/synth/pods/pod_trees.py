"""pod_trees: trees that bring a chunk from one rank of a pod to all others, for each kind of pod.

Several trees from a rank share its chunks. A pod whose ports are shared alike by all ranks needs
only stars: the rank that has a chunk sends it to all others. Where one rank gets most of the chunks
that enter, others must pass them on, and where links differ or are missing, trees follow them:
greedy finds such trees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import I8, places
from hccc.ir.topology import F8
from hccc.synth.greedy.chunked import Chunked
from hccc.synth.greedy.greedy import greedy
from hccc.synth.greedy.schedule import Schedule, gather_all

SEEDS = 2  # greedy schedules for each number of trees
MOST = 16  # trees from a rank
AS_GOOD = 1e-6  # part of a load up to which two are equal


@dataclass(frozen=True, slots=True, eq=False)
class PodTrees:
    """V trees from each of the G ranks of a pod; the first count[i] of rank i differ, the others
    repeat them. parent, step: i8[G, V, G] the rank that sends to each rank, and the step (from 0);
    -1 for the root. count: i8[G]."""

    parent: I8
    step: I8
    count: I8

    @property
    def leaf(self) -> np.ndarray:
        """Whether a rank passes nothing on in a tree: b1[G, V, G]."""
        found = np.ones(self.parent.shape, np.bool_)
        i, v, j = np.nonzero(self.parent >= 0)
        found[i, v, self.parent[i, v, j]] = False
        return found


def pod_trees(c: Chunked, weight: F8, enough: float) -> PodTrees | None:
    """Returns the trees that load the busiest resource of a pod least, or the first whose load is
    at most `enough`, chunks over GB/s; stars where they are as good. None where some rank is not
    reached. weight: f8[G] chunks that enter at each rank."""
    best, least = None, np.inf
    for trees in _candidates(c, weight):
        if (load := _load(c, trees, weight) / c.rate) < least * (1 - AS_GOOD):
            best, least = trees, load
        if least <= enough * (1 + AS_GOOD):
            break
    return best


def _candidates(c: Chunked, weight: F8) -> Iterator[PodTrees]:
    """Yields stars, where there are routes for them, and trees that greedy finds."""
    n = c.n
    if (c.use[:, 0] != -2).all():
        yield _stars(n)
    for most in sorted({1, 4, min(MOST, n - 1), MOST}) if n > 1 else []:
        count = np.maximum(1, np.rint(most * weight / weight.max())).astype(np.int64)
        demand = gather_all(np.repeat(np.arange(n), count), n)
        for seed in range(SEEDS):
            made = greedy(c, demand, seed)
            if made is not None:
                yield _trees(made, count)


def _stars(n: int) -> PodTrees:
    """Returns one star from each of n ranks."""
    parent = np.repeat(np.arange(n), n).reshape(n, 1, n).copy()
    parent[np.arange(n), 0, np.arange(n)] = -1
    return PodTrees(parent, np.where(parent < 0, -1, 0), np.ones(n, np.int64))


def _trees(made: Schedule, count: I8) -> PodTrees:
    """Returns the trees that the chunks of a schedule follow. count: i8[G] chunks of each rank."""
    n, most = len(count), int(count.max())
    root, tree = np.repeat(np.arange(n), count), places(count)
    parent, step = np.full((2, n, most, n), -1)
    parent[root[made.chunk], tree[made.chunk], made.dst] = made.src
    step[root[made.chunk], tree[made.chunk], made.dst] = made.step
    other = np.arange(most) % count[:, None]
    rows = np.arange(n)[:, None]
    return PodTrees(parent[rows, other], step[rows, other], count)


def _load(c: Chunked, s: PodTrees, weight: F8) -> float:
    """Returns the steps that the busiest resource takes for the chunks that enter."""
    i, v, j = np.nonzero(s.parent >= 0)
    own = v < s.count[i]
    i, v, j = i[own], v[own], j[own]
    use = c.use[s.parent[i, v, j] * c.n + j]
    each = np.broadcast_to((weight / s.count)[i][:, None], use.shape)
    total = np.bincount(use[use >= 0], each[use >= 0], len(c.capacity))
    return float((total / c.capacity).max(initial=0.0))
