"""engine: the discrete events: thread blocks in order, waits, queues, and what is in flight.

A thread block runs window → primitive → micro-batch. An instance (primitive p, micro-batch m,
number p · M + m) waits for its flags, for messages to take and for free slots to give to; then
its fixed part passes (α, γ, what the runtime adds), then its bytes move at the rate that `fair`
gives them; then it raises its flags and its block goes on. Of equal lanes one is simulated.

O(instances · (log blocks + what a change of rates reaches)).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from hccc.ir.arrays import I4, I8
from hccc.ir.topology import F8
from hccc.sim.agenda import Agenda, put, take
from hccc.sim.fair import Network, component, fill, join, leave

IDLE, FIXED, MOVING = 0, 1, 2  # what a block does
SAME_TIME = 1e-10  # events this close (relative) happen at once


class Work(NamedTuple):
    """What is to be done. Of primitives: block's rows tb_ptr, CSRs of waits, posts (flags), takes,
    gives (queues), uses (resources); fixed, fixed_last: µs of a whole and of the last micro-batch
    before bytes move; amount, amount_last: bytes; cap: bytes/µs; core: resource or -1."""

    tb_ptr: I8
    wait_ptr: I8
    wait: I4
    post_ptr: I8
    post: I4
    take_ptr: I8
    take: I4
    give_ptr: I8
    give: I4
    use_ptr: I8
    use: I4
    weight: F8
    fixed: F8
    fixed_last: F8
    amount: F8
    amount_last: F8
    cap: F8
    core: I4
    core_weight: F8  # cores that a byte/µs of the primitive occupies
    batches: int
    window: int
    slots: int
    lanes: float


class State(NamedTuple):
    """Where everything is. Of blocks: prim, batch, window (its first micro-batch), doing, left
    (bytes to move), since (µs), waker (the instance that let it go, -1). flag: micro-batches done;
    queues: messages sent, being sent, taken, being taken. waiting: the first block that waits for
    a flag, a message or a slot; other: the next one."""

    prim: I4
    batch: I4
    window: I4
    doing: I4
    left: F8
    since: F8
    waker: I4
    flag: I4
    sent: I4
    sending: I4
    taken: I4
    taking: I4
    waiting: I4
    other: I4
    busy_since: F8  # of resources
    todo: I4
    n_todo: I4
    dirty: I4
    n_dirty: I4
    new: I4
    n_new: I4


class Record(NamedTuple):
    """What is found: begin, ready, end f8[P·M] µs, cause i4[P·M]; carried, active f8[R]."""

    begin: F8
    ready: F8
    end: F8
    cause: I4
    carried: F8
    active: F8


@njit(cache=True)
def run(w: Work, s: State, n: Network, a: Agenda, x: Record) -> int:
    """Runs to the end; how many blocks never finish (0: none hangs)."""
    blocks = len(w.tb_ptr) - 1
    finished = 0
    for b in range(blocks):
        if w.tb_ptr[b] == w.tb_ptr[b + 1]:
            finished += 1
            continue
        s.prim[b] = w.tb_ptr[b]
        _arrive(w, s, x, b, 0.0)
    finished += _cascade(w, s, n, a, x, 0.0)
    _rebalance(s, n, a, 0.0, 1)
    stamp = 1
    due = np.zeros(blocks, np.int32)
    while a.size[0] > 0:
        now = a.time[a.heap[0]]
        limit = now * (1 + SAME_TIME) + SAME_TIME
        n_due = 0
        while a.size[0] > 0 and a.time[a.heap[0]] <= limit:
            due[n_due] = take(a)
            n_due += 1
        for i in range(n_due):
            b = due[i]
            if s.doing[b] == FIXED:
                _stop(w, s, n, x, b, now)
                _move(w, s, n, a, x, b, now)
            else:
                _stop(w, s, n, x, b, now)
                _finish(w, s, x, b, now)
        finished += _cascade(w, s, n, a, x, now)
        stamp += 1
        _rebalance(s, n, a, now, stamp)
    return blocks - finished


@njit(cache=True)
def _instance(w: Work, s: State, b: int) -> int:
    return int(s.prim[b]) * w.batches + int(s.batch[b])


@njit(cache=True)
def _arrive(w: Work, s: State, x: Record, b: int, now: float) -> None:
    """Block b has got to its next instance, and is to try it."""
    x.begin[_instance(w, s, b)] = now
    s.waker[b] = -1
    s.todo[s.n_todo[0]] = b
    s.n_todo[0] += 1


@njit(cache=True)
def _cascade(w: Work, s: State, n: Network, a: Agenda, x: Record, now: float) -> int:
    """Lets every block that may have become free try its instance; how many blocks finished."""
    finished = 0
    while s.n_todo[0] > 0:
        s.n_todo[0] -= 1
        b = s.todo[s.n_todo[0]]
        if s.prim[b] == w.tb_ptr[b + 1]:
            finished += 1
        elif not _blocked(w, s, b):
            _start(w, s, n, a, x, b, now)
    return finished


@njit(cache=True)
def _blocked(w: Work, s: State, b: int) -> bool:
    """Whether block b must wait; it then stands in line for what it waits for first."""
    p, m = s.prim[b], s.batch[b]
    flags, queues = len(s.flag), len(s.sent)
    for k in range(w.wait_ptr[p], w.wait_ptr[p + 1]):
        if s.flag[w.wait[k]] <= m:
            return _stand(s, b, w.wait[k])
    for k in range(w.take_ptr[p], w.take_ptr[p + 1]):
        q = w.take[k]
        ahead = 0
        for j in range(w.take_ptr[p], k):
            ahead += w.take[j] == q
        if s.sent[q] <= s.taking[q] + ahead:
            return _stand(s, b, flags + q)
    for k in range(w.give_ptr[p], w.give_ptr[p + 1]):
        q = w.give[k]
        ahead = 0
        for j in range(w.give_ptr[p], k):
            ahead += w.give[j] == q
        if s.sending[q] + ahead - s.taken[q] >= w.slots:
            return _stand(s, b, flags + queues + q)
    return False


@njit(cache=True)
def _stand(s: State, b: int, line: int) -> bool:
    s.other[b] = s.waiting[line]
    s.waiting[line] = b
    return True


@njit(cache=True)
def _wake(s: State, line: int, instance: int) -> None:
    """All blocks in a line may try again; `instance` let them."""
    b = s.waiting[line]
    s.waiting[line] = -1
    while b >= 0:
        s.waker[b] = instance
        s.todo[s.n_todo[0]] = b
        s.n_todo[0] += 1
        b = s.other[b]


@njit(cache=True)
def _start(w: Work, s: State, n: Network, a: Agenda, x: Record, b: int, now: float) -> None:
    """Block b's waits are over: the fixed part begins."""
    p = s.prim[b]
    i = _instance(w, s, b)
    x.ready[i], x.cause[i] = now, s.waker[b]
    for k in range(w.take_ptr[p], w.take_ptr[p + 1]):
        s.taking[w.take[k]] += 1
    for k in range(w.give_ptr[p], w.give_ptr[p + 1]):
        s.sending[w.give[k]] += 1
    fixed = w.fixed_last[p] if s.batch[b] == w.batches - 1 else w.fixed[p]
    if fixed <= 0:
        _move(w, s, n, a, x, b, now)
        return
    s.doing[b] = FIXED
    if w.core[p] >= 0:
        _flow(s, n, b, fixed, 1.0, now)
        _join(s, n, b, w.core[p], w.lanes, now)
    else:
        put(a, b, now + fixed)


