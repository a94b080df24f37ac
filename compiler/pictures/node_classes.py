"""node_classes: nodes that are alike, so that pictures draw them once; groups slower than their
peers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from hccc.ir.arrays import B1
from hccc.ir.topology import Level, Topology
from hccc.lang.cluster.printer import nodes as node_texts

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Nodes that are alike inside (the same GPUs alive, devices, links and NICs); `nodes` ascend,
    from 0."""

    nodes: tuple[int, ...]

    @property
    def first(self) -> int:
        """The node that is drawn for all."""
        return self.nodes[0]


def gathered(values: Sequence[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Returns groups of `values` with equal keys, in the order of their first."""
    found: dict[Hashable, list[T]] = {}
    for value in values:
        found.setdefault(key(value), []).append(value)
    return list(found.values())


def in_runs(values: Sequence[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Cuts `values` where the key changes."""
    found: list[list[T]] = []
    last: Hashable = None
    for value in values:
        now = key(value)
        if found and now == last:
            found[-1].append(value)
        else:
            found.append([value])
        last = now
    return found


def node_classes(t: Topology) -> list[NodeClass]:
    """Returns the nodes in classes, by their first. O(size of the Topology)."""
    texts = list(node_texts(t))
    lost: dict[int, list[int]] = {}
    for node, gpu in t.failed.tolist():
        lost.setdefault(node, []).append(gpu)
    classes = gathered(range(t.n_nodes), lambda n: (texts[n], tuple(lost.get(n, ()))))
    return [NodeClass(tuple(nodes)) for nodes in classes]


def slower(t: Topology) -> B1:
    """Marks the shared groups that are slower than their peers: b1[groups].

    A port's or NIC's peers are those of nodes with the same size and device; above the NICs all
    groups of a level are peers.
    """
    capacity = t.shared.capacity
    best: dict[Hashable, float] = {}
    keys: list[Hashable] = [None] * len(t.shared)
    for level in (Level.PORT, Level.NIC, Level.LEAF, Level.SPINE):
        ranks = np.flatnonzero(t.port[level] >= 0)
        of_nodes = level in (Level.PORT, Level.NIC)
        for rank in ranks.tolist():
            k = int(t.port[level][rank])
            peer = (int(t.node_size[t.node[rank]]), int(t.device[rank])) if of_nodes else ()
            keys[k] = (level, *peer)
            best[keys[k]] = max(best.get(keys[k], 0.0), float(capacity[k]))
    return np.array([keys[k] is not None and capacity[k] < best[keys[k]] for k in range(len(keys))])
