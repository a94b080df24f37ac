"""schedule: Dag → Pipeline by hierarchical priority-based dynamic scheduling (HPDS).

Source: ResCCL §4.3, Alg. 1. A sub-pipeline takes tasks whose predecessors are all scheduled and
whose resources no task of the same sub-pipeline uses. Chunks take turns: the chunk that has been
served least goes first, so that a chunk's next task does not wait right behind its last one.
Where Alg. 1 leaves ties open, the chunk with the smaller id goes first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hccc.compiled import njit
from hccc.ir.arrays import I4, I8
from hccc.ir.dag import Dag
from hccc.ir.pipeline import Pipeline
from hccc.passes.grouping import group, transpose


class _Tasks(NamedTuple):
    """ready: the ready tasks of chunk c are `ready[ptr[c]:ptr[c] + n_ready[c]]`; left: predecessors
    not scheduled; used: the last sub-pipeline that used each resource."""

    ptr: I8
    ready: I4
    n_ready: I8
    left: I4
    succ_ptr: I8
    succ: I4
    tx: I4
    rx: I4
    used: I4
    order: I4


@njit
def _put(t: _Tasks, c: int, i: int) -> None:
    t.ready[t.ptr[c] + t.n_ready[c]] = i
    t.n_ready[c] += 1


@njit
def _serve(t: _Tasks, c: int, sub: int, done: int) -> int:
    """Chunk c's ready tasks whose resources are free join the order, what they release is ready,
    and what stays keeps its turn; how many tasks are in the order."""
    first, n, before = t.ptr[c], t.n_ready[c], done
    t.n_ready[c] = 0
    for k in range(first, first + n):
        i = t.ready[k]
        if t.used[t.tx[i]] != sub and t.used[t.rx[i]] != sub:
            t.used[t.tx[i]] = t.used[t.rx[i]] = sub
            t.order[done] = i
            done += 1
        else:
            _put(t, c, i)
    for k in range(before, done):
        for e in range(t.succ_ptr[t.order[k]], t.succ_ptr[t.order[k] + 1]):
            t.left[t.succ[e]] -= 1
            if t.left[t.succ[e]] == 0:
                _put(t, c, t.succ[e])
    return done


@njit
def _by_service(count: I8, served: I8) -> tuple[I8, I4]:
    """Chunks with ready tasks, those served least first, then by id: rows of ptr a service."""
    most = 0
    for c in range(len(count)):
        if count[c] > 0:
            most = max(most, served[c])
    ptr = np.zeros(most + 2, np.int64)
    for c in range(len(count)):
        if count[c] > 0:
            ptr[served[c] + 1] += 1
    ptr = np.cumsum(ptr)
    fill, rows = ptr[:-1].copy(), np.empty(ptr[-1], np.int32)
    for c in range(len(count)):
        if count[c] > 0:
            rows[fill[served[c]]] = c
            fill[served[c]] += 1
    return ptr, rows


@njit
def _sub_pipeline(t: _Tasks, served: I8, sub: int, done: int) -> int:
    """One sub-pipeline: chunks take turns until none has a task left whose resources are free.

    Chunks served `level` times are those that were before, and those that have just been.
    """
    ptr, rows = _by_service(t.n_ready, served)  # every flag is true again (line 7)
    again, level = np.empty(0, np.int32), 0
    while level < len(ptr) - 1 or len(again) > 0:
        known = rows[ptr[level] : ptr[level + 1]] if level < len(ptr) - 1 else rows[:0]
        if len(known) + len(again) == 0:
            level += 1
            continue
        later, n_later, a, b = np.empty(len(known) + len(again), np.int32), 0, 0, 0
        while a < len(known) or b < len(again):
            if b == len(again) or (a < len(known) and known[a] < again[b]):
                c, a = known[a], a + 1
            else:
                c, b = again[b], b + 1
            before, done = done, _serve(t, c, sub, done)
            if done > before:
                served[c] += 1
                if t.n_ready[c] > 0:
                    later[n_later] = c
                    n_later += 1
        again, level = later[:n_later], level + 1
    return done


@njit
def _hpds(t: _Tasks, chunk: I4) -> I8:
    """Alg. 1: fills `t.order`; where each sub-pipeline starts."""
    n = len(chunk)
    for i in range(n):
        if t.left[i] == 0:
            _put(t, chunk[i], i)
    served = np.zeros(len(t.n_ready), np.int64)  # minus the priority of Alg. 1
    start, done, sub = np.zeros(n + 1, np.int64), 0, 0
    while done < n:
        done = _sub_pipeline(t, served, sub, done)
        sub += 1
        start[sub] = done
    return start[: sub + 1]


def schedule(dag: Dag) -> Pipeline:
    """The HPDS Pipeline of `dag`.

    O(n + dependencies + S · (chunks + blocked)) for S sub-pipelines, `blocked` being the ready
    tasks that wait for a busy resource. Dependencies stay within a chunk, which is what lets one
    chunk's tasks be released without a look at the others.
    """
    program = dag.program
    chunk = np.ascontiguousarray(program.transfers["chunk"])
    ptr, _ = group(chunk, program.collective.n_chunks)
    succs = transpose(dag.preds)
    n_resources = int(max(dag.tx.max(initial=0), dag.rx.max(initial=0))) + 1
    tasks = _Tasks(
        ptr, np.empty(len(dag), np.int32), np.zeros(len(ptr) - 1, np.int64),
        dag.preds.counts().astype(np.int32), succs.ptr, succs.index, dag.tx, dag.rx,
        np.full(n_resources, -1, np.int32), np.empty(len(dag), np.int32),
    )  # fmt: skip
    start = _hpds(tasks, chunk)
    return Pipeline(dag, tasks.order, start)
