"""depend: Program → Dag, the data dependencies of every task and the resources it occupies.

Source: ResCCL §3, §4.1. A task reads (src, chunk) and changes (dst, chunk); it waits for the last
change of the place it reads, and for all reads since the last change of the place it changes, or
else for that change. Reductions into one place in one step are chained in program order, which
fixes the order of summation.

Reads of a chunk in its initial state read the send buffer. If the chunk's current value can never
lie in that memory (the rank does not want the chunk, or in-place runs keep the send buffer aside),
the first change need not wait for them.
"""

from __future__ import annotations

import numpy as np

from hccc.analysis.contributions import DST, OP, SRC, columns
from hccc.analysis.grouping import graph, group
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4, I8, U1
from hccc.ir.dag import SOURCE_INITIAL, TARGET_INITIAL, Dag
from hccc.ir.program import Program
from hccc.ir.topology import Topology, uniform
from hccc.network.routes import resources


@njit
def _edges(ptr: I8, rows: I4, table: I4, overwrites: B1, n_ranks: int) -> tuple[I4, I8, U1]:
    """Returns the predecessors of every task, tasks in the order of `rows`; their number, by task;
    and the initial bits."""
    n = len(rows)
    edges = np.empty(3 * n + 1, np.int32)
    counts = np.zeros(n, np.int32)
    initial = np.zeros(n, np.uint8)
    writer = np.full(n_ranks, -1, np.int32)  # last task that changed the chunk at each rank
    reader = np.full(n_ranks, -1, np.int32)  # head of the list of rows that read it since
    older = np.full(n, -1, np.int32)  # that list, by row
    fill = 0
    for c in range(len(ptr) - 1):
        for k in range(ptr[c], ptr[c + 1]):
            s, d = table[rows[k], SRC], table[rows[k], DST]
            writer[s] = writer[d] = reader[s] = reader[d] = -1
        for k in range(ptr[c], ptr[c + 1]):
            i = rows[k]
            s, d, op = table[i, SRC], table[i, DST], table[i, OP]
            begin = fill
            if writer[s] >= 0:
                edges[fill] = writer[s]
                fill += 1
            else:
                initial[i] |= SOURCE_INITIAL
            if writer[d] < 0 and op:
                initial[i] |= TARGET_INITIAL
            if writer[d] >= 0 and (op or reader[d] < 0):
                edges[fill] = writer[d]  # never the writer of s: a task writes one rank
                fill += 1
            r = reader[d] if writer[d] >= 0 or overwrites[i] else -1
            while r >= 0:
                if rows[r] != writer[s]:
                    edges[fill] = rows[r]
                    fill += 1
                r = older[r]
            counts[i] = fill - begin
            older[k], reader[s] = reader[s], k
            writer[d], reader[d] = i, -1
    return edges[:fill], counts, initial


def depend(program: Program, topology: Topology | None = None) -> Dag:
    """Returns the Dag of `program` on `topology` (else on the cluster that its header describes).

    O(transfers + dependencies), plus a sort of the links.
    """
    t, c = program.transfers, program.collective
    ptr, rows = group(t["chunk"], c.n_chunks)
    src, dst = t["src"], t["dst"]
    overwrites = c.wants(dst, t["chunk"]) & (not c.swaps_in_place)
    edges, counts, initial = _edges(ptr, rows, columns(program), overwrites, c.n_ranks)
    preds = graph(np.repeat(rows, counts[rows]), edges, len(t), repeated=True)
    if topology is None:
        topology = uniform(c.n_ranks, program.gpus_per_node, program.nics_per_node)
    return Dag(program, preds, initial, *resources(topology, src, dst), topology)
