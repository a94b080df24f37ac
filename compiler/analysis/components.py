"""components: a Plan falls apart into parts that share no memory, most often one for each chunk.

Within one order of execution, primitives that touch different memory can change places. So a
symbolic run may take the parts one after the other, and hold the state of one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.analysis.grouping import group, root_of
from hccc.analysis.locations import Locations
from hccc.ir.arrays import B1, I4, I8
from hccc.ir.plan import Plan
from hccc.jit.compiled import njit


@dataclass(frozen=True, slots=True, eq=False)
class Components:
    """Part k: active primitives `rows[row_ptr[k]:row_ptr[k + 1]]` in the order of execution, and
    the locations `places[place_ptr[k]:place_ptr[k + 1]]` that they touch. `local`: i4[locations],
    the index of each in its part, or -1 for one that nothing touches."""

    row_ptr: I8
    rows: I4
    place_ptr: I8
    places: I4
    local: I4

    def largest(self) -> int:
        """The most locations of one part."""
        return int(np.diff(self.place_ptr).max(initial=0))


@njit
def _join(
    chunk: I4, active: B1, src_ptr: I8, src: I4, dst_ptr: I8, dst: I4, root: I4, n_locations: int
) -> I4:
    """The chunk that names the part of each location, or -1; `root`: that of each chunk."""
    home = np.full(n_locations, -1, np.int32)
    for i in range(len(chunk)):
        if not active[i]:
            continue
        for ptr, places in ((src_ptr, src), (dst_ptr, dst)):
            for x in places[ptr[i] : ptr[i + 1]]:
                if home[x] < 0:
                    home[x] = chunk[i]
                elif home[x] != chunk[i]:
                    a, b = root_of(root, home[x]), root_of(root, chunk[i])
                    root[max(a, b)] = min(a, b)
    for x in range(n_locations):
        if home[x] >= 0:
            home[x] = root_of(root, home[x])
    for c in range(len(root)):
        root[c] = root_of(root, c)
    return home


@njit
def _local(ptr: I8, places: I4, n_locations: int) -> I4:
    local = np.full(n_locations, -1, np.int32)
    for part in range(len(ptr) - 1):
        for k in range(ptr[part], ptr[part + 1]):
            local[places[k]] = k - ptr[part]
    return local


def components(plan: Plan, where: Locations, order: I4) -> Components:
    """The parts of `plan`. O(operands + locations)."""
    chunk = np.maximum(plan.chunk, 0)
    root = np.arange(int(chunk.max(initial=0)) + 1, dtype=np.int32)
    home = _join(
        chunk, where.active, plan.src.ptr, where.src, plan.dst.ptr, where.dst, root, where.count
    )
    touched = np.flatnonzero(home >= 0).astype(np.int32)
    place_ptr, places = group(home[touched], len(root))
    places = touched[places]
    running = order[where.active[order]]
    row_ptr, rows = group(root[chunk[running]], len(root))
    local = _local(place_ptr, places, where.count)
    return Components(row_ptr, running[rows], place_ptr, places, local)
