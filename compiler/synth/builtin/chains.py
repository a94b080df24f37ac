"""chains: for NCCL's trees, the GPUs of every node in a line whose head is beside a NIC.

As in NCCL (`src/graph/connect.cc`, BALANCED_TREE) one child of a node hangs on its head, the other
on the GPU next to it, if that is no slower; where NICs are on rails, both hang on the head, so that
trees stay on their rail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hccc.ir.arrays import I4, I8
from hccc.ir.topology import F8, Level, Topology
from hccc.network.routes import cost
from hccc.synth.builtin.hamiltonian_paths import costs, path

SAME = 1.001  # of µs


@dataclass(frozen=True, slots=True, eq=False)
class Chains:
    """One line of ranks for each node, its head first; second: i4[nodes] the rank of each node
    that a second child hangs on."""

    chains: list[I8]
    second: I4


def chains(t: Topology, orders: I4) -> Iterator[Chains]:
    """Yields as many sets of chains as there are circuits, their heads spread over the NICs.

    In one node the circuits are the chains. O(sets · N · 2^g g³) for N nodes of g GPUs.
    """
    first = t.first_rank
    nodes = [np.arange(a, b) for a, b in pairwise(first) if b > a]
    if len(nodes) == 1:
        for k, order in enumerate(orders):
            line = np.roll(order, -k)
            yield Chains([line.astype(np.int64)], line[:1])
        return
    inside = [_there_and_back(t, node, node) for node in nodes]
    led, joined = np.zeros((2, len(t)))
    for _ in range(len(orders)):
        heads = _heads(t, nodes, _on_nic(t, led))
        led[heads] += 1
        lines, second = [], []
        for i, (node, way) in enumerate(zip(nodes, inside, strict=True)):
            head = int(heads[i] - node[0])
            other = heads[(i + 1) % len(nodes)]
            beside = _beside(t, node, head, other, way[head], _on_nic(t, joined)[node])
            lines.append(node[_line(way, head, beside)])
            second.append(node[head if beside is None else beside])
        joined[second] += 1
        yield Chains(lines, np.array(second, np.int32))


def _there_and_back(t: Topology, a: I8, b: I8) -> F8:
    """Returns the µs of a chunk from each of `a` to each of `b`, and back: f8[a, b]."""
    u, v = (x.ravel().astype(np.int32) for x in np.meshgrid(a, b, indexing="ij"))
    time: F8 = (cost(t, u, v) + cost(t, v, u)).reshape(len(a), len(b))
    return time


def _on_nic(t: Topology, use: F8) -> F8:
    """Returns how often each rank's NIC is in use: f8[n]."""
    nic = t.port[Level.NIC]
    shared = np.bincount(nic[nic >= 0], use[nic >= 0], minlength=len(t.shared) + 1)
    return np.where(nic >= 0, shared[nic], use)


def _heads(t: Topology, nodes: list[I8], on_nic: F8) -> I4:
    """Returns a head for every node: in the first a GPU that leads out best, in the others the
    nearest to that; of equals the one whose NIC has fewest heads."""
    out = _there_and_back(t, nodes[0], nodes[1]).min(axis=1)
    first = nodes[0][np.lexsort((on_nic[nodes[0]], out))[:1]]
    heads = [first[0]]
    for node in nodes[1:]:
        way = _there_and_back(t, first, node)[0]
        heads.append(node[np.lexsort((on_nic[node], way))[0]])
    return np.array(heads, np.int32)


def _beside(t: Topology, node: I8, head: int, other: int, way: F8, on_nic: F8) -> int | None:
    """Returns the GPU of `node` for a second child, on the NIC of fewest others: no farther from
    another node's head than the own head is; None where there is none."""
    far = _there_and_back(t, node, np.array([other]))[:, 0]
    fits = np.isfinite(way) & (far <= far[head] * SAME)
    fits[head] = False
    if not fits.any():
        return None
    rank_distance = (np.arange(len(node)) - head) % len(node)
    return int(np.lexsort((rank_distance, way, np.where(fits, on_nic, np.inf)))[0])


def _line(way: F8, head: int, beside: int | None) -> I8:
    """Returns the cheapest path from the head, by `beside`, through a node's GPUs."""
    if beside is None:
        if len(way) == 1:
            return np.zeros(1, np.int64)
        return path(way, head, int(np.argmin(costs(way)[head])))
    rest = np.setdiff1d(np.arange(len(way)), head)
    left = way[np.ix_(rest, rest)]
    begin = int(np.searchsorted(rest, beside))
    if len(rest) == 1:
        return np.array([head, beside])
    on = path(left, begin, int(np.argmin(costs(left)[begin])))
    return np.concatenate([[head], rest[on]])
