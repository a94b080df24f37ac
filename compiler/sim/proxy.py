"""proxy: the work of proxies: they carry transfers, pair by pair, and raise counters at the peer.

Pair c, a thread block and a peer, is two rows of blocks after those of the plan: `T + c` moves the
bytes of one transfer after the other, as a flow among those of thread blocks; `T + C + c` is the
way there, on which transfers follow one another, each α long. Of equal channels one is simulated:
its flow crosses each resource as often as all channels' do.
"""

from __future__ import annotations

from hccc.base.jit.compiled import njit
from hccc.sim.agenda import put
from hccc.sim.fair import flow, join, leave
from hccc.sim.state import CREDIT, FLAG, MESSAGE, SAME_TIME, State
from hccc.sim.waiting import wake


@njit(allocates=False, always=True)
def hand_over(s: State, x: int, batch: int, now: float) -> None:
    """Appends transfer x of a micro-batch to its pair; the thread block goes on."""
    c = s.transfer[x].pair
    y = s.pair[c]
    item = s.item[y.first + y.handed]
    item.transfer, item.batch, item.handed = x, batch, now
    y.handed += 1
    if y.begun == y.over:
        _begin(s, c, now)


@njit(allocates=False, always=True)
def end(s: State, b: int, now: float) -> None:
    """Ends the current action of row b, which belongs to a pair."""
    c = b - s.shape[3]
    if c < len(s.pair):
        _over(s, c, now)
        _begin(s, c, now)
    else:
        _arrive(s, c - len(s.pair), now)


@njit(allocates=False, always=True)
def _begin(s: State, c: int, now: float) -> None:
    """Begins the next transfer that has bytes; those without end at once."""
    y = s.pair[c]
    while y.begun < y.handed:
        item = s.item[y.first + y.begun]
        x = s.transfer[item.transfer]
        rest = x.amount_last if item.batch == x.whole else 0.0
        amount = x.amount if item.batch < x.whole else rest
        item.begin = now
        y.begun += 1
        if amount > 0:
            _carry(s, c, amount, now)
            return
        _over(s, c, now)
    leave(s, s.shape[3] + c, now)


@njit(allocates=False, always=True)
def _carry(s: State, c: int, amount: float, now: float) -> None:
    """Begins to move a pair's next bytes. Where others have just ended, they go on at the same
    rate: a pair has the same way and rate alone for all its bytes, so nothing is shared out
    anew."""
    y = s.pair[c]
    b = s.shape[3] + c
    block = s.block[b]
    if block.uses > 0:
        block.left, block.since = amount, now
        put(s, b, now + amount / block.rate)
    else:
        flow(s, b, amount, y.cap, now)
        for k in range(y.use, y.use_end):
            join(s, b, s.route[k], s.route_weight[k], now)
    for k in range(y.use, y.use_end):
        s.resource[s.route[k]].carried += amount * s.route_weight[k]


@njit(allocates=False, always=True)
def _over(s: State, c: int, now: float) -> None:
    """Sends the bytes of a transfer on their way."""
    y = s.pair[c]
    item = s.item[y.first + y.over]
    item.end = now
    item.arrival = now + y.alpha
    if y.arrived == y.over:
        put(s, s.shape[3] + len(s.pair) + c, item.arrival)
    y.over += 1


@njit(allocates=False, always=True)
def _arrive(s: State, c: int, now: float) -> None:
    """Applies the transfers that have arrived, in order, and waits for the next."""
    y = s.pair[c]
    limit = now * (1 + SAME_TIME) + SAME_TIME
    while y.arrived < y.over and s.item[y.first + y.arrived].arrival <= limit:
        item = s.item[y.first + y.arrived]
        item.arrival = now
        y.arrived += 1
        _count(s, item.transfer, item.batch)
    if y.arrived < y.over:
        put(s, s.shape[3] + len(s.pair) + c, s.item[y.first + y.arrived].arrival)


@njit(allocates=False, always=True)
def _count(s: State, number: int, batch: int) -> None:
    """Applies the effect of one transfer at the peer, besides its bytes."""
    x = s.transfer[number]
    instance = x.prim * s.shape[0] + batch
    flags, queues = len(s.flag), len(s.queue)
    if x.kind == MESSAGE:
        s.queue[x.target].sent += 1
        wake(s, flags + x.target, instance, number)
    elif x.kind == CREDIT:
        s.queue[x.target].taken += 1
        wake(s, flags + queues + x.target, instance, number)
    elif x.kind == FLAG:
        s.flag[x.target] = batch + 1
        wake(s, x.target, instance, number)
