"""contract: merges groups of primitives into one each; `fuse` and `relay` choose the groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hccc.analysis.grouping import distinct
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8, Csr
from hccc.ir.primitives import Buffer, Operands, Primitives

B1 = NDArray[np.bool_]


def writers(p: Primitives) -> I4:
    """Returns the primitive that made the owner's value each primitive starts from, or -1:
    i4[n]."""
    where = np.where(p.dst.buffer == Buffer.VALUE, p.dst.rank, -1)
    return _writers(p.owner, p.deps.ptr, p.deps.index, p.dst.ptr, where)


@njit
def _writers(owner: I4, ptr: I8, pred: I4, dst_ptr: I8, where: I4) -> I4:
    writer = np.full(len(owner), -1, np.int32)
    for i in range(len(owner)):
        for k in range(ptr[i], ptr[i + 1]):
            for d in range(dst_ptr[pred[k]], dst_ptr[pred[k] + 1]):
                if where[d] == owner[i]:
                    writer[i] = max(writer[i], pred[k])
    return writer


def contract(p: Primitives, rep: I4, keep_src: B1, keep_dst: B1) -> Primitives:
    """Merges every primitive into `rep[i]`; kept operands stay in row order."""
    kept = np.flatnonzero(rep == np.arange(len(p)))
    if len(kept) == len(p):
        return p
    new = np.full(len(p), -1, np.int32)
    new[kept] = np.arange(len(kept), dtype=np.int32)
    group = new[rep]
    return replace(
        p,
        owner=p.owner[kept],
        chunk=p.chunk[kept],
        sub=p.sub[kept],
        final=p.final[kept],
        guard=p.guard[kept],
        src=_merge(p.src, group, keep_src, len(kept)),
        dst=_merge(p.dst, group, keep_dst, len(kept)),
        deps=Csr(*_merge_deps(p.deps.ptr, p.deps.index, group, len(kept))),
        tasks=Csr(*_merge_rows(p.tasks.ptr, group, len(kept), p.tasks.index)),
    )


@njit
def _merge_deps(ptr: I8, pred: I4, group: I4, n: int) -> tuple[I8, I4]:
    """Returns the dependencies between groups, each once."""
    fill = np.zeros(n + 1, np.int64)
    for i in range(len(group)):
        for k in range(ptr[i], ptr[i + 1]):
            fill[group[i] + 1] += group[pred[k]] != group[i]
    for g in range(n):
        fill[g + 1] += fill[g]
    index = np.empty(fill[n], np.int32)
    for i in range(len(group)):
        g = group[i]
        for k in range(ptr[i], ptr[i + 1]):
            if group[pred[k]] != g:
                index[fill[g]] = group[pred[k]]
                fill[g] += 1
    return distinct(fill[:n], index)


@njit
def _merge_rows(ptr: I8, group: I4, n: int, values: I4) -> tuple[I8, I4]:
    """Joins the rows of each group, one after the other."""
    new = np.zeros(n + 1, np.int64)
    for i in range(len(group)):
        new[group[i] + 1] += ptr[i + 1] - ptr[i]
    for g in range(n):
        new[g + 1] += new[g]
    fill, merged = new[:-1].copy(), np.empty(len(values), np.int32)
    for i in range(len(group)):
        for k in range(ptr[i], ptr[i + 1]):
            merged[fill[group[i]]] = values[k]
            fill[group[i]] += 1
    return new, merged


@njit
def _kept(ptr: I8, keep: B1) -> tuple[I8, I4]:
    """Returns the kept operands: where each row of them begins, and their indices."""
    new, rows = np.zeros(len(ptr), np.int64), np.empty(keep.sum(), np.int32)
    fill = 0
    for i in range(len(ptr) - 1):
        for k in range(ptr[i], ptr[i + 1]):
            if keep[k]:
                rows[fill] = k
                fill += 1
        new[i + 1] = fill
    return new, rows


def _merge(o: Operands, group: I4, keep: B1, n: int) -> Operands:
    ptr, rows = _kept(o.ptr, keep)
    ptr, rows = _merge_rows(ptr, group, n, rows)
    return Operands(ptr, o.rank[rows], o.buffer[rows], o.slot[rows])
