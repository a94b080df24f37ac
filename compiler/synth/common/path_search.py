"""path_search: the cheapest path between two ranks, over any number of relays."""

from __future__ import annotations

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4
from hccc.ir.topology import F8
from hccc.synth.common.prices import Prices, route_price


@njit(allocates=False)
def nearest(distance: F8, reached: B1) -> int:
    """Returns the rank of least distance that is not reached yet, the first of equals; -1 where
    all other distances are infinite."""
    best, least = -1, np.inf
    for v in range(len(distance)):
        if not reached[v] and distance[v] < least:
            best, least = v, distance[v]
    return best


@njit
def cheapest_path(p: Prices, source: int, target: int, hop: float, before: I4) -> bool:
    """Finds the cheapest path by Dijkstra's algorithm and tells whether there is one. O(ranks²).

    hop: the price of a hop besides those of resources; before: i4[n], set to the rank before each
    rank on its cheapest path, -1 where it has none.
    """
    n = len(before)
    distance, done = np.full(n, np.inf), np.zeros(n, np.bool_)
    distance[source] = 0.0
    before[:] = -1
    for _ in range(n):
        u = nearest(distance, done)
        if u < 0 or u == target:
            return u == target
        done[u] = True
        for v in range(n):
            if done[v]:
                continue
            total = route_price(p, u * n + v, distance[u] + hop)
            if total < distance[v]:
                distance[v], before[v] = total, u
    return False
