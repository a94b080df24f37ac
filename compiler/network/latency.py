"""latency: the least µs before anything can be somewhere else, over the paths of least α.

Dijkstra's algorithm (SciPy's) on the flow network, whose arcs have half of a route's α at either
end; ranks between forward what they get.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array  # type: ignore[import-untyped]
from scipy.sparse.csgraph import dijkstra  # type: ignore[import-untyped]

from hccc.ir.arrays import B1, I8
from hccc.ir.topology import F8
from hccc.network.flow import Network

ROWS = 256  # sources at a time, so that memory does not grow with ranks²
FEW = 64  # parts


class Distances:
    """Shortest paths of one Network by α."""

    def __init__(self, net: Network) -> None:
        self.net = net
        key = net.tail * net.vertices + net.head
        order = np.lexsort((net.alpha, key))  # of arcs side by side the fastest
        kept = order[np.r_[True, np.diff(key[order]) > 0][: len(order)]]
        ptr = np.searchsorted(key[kept], np.arange(net.vertices + 1) * net.vertices)
        size = (net.vertices, net.vertices)
        entries = (net.alpha[kept], net.head[kept].astype(np.int32), ptr.astype(np.int32))
        self.matrix = csr_array(entries, shape=size)

    def farthest(self, sources: I8) -> float:
        """µs from any of these ranks to the rank farthest from it."""
        return max((float(rows.max()) for rows in self._rows(sources)), default=0.0)

    def _rows(self, sources: I8) -> list[F8]:
        return [
            dijkstra(self.matrix, indices=sources[i : i + ROWS])[:, : self.net.ranks]
            for i in range(0, len(sources), ROWS)
        ]

    def ring(self) -> float:
        """µs from any rank to the next one, the last one's being the first; at most."""
        n = self.net.ranks
        rows = enumerate(self._rows(np.arange(n)))
        return max(
            float(row[np.arange(len(row)), (i * ROWS + np.arange(len(row)) + 1) % n].max())
            for i, row in rows
        )

    def into(self, inside: B1) -> float:
        """µs of the shortest path into a set of ranks, b1[ranks], from outside."""
        distance = dijkstra(self.matrix, indices=np.flatnonzero(~inside), min_only=True)
        return float(distance[: self.net.ranks][inside].min())

    def between(self, label: I8) -> float:
        """µs of the shortest path between parts, of a label i8[ranks]; 0, which holds anyway,
        where there are more than FEW of them."""
        count = int(label.max()) + 1
        return min(self.into(label == part) for part in range(count)) if count <= FEW else 0.0
