"""partitions: partitions of the ranks with little capacity between their parts.

They limit an Allreduce (`bound`): for a partition into m parts, by the capacity between parts over
m − 1. The capacity f(S) into a set S is submodular, so the least ratio can be found exactly, by
Newton's method over truncations of f (Dilworth; Cunningham 1985): O(ranks) cuts a step. This is
done for up to EXACT ranks, or else up to EXACT nodes; for more, only partitions along the
topology's structure are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import I8, places
from hccc.ir.topology import F8, Level, Topology
from hccc.network.cuts import Flows
from hccc.network.flow import FlowNetwork

EXACT = 64
Inflow = Callable[[FlowNetwork], tuple[F8, I8]]


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """One partition of the ranks. label: i8[ranks], the part of each, 0 to count - 1; capacity: the
    most GB/s between parts; resources: the resources of that capacity, numbered as in `routes`."""

    label: I8
    count: int
    capacity: float
    resources: I8

    @property
    def ratio(self) -> float:
        """Capacity between parts over the number of parts but one, in GB/s."""
        return self.capacity / (self.count - 1)


def structural_partitions(t: Topology) -> Iterator[I8]:
    """Yields the partitions along the topology's structure, each a label i8[ranks]: single ranks,
    ranks that share a NIC, a crossbar or a mesh, nodes, leaves, spines."""
    rank = np.arange(len(t))
    domains = [t.domain[level] for level in (Level.PORT, Level.LEAF, Level.SPINE)]
    for of in (rank, t.port[Level.NIC], t.mesh, t.node, *domains):
        label = np.unique(np.where(of < 0, rank + len(t) * 2, of), return_inverse=True)[1]
        if label.max() > 0:
            yield label


def inflow(net: FlowNetwork) -> tuple[F8, I8]:
    """Returns the most GB/s that can enter each rank, f8[ranks], and the arcs that carry it,
    i8[arcs].

    Arcs enter a rank, or a hub that belongs to it. A hub belongs to a rank if only this rank leads
    to it, and to every rank to which a free arc leads from it. O(arcs log arcs).
    """
    owner = _owned(net)
    tail, head = owner[net.tail], owner[net.head]
    free = np.isinf(net.capacity) & (head < net.ranks)
    own = np.arange(net.ranks)
    x, p = np.concatenate([tail[free], own]), np.concatenate([head[free], own])
    key = np.unique(x * net.ranks + p)
    x, p = key // net.ranks, key % net.ranks  # vertex x is with rank p
    first, last = np.searchsorted(x, head), np.searchsorted(x, head, side="right")
    count = last - first
    arc = np.repeat(np.arange(len(head)), count)
    rank = p[np.repeat(first, count) + places(count)]
    inner = np.isin(tail[arc] * net.ranks + rank, key)
    rank, arc = rank[~inner], arc[~inner]
    return np.bincount(rank, net.capacity[arc], net.ranks).astype(np.float64), arc


def _owned(net: FlowNetwork) -> I8:
    """Returns for every vertex the rank that alone leads to it, also over other vertices of that
    rank; else the vertex itself, also if a free arc leads from it elsewhere: i8[vertices]."""
    owner = np.arange(net.vertices)
    while True:
        low, high = np.full(net.vertices, net.vertices), np.full(net.vertices, -1)
        np.minimum.at(low, net.head, owner[net.tail])
        np.maximum.at(high, net.head, owner[net.tail])
        new = np.where((low == high) & (high < net.ranks), high, owner)
        new[: net.ranks] = owner[: net.ranks]
        if np.array_equal(new, owner):
            break
        owner = new
    free = np.isinf(net.capacity)
    while True:
        apart = owner[net.tail] != owner[net.head]
        away = np.concatenate([net.tail[free & apart], net.head[apart]])
        away = away[(away >= net.ranks) & (owner[away] != away)]
        if not len(away):
            return owner
        owner[away] = away


def least_inflow(net: FlowNetwork) -> tuple[F8, I8]:
    """Returns the `inflow` with the best assignment of hubs, by a cut for each rank."""
    flows, supply = Flows(net), np.full(net.ranks, np.inf)
    cuts = [flows.to(rank, supply) for rank in range(net.ranks)]
    arcs = [np.flatnonzero(net.crossing(inside)) for _, inside in cuts]
    return np.array([capacity for capacity, _ in cuts]), np.concatenate(arcs)


def partition_of(net: FlowNetwork, label: I8, into_each: Inflow = inflow) -> Partition:
    """Makes the Partition of `label`, with the capacity between its parts.

    Every byte between parts leaves one part and enters another. So the capacity is at most the sum
    of inflows, the sum of outflows, and the sum of both over all parts but one.
    """
    small = net.contracted(label)
    (into, entering), (out, leaving) = into_each(small), into_each(small.reversed())
    both = into + out
    least, arcs = min(
        (float(into.sum()), entering),
        (float(out.sum()), leaving),
        (float(both.sum() - both.max()), np.concatenate([entering, leaving])),
        key=lambda choice: choice[0],
    )
    numbers = small.resource[arcs]
    return Partition(label, small.ranks, least, np.unique(numbers[numbers >= 0]))


def weakest(t: Topology, net: FlowNetwork) -> Partition:
    """Finds the partition with the least ratio of those compared; exact as the module says."""
    partitions = [partition_of(net, label) for label in structural_partitions(t)]
    best = min(partitions, key=lambda partition: partition.ratio)
    node = np.unique(t.node, return_inverse=True)[1]
    for atoms in (np.arange(len(t)), node):
        if 1 < int(atoms.max()) + 1 <= EXACT:
            small = net.contracted(atoms)
            for directed in (small, small.reversed()):
                best = _narrowed(directed, best, atoms, net)
            break
    return best


def _narrowed(small: FlowNetwork, best: Partition, atoms: I8, net: FlowNetwork) -> Partition:
    """Returns a partition of the ranks of `small` with a smaller ratio than `best`, or `best`."""
    flows = Flows(small)
    while True:
        label = _truncated(flows, best.ratio)
        if label.max() == 0:
            return best
        narrower = partition_of(net, label[atoms], least_inflow)
        if narrower.ratio >= best.ratio * (1 - 1e-9):
            return best
        best = narrower


def _truncated(flows: Flows, price: float) -> I8:
    """Finds the partition with the least sum over its parts of (inflow - price), as a label.

    Rank by rank: the greatest x with x(S) <= f(S) - price for all sets S of ranks so far; tight
    sets are joined. O(ranks) cuts.
    """
    n = flows.net.ranks
    x, label = np.zeros(n), np.arange(n)
    for v in range(n):
        supply, demand = np.maximum(-x, 0.0), np.maximum(x, 0.0)
        supply[v:], demand[v:] = np.inf, 0.0
        supply[v], demand[v] = 0.0, np.inf
        least, inside = flows.cut(supply, demand)
        x[v] = least - demand[:v].sum() - price
        tight = np.unique(label[: v + 1][inside[: v + 1]])
        label[: v + 1][np.isin(label[: v + 1], tight)] = label[v]
    return np.unique(label, return_inverse=True)[1]
