"""depend: Program → Dag, the data dependencies of every task and the resources it occupies.

Source: ResCCL §3, §4.1. A task reads (src, chunk) and changes (dst, chunk); it waits for the
last change of what it reads, and for all reads since (or else the last change of) what it
changes. Reductions into one place in one step are chained in program order, which fixes the
order of summation.

Reads of a chunk as it was at the start read the send buffer. Where the chunk's current value can
never lie in that memory (the rank does not want the chunk, or in-place runs keep the send buffer
aside), the first change need not wait for them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hccc.ir.arrays import B1, I4, I8, U1, Csr
from hccc.ir.dag import SOURCE_INITIAL, TARGET_INITIAL, Dag
from hccc.ir.program import Program
from hccc.ir.routes import resources
from hccc.ir.topology import Topology, uniform
from hccc.passes.grouping import group


@njit(cache=True)
def _edges(
    ptr: I8, rows: I4, src: I4, dst: I4, op: I4, overwrites: B1, n_ranks: int
) -> tuple[I4, I8, I8, U1]:
    """Predecessors of every task, as runs [begin, end) of one array, and the initial bits."""
    n = len(rows)
    edges = np.empty(3 * n + 1, np.int32)
    begin, end = np.zeros(n, np.int64), np.zeros(n, np.int64)
    initial = np.zeros(n, np.uint8)
    writer = np.full(n_ranks, -1, np.int32)  # last task that changed the chunk at each rank
    reader = np.full(n_ranks, -1, np.int32)  # head of the list of tasks that read it since
    older = np.full(n, -1, np.int32)  # that list, by task
    fill = 0
    for c in range(len(ptr) - 1):
        for k in range(ptr[c], ptr[c + 1]):
            writer[src[rows[k]]] = writer[dst[rows[k]]] = -1
            reader[src[rows[k]]] = reader[dst[rows[k]]] = -1
        for k in range(ptr[c], ptr[c + 1]):
            i = rows[k]
            s, d = src[i], dst[i]
            begin[i] = fill
            if writer[s] >= 0:
                edges[fill] = writer[s]
                fill += 1
            else:
                initial[i] |= SOURCE_INITIAL
            if writer[d] < 0 and op[i]:
                initial[i] |= TARGET_INITIAL
            if writer[d] >= 0 and (op[i] or reader[d] < 0):
                edges[fill] = writer[d]  # never the writer of s: a task writes one rank
                fill += 1
            r = reader[d] if writer[d] >= 0 or overwrites[i] else -1
            while r >= 0:
                if r != writer[s]:
                    edges[fill] = r
                    fill += 1
                r = older[r]
            end[i] = fill
            older[i], reader[s] = reader[s], i
            writer[d], reader[d] = i, -1
    return edges, begin, end, initial


@njit(cache=True)
def _pack(edges: I4, begin: I8, end: I8) -> tuple[I8, I4]:
    """The runs in task order, each ascending."""
    ptr = np.zeros(len(begin) + 1, np.int64)
    for i in range(len(begin)):
        ptr[i + 1] = ptr[i] + end[i] - begin[i]
    index = np.empty(ptr[-1], np.int32)
    for i in range(len(begin)):
        index[ptr[i] : ptr[i + 1]] = np.sort(edges[begin[i] : end[i]])
    return ptr, index


def depend(program: Program, topology: Topology | None = None) -> Dag:
    """The Dag of `program` on `topology` (else on what its header describes).

    O(transfers + dependencies), plus a sort of the links.
    """
    t, c = program.transfers, program.collective
    ptr, rows = group(np.ascontiguousarray(t["chunk"]), c.n_chunks)
    src, dst, op = (np.ascontiguousarray(t[k]) for k in ("src", "dst", "op"))
    overwrites = c.wants(dst, t["chunk"]) & (not c.swaps_in_place)
    edges, begin, end, initial = _edges(ptr, rows, src, dst, op, overwrites, c.n_ranks)
    preds = Csr(*_pack(edges, begin, end))
    if topology is None:
        topology = uniform(c.n_ranks, program.gpus_per_node, program.nics_per_node)
    return Dag(program, preds, initial, *resources(topology, src, dst), topology)
