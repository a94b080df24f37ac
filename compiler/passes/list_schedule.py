"""list_schedule: Dag → Pipeline by list scheduling (Graham 1969) of task-level execution.

A task begins as soon as it can: one micro-batch after its predecessors (ResCCL §3), when nothing
else is on its resources. Of several, the one with the longest time behind it goes first (its upward
rank, as in HEFT). HPDS looks at resources and chunks only; this looks at time, which fills
pipelines sooner where there are few micro-batches or many hops.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hccc.analysis.estimate import MICRO_BATCHES
from hccc.analysis.grouping import transpose
from hccc.analysis.heap import pop, push
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8
from hccc.ir.dag import Dag
from hccc.ir.pipeline import Pipeline
from hccc.ir.program import Op
from hccc.ir.topology import F8
from hccc.network.routes import cost


class _ListedTasks(NamedTuple):
    """The constants of the run. succ: rows ptr; rank: minus the time from a task's start to the
    end; unit: µs a micro-batch; tx, rx: resources."""

    ptr: I8
    succ: I4
    rank: F8
    unit: F8
    tx: I4
    rx: I4


class _ListState(NamedTuple):
    """The state of the run.

    Events are tasks that may begin (0 to n - 1) and resources that come free (n and up), at `time`;
    a task that may begin waits for one of its resources r, in the heap from `room[r]`. size: of
    `events`, tasks begun; left: predecessors of a task; ends: when the last of them does.
    """

    time: F8
    events: I4
    size: I8
    heap: I4
    room: I8
    waiting: I8
    taken: NDArray[np.bool_]
    left: I4
    ends: F8
    order: I4


@njit
def _upward(ptr: I8, succ: I4, unit: F8) -> F8:
    rank = np.zeros(len(unit))
    for i in range(len(unit) - 1, -1, -1):
        for k in range(ptr[i], ptr[i + 1]):
            rank[i] = min(rank[i], rank[succ[k]])
        rank[i] -= unit[i]
    return rank


@njit
def _event(s: _ListState, event: int, time: float) -> None:
    s.time[event] = time
    push(s.events, 0, s.size[0], event, s.time)
    s.size[0] += 1


@njit
def _wait(s: _ListState, t: _ListedTasks, i: int, r: int) -> None:
    push(s.heap, s.room[r], s.waiting[r], i, t.rank)
    s.waiting[r] += 1


@njit
def _serve(s: _ListState, t: _ListedTasks, r: int, now: float, batches: int) -> None:
    """Begins the first of the tasks that wait for resource r and for nothing else."""
    while s.waiting[r] > 0 and not s.taken[r]:
        i = pop(s.heap, s.room[r], s.waiting[r], t.rank)
        s.waiting[r] -= 1
        other = t.rx[i] if r == t.tx[i] else t.tx[i]
        if s.taken[other]:
            _wait(s, t, i, other)
        else:
            _begin(s, t, i, now, batches)


@njit
def _begin(s: _ListState, t: _ListedTasks, i: int, now: float, batches: int) -> None:
    s.order[s.size[1]] = i
    s.size[1] += 1
    end = max(now + batches * t.unit[i], s.ends[i] + t.unit[i])
    for r in (t.tx[i], t.rx[i]):
        if not s.taken[r]:
            s.taken[r] = True
            _event(s, len(t.unit) + r, end)
    for k in range(t.ptr[i], t.ptr[i + 1]):
        j = t.succ[k]
        s.ends[j] = max(s.ends[j], end)
        s.time[j] = max(s.time[j], now + t.unit[i])
        s.left[j] -= 1
        if s.left[j] == 0:
            _event(s, j, s.time[j])


@njit
def _list(s: _ListState, t: _ListedTasks, batches: int) -> None:
    """Fills `s.order` with tasks as they begin. Handles everything due at a time before any task
    begins."""
    n = len(t.unit)
    for i in range(n):
        if s.left[i] == 0:
            _event(s, i, 0.0)
    due = np.empty(len(s.events), np.int32)
    while s.size[0] > 0:
        now, n_due = s.time[s.events[0]], 0
        while s.size[0] > 0 and s.time[s.events[0]] <= now:
            event = pop(s.events, 0, s.size[0], s.time)
            s.size[0] -= 1
            if event >= n:
                s.taken[event - n] = False
            else:
                _wait(s, t, event, t.tx[event])
            due[n_due] = event - n if event >= n else t.tx[event]
            n_due += 1
        for k in range(n_due):
            _serve(s, t, due[k], now, batches)


@njit
def _levels(order: I4, ptr: I8, pred: I4, tx: I4, rx: I4, n_resources: int) -> I4:
    """Returns the first sub-pipeline that each task can be in, behind its predecessors and
    resources."""
    last = np.full(n_resources, -1, np.int32)
    sub = np.zeros(len(order), np.int32)
    for i in order:
        level = max(last[tx[i]], last[rx[i]]) + 1
        for k in range(ptr[i], ptr[i + 1]):
            level = max(level, sub[pred[k]])
        sub[i] = last[tx[i]] = last[rx[i]] = level
    return sub


def _unit(dag: Dag) -> F8:
    """Returns the µs that a micro-batch of each task takes: over its links, or through its thread
    block."""
    t = dag.program.transfers
    worker = np.where(t["op"] == Op.RRC, t["dst"], t["src"])
    block = dag.topology.block_cost()[worker] / dag.program.channels
    return np.maximum(cost(dag.topology, t["src"], t["dst"]), block)


def list_schedule(dag: Dag, batches: int = MICRO_BATCHES) -> Pipeline:
    """Returns the list-scheduled Pipeline of `dag`, for calls of `batches` micro-batches.

    O((n + dependencies + moves) · log n); a task moves to wait for its other resource when that is
    taken as it is served.
    """
    n = len(dag)
    if not n:
        return Pipeline(dag, np.zeros(0, np.int32), np.zeros(1, np.int64))
    succs, unit = transpose(dag.preds), _unit(dag)
    users = np.zeros(1 + int(max(dag.tx.max(), dag.rx.max())), np.int64)
    for resources in (dag.tx, dag.rx):
        users += np.bincount(resources, minlength=len(users))
    rank = _upward(succs.ptr, succs.index, unit)
    tasks = _ListedTasks(succs.ptr, succs.index, rank, unit, dag.tx, dag.rx)
    state = _ListState(
        np.zeros(n + len(users)),
        np.empty(n + len(users), np.int32),
        np.zeros(2, np.int64),
        np.empty(2 * n, np.int32),
        np.cumsum(users) - users,
        np.zeros(len(users), np.int64),
        np.zeros(len(users), np.bool_),
        dag.preds.counts().astype(np.int32),
        np.zeros(n),
        np.empty(n, np.int32),
    )
    _list(state, tasks, batches)
    preds = dag.preds
    sub = _levels(state.order, preds.ptr, preds.index, dag.tx, dag.rx, len(users))[state.order]
    order = np.argsort(sub, kind="stable")
    start = np.searchsorted(sub[order], np.arange(int(sub.max()) + 2))
    return Pipeline(dag, state.order[order], start)
