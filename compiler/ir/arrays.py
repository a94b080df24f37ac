"""Read-only arrays and compressed sparse rows: what every IR is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Names say the width stored (NumPy's i4, i8, u1); the checker only sees "integers", since
# arithmetic widens them freely and every IR narrows what it keeps (`frozen`).
I4 = NDArray[np.integer[Any]]
I8 = NDArray[np.integer[Any]]
U1 = NDArray[np.integer[Any]]
B1 = NDArray[np.bool_]


def frozen(values: Any, dtype: Any) -> NDArray[Any]:
    """`values` as a read-only C-contiguous array of `dtype`; copies only when it must."""
    array = np.ascontiguousarray(values, dtype=dtype)
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


@dataclass(frozen=True, slots=True, eq=False)
class Csr:
    """Rows of integers: row i is `index[ptr[i]:ptr[i + 1]]`. ptr: i8[n + 1], index: i4[ptr[n]]."""

    ptr: I8
    index: I4

    def __post_init__(self) -> None:
        object.__setattr__(self, "ptr", frozen(self.ptr, np.int64))
        object.__setattr__(self, "index", frozen(self.index, np.int32))

    def __len__(self) -> int:
        return len(self.ptr) - 1

    def row(self, i: int) -> I4:
        """Row `i` as a view."""
        return self.index[self.ptr[i] : self.ptr[i + 1]]

    def counts(self) -> I8:
        """The length of every row: i8[n]."""
        return np.diff(self.ptr)

    def owner(self) -> I4:
        """The row each entry belongs to: i4[len(index)]."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.counts())

    def take(self, rows: I8) -> Csr:
        """The given rows, in the given order."""
        ptr, pick = entries(self.ptr, rows)
        return Csr(ptr, self.index[pick])


def entries(ptr: I8, rows: I8) -> tuple[I8, I8]:
    """Where the entries of `rows` are, row after row: (ptr of the taken rows, old entries)."""
    counts = np.diff(ptr)[rows]
    taken = starts(counts)
    return taken, np.repeat(ptr[:-1][rows] - taken[:-1], counts) + np.arange(taken[-1])


def starts(counts: I4 | I8 | B1) -> I8:
    """Where each group begins, groups one after the other, and where the last ends: i8[n + 1]."""
    found = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=found[1:])
    return found


def places(counts: I4 | I8) -> I8:
    """The position of each entry within its group, groups one after the other: i8[sum of counts].

    `places([2, 3])` is [0, 1, 0, 1, 2].
    """
    begin = starts(counts)
    return np.arange(begin[-1]) - np.repeat(begin[:-1], counts)


def places_of(order: NDArray[Any], counts: I4 | I8) -> I8:
    """As `places`, of entries that `order` (i8[n], a permutation) sorts by their group: i8[n]."""
    found = np.empty(len(order), np.int64)
    found[order] = places(counts)
    return found


def places_among(keys: NDArray[Any]) -> I8:
    """The position of each entry among those with its key, in their order: i8[n]. O(n log n).

    `places_among([7, 3, 7])` is [0, 0, 1].
    """
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    found = np.empty(len(keys), np.int64)
    found[order] = np.arange(len(keys)) - np.searchsorted(ordered, ordered)
    return found


def csr_from_pairs(row: I4 | I8, value: NDArray[Any], n_rows: int) -> Csr:
    """Groups `value` by `row`, keeping the order given within a row. O(n log n) worst, stable."""
    order = np.argsort(row, kind="stable")
    return Csr(starts(np.bincount(row, minlength=n_rows)), frozen(value[order], np.int32))
