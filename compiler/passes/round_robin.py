"""round_robin: Dag → Pipeline, the baseline that HPDS is compared with (ResCCL §5.3).

Chunks are visited in a circle in ascending id and each visit schedules the chunk's next task in
program order, whatever its resources are doing; a sub-pipeline ends where the next task would
share a resource with it.
"""

from __future__ import annotations

import numpy as np

from hccc.analysis.grouping import group
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8
from hccc.ir.dag import Dag
from hccc.ir.pipeline import Pipeline


@njit
def _circle(ptr: I8, rows: I4, tx: I4, rx: I4, n_resources: int) -> tuple[I4, I8]:
    n, n_chunks = len(rows), len(ptr) - 1
    used = np.full(n_resources, -1, np.int32)
    order, start = np.empty(n, np.int32), np.zeros(n + 1, np.int64)
    done, sub, lap = 0, 0, 0
    while done < n:
        for c in range(n_chunks):
            if ptr[c] + lap >= ptr[c + 1]:
                continue
            i = rows[ptr[c] + lap]
            if used[tx[i]] == sub or used[rx[i]] == sub:
                sub += 1
                start[sub] = done
            used[tx[i]] = used[rx[i]] = sub
            order[done] = i
            done += 1
        lap += 1
    start[sub + 1] = n
    return order, start[: sub + 2]


def round_robin(dag: Dag) -> Pipeline:
    """Returns the round-robin Pipeline of `dag`. O(n + laps · chunks)."""
    program = dag.program
    chunk = np.array(program.transfers["chunk"])
    ptr, rows = group(chunk, program.collective.n_chunks)
    if not len(dag):
        return Pipeline(dag, rows, np.zeros(1, np.int64))
    n_resources = int(max(dag.tx.max(initial=0), dag.rx.max(initial=0))) + 1
    return Pipeline(dag, *_circle(ptr, rows, dag.tx, dag.rx, n_resources))
