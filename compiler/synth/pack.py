"""pack: trees over which chunks are spread, or summed, so that nothing carries more than it must.

Every chunk has a tree over all ranks. A tree is grown from its root by the cheapest transfer next,
at prices that rise exponentially with what a resource carries already; then trees are taken out
one by one and grown again, pass after pass, at steeper prices (Plotkin, Shmoys, Tardos 1995; Garg,
Könemann 2007). Loads come near to the best there are in a few passes, whole trees at a time.

Two styles. *Star*: who brings a chunk into a node gives it to all others of it and, `strict`, alone
passes it on to other nodes; so trees are as deep as nodes are apart, and a rank has few peers.
*Free*: any rank may pass on to any. A tree along which sums are made is the same over turned links,
and may share a packing with others.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hccc.ir.arrays import B1, I4, I8
from hccc.ir.topology import F8
from hccc.jit.compiled import njit
from hccc.synth.route_table import RouteTable, add_load

STEEPNESS = tuple(float(turn) for turn in range(1, 11))  # of prices, pass by pass
HIGHEST = 500.0  # exponent of a price
NOISE = 0.5  # of prices: without, every seed ends in the same place
ROOT, OUT = -1, -2  # in place of a parent


class Roots(NamedTuple):
    """What there are trees of. chunk, root: i4[K]; sums: b1[K] whether its root collects."""

    chunk: I4
    root: I4
    sums: B1


class Taste(NamedTuple):
    """How trees are grown. star, strict: the style; depth: what a hop more is worth, of the price
    of the narrowest resource; pair: of a price, for every chunk that two ranks have between them;
    near: what may be used of links within nodes, where they are not what is scarce: full, they and
    thread blocks would wait for each other; seed."""

    star: bool
    strict: bool
    depth: float
    pair: float
    near: float
    seed: int


class Packing(NamedTuple):
    """parent: i4[K, n], ROOT at the root; load: f8[R] chunks over a resource's GB/s; depth:
    i4[K, n] hops from the root."""

    parent: I4
    load: F8
    depth: I4


class _State(NamedTuple):
    """use, cap: as in RouteTable; first, members: ranks by node; load, price: f8[R]; noise:
    f8[n · n]; pairs: f8[n · n] chunks from rank to rank; parent, depth: i4[n] of the tree that
    grows; best: f8[n] the price at which a rank is reached, by: i4[n] from whom; inside: f8[n] what
    a star around a rank costs."""

    use: I4
    cap: F8
    node: I4
    members: I8
    first: I8
    load: F8
    price: F8
    noise: F8
    pairs: F8
    parent: I4
    depth: I4
    best: F8
    by: I4
    inside: F8


def pack(table: RouteTable, roots: Roots, target: float, taste: Taste) -> Packing | None:
    """Trees of `roots`; None where one cannot reach all ranks, or not in this style.

    target: what the busiest resource carries at best, chunks over GB/s: the scale of prices.

    O(passes · trees · ranks² · longest route).
    """
    n, resources = table.n, len(table.capacity)
    order = np.argsort(table.node, kind="stable")
    nodes = int(table.node.max(initial=-1)) + 1
    random = np.random.default_rng(taste.seed)
    capacity = np.where(near(table), taste.near, 1.0) * table.capacity
    s = _State(
        table.use, capacity, table.node, order,
        np.searchsorted(table.node[order], np.arange(nodes + 1)),
        np.zeros(resources), np.zeros(resources), 1 + NOISE * random.random(n * n),
        np.zeros(n * n), np.zeros(n, np.int32), np.zeros(n, np.int32), np.zeros(n),
        np.zeros(n, np.int32), np.zeros(n),
    )  # fmt: skip
    turns = np.stack([random.permutation(len(roots.root)) for _ in STEEPNESS])
    used = np.unique(table.use[table.use >= 0])
    hop = taste.depth / float(table.capacity[used].min()) if len(used) else 0.0
    trees = len(roots.root)
    parent, depth = np.full((trees, n), OUT, np.int32), np.zeros((trees, n), np.int32)
    best = (parent.copy(), depth.copy(), np.zeros(resources))
    steep = np.array(STEEPNESS)
    done = _run(s, roots.root, roots.sums, target, steep, turns, hop, taste.pair, taste.star,
                taste.strict, parent, depth, *best)  # fmt: skip
    return Packing(best[0], best[2] / table.capacity, best[1]) if done else None


def near(table: RouteTable) -> B1:
    """Which resources nothing between nodes uses, where there are several nodes: b1[R]."""
    src, dst = np.divmod(np.arange(table.n**2), table.n)
    far = table.use[table.node[src] != table.node[dst]]
    found = np.full(len(table.capacity), bool(far.size))
    found[far[far >= 0]] = False
    return found


@njit
def _run(
    s: _State, root: I4, sums: B1, target: float, steep: F8, turns: I8, hop: float, pair: float,
    star: bool, strict: bool, parent: I4, depth: I4, best_parent: I4, best_depth: I4, best_load: F8,
) -> bool:  # fmt: skip
    """All passes; the packing of least load is in the last three. Whether trees reach everybody."""
    least = np.inf
    for turn in range(len(steep)):
        _prices(s, steep[turn], target)
        for k in turns[turn]:
            _move(s, parent[k], sums[k], steep[turn], target, -1.0)
            if not _grow(s, root[k], sums[k], hop, pair, star, strict):
                return False
            parent[k], depth[k] = s.parent, s.depth
            _move(s, parent[k], sums[k], steep[turn], target, 1.0)
        most = 0.0
        for r in range(len(s.cap)):
            most = max(most, s.load[r] / s.cap[r])
        if most < least - 1e-12:
            least = most
            best_parent[:], best_depth[:], best_load[:] = parent, depth, s.load
    return True


@njit
def _prices(s: _State, steep: float, target: float) -> None:
    for r in range(len(s.cap)):
        s.price[r] = _price(s, r, steep, target)


@njit
def _price(s: _State, r: int, steep: float, target: float) -> float:
    """Finite, however far the target is."""
    exponent = steep * (s.load[r] / s.cap[r] / target - 1)
    return float(math.exp(min(HIGHEST, exponent)) / s.cap[r])


@njit
def _row(s: _State, u: int, v: int, turned: bool) -> int:
    """Of the route that brings something from u to v, or, turned, from v to u."""
    n = len(s.node)
    return v * n + u if turned else u * n + v


@njit
def _move(s: _State, parent: I4, sums: bool, steep: float, target: float, amount: float) -> None:
    """Adds a tree to the loads, or takes it out."""
    for v in range(len(parent)):
        if parent[v] >= 0:
            row = _row(s, parent[v], v, sums)
            add_load(s.use, row, s.load, amount)
            s.pairs[row] += amount
            for j in range(s.use.shape[1]):
                r = s.use[row, j]
                if r < 0:
                    break
                s.price[r] = _price(s, r, steep, target)


@njit
def _cost(s: _State, row: int) -> float:
    """The price of a route; infinite where there is none."""
    if s.use[row, 0] == -2:
        return np.inf
    total = 0.0
    for j in range(s.use.shape[1]):
        if s.use[row, j] < 0:
            break
        total += s.price[s.use[row, j]]
    return total


@njit
def _grow(
    s: _State, root: int, turned: bool, hop: float, pair: float, star: bool, strict: bool
) -> bool:
    """A tree from `root`, in s.parent and s.depth. Whether it reaches all."""
    n = len(s.node)
    s.parent[:], s.depth[:], s.best[:] = -2, 0, np.inf
    for v in range(n):
        s.inside[v] = _star(s, v, turned) if star else 0.0
    if s.inside[root] == np.inf:
        return False
    s.parent[root] = -1
    left = n - 1
    left -= _added(s, root, turned, hop, pair, star, strict)
    while left > 0:
        v = -1
        for w in range(n):
            if s.parent[w] == -2 and (v < 0 or s.best[w] < s.best[v]):
                v = w
        if s.best[v] == np.inf:
            return False
        s.parent[v], s.depth[v] = s.by[v], s.depth[s.by[v]] + 1
        left -= 1 + _added(s, v, turned, hop, pair, star, strict)
    return True


@njit
def _star(s: _State, v: int, turned: bool) -> float:
    """The price of giving something to all others of a node."""
    total = 0.0
    for i in range(s.first[s.node[v]], s.first[s.node[v] + 1]):
        w = s.members[i]
        if w != v:
            total += _cost(s, _row(s, v, w, turned))
    return total


@njit
def _added(
    s: _State, v: int, turned: bool, hop: float, pair: float, star: bool, strict: bool
) -> int:
    """What follows when v is in the tree; how many ranks of its node are with it."""
    count = 0
    if star:
        for i in range(s.first[s.node[v]], s.first[s.node[v] + 1]):
            w = s.members[i]
            if s.parent[w] == -2:
                s.parent[w], s.depth[w] = v, s.depth[v] + 1
                count += 1
    if strict or not star:
        _reach(s, v, turned, hop, pair)
        return count
    for i in range(s.first[s.node[v]], s.first[s.node[v] + 1]):
        _reach(s, s.members[i], turned, hop, pair)
    return count


@njit
def _reach(s: _State, u: int, turned: bool, hop: float, pair: float) -> None:
    """Whom u reaches cheaper than others do."""
    for v in range(len(s.node)):
        if s.parent[v] == -2:
            row = _row(s, u, v, turned)
            cost = (_cost(s, row) + s.inside[v]) * (s.noise[row] + pair * s.pairs[row])
            cost += hop * s.depth[u]
            if cost < s.best[v]:
                s.best[v], s.by[v] = cost, u