@njit(cache=True)
def _move(w: Work, s: State, n: Network, a: Agenda, x: Record, b: int, now: float) -> None:
    """Block b's bytes begin to move."""
    p = s.prim[b]
    amount = w.amount_last[p] if s.batch[b] == w.batches - 1 else w.amount[p]
    if amount <= 0:
        _finish(w, s, x, b, now)
        return
    s.doing[b] = MOVING
    _flow(s, n, b, amount, w.cap[p], now)
    for k in range(w.use_ptr[p], w.use_ptr[p + 1]):
        _join(s, n, b, w.use[k], w.weight[k], now)
        x.carried[w.use[k]] += amount * w.weight[k]
    if w.core[p] >= 0:
        _join(s, n, b, w.core[p], w.core_weight[p], now)


@njit(cache=True)
def _flow(s: State, n: Network, b: int, amount: float, cap: float, now: float) -> None:
    s.left[b], s.since[b] = amount, now
    n.cap[b], n.rate[b] = cap, 0.0
    s.new[s.n_new[0]] = b
    s.n_new[0] += 1


@njit(cache=True)
def _join(s: State, n: Network, b: int, r: int, weight: float, now: float) -> None:
    if n.head[r] < 0:
        s.busy_since[r] = now
    join(n, b, r, weight)


