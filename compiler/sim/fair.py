"""fair: the rate of every transfer in flight: links and groups divided max-min fairly.

A *flow* is a thread block's current primitive and micro-batch. At rate x it loads each resource
it uses by weight · x, and it never exceeds its own cap (the rate of its thread block). Rates are
max-min fair: grown together until a resource is full, which stops the flows on it (progressive
filling; Bertsekas and Gallager, Data Networks, §6.5.2).

Only the rates that a change can reach are computed anew: a resource that all its flows together
cannot fill passes nothing on, and what leaves a resource that was not full frees nothing.
"""

from __future__ import annotations

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.sim.agenda import put
from hccc.sim.state import BLOCKS, DIRTY, GROWING, NEW, RESOURCES, STOPPED, State

TIGHT = 1 + 1e-9  # a ratio up to this counts as equal
GROWS = -1.0  # in place of the rate of a flow that still grows


@njit(allocates=False, always=True)
def flow(s: State, b: int, amount: float, cap: float, now: float) -> None:
    """Starts block b's flow of `amount` bytes at no more than `cap` bytes/µs; `join` adds its
    resources."""
    block = s.block[b]
    block.left, block.since, block.cap, block.rate = amount, now, cap, 0.0
    s.lists[NEW, s.length[NEW]] = b
    s.length[NEW] += 1


@njit(allocates=False, always=True)
def join(s: State, b: int, r: int, weight: float, now: float) -> None:
    """Adds resource r to block b's flow."""
    block, resource = s.block[b], s.resource[r]
    entry = block.first + block.uses
    block.uses += 1
    use = s.flow[entry]
    use.resource, use.weight, use.next, use.back = r, weight, resource.head, -1
    if resource.head >= 0:
        s.flow[resource.head].back = entry
    else:
        resource.since = now
    resource.head = entry
    resource.demand += weight * block.cap


@njit(allocates=False, always=True)
def leave(s: State, b: int, now: float) -> None:
    """Ends block b's flow."""
    block = s.block[b]
    for entry in range(block.first, block.first + block.uses):
        use = s.flow[entry]
        resource = s.resource[use.resource]
        if resource.binds and _full(s, use.resource):
            s.lists[DIRTY, s.length[DIRTY]] = use.resource
            s.length[DIRTY] += 1
        if use.back >= 0:
            s.flow[use.back].next = use.next
        else:
            resource.head = use.next
        if use.next >= 0:
            s.flow[use.next].back = use.back
        resource.demand -= use.weight * block.cap
        if resource.head < 0:
            resource.demand = 0.0
            resource.active += now - resource.since
    block.uses = 0


@njit(allocates=False, always=True)
def _full(s: State, r: int) -> bool:
    return bool(s.resource[r].demand > s.resource[r].capacity * TIGHT)


@njit(allocates=False, always=True)
def rebalance(s: State, now: float, stamp: int) -> None:
    """Computes new rates and ends for all flows that the changes at `now` reach.

    O(levels · resources + uses) of the reached component, and flows for each of their caps that is
    reached; a level is a rate at which something fills up. stamp: a new number each time, from 1.
    """
    resources, blocks = _component(s, stamp)
    s.length[DIRTY] = s.length[NEW] = 0
    _fill(s, resources, blocks, stamp)
    for i in range(blocks):
        b = s.lists[BLOCKS, i]
        block = s.block[b]
        if abs(s.fresh[b] - block.rate) > 1e-12 * block.rate:
            block.left -= block.rate * (now - block.since)
            block.since, block.rate = now, s.fresh[b]
            put(s, b, now + max(block.left, 0.0) / block.rate)


@njit(allocates=False, always=True)
def _component(s: State, stamp: int) -> tuple[int, int]:
    """Collects everything that new flows and changed resources may reach: (resources, blocks)
    found."""
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
        entry = s.resource[s.lists[RESOURCES, at]].head
        at += 1
        while entry >= 0:
            resources, blocks = _reach(s, s.flow[entry].block, resources, blocks, stamp)
            entry = s.flow[entry].next
    return resources, blocks


