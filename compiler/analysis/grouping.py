"""grouping: rows by their keys, and edge lists, used by most passes."""

from __future__ import annotations

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8, Csr, starts

_HALF = 32  # bits of a row's number beside its key


def sorted_rows(keys: I4 | I8) -> I8:
    """Returns the rows in the order of their keys, which are under 2³¹ and not negative: i8[n].

    Stable. Sorting whole numbers is several times as fast as finding their order.
    """
    packed = keys.astype(np.int64) << _HALF
    packed |= np.arange(len(keys))
    packed.sort()
    return packed & ((1 << _HALF) - 1)


def group(keys: I4 | I8, n_groups: int) -> tuple[I8, I4]:
    """Returns the rows of each key in order: ptr i8[n_groups + 1], rows i4[n]. Stable, O(n log n +
    n_groups)."""
    return starts(np.bincount(keys, minlength=n_groups)), sorted_rows(keys).astype(np.int32)


def transpose(graph: Csr) -> Csr:
    """Returns successors from predecessors (or back), each row ascending. O(n + edges log
    edges)."""
    ptr, rows = group(graph.index, len(graph))
    return Csr(ptr, graph.owner()[rows])


@njit
def root_of(root: I4, x: int) -> int:
    """Finds the member that names the group of `x` (union-find); shortens the path there.

    Compiled here, since scipy's connected_components took 7 to 40 times as long on the graphs of
    `proofs/deadlock.py` (10³ to 10⁶ vertices).
    """
    while root[x] != x:
        root[x] = root[root[x]]
        x = root[x]
    return x


def graph(row: I4 | I8, value: I4 | I8, n_rows: int, *, repeated: bool = False) -> Csr:
    """Builds the graph of edges (row, value), rows ascending, each edge once unless `repeated`.
    O(n + edges log edges)."""
    packed = row.astype(np.int64) << _HALF
    packed |= value
    packed.sort()
    if not repeated and len(packed):
        packed = packed[np.concatenate([[True], packed[1:] != packed[:-1]])]
    ptr = starts(np.bincount(packed >> _HALF, minlength=n_rows))
    return Csr(ptr, packed & ((1 << _HALF) - 1))
