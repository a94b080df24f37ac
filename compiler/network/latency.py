"""latency: the least µs from rank to rank, over the paths of least α.

Dijkstra's algorithm (SciPy's) on the flow network, whose arcs have half of a route's α at either
end; the ranks between forward the data.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array  # type: ignore[import-untyped]
from scipy.sparse.csgraph import dijkstra  # type: ignore[import-untyped]

from hccc.ir.arrays import B1, I8
from hccc.ir.topology import F8, Topology
from hccc.network.flow import FlowNetwork
from hccc.network.routes import BLOCK, routes

ROWS = 256  # sources at a time, so that memory does not grow with ranks²
FEW = 64  # parts of a partition, for which `between` searches


Arcs = tuple[I8, I8, F8]  # tail, head, µs


def through_one_block(t: Topology) -> Arcs:
    """Returns arcs between two ranks by a third, which reduces and forwards in a single primitive.

    The thread block of the third rank reads over one link and writes over the other, so it pays
    only the larger α of the two. Only arcs faster than the direct way are returned; none if all
    GPUs of a memory domain reach each other with one α. O(pairs of a memory domain), times its
    ranks if the αs differ.
    """
    domain = t.dense_memory_domain()
    count = np.bincount(domain)
    found: list[Arcs] = []
    for size in np.unique(count[count > 2]).tolist():
        ranks = np.flatnonzero(count[domain] == size)
        members = ranks[np.argsort(domain[ranks], kind="stable")].reshape(-1, size)
        step = max(1, BLOCK // size**2)
        for rows in (members[i : i + step] for i in range(0, len(members), step)):
            found += _within(t, rows)
    none = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    return tuple(map(np.concatenate, zip(none, *found, strict=True)))  # type: ignore[return-value]


def _within(t: Topology, members: I8) -> list[Arcs]:
    """Returns the arcs of `through_one_block` within some memory domains, whose ranks are rows of
    `members`."""
    domains, size = members.shape
    u, v = (x.ravel() for x in np.indices((size, size)))
    apart = np.flatnonzero(u != v)
    ends = (members[:, x[apart]].ravel().astype(np.int32) for x in (u, v))
    ways = routes(t, *ends)
    alpha = np.zeros((domains, size**2))
    alpha[:, apart] = np.where(ways.bandwidth > 0, ways.alpha, np.inf).reshape(domains, -1)
    unlike = np.flatnonzero((alpha[:, apart] != alpha[:, apart[:1]]).any(1))
    found = list[Arcs]()
    for own, direct in zip(members[unlike], alpha[unlike].reshape(-1, size, size), strict=True):
        both = _smallest_larger(direct)
        a, b = np.nonzero(both < direct)
        found.append((own[a], own[b], both[a, b]))
    return found


def _smallest_larger(direct: F8) -> F8:
    """Returns for each pair, over all third ranks, the least of the larger of both α."""
    both = direct.copy()
    for third in range(len(direct)):
        np.minimum(both, np.maximum(direct[:, third, None], direct[third]), out=both)
    return both


class Distances:
    """Shortest paths by α of one FlowNetwork with additional arcs."""

    def __init__(self, net: FlowNetwork, more: Arcs | None = None) -> None:
        self.net = net
        tail, head, alpha = net.tail, net.head, net.alpha
        if more is not None:
            columns = zip((tail, head, alpha), more, strict=True)
            tail, head, alpha = (np.concatenate(pair) for pair in columns)
        key = tail * net.vertices + head
        order = np.lexsort((alpha, key))  # the fastest of parallel arcs first
        kept = order[np.r_[True, np.diff(key[order]) > 0][: len(order)]]
        ptr = np.searchsorted(key[kept], np.arange(net.vertices + 1) * net.vertices)
        size = (net.vertices, net.vertices)
        entries = (alpha[kept], head[kept].astype(np.int32), ptr.astype(np.int32))
        self.matrix = csr_array(entries, shape=size)

    def farthest(self, sources: I8) -> float:
        """Returns the µs from any of these ranks to the rank farthest from it."""
        return max((float(rows.max()) for rows in self.rows(sources)), default=0.0)

    def rows(self, sources: I8) -> list[F8]:
        """Returns the µs from each of these ranks to every rank, some ranks at a time."""
        return [
            dijkstra(self.matrix, indices=sources[i : i + ROWS])[:, : self.net.ranks]
            for i in range(0, len(sources), ROWS)
        ]

    def ring(self) -> float:
        """Returns the most µs from any rank to the next, of the last to the first."""
        n = self.net.ranks
        rows = enumerate(self.rows(np.arange(n)))
        return max(
            float(row[np.arange(len(row)), (i * ROWS + np.arange(len(row)) + 1) % n].max())
            for i, row in rows
        )

    def into(self, inside: B1) -> float:
        """Returns the µs of the shortest path into a set of ranks, b1[ranks], from outside."""
        distance = dijkstra(self.matrix, indices=np.flatnonzero(~inside), min_only=True)
        return float(distance[: self.net.ranks][inside].min())

    def between(self, label: I8) -> float:
        """Returns the µs of the shortest path between parts, of a label i8[ranks]; 0, a lower
        bound, for more than FEW parts."""
        count = int(label.max()) + 1
        return min(self.into(label == part) for part in range(count)) if count <= FEW else 0.0
