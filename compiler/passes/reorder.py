"""reorder: the same primitives in another order, with their dependencies renumbered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hccc.analysis.grouping import graph
from hccc.ir.arrays import I4
from hccc.ir.primitives import Primitives


def reorder(p: Primitives, order: I4) -> Primitives:
    """Returns `p` with row order[i] as row i. The caller sees to it that dependencies still point
    back.

    O(n + operands + dependencies).
    """
    position = np.empty(len(p), np.int32)
    position[order] = np.arange(len(p), dtype=np.int32)
    return replace(
        p,
        owner=p.owner[order],
        chunk=p.chunk[order],
        sub=p.sub[order],
        final=p.final[order],
        guard=p.guard[order],
        src=p.src.take(order),
        dst=p.dst.take(order),
        deps=graph(position[p.deps.owner()], position[p.deps.index], len(p)),
        tasks=p.tasks.take(order),
    )
