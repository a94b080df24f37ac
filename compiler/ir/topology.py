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

    def resources(self, src: I4, dst: I4) -> tuple[I4, I4]:
        """The two resources a transfer occupies (the same one twice within a node): i4[n] each.

        Ids are dense over the resources that occur, the same id meaning the same resource.
        """
        inside = self.node(src) == self.node(dst)
        pair = np.asarray(src, np.int64) * self.n_ranks + dst
        n_nics = (self.n_ranks // self.gpus_per_node + 1) * self.nics_per_node
        base = np.int64(self.n_ranks) * self.n_ranks
        tx = np.where(inside, pair, base + self.nic(src))
        rx = np.where(inside, pair, base + n_nics + self.nic(dst))
        _, dense = np.unique(np.concatenate([tx, rx]), return_inverse=True)
        return frozen(dense[: len(tx)], np.int32), frozen(dense[len(tx) :], np.int32)

    def cost(self, src: I4, dst: I4) -> NDArray[np.float64]:
        """How long one micro-batch takes on each transfer's link, intra-node being 1."""
        return np.where(self.node(src) == self.node(dst), 1.0, INTER_NODE_COST)
