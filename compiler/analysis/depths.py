"""depths: how many thread blocks, one after the other, the data of a primitive came through.

A rank that passes on what others bring waits for them; what it has from the start it need not wait
for. Where each depth has a thread block of its own, none that could go on waits behind one that
cannot, as long as depths are few: a pipeline of depths, micro-batch after micro-batch.
"""

from __future__ import annotations

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4, I8
from hccc.ir.dag import Dag
from hccc.ir.primitives import Primitives, memory_domain
from hccc.ir.program import Op


@njit
def _walk(ptr: I8, pred: I4, executor: I4, crosses: B1) -> I4:
    depth = np.zeros(len(executor), np.int32)
    for i in range(len(executor)):
        deepest = 0
        for k in range(ptr[i], ptr[i + 1]):
            p = pred[k]
            deepest = max(deepest, depth[p] + (executor[p] != executor[i]))
        depth[i] = deepest + crosses[i]
    return depth


def depths(p: Primitives) -> I4:
    """The depth of every primitive, from 0: i4[n]. O(tasks + dependencies).

    A copy is made by its source. A sum is made by its destination, one deeper where the network
    brings what is added; a local copy has depth 0.
    """
    executor, crosses = _executors(p)
    task = _walk(p.dag.preds.ptr, p.dag.preds.index, executor, crosses)
    rank, of = p.owner[p.tasks.owner()], p.tasks.index
    found = np.zeros(len(p), np.int32)
    np.maximum.at(found, p.tasks.owner(), task[of] - (crosses[of] & (rank != executor[of])))
    return found


def _executors(p: Primitives) -> tuple[I4, B1]:
    """Which rank makes the copy or the sum of each task, and which sums the network brings."""
    dag: Dag = p.dag
    t, domain = dag.program.transfers, memory_domain(p)
    adds = t["op"] == Op.RRC
    return np.where(adds, t["dst"], t["src"]), adds & (domain[t["src"]] != domain[t["dst"]])
