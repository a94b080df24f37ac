"""bound: a lower bound on the rest of a run, so that a run that must be too late can end early.

A thread block does its instances one after the other, no faster than alone, and a resource carries
no more than its capacity.
"""

from __future__ import annotations

import numpy as np

from hccc.ir.topology import F8
from hccc.sim.state import SAME_TIME, State, Table


class RunBound:
    """The least time of the rest of a run, from tables that the run has not begun to change."""

    def __init__(self, s: State) -> None:
        self._s, self._batches = s, int(s.shape[0])
        primitive = s.primitive[:-1]
        n, block = int(s.shape[3]), s.block
        self._owner = np.repeat(np.arange(n), block["stop"][:n] - block["start"][:n])
        self._number = np.arange(len(primitive))
        self._each = primitive["fixed"] + primitive["amount"] / primitive["cap"]
        self._last = primitive["fixed_last"] + primitive["amount_last"] / primitive["cap"]
        self._none, self._whole = primitive["fixed_none"], primitive["whole"]
        moved = np.repeat(_sum(primitive), np.diff(s.primitive["use"]))
        self._bytes = np.bincount(s.use, moved * s.weight, len(s.resource))
        if len(s.transfer):
            of_pair = np.bincount(s.transfer["pair"], _sum(s.transfer), len(s.pair))
            far = np.repeat(of_pair, s.pair["use_end"] - s.pair["use"])
            self._bytes = self._bytes + np.bincount(s.route, far * s.route_weight, len(s.resource))
        # Ends that are SAME_TIME apart are one: each instance and transfer may win as much, twice.
        self._ends = 2 * (len(s.instance) + len(s.item))

    def exceeds(self, limit: float, now: float) -> bool:
        """Tells whether the run, at `now`, cannot end by `limit` (µs). O(primitives + uses)."""
        early = 1e-8 * limit + 2 * self._ends * SAME_TIME * (limit + 1.0)
        return now + max(self._of_blocks(), self._of_resources()) > limit + early

    def _of_blocks(self) -> float:
        """Returns the most µs of any thread block for its instances after the current one."""
        batches = self._batches
        block = self._s.block
        at, batch, window = (block[name][self._owner] for name in ("prim", "batch", "window"))
        begun = np.minimum(window.astype(np.int64) + self._s.shape[1], batches)
        left = np.where(self._number < at, batches - begun, batches - window)
        left = np.where(self._number == at, batches - batch - 1, left)
        first = batches - left  # of those that are left
        whole, last = np.maximum(self._whole - first, 0), (first <= self._whole) & (left > 0)
        took: F8 = whole * self._each + last * self._last + (left - whole - last) * self._none
        return float(np.bincount(self._owner, took).max(initial=0.0))

    def _of_resources(self) -> float:
        """Returns the most µs of any resource for its bytes that are not yet on their way."""
        resource = self._s.resource
        return float(((self._bytes - resource["carried"]) / resource["capacity"]).max(initial=0.0))


def _sum(table: Table) -> F8:
    """Returns the bytes of all micro-batches of each row: f8[rows]."""
    total: F8 = table["amount"] * table["whole"] + table["amount_last"]
    return total
