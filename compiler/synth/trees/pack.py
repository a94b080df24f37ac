"""pack: trees over which chunks are spread, or summed, so that no resource carries too much.

Every chunk has a tree over all ranks. `pack` grows each from its root by the cheapest transfer next
(`tree_growth`), at prices that rise exponentially with the load; then it takes trees out one by one
and grows them again, pass after pass, at steeper prices (Plotkin, Shmoys, Tardos 1995; Garg,
Könemann 2007). Loads come near to the best there are in a few passes.

Passes move one tree at a time and end one chunk over on some NIC. `repack` repairs that: it takes
out a few trees at once, one of which uses a resource that carries too much, grows them again at
disturbed prices, and keeps them if the excess has not grown (large neighbourhood search, Shaw
1998). The load that counts as too much is lowered as it is reached.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4, I8
from hccc.ir.topology import F8
from hccc.synth.common.prices import reprice
from hccc.synth.common.random_numbers import next_random
from hccc.synth.common.route_table import RouteTable
from hccc.synth.trees.tree_growth import OUT, Growth, Style, grow, growth, move, row_of

STEEPNESS = tuple(float(turn) for turn in range(1, 11))  # of prices, pass by pass
NOISE = 0.5  # largest part that is added to a price at random: without, all seeds end alike
FAILURES = 1024  # repairs in a row without gain, after which repairing ends
WORK = 1 << 21  # repairs times ranks², at most
MOVED = 4  # trees of one repair, at most
DISTURBED = 2.0  # as NOISE, of a repair
CLOSE = 1.005  # times the target: a load below it is not repaired
LOWER = 0.999  # times the largest load: the next limit


class Roots(NamedTuple):
    """The trees to pack. root: i4[K]; sums: b1[K] whether its root collects."""

    root: I4
    sums: B1


class Packing(NamedTuple):
    """parent: i4[K, n], ROOT at the root; load: f8[R] chunks over a resource's GB/s; depth:
    i4[K, n] hops from the root."""

    parent: I4
    load: F8
    depth: I4


class _Trees(NamedTuple):
    """K trees: root, sums as of Roots; parent, depth as of Packing, which change."""

    root: I4
    sums: B1
    parent: I4
    depth: I4


def pack(table: RouteTable, roots: Roots, target: float, style: Style) -> Packing | None:
    """Packs one tree per root. None if some tree cannot reach all ranks in this style.

    target: the load of the busiest resource at best, chunks over GB/s: the scale of prices.

    O(passes · trees · ranks² · longest route).
    """
    trees, n = len(roots.root), table.n
    random = np.random.default_rng(style.seed)
    g = growth(table, style, target)
    g.noise[:] = 1 + NOISE * random.random(n * n)
    turns = np.stack([random.permutation(trees) for _ in STEEPNESS])
    parent, depth = np.full((trees, n), OUT, np.int32), np.zeros((trees, n), np.int32)
    now, best = (_Trees(*roots, parent.copy(), depth.copy()) for _ in range(2))
    load = np.zeros(len(table.capacity))
    if not _pack(g, np.array(STEEPNESS), turns, now, best, load):
        return None
    return Packing(best.parent, load / table.capacity, best.depth)


@njit(work=lambda g, steepness, turns, now, *_: turns.size * now.parent.shape[1] ** 2)
def _pack(g: Growth, steepness: F8, turns: I8, now: _Trees, best: _Trees, load: F8) -> bool:
    """Makes all passes, and sets `best` and `load` to the trees whose largest load is least.
    Returns False where a tree does not reach all ranks."""
    least = np.inf
    for turn in range(len(steepness)):
        reprice(g.prices, steepness[turn])
        for k in turns[turn]:
            move(g, now.parent[k], now.sums[k], steepness[turn], -1.0)
            if not _grow(g, now, k, steepness[turn]):
                return False
        most = _largest_load(g)
        if most < least - 1e-12:
            least = most
            best.parent[:], best.depth[:], load[:] = now.parent, now.depth, g.prices.load
    return True


@njit(allocates=False)
def _grow(g: Growth, trees: _Trees, k: int, steepness: float) -> bool:
    """Grows tree k and adds it to the loads. Tells whether it reaches all ranks."""
    reaches = grow(g, trees.root[k], trees.sums[k])
    if reaches:
        for v in range(len(g.parent)):
            trees.parent[k, v], trees.depth[k, v] = g.parent[v], g.depth[v]
        move(g, trees.parent[k], trees.sums[k], steepness, 1.0)
    return reaches


@njit(allocates=False)
def _largest_load(g: Growth) -> float:
    """Returns the load of the busiest resource: chunks over GB/s."""
    most = 0.0
    for r in range(len(g.capacity)):
        most = max(most, g.prices.load[r] / g.capacity[r])
    return float(most)


def repack(
    table: RouteTable, roots: Roots, target: float, style: Style, packing: Packing
) -> Packing:
    """Returns a packing whose busiest resource carries less, or `packing`; arguments as of `pack`.

    O(repairs · ranks² · longest route + repairs · trees · ranks).
    """
    g = growth(table, style, target)
    random = np.array([2 * style.seed + 1], np.int64)
    trees = _Trees(*roots, packing.parent.copy(), packing.depth.copy())
    tries = max(1, WORK // table.n**2)
    _repair(g, trees, STEEPNESS[-1], tries, random)
    load = g.prices.load
    before = float((packing.load * table.capacity / g.capacity).max(initial=0.0))
    if float((load / g.capacity).max(initial=0.0)) >= before:
        return packing
    return Packing(trees.parent, load / table.capacity, trees.depth)


@njit(work=lambda g, trees, steepness, tries, *_: tries * MOVED * trees.parent.shape[1] ** 2)
def _repair(g: Growth, trees: _Trees, steepness: float, tries: int, random: I8) -> None:
    """Repairs `trees` until no load is too much, or repairs gain nothing."""
    for k in range(len(trees.parent)):
        move(g, trees.parent[k], trees.sums[k], steepness, 1.0)
    reprice(g.prices, steepness)
    limit = _limit(g)
    excess = _excess(g, limit)
    left = FAILURES
    for _ in range(tries):
        if excess <= 0 and limit > g.target * CLOSE:
            limit = _limit(g)
            excess = _excess(g, limit)
        if excess <= 0 or left == 0:
            break
        before = excess
        excess = _repair_once(g, trees, steepness, limit, excess, random)
        left = FAILURES if excess < before - 1e-9 else left - 1


@njit
def _repair_once(
    g: Growth, trees: _Trees, steepness: float, limit: float, excess: float, random: I8
) -> float:
    """Grows some trees again, takes that back if it is worse, and returns the excess."""
    count = min(len(trees.parent), 2 + next_random(random) % (MOVED - 1))
    chosen = np.full(count, -1, np.int64)
    chosen[0] = _overloaded(g, trees, limit, random)
    for i in range(1, count):
        chosen[i] = _other(chosen, len(trees.parent), random)
    old_parent, old_depth = trees.parent[chosen], trees.depth[chosen]
    for row in range(len(g.noise)):
        g.noise[row] = 1 + DISTURBED * (next_random(random) / (1 << 31))
    for k in chosen:
        move(g, trees.parent[k], trees.sums[k], steepness, -1.0)
    for k in chosen[::-1]:
        _grow(g, trees, k, steepness)
    now = _excess(g, limit)
    if now <= excess + 1e-9:
        return now
    for i, k in enumerate(chosen):
        move(g, trees.parent[k], trees.sums[k], steepness, -1.0)
        trees.parent[k], trees.depth[k] = old_parent[i], old_depth[i]
        move(g, trees.parent[k], trees.sums[k], steepness, 1.0)
    return excess


@njit(allocates=False)
def _limit(g: Growth) -> float:
    """Returns the load that counts as too much: below the largest, at least near the target."""
    return max(g.target * CLOSE, _largest_load(g) * LOWER)


@njit(allocates=False)
def _excess(g: Growth, limit: float) -> float:
    """Returns the sum of the loads over `limit`, in parts of it."""
    total = 0.0
    for r in range(len(g.capacity)):
        total += max(0.0, g.prices.load[r] / g.capacity[r] / limit - 1)
    return float(total)


@njit(allocates=False)
def _overloaded(g: Growth, trees: _Trees, limit: float, random: I8) -> int:
    """Picks a random resource loaded above `limit`, then a random tree that uses it."""
    resource, seen = -1, 0
    for r in range(len(g.capacity)):
        if g.prices.load[r] / g.capacity[r] > limit:
            seen += 1
            if next_random(random) % seen == 0:
                resource = r
    tree, seen = 0, 0
    for k in range(len(trees.parent)):
        if _uses(g, trees.parent[k], trees.sums[k], resource):
            seen += 1
            if next_random(random) % seen == 0:
                tree = k
    return tree


@njit(allocates=False)
def _uses(g: Growth, parent: I4, turned: bool, resource: int) -> bool:
    """Tells whether a tree uses a resource."""
    use = g.prices.use
    for v in range(len(parent)):
        if parent[v] >= 0:
            row = row_of(g, parent[v], v, turned)
            for j in range(use.shape[1]):
                if use[row, j] == resource:
                    return True
    return False


@njit
def _other(chosen: I8, trees: int, random: I8) -> int:
    """Picks a random tree that is not among `chosen`, of which there are fewer than `trees`."""
    while True:
        k = next_random(random) % trees
        if not (chosen == k).any():
            return int(k)
