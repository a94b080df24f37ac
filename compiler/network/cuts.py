"""cuts: the narrowest cuts of a flow network, by maximum flows (SciPy's Dinic).

Flows are integers, so a cut is *found* to about one part in 10⁷ of what flows; what it then
*weighs* is summed from the capacities themselves: every bound made of cuts is one, whatever the
rounding. What a flow comes from and goes to are arcs from and to two further vertices.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array  # type: ignore[import-untyped]
from scipy.sparse.csgraph import breadth_first_order, maximum_flow  # type: ignore[import-untyped]

from hccc.ir.arrays import B1, I8
from hccc.ir.topology import F8
from hccc.network.flow import Network

WHOLE = 1 << 30  # what flows at most: SciPy's capacities are 32 bits wide
FREE = WHOLE + (WHOLE >> 1)  # more than can flow: never in a minimum cut
FINE = 64  # a flow less than this part of what was expected is solved again, finer
ENOUGH = 1 - 1e-7  # of what was asked for


class Flows:
    """Minimum cuts of one Network, whose arcs stay while what is given and taken changes."""

    def __init__(self, net: Network) -> None:
        self.net = net
        self.source, n = net.vertices, net.vertices + 2
        rank = np.arange(net.ranks)
        tail = np.concatenate([net.tail, np.full(net.ranks, n - 2), rank])
        head = np.concatenate([net.head, rank, np.full(net.ranks, n - 1)])
        both = np.concatenate([tail * n + head, head * n + tail])  # and what flows back
        key, slot = np.unique(both, return_inverse=True)
        self.ends = slot[len(net.tail) : len(tail)]
        self.column = (key % n).astype(np.int32)
        self.ptr = np.searchsorted(key, np.arange(n + 1) * n).astype(np.int32)
        self.fixed = np.bincount(slot[: len(net.tail)], net.capacity, len(key))
        self.most = max(float(net.capacity[np.isfinite(net.capacity)].sum()), 1e-300)

    def cut(self, given: F8, taken: F8) -> tuple[float, B1]:
        """The least cut between what ranks are given and what they take, f8[ranks] each (inf:
        any amount): its weight, and the vertices on the takers' side, b1[vertices]."""
        total = min(float(given.sum()), float(taken.sum()), self.most)
        if total <= 0:
            return 0.0, np.full(self.net.vertices, taken.sum() > 0)
        while True:
            inside = self._inside(given, taken, WHOLE / total)
            ranks = inside[: self.net.ranks]
            weighed = weight(self.net, inside) + given[ranks].sum() + taken[~ranks].sum()
            if weighed >= total / FINE or weighed <= 0:
                return float(weighed), inside
            total = float(weighed)

    def _inside(self, given: F8, taken: F8, scale: float) -> B1:
        capacity = self.fixed.copy()
        capacity[self.ends] = np.concatenate([given, taken])
        rounded = np.minimum(np.rint(capacity * scale), FREE).astype(np.int32)
        n = self.net.vertices + 2
        matrix = csr_array((rounded, self.column, self.ptr), shape=(n, n))
        left = matrix - maximum_flow(matrix, self.source, n - 1, method="dinic").flow
        left.eliminate_zeros()
        inside = np.ones(n, np.bool_)
        inside[breadth_first_order(left, self.source, return_predecessors=False)] = False
        return inside[: self.net.vertices]

    def to(self, sink: int, given: F8) -> tuple[float, B1]:
        """`cut` when one rank takes all it can."""
        taken = np.zeros(self.net.ranks)
        taken[sink] = np.inf
        return self.cut(np.where(taken > 0, 0.0, given), taken)


def weight(net: Network, inside: B1) -> float:
    """GB/s that lead into a set of vertices."""
    return float(net.capacity[net.crossing(inside)].sum())


def gathered(net: Network, sinks: I8) -> B1:
    """The vertices C, a sink among them, with the least capacity in for each rank that is not in
    C: what a gather of equal shards to each of the sinks waits for. By Newton's method: a cut that
    is too narrow gives the next, smaller, ratio (ForestColl §4 searches for the same ratio)."""
    flows, first = Flows(net), np.full(net.ranks, np.inf)
    best = flows.to(int(sinks[0]), first)[1]
    ratio = _per_rank_outside(net, best)
    for sink in sinks:
        while True:
            least, inside = flows.to(int(sink), np.full(net.ranks, ratio))
            if least >= (net.ranks - 1) * ratio * ENOUGH:
                break
            if (per_rank := _per_rank_outside(net, inside)) >= ratio:
                break
            best, ratio = inside, per_rank
    return best


def _per_rank_outside(net: Network, inside: B1) -> float:
    outside = net.ranks - int(np.count_nonzero(inside[: net.ranks]))
    return weight(net, inside) / outside if outside else np.inf


def narrowest(net: Network, source: int, sinks: I8) -> B1:
    """The vertices C, a sink but not the source among them, with the least capacity in."""
    flows, given = Flows(net), np.zeros(net.ranks)
    given[source] = np.inf
    cuts = [flows.to(int(sink), given) for sink in sinks]
    return min(cuts, key=lambda cut: cut[0])[1]
