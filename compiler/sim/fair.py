"""fair: what every transfer in flight gets: links and groups divided max-min fairly.

A *flow* is a thread block's current primitive and micro-batch. At rate x it loads each resource
it uses by weight · x, and it never exceeds its own cap (what its thread block moves). Rates are
max-min fair: grown together until a resource is full, which stops the flows on it (progressive
filling; Bertsekas and Gallager, Data Networks, §6.5.2).

Only what a change can reach is computed anew: a resource that all its flows together cannot fill
passes nothing on.
"""

from __future__ import annotations

import numpy as np

from hccc.jit.compiled import njit
from hccc.sim.agenda import put
from hccc.sim.state import BLOCKS, DIRTY, GROWING, NEW, RESOURCES, STOPPED, State

TIGHT = 1 + 1e-9  # what counts as equal


@njit(allocates=False)
def flow(s: State, b: int, amount: float, cap: float, now: float) -> None:
    """Block b has `amount` bytes to move at no more than `cap` bytes/µs; `join` says where."""
    x = s.block[b]
    x.left, x.since, x.cap, x.rate = amount, now, cap, 0.0
    s.lists[NEW, s.length[NEW]] = b
    s.length[NEW] += 1


@njit(allocates=False)
def join(s: State, b: int, r: int, weight: float, now: float) -> None:
    """Block b's flow uses resource r."""
    x, y = s.block[b], s.resource[r]
    e = x.first + x.uses
    x.uses += 1
    u = s.flow[e]
    u.resource, u.weight, u.next, u.back = r, weight, y.head, -1
    if y.head >= 0:
        s.flow[y.head].back = e
    else:
        y.since = now
    y.head = e
    y.demand += weight * x.cap


@njit(allocates=False)
def leave(s: State, b: int, now: float) -> None:
    """Block b's flow is over."""
    x = s.block[b]
    for e in range(x.first, x.first + x.uses):
        u = s.flow[e]
        y = s.resource[u.resource]
        if _full(s, u.resource):
            s.lists[DIRTY, s.length[DIRTY]] = u.resource
            s.length[DIRTY] += 1
        if u.back >= 0:
            s.flow[u.back].next = u.next
        else:
            y.head = u.next
        if u.next >= 0:
            s.flow[u.next].back = u.back
        y.demand -= u.weight * x.cap
        if y.head < 0:
            y.demand = 0.0
            y.active += now - y.since
    x.uses = 0


@njit(allocates=False)
def _full(s: State, r: int) -> bool:
    return bool(s.resource[r].demand > s.resource[r].capacity * TIGHT)


@njit(allocates=False)
def rebalance(s: State, now: float, stamp: int) -> None:
    """New rates for all that the changes at `now` reach, and when they will be through.

    O(levels · (resources + flows) + uses) of what is reached; a level is a rate at which
    something fills up. stamp: another one each time, from 1.
    """
    resources, blocks = _component(s, stamp)
    s.length[DIRTY] = s.length[NEW] = 0
    _fill(s, resources, blocks, stamp)
    for i in range(blocks):
        b = s.lists[BLOCKS, i]
        x = s.block[b]
        if abs(x.fresh - x.rate) > 1e-12 * x.rate:
            x.left -= x.rate * (now - x.since)
            x.since, x.rate = now, x.fresh
            put(s, b, now + max(x.left, 0.0) / x.rate)


@njit(allocates=False)
def _component(s: State, stamp: int) -> tuple[int, int]:
    """All that new flows and changed resources may reach: (resources, blocks) found."""
    resources, blocks, at = 0, 0, 0
    for i in range(s.length[DIRTY]):
        r = s.lists[DIRTY, i]
        if s.resource[r].seen != stamp:
            s.resource[r].seen = stamp
            s.lists[RESOURCES, resources] = r
            resources += 1
    for i in range(s.length[NEW]):
        resources, blocks = _reach(s, s.lists[NEW, i], resources, blocks, stamp)
    while at < resources:
        e = s.resource[s.lists[RESOURCES, at]].head
        at += 1
        while e >= 0:
            resources, blocks = _reach(s, s.flow[e].block, resources, blocks, stamp)
            e = s.flow[e].next
    return resources, blocks


@njit(allocates=False)
def _reach(s: State, b: int, resources: int, blocks: int, stamp: int) -> tuple[int, int]:
    """Block b belongs to the component, and the full resources it uses."""
    x = s.block[b]
    if x.seen == stamp:
        return resources, blocks
    x.seen = stamp
    s.lists[BLOCKS, blocks] = b
    for e in range(x.first, x.first + x.uses):
        r = s.flow[e].resource
        if s.resource[r].seen != stamp and _full(s, r):
            s.resource[r].seen = stamp
            s.lists[RESOURCES, resources] = r
            resources += 1
    return resources, blocks + 1


@njit(allocates=False)
def _fill(s: State, resources: int, blocks: int, stamp: int) -> None:
    """Max-min fair rates of the component at hand, into `fresh`."""
    for i in range(resources):
        y = s.resource[s.lists[RESOURCES, i]]
        excess = y.demand / y.capacity - 1.0  # more offered than it takes: ResCCL Eq. 1
        y.room, y.load = y.capacity / (1.0 + y.contention * max(0.0, excess)), 0.0
        e = y.head
        while e >= 0:
            y.load += s.flow[e].weight
            e = s.flow[e].next
    left = 0
    for i in range(blocks):
        b = s.lists[BLOCKS, i]
        x = s.block[b]
        x.fresh = x.cap
        held = False  # by any resource of the component
        for e in range(x.first, x.first + x.uses):
            held |= s.resource[s.flow[e].resource].seen == stamp
        if held:
            s.lists[GROWING, left] = b
            left += 1
    while left > 0:
        left = _grow(s, resources, left, stamp)


@njit(allocates=False)
def _grow(s: State, resources: int, left: int, stamp: int) -> int:
    """All growing flows reach the next level; those held there stop. How many still grow."""
    level = np.inf
    for i in range(resources):
        y = s.resource[s.lists[RESOURCES, i]]
        if y.load > 0:
            level = min(level, y.room / y.load)
    for i in range(left):
        level = min(level, s.block[s.lists[GROWING, i]].cap)
    kept, stopped = 0, 0
    for i in range(left):
        b = s.lists[GROWING, i]
        x = s.block[b]
        held = x.cap <= level * TIGHT
        for e in range(x.first, x.first + x.uses):
            y = s.resource[s.flow[e].resource]
            held |= y.seen == stamp and y.room <= level * y.load * TIGHT
        if held:
            x.fresh = min(level, x.cap)
            s.lists[STOPPED, stopped] = b
            stopped += 1
        else:
            s.lists[GROWING, kept] = b
            kept += 1
    for i in range(stopped):
        _settle(s, s.lists[STOPPED, i], stamp)
    return kept


@njit(allocates=False)
def _settle(s: State, b: int, stamp: int) -> None:
    """What block b's flow takes is no longer to be shared out."""
    x = s.block[b]
    for e in range(x.first, x.first + x.uses):
        u = s.flow[e]
        y = s.resource[u.resource]
        if y.seen == stamp:
            y.room = max(0.0, y.room - u.weight * x.fresh)
            y.load -= u.weight
            if y.load < 1e-9:
                y.load = 0.0
