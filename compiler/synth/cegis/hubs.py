"""hubs: non-blocking switches between nodes, found in what transfers use.

A hub joins ranks of several nodes so that u → v uses what u needs to send and what v needs to
receive through it, whoever the other is. Ranks u and v of two nodes have a route exactly if one hub
joins both. H20's flat network is one hub, each rail of a rail network another; a network whose
leaves have uplinks of their own has none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array  # type: ignore[import-untyped]
from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]

from hccc.ir.arrays import B1, I4, I8
from hccc.synth.greedy.chunked import Chunked
from hccc.synth.greedy.least_steps import linked_ranks


@dataclass(frozen=True, slots=True, eq=False)
class Hubs:
    """cell: i8[ranks], the ranks of one node at one hub, -1 without a hub; port: i8[cells] the hub
    of each; home: i8[cells] its node; out, into: i4[ranks, L] resources that sending and receiving
    use, -1 beyond them."""

    cell: I8
    port: I8
    home: I8
    out: I4
    into: I4

    def joins(self, node: I4) -> B1:
        """Tells to which cells of other nodes a rank can send: b1[ranks, cells]."""
        hub = np.where(self.cell >= 0, self.port[self.cell], -1)
        joined: B1 = (hub[:, None] == self.port) & (node[:, None] != self.home)
        return joined

    def most_out(self, c: Chunked) -> I8:
        """Copies that each rank can send in a step: i8[ranks]."""
        capacity = np.append(c.capacity, c.capacity.max(initial=1))
        most: I8 = capacity[self.out].min(axis=1)
        return most


def hubs(c: Chunked) -> Hubs | None:
    """Returns the hubs of `c`; None where anything else joins its nodes. O(ranks² · longest
    route)."""
    far = linked_ranks(c) & (c.node[:, None] != c.node)
    if not far.any():
        return None
    label = connected_components(csr_array(far | far.T), directed=False)[1]
    joined = far.any(axis=0) | far.any(axis=1)
    alike = (label[:, None] == label) & (c.node[:, None] != c.node) & joined & joined[:, None]
    if (alike != far).any():
        return None
    out = _common(c, far)
    into = _common(c.reversed(), far.T)
    into &= ~out.any(axis=0)
    if not _exact(c, far, out, into):
        return None
    pairs = label * (int(c.node.max()) + 1) + c.node
    cells, cell = np.unique(pairs[joined], return_inverse=True)
    of_rank = np.full(c.n, -1, np.int64)
    of_rank[joined] = cell
    width = int(c.node.max()) + 1
    return Hubs(of_rank, cells // width, cells % width, _rows(out), _rows(into))


def _common(c: Chunked, far: B1) -> B1:
    """Returns the resources that all transfers between nodes from a rank use: b1[ranks,
    resources]."""
    found = np.zeros((c.n, len(c.capacity)), np.bool_)
    for u in np.flatnonzero(far.any(axis=1)):
        use = c.use[u * c.n + np.flatnonzero(far[u])]
        count = np.bincount(use[use >= 0], minlength=len(c.capacity))
        found[u] = count == len(use)
    return found


def _exact(c: Chunked, far: B1, out: B1, into: B1) -> bool:
    """Tells whether each transfer uses exactly the resources of its ends, each once."""
    for u, v in np.argwhere(far):
        row = c.use[u * c.n + v]
        used = np.bincount(row[row >= 0], minlength=len(c.capacity))
        if (used != out[u].astype(np.int64) + into[v]).any():
            return False
    return True


def _rows(table: B1) -> I4:
    """Returns the columns that are set in each row, -1 beyond them."""
    order = np.argsort(~table, axis=1, kind="stable")[:, : max(1, int(table.sum(axis=1).max()))]
    return np.where(np.take_along_axis(table, order, axis=1), order, -1).astype(np.int32)
