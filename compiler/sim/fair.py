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

from hccc.base.jit.compiled import njit
from hccc.sim.agenda import put
from hccc.sim.state import BLOCKS, DIRTY, GROWING, NEW, RESOURCES, STOPPED, State

TIGHT = 1 + 1e-9  # what counts as equal
GROWS = -1.0  # in place of the rate of a flow that has none yet


@njit(allocates=False, always=True)
def flow(s: State, b: int, amount: float, cap: float, now: float) -> None:
    """Block b has `amount` bytes to move at no more than `cap` bytes/µs; `join` says where."""
    x = s.block[b]
    x.left, x.since, x.cap, x.rate = amount, now, cap, 0.0
    s.lists[NEW, s.length[NEW]] = b
    s.length[NEW] += 1


@njit(allocates=False, always=True)
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


@njit(allocates=False, always=True)
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


@njit(allocates=False, always=True)
def _full(s: State, r: int) -> bool:
    return bool(s.resource[r].demand > s.resource[r].capacity * TIGHT)


@njit(allocates=False, always=True)
def rebalance(s: State, now: float, stamp: int) -> None:
    """New rates for all that the changes at `now` reach, and when they will be through.

    O(levels · resources + uses) of what is reached, and flows for each of their caps that is
    reached; a level is a rate at which something fills up. stamp: another one each time, from 1.
    """
    resources, blocks = _component(s, stamp)
    s.length[DIRTY] = s.length[NEW] = 0
    _fill(s, resources, blocks, stamp)
    for i in range(blocks):
        b = s.lists[BLOCKS, i]
        x = s.block[b]
        if abs(s.fresh[b] - x.rate) > 1e-12 * x.rate:
            x.left -= x.rate * (now - x.since)
            x.since, x.rate = now, s.fresh[b]
            put(s, b, now + max(x.left, 0.0) / x.rate)


@njit(allocates=False, always=True)
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


@njit(allocates=False, always=True)
def _reach(s: State, b: int, resources: int, blocks: int, stamp: int) -> tuple[int, int]:
    """Block b belongs to the component, and the full resources it uses."""
    if s.seen[b] == stamp:
        return resources, blocks
    s.seen[b] = stamp
    x = s.block[b]
    s.lists[BLOCKS, blocks] = b
    for e in range(x.first, x.first + x.uses):
        r = s.flow[e].resource
        if s.resource[r].seen != stamp and _full(s, r):
            s.resource[r].seen = stamp
            s.lists[RESOURCES, resources] = r
            resources += 1
    return resources, blocks + 1


@njit(allocates=False, always=True)
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
    left, least = 0, np.inf
    for i in range(blocks):
        b = s.lists[BLOCKS, i]
        x = s.block[b]
        s.fresh[b] = x.cap
        for e in range(x.first, x.first + x.uses):
            if s.resource[s.flow[e].resource].seen == stamp:  # held by it: of the component
                s.fresh[b] = GROWS
                s.lists[GROWING, left] = b
                left += 1
                least = min(least, x.cap)
                break
    growing = left
    while left > 0:
        resources, level = _level(s, resources, least)
        stopped = 0
        if least <= level * TIGHT:
            growing, stopped, least = _stop_at_caps(s, growing, level)
        stopped = _stop_at_resources(s, resources, stopped, level)
        for i in range(stopped):
            _settle(s, s.lists[STOPPED, i], stamp)
        left -= stopped


@njit(allocates=False, always=True)
def _level(s: State, resources: int, least: float) -> tuple[int, float]:
    """The rate that growing flows reach next. resources: those of the component that still hold a
    flow, of which as many stay; least: no growing flow has a lower cap."""
    level, kept = least, 0
    s.work[0] += resources
    for i in range(resources):
        r = s.lists[RESOURCES, i]
        y = s.resource[r]
        if y.load > 0:
            level = min(level, y.room / y.load)
            s.lists[RESOURCES, kept] = r
            kept += 1
    return kept, level


@njit(allocates=False, always=True)
def _stop_at_caps(s: State, growing: int, level: float) -> tuple[int, int, float]:
    """Flows stop that go no faster than `level`. (How many stay in the list of those that grow, how
    many stopped, the least cap of those that stay)."""
    kept, stopped, least = 0, 0, np.inf
    s.work[0] += growing
    for i in range(growing):
        b = s.lists[GROWING, i]
        x = s.block[b]
        if s.fresh[b] != GROWS:  # a resource stopped it
            continue
        if x.cap <= level * TIGHT:
            s.fresh[b] = min(level, x.cap)
            s.lists[STOPPED, stopped] = b
            stopped += 1
        else:
            least = min(least, x.cap)
            s.lists[GROWING, kept] = b
            kept += 1
    return kept, stopped, least


@njit(allocates=False, always=True)
def _stop_at_resources(s: State, resources: int, stopped: int, level: float) -> int:
    """Flows stop whose resources are full at `level`; how many did, with the `stopped` before."""
    for i in range(resources):
        y = s.resource[s.lists[RESOURCES, i]]
        if y.room > level * y.load * TIGHT:
            continue
        e = y.head
        while e >= 0:
            b = s.flow[e].block
            x = s.block[b]
            if s.fresh[b] == GROWS:
                s.fresh[b] = min(level, x.cap)
                s.lists[STOPPED, stopped] = b
                stopped += 1
            e = s.flow[e].next
    return stopped


@njit(allocates=False, always=True)
def _settle(s: State, b: int, stamp: int) -> None:
    """What block b's flow takes is no longer to be shared out."""
    x = s.block[b]
    for e in range(x.first, x.first + x.uses):
        u = s.flow[e]
        y = s.resource[u.resource]
        if y.seen == stamp:
            y.room = max(0.0, y.room - u.weight * s.fresh[b])
            y.load -= u.weight
            if y.load < 1e-9:
                y.load = 0.0
