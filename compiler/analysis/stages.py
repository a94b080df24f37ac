"""stages: the stage of its algorithm that each task belongs to, for stage-level execution.

A stage ends where data changes between staying in a node and crossing between nodes: a task of the
other kind than one it depends on is at least one stage later (ResCCL §3.2, App. A: hierarchical
mesh AllReduce is within nodes, between nodes, within nodes). MSCCL gives every connection of every
stage a thread block, which makes Table 3's counts.
"""

from __future__ import annotations

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4, I8
from hccc.ir.dag import Dag


@njit
def _walk(ptr: I8, pred: I4, crosses: B1) -> I4:
    stage = np.zeros(len(crosses), np.int32)
    for i in range(len(crosses)):
        for k in range(ptr[i], ptr[i + 1]):
            p = pred[k]
            stage[i] = max(stage[i], stage[p] + (crosses[p] != crosses[i]))
    return stage


def stages(dag: Dag) -> I4:
    """Returns the stage of every task of `dag`, from 0: i4[n]. O(tasks + dependencies)."""
    t, node = dag.program.transfers, dag.topology.node
    return _walk(dag.preds.ptr, dag.preds.index, node[t["src"]] != node[t["dst"]])
