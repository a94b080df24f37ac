"""arrays: read-only arrays and rows of different lengths, the material of every IR."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Names give the stored width (NumPy's i4, i8, u1); the checker only sees "integers", since
# arithmetic widens them freely and every IR narrows its columns (`frozen`).
I4 = NDArray[np.integer[Any]]
I8 = NDArray[np.integer[Any]]
U1 = NDArray[np.integer[Any]]
B1 = NDArray[np.bool_]


def frozen(values: Any, dtype: Any) -> NDArray[Any]:
    """Returns `values` as a read-only C-contiguous array of `dtype`; copies only when it must."""
    array = np.ascontiguousarray(values, dtype=dtype)
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


_WIDTHS = {"ptr": np.int64, "buffer": np.uint8}


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """n rows of different lengths: the m entries of all rows one after the other, in columns.

    ptr: i8[n + 1], row i has the entries `ptr[i]` to `ptr[i + 1] - 1`. Subclasses add the columns,
    i4[m] but for those in `_WIDTHS`.
    """

    ptr: I8

    def __post_init__(self) -> None:
        for field in fields(self):
            width = _WIDTHS.get(field.name, np.int32)
            object.__setattr__(self, field.name, frozen(getattr(self, field.name), width))

    def __len__(self) -> int:
        return len(self.ptr) - 1

    def counts(self) -> I8:
        """Returns the length of every row: i8[n]."""
        return np.diff(self.ptr)

    def owner(self) -> I4:
        """Returns the row of each entry: i4[m]."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.counts())


@dataclass(frozen=True, slots=True, eq=False)
class Csr(Ragged):
    """Rows of integers: row i is `index[ptr[i]:ptr[i + 1]]`. index: i4[m]."""

    index: I4

    def row(self, i: int) -> I4:
        """Returns row `i` as a view."""
        return self.index[self.ptr[i] : self.ptr[i + 1]]

    def take(self, rows: I8) -> Csr:
        """Returns the given rows, in the given order."""
        ptr, pick = entries(self.ptr, rows)
        return Csr(ptr, self.index[pick])


def entries(ptr: I8, rows: I8) -> tuple[I8, I8]:
    """Returns the entries of `rows`, row after row: (ptr of the taken rows, old entries)."""
    counts = np.diff(ptr)[rows]
    taken = starts(counts)
    return taken, np.repeat(ptr[:-1][rows] - taken[:-1], counts) + np.arange(taken[-1])


def starts(counts: I4 | I8 | B1) -> I8:
    """Returns the first entry of each group, groups one after the other, and the end: i8[n + 1]."""
    found = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=found[1:])
    return found


def places(counts: I4 | I8) -> I8:
    """Returns the position of each entry in its group, groups one after the other: i8[sum of
    counts].

    `places([2, 3])` is [0, 1, 0, 1, 2].
    """
    begin = starts(counts)
    return np.arange(begin[-1]) - np.repeat(begin[:-1], counts)


def places_of(order: NDArray[Any], counts: I4 | I8) -> I8:
    """Returns the position of each entry in its group; `order`, i8[n], sorts entries by group:
    i8[n]."""
    found = np.empty(len(order), np.int64)
    found[order] = places(counts)
    return found


def places_among(keys: NDArray[Any]) -> I8:
    """Returns the position of each entry among the entries with its key: i8[n]. O(n log n).

    `places_among([7, 3, 7])` is [0, 0, 1].
    """
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    found = np.empty(len(keys), np.int64)
    found[order] = np.arange(len(keys)) - np.searchsorted(ordered, ordered)
    return found


def csr_from_pairs(row: I4 | I8, value: NDArray[Any], n_rows: int) -> Csr:
    """Collects `value` in rows, each in the row that `row` names, in the given order. O(n log
    n)."""
    order = np.argsort(row, kind="stable")
    return Csr(starts(np.bincount(row, minlength=n_rows)), frozen(value[order], np.int32))
