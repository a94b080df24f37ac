"""hpds: Dag → Pipeline by hierarchical priority-based dynamic scheduling (HPDS).

Source: ResCCL §4.3, Alg. 1. A sub-pipeline takes tasks whose predecessors are all scheduled and
whose resources no task of the same sub-pipeline uses. Chunks take turns: the chunk that has been
served least goes first, so that a chunk's next task does not wait right behind its last one. Where
Alg. 1 leaves ties open, the chunk with the smaller id goes first, and of its tasks the one that was
ready first.

A chunk looks through its ready tasks when it is served, which is fastest while most of them are not
blocked for long. After too many looks in vain (LOOKS), the tasks that are blocked wait at the
resource instead (`hpds_backlog`) until they are first there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hccc.analysis.grouping import group, transpose
from hccc.analysis.heap import before, pop
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8
from hccc.ir.dag import Dag
from hccc.ir.pipeline import Pipeline
from hccc.passes.hpds_backlog import (
    ARRIVALS,
    OFFERS,
    Backlogs,
    Tasks,
    backlogs,
    keep,
    release,
    take,
)

LOOKS = 256  # in vain, for each task scheduled or put into a backlog: both cost as much
VISIT = 32  # what serving a chunk costs, in looks at a task


class _Ready(NamedTuple):
    """The ready tasks of each chunk. tasks: those of chunk c that are ready and not in a backlog,
    longest first, are `tasks[ptr[c]:ptr[c] + n[c]]`; vain: looks in vain not paid for by tasks
    scheduled; left: predecessors that are not scheduled; looks: see LOOKS."""

    tasks: I4
    n: I4
    vain: I8
    left: I4
    succ_ptr: I8
    succ: I4
    looks: int


@njit(allocates=False)
def _put(t: Tasks, ready: _Ready, c: int, i: int) -> None:
    ready.tasks[t.ptr[c] + ready.n[c]] = i
    ready.n[c] += 1


@njit(allocates=False)
def _look(t: Tasks, ready: _Ready, c: int, sub: int, done: int) -> int:
    """Adds chunk c's ready tasks with free resources to the order and keeps the others; returns the
    number of tasks in the order."""
    first, n = t.ptr[c], ready.n[c]
    ready.n[c] = 0
    for k in range(first, first + n):
        i = ready.tasks[k]
        if t.used[t.tx[i]] != sub and t.used[t.rx[i]] != sub:
            t.used[t.tx[i]] = t.used[t.rx[i]] = sub
            t.order[done] = i
            done += 1
        else:
            _put(t, ready, c, i)
    return done


@njit(allocates=False)
def _serve(t: Tasks, ready: _Ready, b: Backlogs, c: int, sub: int, done: int) -> int:
    """Adds chunk c's ready tasks with free resources to the order, first those of backlogs, and
    makes the tasks that they release ready; returns the number of tasks in the order."""
    before = done
    if b.offered[c] >= 0:
        done = take(t, b, c, sub, done)
    done = _look(t, ready, c, sub, done)
    n = int(ready.n[c])
    ready.vain[c] = max(0, ready.vain[c] + VISIT + n - ready.looks * (done - before))
    if n > 0 and ready.vain[c] > ready.looks * n:
        keep(t, b, c, ready.tasks[t.ptr[c] : t.ptr[c] + n], sub)
        ready.vain[c] = ready.n[c] = 0
    for k in range(before, done):
        for e in range(ready.succ_ptr[t.order[k]], ready.succ_ptr[t.order[k] + 1]):
            ready.left[ready.succ[e]] -= 1
            if ready.left[ready.succ[e]] == 0:
                _put(t, ready, c, ready.succ[e])
    return done


@njit(allocates=False)
def _sub_pipeline(
    t: Tasks, ready: _Ready, b: Backlogs, waiting: I4, again: I4, blocked: I4, sub: int, done: int
) -> tuple[int, int]:
    """Schedules one sub-pipeline: chunks take turns until none has a task left with free resources.

    waiting: the chunks with ready tasks, those served least first, then by id. On return `blocked`
    lists the chunks still waiting. `again`: scratch for chunks served here; it stays sorted, as
    each count rises by one. Returns the number of blocked chunks, and of tasks in the order.
    """
    n_again, n_blocked, x, y = 0, 0, 0, 0
    while x < len(waiting) or y < n_again or b.size[OFFERS] > 0:
        c = waiting[x] if x < len(waiting) else -1
        if y < n_again and (c < 0 or before(again[y], c, t.served)):
            c = again[y]
        if b.size[OFFERS] > 0 and (c < 0 or before(b.offers[0], c, t.served)):
            c = b.offers[0]
        x += x < len(waiting) and waiting[x] == c
        y += y < n_again and again[y] == c
        if b.size[OFFERS] > 0 and b.offers[0] == c:
            pop(b.offers, 0, b.size[OFFERS], t.served)
            b.size[OFFERS] -= 1
        now = _serve(t, ready, b, c, sub, done)
        if now > done:
            t.served[c] += 1
            if ready.n[c] > 0:
                again[n_again] = c
                n_again += 1
        elif ready.n[c] > 0:
            blocked[n_blocked] = c
            n_blocked += 1
        done = now
    return n_blocked, done


@njit
def _hpds(t: Tasks, ready: _Ready, b: Backlogs) -> I8:
    """Runs Alg. 1: fills `t.order`; returns where each sub-pipeline starts."""
    n = len(t.order)
    for i in range(n):
        if ready.left[i] == 0:
            _put(t, ready, t.chunk[i], i)
    waiting = np.flatnonzero(ready.n).astype(np.int32)
    n_waiting, blocked = len(waiting), waiting.copy()
    again = np.empty(len(t.used), np.int32)
    start, done, sub = np.zeros(n + 1, np.int64), 0, 0
    while done < n:
        if b.size[ARRIVALS] > 0:
            for k in range(start[sub - 1], done):
                i = t.order[k]
                release(t, b, t.tx[i])
                if t.rx[i] != t.tx[i]:
                    release(t, b, t.rx[i])
        n_waiting, done = _sub_pipeline(t, ready, b, waiting[:n_waiting], again, blocked, sub, done)
        waiting, blocked = blocked, waiting
        sub += 1
        start[sub] = done
    return start[: sub + 1]


def hpds(dag: Dag, looks: int = LOOKS) -> Pipeline:
    """Returns the HPDS Pipeline of `dag`. looks: see LOOKS."""
    program = dag.program
    n_chunks = program.collective.n_chunks
    chunk = np.array(program.transfers["chunk"])
    ptr, rows = group(chunk, n_chunks)
    succs = transpose(dag.preds)
    n_resources = int(max(dag.tx.max(initial=0), dag.rx.max(initial=0))) + 1
    tasks = Tasks(
        ptr,
        rows,
        chunk,
        dag.tx,
        dag.rx,
        np.full(n_resources, -1, np.int32),
        np.zeros(n_chunks, np.int64),
        np.empty(len(dag), np.int32),
    )
    ready = _Ready(
        np.empty(len(dag), np.int32),
        np.zeros(n_chunks, np.int32),
        np.zeros(n_chunks, np.int64),
        dag.preds.counts().astype(np.int32),
        succs.ptr,
        succs.index,
        looks,
    )
    start = _hpds(tasks, ready, backlogs(len(dag), n_chunks, n_resources))
    return Pipeline(dag, tasks.order, start)
