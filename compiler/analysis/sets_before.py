"""sets_before: what happens before each primitive, as sets: for plans of few primitives.

A set is a whole number of Python's: bit k says that the k-th primitive of the order is in it. Two
are joined in a fraction of a microsecond, of some thousand primitives, so there is nothing to
compile. Larger plans are left to `ancestry` and `clocks`, which need no set for each primitive.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hccc.ir.arrays import I4, I8, U1, Csr


class SetsBefore(NamedTuple):
    """place: of each primitive in the order; before: for each, the set of itself and all that
    happens before it; implied: u1[edges], whether the others and program order imply an edge."""

    place: list[int]
    before: list[int]
    implied: U1

    def tell(self, a: I4, b: I4) -> U1:
        """Tells for every pair whether a[q] is b[q] or happens before it: u1[q]."""
        place, before = self.place, self.before
        asked = zip(a.tolist(), b.tolist(), strict=True)
        return np.array([before[y] >> place[x] & 1 for x, y in asked], np.uint8)


def sets_before(tb_ptr: I8, preds: Csr, order: I4) -> SetsBefore:
    """Makes the sets of all primitives. O(n² + n · edges) bits.

    tb_ptr: the blocks' ranges; preds: the waited-for primitives of each; order: one of all
    primitives that respects both.
    """
    run, first = order.tolist(), set(tb_ptr.tolist())
    place, before = [0] * len(run), [0] * len(run)
    for k, i in enumerate(run):
        place[i] = k
    implied = np.zeros(len(preds.index), np.uint8)
    edges = _latest_first(preds, np.array(place))
    ends, pred = preds.ptr.tolist(), preds.index.tolist()
    for i in run:
        found = 0 if i in first else before[i - 1]
        for k in edges[ends[i] : ends[i + 1]]:
            if found >> place[pred[k]] & 1:
                implied[k] = 1
            else:
                found |= before[pred[k]]
        before[i] = found | 1 << place[i]
    return SetsBefore(place, before, implied)


def _latest_first(preds: Csr, place: I8) -> list[int]:
    """Returns the edges of each primitive, the one that begins last first: an edge is implied by
    others only if one of these begins after it does."""
    by_place: list[int] = np.lexsort((-place[preds.index], preds.owner())).tolist()
    return by_place
