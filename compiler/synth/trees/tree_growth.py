"""tree_growth: a tree over all ranks, grown transfer by transfer at the prices of resources.

Prices rise exponentially with the load (`common/prices`), so trees go where there is room.

Two styles. *Star*: the rank that gets a chunk from another node gives it to all others of its node
and, `strict`, alone passes it on to other nodes; so trees are as deep as nodes are apart, and a
rank has few peers. *Free*: any rank may pass on to any. A tree along which sums are made is the
same over turned links, and may share a packing with others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4, I8
from hccc.ir.topology import F8
from hccc.synth.common.path_search import nearest
from hccc.synth.common.prices import Prices, prices, put, route_price
from hccc.synth.common.route_table import RouteTable

HIGHEST = 500.0  # exponent of a price: finite, however far the target is
ROOT, OUT = -1, -2  # in place of a parent: of the root, and of a rank that is not in the tree


class Style(NamedTuple):
    """How trees are grown.

    star, strict: the style; depth: the price of a hop, in prices of the narrowest resource; pair:
    the part of a route's price that is added for every chunk between its two ranks; inside: the
    part of the links within nodes that may be used, where these are not scarce: full, links and
    thread blocks would wait for each other; seed: of ties.
    """

    star: bool
    strict: bool
    depth: float
    pair: float
    inside: float
    seed: int


class Growth(NamedTuple):
    """Packed trees of n ranks, and the tree that grows.

    prices: a chunk adds 1 to a load; capacity: f8[R] GB/s that may be used; node: i4[n]; members:
    i8[n] ranks by node, those of node x at first[x]:first[x + 1]; noise: f8[n · n] factors of
    routes' prices; pairs: f8[n · n] chunks from rank to rank; parent, depth: i4[n] of the tree;
    reached: b1[n] the ranks in it; best: f8[n] the price at which a rank is reached, by: i4[n]
    from which other; star_price: f8[n] the price of a star from a rank to its node; target: the
    load of the busiest resource at best, chunks over GB/s; hop: the price of a hop; pair, star,
    strict: as of Style.
    """

    prices: Prices
    capacity: F8
    node: I4
    members: I8
    first: I8
    noise: F8
    pairs: F8
    parent: I4
    depth: I4
    reached: B1
    best: F8
    by: I4
    star_price: F8
    target: float
    hop: float
    pair: float
    star: bool
    strict: bool


def growth(table: RouteTable, style: Style, target: float) -> Growth:
    """Returns a state without any tree. target: chunks over GB/s."""
    n = table.n
    order = np.argsort(table.node, kind="stable")
    nodes = int(table.node.max(initial=-1)) + 1
    used = np.unique(table.use[table.use >= 0])
    capacity = np.where(table.inside_nodes(), style.inside, 1.0) * table.capacity
    hop = style.depth / float(table.capacity[used].min()) if len(used) else 0.0
    ones, goal, weight = np.ones(len(capacity)), capacity * target, 1 / capacity
    return Growth(
        prices(table.use, ones, goal, weight, ahead=0.0, highest=HIGHEST),
        capacity,
        table.node,
        order,
        np.searchsorted(table.node[order], np.arange(nodes + 1)),
        np.ones(n * n),
        np.zeros(n * n),
        np.zeros(n, np.int32),
        np.zeros(n, np.int32),
        np.zeros(n, np.bool_),
        np.zeros(n),
        np.zeros(n, np.int32),
        np.zeros(n),
        target,
        hop,
        style.pair,
        style.star,
        style.strict,
    )


@njit(allocates=False)
def row_of(g: Growth, u: int, v: int, turned: bool) -> int:
    """Returns the row of the route that brings data from u to v, or, turned, from v to u."""
    n = len(g.node)
    return v * n + u if turned else u * n + v


@njit(allocates=False)
def move(g: Growth, parent: I4, turned: bool, steepness: float, chunks: float) -> None:
    """Adds a tree to the loads (chunks 1), or takes it out (-1)."""
    for v in range(len(parent)):
        if parent[v] >= 0:
            row = row_of(g, parent[v], v, turned)
            g.pairs[row] += chunks
            put(g.prices, row, chunks, steepness)


@njit(allocates=False)
def grow(g: Growth, root: int, turned: bool) -> bool:
    """Grows a tree from `root`, in g.parent and g.depth. Tells whether it reaches all ranks."""
    n = len(g.node)
    g.parent[:], g.depth[:], g.best[:], g.reached[:] = OUT, 0, np.inf, False
    for v in range(n):
        g.star_price[v] = _star_price(g, v, turned) if g.star else 0.0
    if g.star_price[root] == np.inf:
        return False
    g.parent[root], g.reached[root] = ROOT, True
    left = n - 1 - _extend(g, root, turned)
    while left > 0:
        v = nearest(g.best, g.reached)
        if v < 0:
            return False
        g.parent[v], g.depth[v], g.reached[v] = g.by[v], g.depth[g.by[v]] + 1, True
        left -= 1 + _extend(g, v, turned)
    return True


@njit(allocates=False)
def _star_price(g: Growth, v: int, turned: bool) -> float:
    """Returns the price of sending a chunk from v to all other ranks of its node."""
    total = 0.0
    for i in range(g.first[g.node[v]], g.first[g.node[v] + 1]):
        w = g.members[i]
        if w != v:
            total += route_price(g.prices, row_of(g, v, w, turned), 0.0)
    return total


@njit(allocates=False)
def _extend(g: Growth, v: int, turned: bool) -> int:
    """Adds the star of v, and offers routes from the new ranks to the others. Returns how many
    ranks the star adds."""
    count = 0
    if g.star:
        for i in range(g.first[g.node[v]], g.first[g.node[v] + 1]):
            w = g.members[i]
            if not g.reached[w]:
                g.parent[w], g.depth[w], g.reached[w] = v, g.depth[v] + 1, True
                count += 1
    if g.strict or not g.star:
        _offer(g, v, turned)
        return count
    for i in range(g.first[g.node[v]], g.first[g.node[v] + 1]):
        _offer(g, g.members[i], turned)
    return count


@njit(allocates=False)
def _offer(g: Growth, u: int, turned: bool) -> None:
    """Lowers the price of the ranks that u reaches cheaper than others do."""
    for v in range(len(g.node)):
        if not g.reached[v]:
            row = row_of(g, u, v, turned)
            price = route_price(g.prices, row, 0.0) + g.star_price[v]
            price = price * (g.noise[row] + g.pair * g.pairs[row]) + g.hop * g.depth[u]
            if price < g.best[v]:
                g.best[v], g.by[v] = price, u
