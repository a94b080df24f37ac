"""grouping: counting sort and edge lists, used by most passes."""

from __future__ import annotations

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8, Csr


@njit
def group(keys: I4, n_groups: int) -> tuple[I8, I4]:
    """Returns the rows of each key in order: ptr i8[n_groups + 1], rows i4[n]. Stable, O(n +
    n_groups)."""
    ptr = np.zeros(n_groups + 1, np.int64)
    for k in keys:
        ptr[k + 1] += 1
    for g in range(n_groups):
        ptr[g + 1] += ptr[g]
    fill = ptr[:-1].copy()
    rows = np.empty(len(keys), np.int32)
    for i in range(len(keys)):
        rows[fill[keys[i]]] = i
        fill[keys[i]] += 1
    return ptr, rows


@njit
def _transposed(ptr: I8, index: I4, n: int) -> tuple[I8, I4]:
    back = np.zeros(n + 1, np.int64)
    for x in index:
        back[x + 1] += 1
    for x in range(n):
        back[x + 1] += back[x]
    fill = back[:-1].copy()
    rows = np.empty(len(index), np.int32)
    for i in range(n):
        for x in index[ptr[i] : ptr[i + 1]]:
            rows[fill[x]] = i
            fill[x] += 1
    return back, rows


def transpose(graph: Csr) -> Csr:
    """Returns successors from predecessors (or back), each row ascending. O(n + edges)."""
    return Csr(*_transposed(graph.ptr, graph.index, len(graph)))


@njit
def sort_row(values: I4) -> None:
    """Sorts in place; most rows are short."""
    if len(values) > 32:
        values.sort()
        return
    for i in range(1, len(values)):
        x, j = values[i], i
        while j > 0 and values[j - 1] > x:
            values[j] = values[j - 1]
            j -= 1
        values[j] = x


@njit
def distinct(ends: I8, index: I4) -> tuple[I8, I4]:
    """Sorts the rows `index[ends[r - 1]:ends[r]]` without repetition; returns ptr and index.

    Overwrites `index`.
    """
    ptr = np.zeros(len(ends) + 1, np.int64)
    lo, kept = 0, 0
    for r in range(len(ends)):
        sort_row(index[lo : ends[r]])
        for k in range(lo, ends[r]):
            if kept == ptr[r] or index[k] != index[kept - 1]:
                index[kept] = index[k]
                kept += 1
        ptr[r + 1] = kept
        lo = ends[r]
    return ptr, index[:kept].copy()


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


@njit
def _graph(row: I4, value: I4, n_rows: int) -> tuple[I8, I4]:
    fill = np.zeros(n_rows + 1, np.int64)
    for r in row:
        fill[r + 1] += 1
    for r in range(n_rows):
        fill[r + 1] += fill[r]
    index = np.empty(len(row), np.int32)
    for k in range(len(row)):
        index[fill[row[k]]] = value[k]
        fill[row[k]] += 1
    return distinct(fill[:n_rows], index)


def graph(row: I4, value: I4, n_rows: int) -> Csr:
    """Builds the graph of edges (row, value), each once, rows ascending. O(n + edges log row
    length)."""
    return Csr(*_graph(row, value, n_rows))