@njit(cache=True)
def _stop(w: Work, s: State, n: Network, x: Record, b: int, now: float) -> None:
    """What block b had in flight is through."""
    first, count = n.first[b], n.uses[b]
    s.n_dirty[0] = leave(n, b, s.dirty, s.n_dirty[0])
    for e in range(first, first + count):
        r = n.resource[e]
        if n.head[r] < 0:
            x.active[r] += now - s.busy_since[r]


@njit(cache=True)
def _finish(w: Work, s: State, x: Record, b: int, now: float) -> None:
    """Block b's instance is done: flags, messages, and on to the next."""
    p = s.prim[b]
    i = _instance(w, s, b)
    flags, queues = len(s.flag), len(s.sent)
    x.end[i] = now
    s.doing[b] = IDLE
    for k in range(w.post_ptr[p], w.post_ptr[p + 1]):
        s.flag[w.post[k]] = s.batch[b] + 1
        _wake(s, w.post[k], i)
    for k in range(w.give_ptr[p], w.give_ptr[p + 1]):
        s.sent[w.give[k]] += 1
        _wake(s, flags + w.give[k], i)
    for k in range(w.take_ptr[p], w.take_ptr[p + 1]):
        s.taken[w.take[k]] += 1
        _wake(s, flags + queues + w.take[k], i)
    _advance(w, s, x, b, now)


@njit(cache=True)
def _advance(w: Work, s: State, x: Record, b: int, now: float) -> None:
    """The loop nest: window → primitive → micro-batch."""
    s.batch[b] += 1
    if s.batch[b] >= min(s.window[b] + w.window, w.batches):
        s.prim[b] += 1
        if s.prim[b] == w.tb_ptr[b + 1] and s.window[b] + w.window < w.batches:
            s.prim[b] = w.tb_ptr[b]
            s.window[b] += w.window
        s.batch[b] = s.window[b]
    if s.prim[b] < w.tb_ptr[b + 1]:
        _arrive(w, s, x, b, now)
    else:
        s.todo[s.n_todo[0]] = b
        s.n_todo[0] += 1


@njit(cache=True)
def _rebalance(s: State, n: Network, a: Agenda, now: float, stamp: int) -> None:
    """New rates for all that the changes at `now` reach, and when they will be through."""
    resources, blocks = component(n, s.dirty, s.n_dirty[0], s.new, s.n_new[0], stamp)
    s.n_dirty[0] = s.n_new[0] = 0
    fill(n, resources, blocks, stamp)
    for i in range(blocks):
        b = n.found_block[i]
        if abs(n.fresh[b] - n.rate[b]) > 1e-12 * n.rate[b]:
            s.left[b] -= n.rate[b] * (now - s.since[b])
            s.since[b], n.rate[b] = now, n.fresh[b]
            put(a, b, now + max(s.left[b], 0.0) / n.rate[b])


def state(w: Work, flags: int, queues: int, resources: int, uses: int) -> State:
    """Nothing done yet. uses: entries of the Network, an upper bound for `dirty`."""
    blocks = len(w.tb_ptr) - 1

    def zeros(count: int) -> I4:
        return np.zeros(count, np.int32)

    one = [np.zeros(1, np.int32) for _ in range(3)]
    return State(
        zeros(blocks), zeros(blocks), zeros(blocks), np.zeros(blocks, np.int8),
        np.zeros(blocks), np.zeros(blocks), np.full(blocks, -1, np.int32),
        zeros(flags), zeros(queues), zeros(queues), zeros(queues), zeros(queues),
        np.full(flags + 2 * queues, -1, np.int32), np.full(blocks, -1, np.int32),
        np.zeros(resources), zeros(2 * blocks + 1), one[0],
        zeros(uses + 1), one[1], zeros(blocks + 1), one[2],
    )  # fmt: skip


def record(instances: int, resources: int) -> Record:
    """Nothing found yet."""
    return Record(
        np.zeros(instances), np.zeros(instances), np.zeros(instances),
        np.full(instances, -1, np.int32), np.zeros(resources), np.zeros(resources),
    )  # fmt: skip
