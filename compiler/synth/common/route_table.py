"""route_table: the resources of every pair of ranks as one padded table, for compiled loops."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hccc.ir.arrays import B1, I4, I8, places
from hccc.ir.topology import F8, Topology
from hccc.network.routes import router_of, routes

UNUSED = -1  # in a row of `use`, beyond the resources of a route
NO_ROUTE = -2  # first in a row of `use`: there is no route


class RouteTable(NamedTuple):
    """Routes of all pairs of n ranks. node: i4[n] memory domains from 0; use: i4[n · n, L] the
    resources of u → v in row u · n + v, then UNUSED, or NO_ROUTE first; capacity: f8[R] GB/s of
    all parallel links, `parallel`, i4[R], in number."""

    node: I4
    use: I4
    capacity: F8
    parallel: I4

    @property
    def n(self) -> int:
        """The number of ranks."""
        return len(self.node)

    def between_nodes(self) -> B1:
        """Tells which resources routes between nodes use: b1[R]."""
        src, dst = np.divmod(np.arange(self.n**2), self.n)
        used = self.use[(self.node[src] != self.node[dst]) & (self.use[:, 0] >= 0)]
        found = np.zeros(len(self.capacity), np.bool_)
        found[used[used >= 0]] = True
        return found

    def inside_nodes(self) -> B1:
        """Tells which resources no route between nodes uses; none of a single node: b1[R]."""
        found: B1 = ~self.between_nodes() & bool((self.node != self.node[:1]).any())
        return found


def route_table(t: Topology, ranks: I8 | None = None) -> RouteTable:
    """Returns the routes between all ranks of `t`, or between `ranks`.

    O(ranks² · longest route) time and memory.
    """
    ranks = np.arange(len(t)) if ranks is None else ranks
    n = len(ranks)
    src, dst = np.divmod(np.arange(n * n), n)
    pair = np.flatnonzero(src != dst)
    found = routes(t, *(ranks[end[pair]].astype(np.int32) for end in (src, dst)))
    counts = found.uses.counts()
    use = np.full((n * n, max(1, int(counts.max(initial=0)))), UNUSED, np.int32)
    use[np.repeat(pair, counts), places(counts)] = found.uses.index
    use[pair[found.bandwidth <= 0], 0] = NO_ROUTE
    node = np.unique(t.memory_domain[ranks], return_inverse=True)[1].astype(np.int32)
    parallel = router_of(t).parallels(found.resource)
    return RouteTable(node, use, found.capacity.astype(np.float64), parallel)
