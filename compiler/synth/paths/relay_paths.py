"""relay_paths: a path for each chunk from one rank to one rank, straight or over up to two relays.

A chunk goes straight, by a rank of its source's node or its destination's, or by one of each. Every
resource has a price that rises exponentially with its load (`common/prices`). Each chunk is taken
off its path and given the cheapest one again, pass after pass, at steeper and steeper prices.
Relays have a price too, so that chunks go straight where nothing is gained.

Sources: Aspnes et al., "On-line Routing of Virtual Circuits with Applications to Load Balancing and
Machine Scheduling" (1997), for prices; rip-up and re-route as routers of circuits do it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8
from hccc.ir.topology import F8
from hccc.synth.common.prices import Prices, prices, put, reprice, route_price
from hccc.synth.common.route_table import RouteTable

STEEPNESS = (8.0, 16.0, 32.0, 64.0, 128.0)
PASSES = 2  # of each steepness
MET = 1.01  # load up to which the bound is met
MOST_WORK = 1 << 28  # paths that a pass looks at; beyond, none has two relays
RELAY = 0.1  # load that a relay must take off the fullest resource, about
HIGHEST = 60.0  # exponent of a price
NONE = -1  # in place of a relay
UNPLACED = -2  # in place of the first relay of a chunk that has no path yet


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """relays: i4[hops, P] those of each chunk, in order, then NONE; load: of the fullest resource,
    over the load at which the bound is met."""

    relays: I4
    load: float

    @property
    def relayed(self) -> int:
        """The number of relays of all chunks together."""
        return int(np.count_nonzero(self.relays >= 0))

    @property
    def order(self) -> tuple[float, int]:
        """Less is better: the load, where the bound is not met, then the relays."""
        return max(self.load, MET), self.relayed


class _PathState(NamedTuple):
    """Paths of P chunks over n ranks, N nodes. node: i8[n]; members: i4[n] ranks by node, those of
    node x at first[x]:first[x + 1]; src, dst: i4[P] ranks; relay: i4[2, P] as of Paths; carried:
    i4[n · n] chunks from rank to rank; chunks: from one rank to another; twice: whether paths may
    have two relays."""

    prices: Prices
    node: I8
    members: I4
    first: I8
    src: I4
    dst: I4
    relay: I4
    carried: I4
    chunks: int
    twice: bool


def relay_paths(
    table: RouteTable, chunk: F8, src: I4, dst: I4, chunks: int, seed: int
) -> Paths | int:
    """Returns the best paths found for chunks from src to dst, or a chunk that has no path.

    chunk: f8[R] what one adds to a load, 1 if the bound is met; src, dst: i4[P]; chunks: of each
    pair of ranks. O(chunks · ranks of a node² · longest route) a pass.
    """
    node = table.node.astype(np.int64)
    size = np.bincount(node)
    ones = np.ones(len(chunk))
    p = prices(table.use, chunk, ones, chunk / chunk.max(), ahead=1.0, highest=HIGHEST)
    relay = np.stack([np.full(len(src), UNPLACED, np.int32), np.full(len(src), NONE, np.int32)])
    s = _PathState(
        p,
        node,
        np.argsort(node, kind="stable").astype(np.int32),
        np.concatenate([[0], np.cumsum(size)]),
        src,
        dst,
        relay,
        np.zeros(len(node) ** 2, np.int32),
        chunks,
        bool(len(src) * size.max() ** 2 <= MOST_WORK),
    )
    turns = np.random.default_rng(seed)
    best: Paths | None = None
    for steepness in STEEPNESS:
        for _ in range(PASSES):
            lost = _pass(s, turns.permutation(len(src)), steepness)
            if lost >= 0:
                return int(lost)
            now = Paths(s.relay.copy(), float(p.load.max(initial=0.0)))
            if best is None or now.order < best.order:
                best = now
            elif best.load <= MET:
                return best
    assert best is not None
    return best


def _looked_at(s: _PathState, turn: I8, _: float) -> float:
    """Returns how many hops of paths a pass looks at, at most."""
    most = float(np.diff(s.first).max())
    return len(turn) * (4 * most + (3 * most**2 if s.twice else 0))


@njit(allocates=False, work=_looked_at)
def _pass(s: _PathState, turn: I8, steepness: float) -> int:
    """Gives every chunk, in `turn`, the cheapest path. Returns a chunk that has no path, or -1."""
    relay_price = math.exp(-steepness * RELAY)
    reprice(s.prices, steepness)
    for i in turn:
        if s.relay[0, i] != UNPLACED:
            _put_path(s, i, -1.0, steepness)
        price, a, b = _cheapest(s, s.src[i], s.dst[i], relay_price)
        if price == math.inf:
            return int(i)
        s.relay[0, i], s.relay[1, i] = a, b
        _put_path(s, i, 1.0, steepness)
    return -1


@njit(allocates=False)
def _put_path(s: _PathState, i: int, count: float, steepness: float) -> None:
    """Adds chunk i to its path (count 1), or takes it off (-1)."""
    n, at = len(s.node), s.src[i]
    for k in range(3):
        to = s.relay[k, i] if k < 2 else s.dst[i]
        if to >= 0:
            row = at * n + to
            s.carried[row] += int(count)
            put(s.prices, row, count, steepness)
            at = to


@njit(allocates=False)
def _hop(s: _PathState, u: int, v: int, relay_price: float) -> float:
    """Returns the price of a hop. Pairs share a NIC evenly, so the fullest pair ends last: every
    chunk that a pair carries has a price, too."""
    row = u * len(s.node) + v
    return route_price(s.prices, row, relay_price / s.chunks * s.carried[row])


@njit(allocates=False)
def _cheapest(s: _PathState, u: int, v: int, relay_price: float) -> tuple[float, int, int]:
    """Returns the price and the relays of the cheapest path: straight, by one rank of either node,
    or by one of each; the first of equals."""
    best, a, b = _hop(s, u, v, relay_price), NONE, NONE
    if best <= relay_price:
        return best, a, b
    x, y = s.node[u], s.node[v]
    for side in range(1 if x == y else 2):
        near = x if side == 0 else y
        for i in range(s.first[near], s.first[near + 1]):
            w = s.members[i]
            if w != u and w != v:
                total = relay_price + _hop(s, u, w, relay_price)
                total += _hop(s, w, v, relay_price)
                if total < best:
                    best, a, b = total, w, NONE
    if not s.twice or best <= 2 * relay_price:
        return best, a, b
    for i in range(s.first[x], s.first[x + 1]):
        w = s.members[i]
        if w in (u, v):
            continue
        begin = 2 * relay_price + _hop(s, u, w, relay_price)
        if begin >= best:
            continue
        for j in range(s.first[y], s.first[y + 1]):
            z = s.members[j]
            if z != u and z != v and z != w:
                total = begin + _hop(s, w, z, relay_price)
                total += _hop(s, z, v, relay_price)
                if total < best:
                    best, a, b = total, w, z
    return best, a, b
