"""Counting sort and edge lists: the helpers most passes start with."""

from __future__ import annotations

import numpy as np
from numba import njit

from hccc.ir.arrays import I4, I8, Csr


@njit(cache=True)
def group(keys: I4, n_groups: int) -> tuple[I8, I4]:
    """Rows of each key in order: ptr i8[n_groups + 1], rows i4[n]. Stable, O(n + n_groups)."""
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


def transpose(graph: Csr) -> Csr:
    """Successors from predecessors (or back), each row ascending. O(n + edges)."""
    ptr, rows = group(graph.index, len(graph))
    return Csr(ptr, graph.owner()[rows])


def graph(row: I4, value: I4, n_rows: int) -> Csr:
    """The graph of edges (row, value), each once, rows ascending. O(edges log edges).

    Values must be less than `n_rows`. (np.unique's hashing is ten times slower here.)
    """
    width = max(n_rows, 1)
    pairs = np.sort(row.astype(np.int64) * width + value)
    new = np.ones(len(pairs), np.bool_)
    new[1:] = pairs[1:] != pairs[:-1]
    pairs = pairs[new]
    ptr = np.zeros(n_rows + 1, np.int64)
    np.cumsum(np.bincount(pairs // width, minlength=n_rows), out=ptr[1:])
    return Csr(ptr, pairs % width)
