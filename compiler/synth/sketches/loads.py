"""loads: what transfers load, by the difference of their ends.

All roots have the same sketches, moved, so that a transfer of one root is one at every rank, and is
known by the *difference* of its ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.ir.topology import F8, Topology
from hccc.network.routes import routes
from hccc.synth.sketches.symmetry import Symmetry


@dataclass(frozen=True, slots=True, eq=False)
class Loads:
    """The load of the kinds of resources by one transfer of each difference at every rank: f8[n,
    kinds], chunks over GB/s; alpha: f8[n] µs of a transfer."""

    each: F8
    alpha: F8

    def backward(self, s: Symmetry) -> Loads:
        """Returns the loads of transfers the other way round."""
        rank = np.arange(len(s))
        opposite = s.minus(np.zeros_like(rank), rank)
        return Loads(self.each[opposite], self.alpha[opposite])


def loads(t: Topology, s: Symmetry) -> Loads:
    """Returns the loads of all differences; resources that all load alike are one kind. O(n²)."""
    n = len(s)
    rank = np.arange(n)
    to = s.plus(rank[None, :], rank[:, None])[1:]
    src, dst = (np.broadcast_to(a, to.shape).ravel().astype(np.int32) for a in (rank[None, :], to))
    r = routes(t, src, dst)
    row = (np.arange(len(src)) // n + 1)[r.uses.owner()]
    count = np.bincount(row * len(r.capacity) + r.uses.index, minlength=n * len(r.capacity))
    each = count.reshape(n, -1) / r.capacity
    alpha = np.append(0.0, r.alpha.reshape(n - 1, n).max(1))
    return Loads(np.unique(each, axis=1), alpha)
