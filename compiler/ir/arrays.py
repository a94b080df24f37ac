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
    taken = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=taken[1:])
    return taken, np.repeat(ptr[:-1][rows] - taken[:-1], counts) + np.arange(taken[-1])


def csr_from_pairs(row: I4 | I8, value: NDArray[Any], n_rows: int) -> Csr:
    """Groups `value` by `row`, keeping the order given within a row. O(n log n) worst, stable."""
    order = np.argsort(row, kind="stable")
    ptr = np.zeros(n_rows + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=n_rows), out=ptr[1:])
    return Csr(ptr, frozen(value[order], np.int32))
