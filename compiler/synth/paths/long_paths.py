"""long_paths: chunks over any number of relays, where two do not join all ranks.

A ring, a line of nodes, or a torus of direct links: each chunk in turn takes the path that adds
least to the fullest of what it uses (Dijkstra's algorithm over ranks, by prices that grow
exponentially with what is carried already, as of `routed`), and what gains no bandwidth is short.
"""

from __future__ import annotations

import math

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8
from hccc.ir.topology import F8

STEEP = 16.0
HOP = 0.01  # of the price of what carries most when the bound is met: a hop more costs something
MOST_WORK = 1 << 30  # chunks · ranks²


def long_paths(use: I4, each: F8, src: I4, dst: I4, ranks: int, seed: int) -> tuple[I4, float]:
    """(the ranks after `src` on each chunk's path, -1 beyond `dst`: i4[longest path, P]; the load
    of the fullest resource), or no paths where a rank is not reached, or it would take too long.

    use: i4[n · n, L] resources of u → v, -1 beyond them, -2 first where there is no route; each:
    f8[R] what one chunk adds to the load of a resource. O(chunks · ranks²).
    """
    load = np.zeros(len(each))
    none = np.zeros((0, len(src)), np.int32)
    if len(src) * ranks**2 > MOST_WORK:
        return none, np.inf
    turn = np.random.default_rng(seed).permutation(len(src))
    at, longest = _walk(use, each, src, dst, ranks, turn, load)
    return (at[:longest] if longest >= 0 else none), float(load.max(initial=0.0))


@njit(work=lambda use, each, src, dst, n, *_: len(src) * n**2)
def _walk(use: I4, each: F8, src: I4, dst: I4, n: int, turn: I8, load: F8) -> tuple[I4, int]:
    """Changes `load`. Returns the paths and the longest one's hops, -1 where there is none."""
    paths = np.full((n, len(src)), -1, np.int32)
    price, before = np.empty(len(each)), np.empty(n, np.int32)
    longest = 0
    for r in range(len(each)):
        price[r] = each[r] * math.exp(-STEEP)
    for i in turn:
        if not _nearest(use, price, n, src[i], dst[i], each.max() * HOP, before):
            return paths, -1
        hops, v = 0, dst[i]
        while v != src[i]:
            v = before[v]
            hops += 1
        longest = max(longest, hops)
        v = dst[i]
        for k in range(hops - 1, -1, -1):
            paths[k, i] = v
            row = before[v] * n + v
            for j in range(use.shape[1]):
                r = use[row, j]
                if r < 0:
                    break
                load[r] += each[r]
                price[r] = each[r] * math.exp(min(STEEP * (load[r] - 1.0), 60.0))
            v = before[v]
    return paths, longest


@njit
def _nearest(use: I4, price: F8, n: int, source: int, target: int, hop: float, before: I4) -> bool:
    """Whether there is a path; `before` has the rank before each on the cheapest."""
    far, done = np.full(n, np.inf), np.zeros(n, np.bool_)
    far[source] = 0.0
    before[:] = -1
    for _ in range(n):
        u, least = -1, np.inf
        for w in range(n):
            if not done[w] and far[w] < least:
                u, least = w, far[w]
        if u < 0 or u == target:
            return u == target
        done[u] = True
        for v in range(n):
            row = u * n + v
            if done[v] or v == u or use[row, 0] == -2:
                continue
            total = least + hop
            for j in range(use.shape[1]):
                if use[row, j] < 0:
                    break
                total += price[use[row, j]]
            if total < far[v]:
                far[v], before[v] = total, u
    return False
