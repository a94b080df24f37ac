"""Topology: what a transfer runs over. For now the one a program's header describes.

`GPUPerNode` GPUs a node, a link between every two GPUs of a node, `NICPerNode` NICs a node
shared by its GPUs in equal runs, and a switch between all NICs. A *resource* is what two tasks
may not use at once: an intra-node link, or a NIC's sending or its receiving side.

Times are in units of one intra-node chunk transfer; ResCCL §4.3 measured that an inter-node
transfer takes at least 2.5 times an intra-node one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.ir.arrays import I4, frozen

INTER_NODE_COST = 2.5


@dataclass(frozen=True, slots=True)
class Topology:
    """`n_ranks` ranks in nodes of `gpus_per_node`, with `nics_per_node` NICs each."""

    n_ranks: int
    gpus_per_node: int
    nics_per_node: int

    def node(self, rank: I4) -> NDArray[Any]:
        """The node of each rank."""
        return np.asarray(rank) // self.gpus_per_node

    def nic(self, rank: I4) -> NDArray[Any]:
        """The NIC each rank sends and receives through, numbered over the whole cluster."""
        local = np.asarray(rank) % self.gpus_per_node
        own = local * self.nics_per_node // self.gpus_per_node
        return self.node(rank) * self.nics_per_node + own

    @property
    def n_resources(self) -> int:
        """One more than the largest resource id."""
        nodes = -(-self.n_ranks // self.gpus_per_node)
        return nodes * (self.gpus_per_node**2 + 2 * self.nics_per_node)

    def resources(self, src: I4, dst: I4) -> tuple[I4, I4]:
        """The two resources a transfer occupies (the same one twice within a node): i4[n] each."""
        per, node = self.gpus_per_node, self.node(src)
        nodes = -(-self.n_ranks // per)
        inside = node == self.node(dst)
        pair = node * per**2 + src % per * per + dst % per
        sending = nodes * per**2 + self.nic(src)
        receiving = nodes * (per**2 + self.nics_per_node) + self.nic(dst)
        tx, rx = np.where(inside, pair, sending), np.where(inside, pair, receiving)
        return frozen(tx, np.int32), frozen(rx, np.int32)

    def cost(self, src: I4, dst: I4) -> NDArray[np.float64]:
        """How long one micro-batch takes on each transfer's link, intra-node being 1."""
        return np.where(self.node(src) == self.node(dst), 1.0, INTER_NODE_COST)
