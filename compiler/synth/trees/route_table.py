"""route_table: what every transfer between two ranks of a Topology uses, as one padded table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4
from hccc.ir.topology import F8, Topology
from hccc.network.routes import routes


class RouteTable(NamedTuple):
    """node: i4[n] memory domains from 0; use: i4[n · n, L] the resources of u → v in row u · n + v,
    -1 beyond them, -2 first where there is no route; capacity: f8[R] GB/s; alpha: f8[n · n] µs."""

    node: I4
    use: I4
    capacity: F8
    alpha: F8

    @property
    def n(self) -> int:
        """How many ranks there are."""
        return len(self.node)


def route_table(t: Topology) -> RouteTable:
    """Of all pairs of ranks. O(ranks² · longest route) time and memory."""
    n = len(t)
    src, dst = (a.ravel().astype(np.int32) for a in np.divmod(np.arange(n * n), n))
    apart = np.flatnonzero(src != dst)
    found = routes(t, src[apart], dst[apart])
    counts = np.diff(found.uses.ptr)
    use = np.full((n * n, max(1, int(counts.max(initial=0)))), -1, np.int32)
    place = np.arange(len(found.uses.index)) - np.repeat(found.uses.ptr[:-1], counts)
    use[np.repeat(apart, counts), place] = found.uses.index
    use[apart[found.bandwidth <= 0], 0] = -2
    alpha = np.zeros(n * n)
    alpha[apart] = found.alpha
    node = t.dense_memory_domain().astype(np.int32)
    return RouteTable(node, use, found.capacity.astype(np.float64), alpha)


@njit
def add_load(use: I4, row: int, load: F8, amount: float) -> None:
    """Adds `amount` to all that a route uses."""
    for j in range(use.shape[1]):
        if use[row, j] < 0:
            return
        load[use[row, j]] += amount
