"""pack: trees over which chunks are spread, or summed, so that nothing carries more than it must.

Every chunk has a tree over all ranks. A tree is grown from its root by the cheapest transfer next
(`tree_growth`), at prices that rise exponentially with what a resource carries already; then trees
are taken out one by one and grown again, pass after pass, at steeper prices (Plotkin, Shmoys,
Tardos 1995; Garg, Könemann 2007). Loads come near to the best there are in a few passes, whole
trees at a time; `repack` does the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4, I8
from hccc.ir.topology import F8
from hccc.synth.trees.route_table import RouteTable
from hccc.synth.trees.tree_growth import State, Taste, grow, move, reprice, state

STEEPNESS = tuple(float(turn) for turn in range(1, 11))  # of prices, pass by pass
NOISE = 0.5  # of prices: without, every seed ends in the same place
ROOT, OUT = -1, -2  # in place of a parent


class Roots(NamedTuple):
    """What there are trees of. chunk, root: i4[K]; sums: b1[K] whether its root collects."""

    chunk: I4
    root: I4
    sums: B1


class Packing(NamedTuple):
    """parent: i4[K, n], ROOT at the root; load: f8[R] chunks over a resource's GB/s; depth:
    i4[K, n] hops from the root."""

    parent: I4
    load: F8
    depth: I4


def pack(table: RouteTable, roots: Roots, target: float, taste: Taste) -> Packing | None:
    """Trees of `roots`; None where one cannot reach all ranks, or not in this style.

    target: what the busiest resource carries at best, chunks over GB/s: the scale of prices.

    O(passes · trees · ranks² · longest route).
    """
    trees, n = len(roots.root), table.n
    random = np.random.default_rng(taste.seed)
    s = state(table, taste, target)
    s.noise[:] = 1 + NOISE * random.random(n * n)
    turns = np.stack([random.permutation(trees) for _ in STEEPNESS])
    parent, depth = np.full((trees, n), OUT, np.int32), np.zeros((trees, n), np.int32)
    best = (parent.copy(), depth.copy(), np.zeros(len(table.capacity)))
    done = _run(s, roots.root, roots.sums, np.array(STEEPNESS), turns, parent, depth, *best)
    return Packing(best[0], best[2] / table.capacity, best[1]) if done else None


@njit(work=lambda s, root, sums, steep, *_: len(steep) * len(root) * len(s.node) ** 2)
def _run(
    s: State,
    root: I4,
    sums: B1,
    steep: F8,
    turns: I8,
    parent: I4,
    depth: I4,
    best_parent: I4,
    best_depth: I4,
    best_load: F8,
) -> bool:
    """All passes; the packing of least load is the best of them. Whether trees reach everybody."""
    least = np.inf
    for turn in range(len(steep)):
        reprice(s, steep[turn])
        for k in turns[turn]:
            move(s, parent[k], sums[k], steep[turn], -1.0)
            if not grow(s, root[k], sums[k]):
                return False
            parent[k], depth[k] = s.parent, s.depth
            move(s, parent[k], sums[k], steep[turn], 1.0)
        most = 0.0
        for r in range(len(s.cap)):
            most = max(most, s.load[r] / s.cap[r])
        if most < least - 1e-12:
            least = most
            best_parent[:], best_depth[:], best_load[:] = parent, depth, s.load
    return True
