"""components: the parts of a Plan that share no memory, most often one for each chunk.

Within one order of execution, primitives that touch different memory can change places. So a
symbolic run may take one component after the other, and hold the state of one at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hccc.analysis.grouping import group, root_of
from hccc.analysis.locations import Locations
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8
from hccc.ir.plan import Plan


class Components(NamedTuple):
    """Component k: its active primitives `rows[row_ptr[k]:row_ptr[k + 1]]`, in the order of
    execution, and the locations `touched[touched_ptr[k]:touched_ptr[k + 1]]` that they touch.

    `local`: i4[L], the index of each location in its component, or -1 where nothing touches it.
    """

    row_ptr: I8
    rows: I4
    touched_ptr: I8
    touched: I4
    local: I4

    def largest(self) -> int:
        """Returns the most locations of one component."""
        return int(np.diff(self.touched_ptr).max(initial=0))


@njit
def _join(chunk: I4, where: Locations, root: I4) -> I4:
    """Returns the chunk that names the component of each location, or -1: i4[L].

    root: union-find over chunks; on return, the chunk that names the component of each.
    """
    label = np.full(len(where.start), -1, np.int32)
    for i in range(len(chunk)):
        if not where.active[i]:
            continue
        for ptr, at in ((where.src_ptr, where.src), (where.dst_ptr, where.dst)):
            for x in at[ptr[i] : ptr[i + 1]]:
                if label[x] < 0:
                    label[x] = chunk[i]
                elif label[x] != chunk[i]:
                    a, b = root_of(root, label[x]), root_of(root, chunk[i])
                    root[max(a, b)] = min(a, b)
    for x in range(len(label)):
        if label[x] >= 0:
            label[x] = root_of(root, label[x])
    for c in range(len(root)):
        root[c] = root_of(root, c)
    return label


@njit
def _local(ptr: I8, touched: I4, n_locations: int) -> I4:
    local = np.full(n_locations, -1, np.int32)
    for component in range(len(ptr) - 1):
        for k in range(ptr[component], ptr[component + 1]):
            local[touched[k]] = k - ptr[component]
    return local


def components(plan: Plan, where: Locations, order: I4) -> Components:
    """Splits `plan` into components; their sets of chunks are disjoint. O(operands + locations).

    order: `execution_order`; where: `locate`.
    """
    chunk = np.maximum(plan.chunk, 0)
    root = np.arange(int(chunk.max(initial=0)) + 1, dtype=np.int32)
    label = _join(chunk, where, root)
    used = np.flatnonzero(label >= 0).astype(np.int32)
    touched_ptr, at = group(label[used], len(root))
    touched = used[at]
    running = order[where.active[order]]
    row_ptr, rows = group(root[chunk[running]], len(root))
    local = _local(touched_ptr, touched, where.total)
    return Components(row_ptr, running[rows], touched_ptr, touched, local)