@njit(allocates=False, always=True)
def _reach(s: State, b: int, resources: int, blocks: int, stamp: int) -> tuple[int, int]:
    """Adds block b to the component, and the full resources it uses."""
    if s.seen[b] == stamp:
        return resources, blocks
    s.seen[b] = stamp
    block = s.block[b]
    s.lists[BLOCKS, blocks] = b
    for entry in range(block.first, block.first + block.uses):
        r = s.flow[entry].resource
        if s.resource[r].seen != stamp and _full(s, r):
            s.resource[r].seen = stamp
            s.lists[RESOURCES, resources] = r
            resources += 1
    return resources, blocks + 1


@njit(allocates=False, always=True)
def _fill(s: State, resources: int, blocks: int, stamp: int) -> None:
    """Computes max-min fair rates of the component, into `fresh`."""
    for i in range(resources):
        resource = s.resource[s.lists[RESOURCES, i]]
        excess = (
            resource.demand / resource.capacity - 1.0
        )  # more offered than it takes: ResCCL Eq. 1
        resource.room, resource.load = (
            resource.capacity / (1.0 + resource.contention * max(0.0, excess)),
            0.0,
        )
        resource.binds = 0
        entry = resource.head
        while entry >= 0:
            resource.load += s.flow[entry].weight
            entry = s.flow[entry].next
    left, least = 0, np.inf
    for i in range(blocks):
        b = s.lists[BLOCKS, i]
        block = s.block[b]
        s.fresh[b] = block.cap
        for entry in range(block.first, block.first + block.uses):
            if s.resource[s.flow[entry].resource].seen == stamp:  # held by it: of the component
                s.fresh[b] = GROWS
                s.lists[GROWING, left] = b
                left += 1
                least = min(least, block.cap)
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
    """Returns the number of resources that still hold a flow, and the next rate that growing flows
    reach, and marks the resources that are full at that rate. resources: those of the component so
    far; least: the least cap of the growing flows."""
    level, kept = least, 0
    s.work[0] += resources
    for i in range(resources):
        r = s.lists[RESOURCES, i]
        resource = s.resource[r]
        if resource.load > 0:
            level = min(level, resource.room / resource.load)
            s.lists[RESOURCES, kept] = r
            kept += 1
    for i in range(kept):
        resource = s.resource[s.lists[RESOURCES, i]]
        resource.binds = resource.room <= level * resource.load * TIGHT
    return kept, level


@njit(allocates=False, always=True)
def _stop_at_caps(s: State, growing: int, level: float) -> tuple[int, int, float]:
    """Stops flows whose cap is at most `level`. Returns the number still growing, the number
    stopped, and the least cap of the growing ones."""
    kept, stopped, least = 0, 0, np.inf
    s.work[0] += growing
    for i in range(growing):
        b = s.lists[GROWING, i]
        block = s.block[b]
        if s.fresh[b] != GROWS:  # a resource stopped it
            continue
        if block.cap <= level * TIGHT:
            s.fresh[b] = min(level, block.cap)
            s.lists[STOPPED, stopped] = b
            stopped += 1
        else:
            least = min(least, block.cap)
            s.lists[GROWING, kept] = b
            kept += 1
    return kept, stopped, least


@njit(allocates=False, always=True)
def _stop_at_resources(s: State, resources: int, stopped: int, level: float) -> int:
    """Stops flows whose resources are full at `level`, which then have nothing left to share out.
    Returns the number stopped, with the `stopped` before."""
    for i in range(resources):
        resource = s.resource[s.lists[RESOURCES, i]]
        if not resource.binds:
            continue
        resource.load = 0.0
        entry = resource.head
        while entry >= 0:
            b = s.flow[entry].block
            block = s.block[b]
            if s.fresh[b] == GROWS:
                s.fresh[b] = min(level, block.cap)
                s.lists[STOPPED, stopped] = b
                stopped += 1
            entry = s.flow[entry].next
    return stopped


@njit(allocates=False, always=True)
def _settle(s: State, b: int, stamp: int) -> None:
    """Takes the rate of block b's flow out of its resources."""
    block = s.block[b]
    for entry in range(block.first, block.first + block.uses):
        use = s.flow[entry]
        resource = s.resource[use.resource]
        if resource.seen == stamp and resource.load > 0:
            resource.room = max(0.0, resource.room - use.weight * s.fresh[b])
            resource.load -= use.weight
            if resource.load < 1e-9:
                resource.load = 0.0
