"""repack: a packing repaired until nothing carries more than it must.

A few trees, one of which uses a resource that carries too much, are taken out and grown again at
disturbed prices, and stay if the excess has not grown (large neighbourhood search, Shaw 1998).
That fills every NIC chunk by chunk, where `pack`, which moves one tree at a time, ends one chunk
over. What is too much is lowered as it is reached.
"""

from __future__ import annotations

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4, I8
from hccc.ir.topology import F8
from hccc.synth.greedy.random_numbers import next_random
from hccc.synth.trees.pack import STEEPNESS, Packing, Roots
from hccc.synth.trees.route_table import RouteTable
from hccc.synth.trees.tree_growth import State, Taste, grow, move, reprice, row_of, state

PATIENCE = 1024  # repairs in a row that change nothing, after which there are no more
WORK = 1 << 21  # repairs times ranks², at most
MOVED = 4  # trees of one repair, at most
DISTURBED = 2.0  # prices of a repair
CLOSE = 1.005  # times the target: what carries less is not repaired
LOWER = 0.999  # of what the busiest carries, which is then too much


def repacked(
    table: RouteTable, roots: Roots, target: float, taste: Taste, packing: Packing
) -> Packing:
    """`packing`, or one whose busiest resource carries less; the arguments as `pack` has them.

    O(repairs · ranks² · longest route + repairs · trees · ranks).
    """
    s = state(table, taste, target)
    random = np.array([2 * taste.seed + 1], np.int64)
    parent, depth, load = packing.parent.copy(), packing.depth.copy(), np.zeros(len(s.cap))
    tries = max(1, WORK // table.n**2)
    _repair(s, roots.root, roots.sums, STEEPNESS[-1], tries, parent, depth, load, random)
    before = float((packing.load * table.capacity / s.cap).max(initial=0.0))
    if float((load / s.cap).max(initial=0.0)) >= before:
        return packing
    return Packing(parent, load / table.capacity, depth)


@njit(work=lambda s, root, sums, steep, tries, *_: tries * MOVED * len(s.node) ** 2)
def _repair(
    s: State,
    root: I4,
    sums: B1,
    steep: float,
    tries: int,
    parent: I4,
    depth: I4,
    load: F8,
    random: I8,
) -> None:
    """Repairs until nothing carries too much, or no repair helps; parent, depth and load change."""
    for k in range(len(parent)):
        move(s, parent[k], sums[k], steep, 1.0)
    reprice(s, steep)
    limit = _limit(s)
    excess = _excess(s, limit)
    patience = PATIENCE
    for _ in range(tries):
        if excess <= 0 and limit > s.target * CLOSE:
            limit = _limit(s)
            excess = _excess(s, limit)
        if excess <= 0 or patience == 0:
            break
        before = excess
        excess = _repair_once(s, root, sums, steep, limit, excess, parent, depth, random)
        patience = PATIENCE if excess < before - 1e-9 else patience - 1
    load[:] = s.load


@njit
def _repair_once(
    s: State,
    root: I4,
    sums: B1,
    steep: float,
    limit: float,
    excess: float,
    parent: I4,
    depth: I4,
    random: I8,
) -> float:
    """Some trees grown again, unless that is worse. The excess afterwards."""
    trees, n = parent.shape
    count = min(trees, 2 + next_random(random) % (MOVED - 1))
    chosen = np.full(count, -1, np.int64)
    chosen[0] = _overloaded(s, parent, sums, limit, random)
    for i in range(1, count):
        chosen[i] = _other(chosen, trees, random)
    old_parent, old_depth = parent[chosen], depth[chosen]
    for i in range(n * n):
        s.noise[i] = 1 + DISTURBED * (next_random(random) / (1 << 31))
    for k in chosen:
        move(s, parent[k], sums[k], steep, -1.0)
    for k in chosen[::-1]:
        grow(s, root[k], sums[k])
        parent[k], depth[k] = s.parent, s.depth
        move(s, parent[k], sums[k], steep, 1.0)
    now = _excess(s, limit)
    if now <= excess + 1e-9:
        return now
    for i, k in enumerate(chosen):
        move(s, parent[k], sums[k], steep, -1.0)
        parent[k], depth[k] = old_parent[i], old_depth[i]
        move(s, parent[k], sums[k], steep, 1.0)
    return excess


@njit
def _limit(s: State) -> float:
    """Less than the busiest resource carries, but not less than must be: chunks over GB/s."""
    most = 0.0
    for r in range(len(s.cap)):
        most = max(most, s.load[r] / s.cap[r])
    return float(max(s.target * CLOSE, most * LOWER))


@njit
def _excess(s: State, limit: float) -> float:
    """What resources carry over `limit`, in parts of it, in sum."""
    total = 0.0
    for r in range(len(s.cap)):
        total += max(0.0, s.load[r] / s.cap[r] / limit - 1)
    return float(total)


@njit
def _overloaded(s: State, parent: I4, sums: B1, limit: float, random: I8) -> int:
    """A tree, at random, of those that use one resource, at random, that is over `limit`."""
    resource, seen = -1, 0
    for r in range(len(s.cap)):
        if s.load[r] / s.cap[r] > limit:
            seen += 1
            if next_random(random) % seen == 0:
                resource = r
    tree, seen = 0, 0
    for k in range(len(parent)):
        if _uses(s, parent[k], sums[k], resource):
            seen += 1
            if next_random(random) % seen == 0:
                tree = k
    return tree


@njit
def _uses(s: State, parent: I4, turned: bool, resource: int) -> bool:
    """Whether a tree uses a resource."""
    for v in range(len(parent)):
        if parent[v] >= 0:
            row = row_of(s, parent[v], v, turned)
            for j in range(s.use.shape[1]):
                if s.use[row, j] == resource:
                    return True
    return False


@njit
def _other(chosen: I8, trees: int, random: I8) -> int:
    """A tree that is not among `chosen`, of which there are fewer than `trees`."""
    while True:
        k = next_random(random) % trees
        if not (chosen == k).any():
            return int(k)
