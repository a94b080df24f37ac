"""long_paths: chunks over any number of relays, where two do not join all ranks.

A ring, a line of nodes, or a torus of direct links: each chunk in turn takes the path that adds
least to the fullest of its resources, by prices that rise exponentially with the load. Every hop
has a price too, so that paths are short where length gains nothing.
"""

from __future__ import annotations

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8
from hccc.ir.topology import F8
from hccc.synth.common.path_search import cheapest_path
from hccc.synth.common.prices import Prices, prices, put, reprice
from hccc.synth.common.route_table import RouteTable
from hccc.synth.paths.relay_paths import HIGHEST, NONE, Paths

STEEPNESS = 16.0
HOP = 0.01  # price of a hop, in prices of the busiest resource when the bound is met
MOST_WORK = 1 << 30  # chunks · ranks²


def long_paths(table: RouteTable, chunk: F8, src: I4, dst: I4, seed: int) -> Paths | None:
    """Returns paths for chunks from src to dst; None where a rank is not reached, or it would take
    too long.

    chunk: f8[R] what one adds to a load, 1 if the bound is met; src, dst: i4[P].
    O(chunks · ranks²).
    """
    if len(src) * table.n**2 > MOST_WORK:
        return None
    p = prices(table.use, chunk, np.ones(len(chunk)), chunk, ahead=0.0, highest=HIGHEST)
    turn = np.random.default_rng(seed).permutation(len(src))
    stops, longest = _place(p, src, dst, table.n, turn)
    if longest < 0:
        return None
    stops = stops[:longest]
    return Paths(np.where(stops == dst, NONE, stops), float(p.load.max(initial=0.0)))


@njit(work=lambda p, src, dst, n, turn: len(turn) * n**2)
def _place(p: Prices, src: I4, dst: I4, n: int, turn: I8) -> tuple[I4, int]:
    """Gives every chunk, in `turn`, the cheapest path. Returns the ranks after `src` on each path,
    -1 beyond `dst`, i4[n, P], and the hops of the longest; -1 where there is no path."""
    stops = np.full((n, len(src)), -1, np.int32)
    before = np.empty(n, np.int32)
    longest = 0
    reprice(p, STEEPNESS)
    hop = p.chunk.max() * HOP
    for i in turn:
        if not cheapest_path(p, src[i], dst[i], hop, before):
            return stops, -1
        hops, v = 0, dst[i]
        while v != src[i]:
            v = before[v]
            hops += 1
        longest = max(longest, hops)
        v = dst[i]
        for k in range(hops - 1, -1, -1):
            stops[k, i] = v
            put(p, before[v] * n + v, 1.0, STEEPNESS)
            v = before[v]
    return stops, longest
