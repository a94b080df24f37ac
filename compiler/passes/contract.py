"""contract: merges primitives into one, whatever decided that they may be (`fuse`, `relay`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hccc.ir.arrays import I4, Csr
from hccc.ir.primitives import Buffer, Operands, Primitives
from hccc.passes.grouping import graph

B1 = NDArray[np.bool_]


def writers(p: Primitives) -> I4:
    """The primitive that made the owner's value each primitive starts from, or -1: i4[n]."""
    row, pred = p.deps.owner(), p.deps.index
    where = np.where(p.dst.buffer == Buffer.QUEUE, -1, p.dst.rank)
    mine = where[p.dst.ptr[pred]] == p.owner[row]
    for extra in range(1, int(p.dst.counts().max())):
        wide = p.dst.counts()[pred] > extra
        at = np.minimum(p.dst.ptr[pred] + extra, len(where) - 1)
        mine |= wide & (where[at] == p.owner[row])
    writer = np.full(len(p), -1, np.int32)
    np.maximum.at(writer, row[mine], pred[mine])
    return writer


def contract(p: Primitives, rep: I4, keep_src: B1, keep_dst: B1) -> Primitives:
    """Merges every primitive into `rep[i]`; kept operands stay in row order."""
    kept = np.flatnonzero(rep == np.arange(len(p)))
    if len(kept) == len(p):
        return p
    new = np.full(len(p), -1, np.int32)
    new[kept] = np.arange(len(kept), dtype=np.int32)
    group = new[rep]
    row, pred = group[p.deps.owner()], group[p.deps.index]
    apart = row != pred
    return replace(
        p,
        owner=p.owner[kept],
        chunk=p.chunk[kept],
        sub=p.sub[kept],
        final=p.final[kept],
        guard=p.guard[kept],
        src=_merge(p.src, group, keep_src, len(kept)),
        dst=_merge(p.dst, group, keep_dst, len(kept)),
        deps=graph(row[apart], pred[apart], len(kept)),
        tasks=_merge_tasks(p.tasks, group, len(kept)),
    )


def _merge(o: Operands, group: I4, keep: B1, n: int) -> Operands:
    row = group[o.owner()][keep]
    order = np.argsort(row, kind="stable")
    ptr = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=n), out=ptr[1:])
    return Operands(ptr, o.rank[keep][order], o.buffer[keep][order], o.slot[keep][order])


def _merge_tasks(tasks: Csr, group: I4, n: int) -> Csr:
    row = group[tasks.owner()]
    order = np.argsort(row, kind="stable")
    ptr = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=n), out=ptr[1:])
    return Csr(ptr, tasks.index[order])
