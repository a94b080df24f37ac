"""cuts: the narrowest_cut cuts of a flow network, by maximum flows (SciPy's Dinic).

Flows are integers, so a cut is *found* with a precision of about one part in 10⁷ of the flow. Its
weight is then summed from the exact capacities: every bound computed from a cut holds, whatever the
rounding. Supplies and demands of ranks are arcs from and to two further vertices.
"""

from __future__ import annotations

import numpy as np

from hccc.ir.arrays import B1, I8
from hccc.ir.topology import F8
from hccc.network.flow import FlowNetwork

WHOLE = 1 << 30  # the largest flow: SciPy's capacities are 32 bits wide
FREE = WHOLE + (WHOLE >> 1)  # more than can flow: never in a minimum cut
FINE = 64  # a flow less than 1/FINE of the expected flow is solved again at a finer scale
ENOUGH = 1 - 1e-7  # of the demand


class Flows:
    """Minimum cuts of one network, whose arcs stay while the ranks' supplies and demands change."""

    def __init__(self, net: FlowNetwork) -> None:
        self.net = net
        self.source, n = net.vertices, net.vertices + 2
        rank = np.arange(net.ranks)
        tail = np.concatenate([net.tail, np.full(net.ranks, n - 2), rank])
        head = np.concatenate([net.head, rank, np.full(net.ranks, n - 1)])
        both = np.concatenate([tail * n + head, head * n + tail])  # with the reverse arcs
        key, slot = np.unique(both, return_inverse=True)
        self.ends = slot[len(net.tail) : len(tail)]
        self.column = (key % n).astype(np.int32)
        self.ptr = np.searchsorted(key, np.arange(n + 1) * n).astype(np.int32)
        self.fixed = np.bincount(slot[: len(net.tail)], net.capacity, len(key))
        self.total = max(float(net.capacity[np.isfinite(net.capacity)].sum()), 1e-300)

    def cut(self, supply: F8, demand: F8) -> tuple[float, B1]:
        """Finds the least cut between the supplies and demands of ranks, f8[ranks] each (inf: any
        amount).

        Returns its weight in GB/s, and the vertices on the demand side, b1[vertices].
        """
        total = min(float(supply.sum()), float(demand.sum()), self.total)
        if total <= 0:
            return 0.0, np.full(self.net.vertices, demand.sum() > 0)
        while True:
            inside = self._inside(supply, demand, WHOLE / total)
            ranks = inside[: self.net.ranks]
            cut_weight = weight(self.net, inside) + supply[ranks].sum() + demand[~ranks].sum()
            if cut_weight >= total / FINE or cut_weight <= 0:
                return float(cut_weight), inside
            total = float(cut_weight)

    def _inside(self, supply: F8, demand: F8, scale: float) -> B1:
        from scipy.sparse import csr_array  # type: ignore[import-untyped]  # takes its time
        from scipy.sparse.csgraph import (  # type: ignore[import-untyped]
            breadth_first_order,
            maximum_flow,
        )

        capacity = self.fixed.copy()
        capacity[self.ends] = np.concatenate([supply, demand])
        rounded = np.minimum(np.rint(capacity * scale), FREE).astype(np.int32)
        n = self.net.vertices + 2
        matrix = csr_array((rounded, self.column, self.ptr), shape=(n, n))
        left = matrix - maximum_flow(matrix, self.source, n - 1, method="dinic").flow
        left.eliminate_zeros()
        inside = np.ones(n, np.bool_)
        inside[breadth_first_order(left, self.source, return_predecessors=False)] = False
        return inside[: self.net.vertices]

    def to(self, sink: int, supply: F8) -> tuple[float, B1]:
        """Finds the least `cut` if one rank takes all it can get."""
        demand = np.zeros(self.net.ranks)
        demand[sink] = np.inf
        return self.cut(np.where(demand > 0, 0.0, supply), demand)


def weight(net: FlowNetwork, inside: B1) -> float:
    """Returns the GB/s that lead into a set of vertices."""
    return float(net.capacity[net.crossing(inside)].sum())


def gather_cut(net: FlowNetwork, sinks: I8) -> B1:
    """Finds the vertices C, a sink among them, with the least capacity in per rank outside C.

    It limits a gather of equal shards to each of the sinks. By Newton's method: a cut that is too
    narrow gives the next, smaller, ratio (ForestColl §4 searches for the same ratio).
    """
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


def _per_rank_outside(net: FlowNetwork, inside: B1) -> float:
    outside = net.ranks - int(np.count_nonzero(inside[: net.ranks]))
    return weight(net, inside) / outside if outside else np.inf


def narrowest_cut(net: FlowNetwork, source: int, sinks: I8) -> B1:
    """Finds the vertices C, a sink but not the source among them, with the least capacity in."""
    flows, supply = Flows(net), np.zeros(net.ranks)
    supply[source] = np.inf
    cuts = [flows.to(int(sink), supply) for sink in sinks]
    return min(cuts, key=lambda cut: cut[0])[1]
