"""schedule: Dag → Pipeline by hierarchical priority-based dynamic scheduling (HPDS).

Source: ResCCL §4.3, Alg. 1. A sub-pipeline takes tasks whose predecessors are all scheduled and
whose resources no task of the same sub-pipeline uses. Chunks take turns: the chunk that has been
served least goes first, so that a chunk's next task does not wait right behind its last one.
Where Alg. 1 leaves ties open, the chunk with the smaller id goes first.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hccc.ir.arrays import I4, I8
from hccc.ir.dag import Dag
from hccc.ir.pipeline import Pipeline
from hccc.passes.grouping import group, transpose


@njit(cache=True)
def _sift_up(heap: I8, at: int) -> None:
    while at > 0 and heap[at] < heap[(at - 1) // 2]:
        up = (at - 1) // 2
        heap[at], heap[up] = heap[up], heap[at]
        at = up


@njit(cache=True)
def _sift_down(heap: I8, n: int) -> None:
    at = 0
    while 2 * at + 1 < n:
        least = 2 * at + 1
        if least + 1 < n and heap[least + 1] < heap[least]:
            least += 1
        if heap[at] <= heap[least]:
            return
        heap[at], heap[least] = heap[least], heap[at]
        at = least


@njit(cache=True)
def _take(
    ready: I4, first: int, count: int, tx: I4, rx: I4, used: I4, sub: int, order: I4, done: int
) -> tuple[int, int]:
    """Moves a chunk's ready tasks whose resources are free into the order.

    Returns (tasks left ready, tasks in the order); what stays keeps its order.
    """
    kept = 0
    for k in range(first, first + count):
        i = ready[k]
        if used[tx[i]] != sub and used[rx[i]] != sub:
            used[tx[i]] = used[rx[i]] = sub
            order[done] = i
            done += 1
        else:
            ready[first + kept] = i
            kept += 1
    return kept, done


@njit(cache=True)
def _hpds(
    ptr: I8, chunk: I4, indegree: I4, succ_ptr: I8, succ: I4, tx: I4, rx: I4, n_resources: int
) -> tuple[I4, I8]:
    """Alg. 1: the order and where each sub-pipeline starts. `indegree` is used up."""
    n, n_chunks = len(chunk), len(ptr) - 1
    ready = np.empty(n, np.int32)  # ready tasks of chunk c: ready[ptr[c]:ptr[c] + count[c]]
    count = np.zeros(n_chunks, np.int64)
    for i in range(n):
        if indegree[i] == 0:
            ready[ptr[chunk[i]] + count[chunk[i]]] = i
            count[chunk[i]] += 1
    served = np.zeros(n_chunks, np.int64)  # minus the priority of Alg. 1
    heap = np.empty(n_chunks, np.int64)
    used = np.full(n_resources, -1, np.int32)
    order, start = np.empty(n, np.int32), np.zeros(n + 1, np.int64)
    done, sub = 0, 0
    while done < n:
        size = 0
        for c in range(n_chunks):  # every flag is true again (line 7)
            if count[c] > 0:
                heap[size] = served[c] * n_chunks + c
                size += 1
                _sift_up(heap, size - 1)
        while size > 0:
            c = heap[0] % n_chunks
            before = done
            count[c], done = _take(ready, ptr[c], count[c], tx, rx, used, sub, order, done)
            for k in range(before, done):
                for e in range(succ_ptr[order[k]], succ_ptr[order[k] + 1]):
                    indegree[succ[e]] -= 1
                    if indegree[succ[e]] == 0:
                        ready[ptr[c] + count[c]] = succ[e]
                        count[c] += 1
            if done > before and count[c] > 0:
                served[c] += 1
                heap[0] += n_chunks
            else:
                served[c] += done > before
                size -= 1
                heap[0] = heap[size]
            _sift_down(heap, size)
        sub += 1
        start[sub] = done
    return order, start[: sub + 1]


def schedule(dag: Dag) -> Pipeline:
    """The HPDS Pipeline of `dag`.

    O(n + dependencies + S · (chunks · log chunks + blocked)) for S sub-pipelines, `blocked`
    being the ready tasks that wait for a busy resource. Dependencies stay within a chunk, which
    is what lets one chunk's tasks be released without a look at the others.
    """
    program = dag.program
    chunk = np.ascontiguousarray(program.transfers["chunk"])
    ptr, _ = group(chunk, program.collective.n_chunks)
    succs = transpose(dag.preds)
    indegree = dag.preds.counts().astype(np.int32)
    n_resources = int(max(dag.tx.max(initial=0), dag.rx.max(initial=0))) + 1
    order, start = _hpds(ptr, chunk, indegree, succs.ptr, succs.index, dag.tx, dag.rx, n_resources)
    return Pipeline(dag, order, start)
