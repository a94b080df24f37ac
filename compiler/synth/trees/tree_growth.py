"""tree_growth: a tree over all ranks, grown transfer by transfer at the prices of what it uses.

Prices rise exponentially with what a resource carries already, so trees go where there is room.

Two styles. *Star*: who brings a chunk into a node gives it to all others of it and, `strict`, alone
passes it on to other nodes; so trees are as deep as nodes are apart, and a rank has few peers.
*Free*: any rank may pass on to any. A tree along which sums are made is the same over turned links,
and may share a packing with others.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4, I8
from hccc.ir.topology import F8
from hccc.synth.trees.route_table import RouteTable, add_load

HIGHEST = 500.0  # exponent of a price


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


class State(NamedTuple):
    """use, cap: as in RouteTable; first, members: ranks by node; load, price: f8[R]; noise:
    f8[n · n]; pairs: f8[n · n] chunks from rank to rank; parent, depth: i4[n] of the tree that
    grows; best: f8[n] the price at which a rank is reached, by: i4[n] from whom; inside: f8[n] what
    a star around a rank costs; target: what the busiest resource carries at best, chunks over
    GB/s: the scale of prices; hop: what a hop more is worth; pair, star, strict: as in Taste."""

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
    target: float
    hop: float
    pair: float
    star: bool
    strict: bool


def state(table: RouteTable, taste: Taste, target: float) -> State:
    """Nothing is packed yet."""
    n, resources = table.n, len(table.capacity)
    order = np.argsort(table.node, kind="stable")
    nodes = int(table.node.max(initial=-1)) + 1
    used = np.unique(table.use[table.use >= 0])
    capacity = np.where(near(table), taste.near, 1.0) * table.capacity
    hop = taste.depth / float(table.capacity[used].min()) if len(used) else 0.0
    return State(
        table.use,
        capacity,
        table.node,
        order,
        np.searchsorted(table.node[order], np.arange(nodes + 1)),
        np.zeros(resources),
        np.zeros(resources),
        np.ones(n * n),
        np.zeros(n * n),
        np.zeros(n, np.int32),
        np.zeros(n, np.int32),
        np.zeros(n),
        np.zeros(n, np.int32),
        np.zeros(n),
        target,
        hop,
        taste.pair,
        taste.star,
        taste.strict,
    )


def near(table: RouteTable) -> B1:
    """Which resources nothing between nodes uses, where there are several nodes: b1[R]."""
    src, dst = np.divmod(np.arange(table.n**2), table.n)
    far = table.use[table.node[src] != table.node[dst]]
    found = np.full(len(table.capacity), bool(far.size))
    found[far[far >= 0]] = False
    return found


@njit
def reprice(s: State, steep: float) -> None:
    """steep: how fast prices rise with load."""
    for r in range(len(s.cap)):
        s.price[r] = _price(s, r, steep)


@njit
def _price(s: State, r: int, steep: float) -> float:
    """Finite, however far the target is."""
    exponent = steep * (s.load[r] / s.cap[r] / s.target - 1)
    return float(math.exp(min(HIGHEST, exponent)) / s.cap[r])


@njit
def row_of(s: State, u: int, v: int, turned: bool) -> int:
    """Of the route that brings something from u to v, or, turned, from v to u."""
    n = len(s.node)
    return v * n + u if turned else u * n + v


@njit
def move(s: State, parent: I4, sums: bool, steep: float, amount: float) -> None:
    """Adds a tree to the loads, or takes it out."""
    for v in range(len(parent)):
        if parent[v] >= 0:
            row = row_of(s, parent[v], v, sums)
            add_load(s.use, row, s.load, amount)
            s.pairs[row] += amount
            for j in range(s.use.shape[1]):
                r = s.use[row, j]
                if r < 0:
                    break
                s.price[r] = _price(s, r, steep)


@njit
def _cost(s: State, row: int) -> float:
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
def grow(s: State, root: int, turned: bool) -> bool:
    """A tree from `root`, in s.parent and s.depth. Whether it reaches all."""
    n = len(s.node)
    s.parent[:], s.depth[:], s.best[:] = -2, 0, np.inf
    for v in range(n):
        s.inside[v] = _star(s, v, turned) if s.star else 0.0
    if s.inside[root] == np.inf:
        return False
    s.parent[root] = -1
    left = n - 1
    left -= _added(s, root, turned)
    while left > 0:
        v = -1
        for w in range(n):
            if s.parent[w] == -2 and (v < 0 or s.best[w] < s.best[v]):
                v = w
        if s.best[v] == np.inf:
            return False
        s.parent[v], s.depth[v] = s.by[v], s.depth[s.by[v]] + 1
        left -= 1 + _added(s, v, turned)
    return True


@njit
def _star(s: State, v: int, turned: bool) -> float:
    """The price of giving something to all others of a node."""
    total = 0.0
    for i in range(s.first[s.node[v]], s.first[s.node[v] + 1]):
        w = s.members[i]
        if w != v:
            total += _cost(s, row_of(s, v, w, turned))
    return total


@njit
def _added(s: State, v: int, turned: bool) -> int:
    """What follows when v is in the tree; how many ranks of its node are with it."""
    count = 0
    if s.star:
        for i in range(s.first[s.node[v]], s.first[s.node[v] + 1]):
            w = s.members[i]
            if s.parent[w] == -2:
                s.parent[w], s.depth[w] = v, s.depth[v] + 1
                count += 1
    if s.strict or not s.star:
        _reach(s, v, turned)
        return count
    for i in range(s.first[s.node[v]], s.first[s.node[v] + 1]):
        _reach(s, s.members[i], turned)
    return count


@njit
def _reach(s: State, u: int, turned: bool) -> None:
    """Whom u reaches cheaper than others do."""
    for v in range(len(s.node)):
        if s.parent[v] == -2:
            row = row_of(s, u, v, turned)
            cost = (_cost(s, row) + s.inside[v]) * (s.noise[row] + s.pair * s.pairs[row])
            cost += s.hop * s.depth[u]
            if cost < s.best[v]:
                s.best[v], s.by[v] = cost, u
