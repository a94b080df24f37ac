"""contract: merges groups of primitives into one each; `fuse` and `relay` choose the groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hccc.analysis.grouping import graph, group
from hccc.ir.arrays import I4, Csr, entries
from hccc.ir.primitives import Buffer, Operands, Primitives

B1 = NDArray[np.bool_]


def writers(p: Primitives) -> I4:
    """Returns the primitive that made the owner's value each primitive starts from, or -1:
    i4[n]."""
    row, pred = p.deps.owner(), p.deps.index
    ptr, target = entries(p.dst.ptr, pred)
    row, pred = (np.repeat(each, np.diff(ptr)) for each in (row, pred))
    wrote = (p.dst.buffer[target] == Buffer.VALUE) & (p.dst.rank[target] == p.owner[row])
    writer = np.full(len(p), -1, np.int32)
    np.maximum.at(writer, row[wrote], pred[wrote])
    return writer


def contract(p: Primitives, rep: I4, keep_src: B1, keep_dst: B1) -> Primitives:
    """Merges every primitive into `rep[i]`; kept operands stay in row order."""
    kept = np.flatnonzero(rep == np.arange(len(p)))
    if len(kept) == len(p):
        return p
    new = np.full(len(p), -1, np.int32)
    new[kept] = np.arange(len(kept), dtype=np.int32)
    of = new[rep]
    ptr, rows = group(of[p.tasks.owner()], len(kept))
    return replace(
        p,
        owner=p.owner[kept],
        chunk=p.chunk[kept],
        sub=p.sub[kept],
        final=p.final[kept],
        guard=p.guard[kept],
        src=_merge(p.src, of, keep_src, len(kept)),
        dst=_merge(p.dst, of, keep_dst, len(kept)),
        deps=_merge_deps(p.deps, of, len(kept)),
        tasks=Csr(ptr, p.tasks.index[rows]),
    )


def _merge_deps(deps: Csr, of: I4, n: int) -> Csr:
    """Returns the dependencies between groups, each once."""
    row, pred = of[deps.owner()], of[deps.index]
    apart = row != pred
    return graph(row[apart], pred[apart], n)


def _merge(o: Operands, of: I4, keep: B1, n: int) -> Operands:
    """Joins the kept operands of each group, primitive after primitive."""
    kept = np.flatnonzero(keep)
    ptr, rows = group(of[o.owner()[kept]], n)
    rows = kept[rows]
    return Operands(ptr, o.rank[rows], o.buffer[rows], o.slot[rows])
