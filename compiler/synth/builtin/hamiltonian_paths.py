"""hamiltonian_paths: the cheapest path through all GPUs of a node, from one of them to another.

Exact (Held and Karp) for nodes of up to EXACT GPUs, which a subset's bit mask can number; larger
ones go to the cheapest GPU left at every step.
"""

from __future__ import annotations

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I8
from hccc.ir.topology import F8

EXACT = 10


@njit
def _table(weight: F8, first: int) -> F8:
    """Returns cost[s, v]: the cheapest path from `first` over exactly the GPUs of mask s that ends
    at v."""
    n = len(weight)
    cost = np.full((1 << n, n), np.inf)
    cost[1 << first, first] = 0.0
    for s in range(1 << n):
        for v in range(n):
            here = cost[s, v]
            if here == np.inf:
                continue
            for w in range(n):
                if not s >> w & 1 and here + weight[v, w] < cost[s | 1 << w, w]:
                    cost[s | 1 << w, w] = here + weight[v, w]
    return cost


@njit
def _back(cost: F8, weight: F8, last: int) -> I8:
    """Returns the path behind the table's entry for all GPUs and `last`; of equals the ascending
    one."""
    n = len(weight)
    path = np.empty(n, np.int64)
    s, v = (1 << n) - 1, last
    for k in range(n - 1, -1, -1):
        path[k] = v
        before = s ^ (1 << v)
        for u in range(n - 1, -1, -1):
            if before >> u & 1 and cost[before, u] + weight[u, v] == cost[s, v]:
                s, v = before, u
                break
    return path


@njit
def _greedy(weight: F8, first: int, last: int) -> I8:
    n = len(weight)
    path = np.full(n, last, np.int64)
    left = np.ones(n, np.bool_)
    left[first] = left[last] = False
    path[0] = first
    for k in range(1, n - 1):
        best = -1
        for v in range(n):
            if left[v] and (best < 0 or weight[path[k - 1], v] < weight[path[k - 1], best]):
                best = v
        path[k] = best
        left[best] = False
    return path


@njit
def _length(weight: F8, path: I8) -> float:
    total = 0.0
    for k in range(len(path) - 1):
        total += weight[path[k], path[k + 1]]
    return total


@njit
def _all_equal(weight: F8) -> bool:
    """Tells whether every hop costs the same, as behind a switch."""
    for u in range(len(weight)):
        for v in range(len(weight)):
            if u != v and weight[u, v] != weight[0, 1]:
                return False
    return True


def _tried(weight: F8) -> float:
    """Returns how many hops `costs` tries, up to a factor of GPUs for large nodes."""
    n = len(weight)
    return n**3 * 2.0**n if n <= EXACT else float(n**3)


@njit(work=_tried)
def costs(weight: F8) -> F8:
    """Returns the cost of the path from u over all others to v: f8[n, n], inf where there is none.

    weight: f8[n, n] of one hop. O(n²) where all are equal; O(2^n n³) up to EXACT GPUs, else O(n⁴).
    """
    n = len(weight)
    cost = np.full((n, n), np.inf)
    if n > EXACT and _all_equal(weight):
        cost[:] = (n - 1) * weight[0, 1]
        np.fill_diagonal(cost, np.inf)
        return cost
    for u in range(n):
        if n <= EXACT:
            cost[u] = _table(weight, u)[(1 << n) - 1]
        else:
            for v in range(n):
                if u != v:
                    cost[u, v] = _length(weight, _greedy(weight, u, v))
    return cost


@njit
def path(weight: F8, first: int, last: int) -> I8:
    """Returns the path that `costs` found from `first` to `last`: i8[n]."""
    if len(weight) > EXACT:
        return _greedy(weight, first, last)
    return _back(_table(weight, first), weight, last)
