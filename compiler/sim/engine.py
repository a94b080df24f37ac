"""engine: the discrete events: thread blocks in order, waits, queues, and data in flight.

A thread block runs window → primitive → micro-batch. An instance (primitive p, micro-batch m,
row p · M + m) waits for its flags, for messages to take and for free slots to give to; then its
fixed part passes (α, γ, the runtime's costs), then its bytes move at the rate that `fair` gives
them; then it raises its flags, hands transfers for other memory domains to proxies, and its block
goes on. Of equal channels one is simulated.

O((instances + transfers) · (log blocks + what a change of rates reaches)).
"""

from __future__ import annotations

from hccc.base.jit.compiled import njit
from hccc.sim.agenda import put, take
from hccc.sim.fair import flow, join, leave, rebalance
from hccc.sim.proxy import end, hand_over
from hccc.sim.state import DUE, FIXED, HEAP, IDLE, MOVING, SAME_TIME, TODO, State
from hccc.sim.waiting import push, stand, wake


class InNumba:
    """A run (`compiled.Engine`) of the engine that numba compiles."""

    def __init__(self, s: State, channels: float) -> None:
        self._s, self._channels, self._stamp = s, channels, 1
        self.left, self.now = _begin(s), 0.0

    def go_on(self, latest: float, moments: int) -> None:
        """Runs `moments` moments, or all there are until `latest` µs or until work is done."""
        at = self.left, self._stamp, self.now
        self.left, self.now = _go_on(self._s, self._channels, *at, latest, moments)
        self._stamp += moments


@njit(allocates=False, always=True)
def _begin(s: State) -> int:
    """Starts every block; returns the number of blocks that have anything to do."""
    blocks = int(s.shape[3])
    left = blocks
    for b in range(blocks):
        if s.block[b].prim == s.block[b].stop:
            left -= 1
        else:
            _arrive(s, b, 0.0)
    return left


@njit(allocates=False, always=True)
def _go_on(
    s: State, channels: float, left: int, stamp: int, now: float, latest: float, moments: int
) -> tuple[int, float]:
    """Runs `moments` moments more, or all there are until `latest`; returns (unfinished blocks,
    time)."""
    for moment in range(moments):
        left -= _try_all(s, channels, now)
        rebalance(s, now, stamp + moment)
        if s.length[HEAP] == 0 or s.work[0] > s.work[1]:
            break
        now = s.heap[0].time
        if now > latest:
            break
        limit = now * (1 + SAME_TIME) + SAME_TIME
        n_due = 0
        while s.length[HEAP] > 0 and s.heap[0].time <= limit:
            s.lists[DUE, n_due] = take(s)
            n_due += 1
        for i in range(n_due):
            _end(s, s.lists[DUE, i], now)
    return left, now


@njit(allocates=False, always=True)
def _arrive(s: State, b: int, now: float) -> None:
    """Moves block b to its next instance, to be tried."""
    block = s.block[b]
    s.instance[block.prim * s.shape[0] + block.batch].begin = now
    block.waker = block.via = -1
    push(s, b)


@njit(allocates=False, always=True)
def _try_all(s: State, channels: float, now: float) -> int:
    """Tries the instance of every block that may be free; returns the number of finished blocks."""
    finished = 0
    while s.length[TODO] > 0:
        s.length[TODO] -= 1
        b = s.lists[TODO, s.length[TODO]]
        if s.block[b].prim == s.block[b].stop:
            finished += 1
        elif s.block[b].doing == FIXED:
            _move(s, b, now)
        elif not _blocked(s, b):
            _start(s, b, channels, now)
    return finished


@njit(allocates=False, always=True)
def _blocked(s: State, b: int) -> bool:
    """Tells whether block b must wait; it then stands in line for the first thing missing."""
    p, m = s.block[b].prim, s.block[b].batch
    here, after = s.primitive[p], s.primitive[p + 1]
    for k in range(here.wait, after.wait):
        if s.flag[s.wait[k]] <= m:
            return stand(s, b, s.wait[k])
    flags, queues = len(s.flag), len(s.queue)
    for k in range(here.take, after.take):
        q = s.take[k]
        ahead = 0
        for j in range(here.take, k):
            ahead += s.take[j] == q
        if s.queue[q].sent <= s.queue[q].taking + ahead:
            return stand(s, b, flags + q)
    for k in range(here.give, after.give):
        q = s.give[k]
        ahead = 0
        for j in range(here.give, k):
            ahead += s.give[j] == q
        if s.queue[q].sending + ahead - s.queue[q].taken >= s.shape[2]:
            return stand(s, b, flags + queues + q)
    return False


