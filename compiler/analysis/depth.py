"""depth: lengths of chains: the longest in a Plan, and the thread blocks before each primitive."""

from __future__ import annotations

import numpy as np

from hccc.analysis.execution_order import execution_order
from hccc.analysis.waits import enforced
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4, I8
from hccc.ir.dag import Dag
from hccc.ir.plan import Plan
from hccc.ir.primitives import Primitives, memory_domain
from hccc.ir.program import Op


def depth(plan: Plan) -> int:
    """Returns the length of the longest chain of `plan` through program order and waits: the steps
    that a message of one chunk takes if every primitive takes one. O(primitives + waits).

    `plan` must have passed `deadlock`.
    """
    waits = enforced(plan)
    first = np.zeros(len(plan) + 1, np.bool_)
    first[plan.tb_ptr] = True
    return _longest(execution_order(plan, waits), first, waits.ptr, waits.index)


@njit
def _longest(order: I4, first: B1, ptr: I8, preds: I4) -> int:
    level = np.zeros(len(order), np.int64)
    longest = 0
    for i in order:
        before = 0 if first[i] else level[i - 1]
        for k in range(ptr[i], ptr[i + 1]):
            before = max(before, level[preds[k]])
        level[i] = before + 1
        longest = max(longest, level[i])
    return longest


def depths(p: Primitives) -> I4:
    """Returns how many thread blocks the data of each primitive passed, one after the other: i4[n].

    A rank that passes data on waits for the ranks that bring it; its own data it has from the
    start. So if each depth has a thread block of its own, no primitive that could run waits behind
    one that cannot, as long as there are few depths: a pipeline of depths, micro-batch after
    micro-batch.

    A copy is made by its source. A sum is made by its destination, one deeper if the network brings
    the summand; a local copy has depth 0. O(tasks + dependencies).
    """
    executor, crosses = _executors(p)
    task = _depths_of_tasks(p.dag.preds.ptr, p.dag.preds.index, executor, crosses)
    rank, of = p.owner[p.tasks.owner()], p.tasks.index
    depth = np.zeros(len(p), np.int32)
    np.maximum.at(depth, p.tasks.owner(), task[of] - (crosses[of] & (rank != executor[of])))
    return depth


@njit
def _depths_of_tasks(ptr: I8, pred: I4, executor: I4, crosses: B1) -> I4:
    depth = np.zeros(len(executor), np.int32)
    for i in range(len(executor)):
        deepest = 0
        for k in range(ptr[i], ptr[i + 1]):
            p = pred[k]
            deepest = max(deepest, depth[p] + (executor[p] != executor[i]))
        depth[i] = deepest + crosses[i]
    return depth


def _executors(p: Primitives) -> tuple[I4, B1]:
    """Returns the rank that makes the copy or the sum of each task, and marks the sums that the
    network brings."""
    dag: Dag = p.dag
    t, domain = dag.program.transfers, memory_domain(p)
    adds = t["op"] == Op.RRC
    return np.where(adds, t["dst"], t["src"]), adds & (domain[t["src"]] != domain[t["dst"]])
