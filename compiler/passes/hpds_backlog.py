"""hpds_backlog: blocked tasks, kept for `hpds` at a resource that they wait for.

A backlog holds ready tasks of one chunk that wait for one resource, in the order in which they
became ready. A task is in one of the two backlogs at its resources, and moves to the other when it
waits for that one. Only the first task of a backlog and the first backlog of a resource are looked
at, so those behind them cost nothing.

Invariants, between sub-pipelines

1. A resource that has backlogs was used by the last sub-pipeline.
2. A backlog with tasks is in the heap of its resource, under (how often its chunk had been served,
   chunk) at some time before. Chunks are only served more often, so the first is found by renewing
   keys from the top.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hccc.analysis.heap import meld, push
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8, U1

OFFERS, BACKLOGS, ARRIVALS = range(3)


class Tasks(NamedTuple):
    """Tasks of chunk c are `rows[ptr[c]:ptr[c + 1]]`. used: the last sub-pipeline that used each
    resource; served: how often each chunk was; order: the tasks that are scheduled."""

    ptr: I8
    rows: I4
    chunk: I4
    tx: I4
    rx: I4
    used: I4
    served: I8
    order: I4


class Backlogs(NamedTuple):
    """Heaps are skew heaps, -1 when empty.

    Tasks: the backlogs at `tx` and `rx`, `arrival`, and the links of the heap. Backlogs: `first`,
    the heap of its tasks; `at`, its resource; and a place in one heap, as its resource is used or
    not: `waiting` of the resource, by chunk, or `offered` of the chunk, by the arrival of its first
    task. offers: chunks with backlogs offered; size: of `offers`, backlogs built, tasks arrived;
    built: whether a chunk has its backlogs; last: the last backlog built at each resource.
    """

    tx: I4
    rx: I4
    arrival: I4
    left: I4
    right: I4
    first: I4
    at: I4
    key: I8
    before: I4
    after: I4
    waiting: I4
    offered: I4
    offers: I4
    size: I8
    built: U1
    last: I4


def backlogs(n: int, n_chunks: int, n_resources: int) -> Backlogs:
    """Makes empty backlogs of n tasks. Memory is touched only where it is used: ≤ 68 bytes a
    task."""
    most = min(2 * n, n_chunks * n_resources)
    arrival, left, right, tx, rx = (np.empty(n, np.int32) for _ in range(5))
    first, at, before, after = (np.empty(most, np.int32) for _ in range(4))
    waiting, last = (np.full(n_resources, -1, np.int32) for _ in range(2))
    return Backlogs(
        tx,
        rx,
        arrival,
        left,
        right,
        first,
        at,
        np.empty(most, np.int64),
        before,
        after,
        waiting,
        np.full(n_chunks, -1, np.int32),
        np.empty(n_chunks, np.int32),
        np.zeros(3, np.int64),
        np.zeros(n_chunks, np.uint8),
        last,
    )


@njit(allocates=False)
def _build(t: Tasks, b: Backlogs, c: int) -> None:
    """Makes the backlogs of all tasks of chunk c, none with a task. O(tasks of c), once."""
    oldest = b.size[BACKLOGS]
    for k in range(t.ptr[c], t.ptr[c + 1]):
        i = t.rows[k]
        for r in (t.tx[i], t.rx[i]):
            if b.last[r] < oldest:
                b.last[r] = b.size[BACKLOGS]
                b.first[b.last[r]], b.at[b.last[r]] = -1, r
                b.size[BACKLOGS] += 1
        b.tx[i], b.rx[i] = b.last[t.tx[i]], b.last[t.rx[i]]
    b.built[c] = 1


@njit(allocates=False)
def _key(t: Tasks, c: int) -> int:
    return int((t.served[c] << 32) | c)


@njit(allocates=False)
def _line_up(t: Tasks, b: Backlogs, g: int, c: int) -> None:
    """Puts backlog g, of chunk c, into the heap of its resource."""
    r = b.at[g]
    b.key[g], b.before[g], b.after[g] = _key(t, c), -1, -1
    b.waiting[r] = meld(b.waiting[r], g, b.key, b.before, b.after)


@njit(allocates=False)
def _offer(b: Backlogs, g: int, c: int) -> None:
    b.key[g], b.before[g], b.after[g] = b.arrival[b.first[g]], -1, -1
    b.offered[c] = meld(b.offered[c], g, b.key, b.before, b.after)


@njit(allocates=False)
def release(t: Tasks, b: Backlogs, r: int) -> None:
    """Frees resource r: offers the first of its backlogs to that backlog's chunk."""
    while b.waiting[r] >= 0:
        g = b.waiting[r]
        c = t.chunk[b.first[g]]
        b.waiting[r] = meld(b.before[g], b.after[g], b.key, b.before, b.after)
        if b.key[g] == _key(t, c):
            if b.offered[c] < 0:
                push(b.offers, 0, b.size[OFFERS], c, t.served)
                b.size[OFFERS] += 1
            _offer(b, g, c)
            return
        _line_up(t, b, g, c)


@njit(allocates=False)
def _wait(t: Tasks, b: Backlogs, i: int, c: int, sub: int) -> None:
    """Puts task i of chunk c into the backlog of a resource that is in use."""
    g = b.tx[i] if t.used[t.tx[i]] == sub else b.rx[i]
    empty = b.first[g] < 0
    b.left[i] = b.right[i] = -1
    b.first[g] = meld(b.first[g], i, b.arrival, b.left, b.right)
    if empty:
        _line_up(t, b, g, c)


@njit(allocates=False)
def keep(t: Tasks, b: Backlogs, c: int, blocked: I4, sub: int) -> None:
    """Puts the blocked tasks of chunk c, which come next, into backlogs."""
    if not b.built[c]:
        _build(t, b, c)
    for i in blocked:
        b.arrival[i] = b.size[ARRIVALS]
        b.size[ARRIVALS] += 1
        _wait(t, b, i, c, sub)


@njit(allocates=False)
def take(t: Tasks, b: Backlogs, c: int, sub: int, done: int) -> int:
    """Adds tasks of chunk c's offered backlogs to the order where their resources are free, by
    arrival; returns the number of tasks in the order."""
    while b.offered[c] >= 0:
        g = b.offered[c]
        b.offered[c] = meld(b.before[g], b.after[g], b.key, b.before, b.after)
        i, r = b.first[g], b.at[g]
        if t.used[r] == sub:
            _line_up(t, b, g, c)
            continue
        b.first[g] = meld(b.left[i], b.right[i], b.arrival, b.left, b.right)
        if t.used[t.tx[i]] == sub or t.used[t.rx[i]] == sub:
            _wait(t, b, i, c, sub)
            if b.first[g] >= 0:
                _offer(b, g, c)
            else:
                release(t, b, r)
        else:
            t.used[t.tx[i]] = t.used[t.rx[i]] = sub
            t.order[done] = i
            done += 1
            if b.first[g] >= 0:
                _line_up(t, b, g, c)
    return done