@njit(allocates=False, always=True)
def _start(s: State, b: int, channels: float, now: float) -> None:
    """Begins the fixed part of block b's instance, after its waits."""
    block = s.block[b]
    here, after = s.primitive[block.prim], s.primitive[block.prim + 1]
    i = s.instance[block.prim * s.shape[0] + block.batch]
    i.ready, i.cause, i.via = now, block.waker, block.via
    for k in range(here.take, after.take):
        s.queue[s.take[k]].taking += 1
    for k in range(here.give, after.give):
        s.queue[s.give[k]].sending += 1
    rest = here.fixed_last if block.batch == here.whole else here.fixed_none
    fixed = here.fixed if block.batch < here.whole else rest
    block.doing = FIXED
    if fixed <= 0:
        push(s, b)
    elif here.core >= 0:
        flow(s, b, fixed, 1.0, now)
        join(s, b, here.core, channels, now)
    else:
        put(s, b, now + fixed)


@njit(allocates=False, always=True)
def _move(s: State, b: int, now: float) -> None:
    """Begins to move block b's bytes."""
    block = s.block[b]
    here, after = s.primitive[block.prim], s.primitive[block.prim + 1]
    rest = here.amount_last if block.batch == here.whole else 0.0
    amount = here.amount if block.batch < here.whole else rest
    block.doing = MOVING
    if amount <= 0:
        _finish(s, b, now)
        return
    flow(s, b, amount, here.cap, now)
    for k in range(here.use, after.use):
        join(s, b, s.use[k], s.weight[k], now)
        s.resource[s.use[k]].carried += amount * s.weight[k]
    if here.core >= 0:
        join(s, b, here.core, here.core_weight, now)
    if here.memory >= 0:
        join(s, b, here.memory, here.memory_weight, now)


@njit(allocates=False, always=True)
def _end(s: State, b: int, now: float) -> None:
    """Ends block b's action."""
    if b >= s.shape[3]:
        end(s, b, now)
        return
    leave(s, b, now)
    if s.block[b].doing == FIXED:
        push(s, b)
    else:
        _finish(s, b, now)


@njit(allocates=False, always=True)
def _finish(s: State, b: int, now: float) -> None:
    """Finishes block b's instance: flags, messages, and on to the next."""
    block = s.block[b]
    here, after = s.primitive[block.prim], s.primitive[block.prim + 1]
    i = block.prim * s.shape[0] + block.batch
    flags, queues = len(s.flag), len(s.queue)
    s.instance[i].end = now
    block.doing = IDLE
    for k in range(here.post, after.post):
        s.flag[s.post[k]] = block.batch + 1
        wake(s, s.post[k], i, -1)
    for k in range(here.give, after.give):
        if not s.queue[s.give[k]].far:
            s.queue[s.give[k]].sent += 1
            wake(s, flags + s.give[k], i, -1)
    for k in range(here.take, after.take):
        if not s.queue[s.take[k]].far:
            s.queue[s.take[k]].taken += 1
            wake(s, flags + queues + s.take[k], i, -1)
    for k in range(here.hand, after.hand):
        hand_over(s, k, block.batch, now)
    _advance(s, b, now)


@njit(allocates=False, always=True)
def _advance(s: State, b: int, now: float) -> None:
    """Advances block b in the loop nest: window → primitive → micro-batch."""
    block = s.block[b]
    batches, window = s.shape[0], s.shape[1]
    block.batch += 1
    if block.batch >= min(block.window + window, batches):
        block.prim += 1
        if block.prim == block.stop and block.window + window < batches:
            block.prim = block.start
            block.window += window
        block.batch = block.window
    if block.prim < block.stop:
        _arrive(s, b, now)
    else:
        push(s, b)
