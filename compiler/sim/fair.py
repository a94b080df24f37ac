"""fair: what every transfer in flight gets: links and groups divided max-min fairly.

A *flow* is a thread block's current primitive and micro-batch. At rate x it loads each resource
it uses by weight · x, and it never exceeds its own cap (what its thread block moves). Rates are
max-min fair: grown together until a resource is full, which freezes the flows on it (progressive
filling; Bertsekas and Gallager, Data Networks, §6.5.2).

Only what a change can reach is computed anew: a resource that all its flows together cannot fill
passes nothing on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from hccc.ir.arrays import I4, I8
from hccc.ir.topology import F8

TIGHT = 1 + 1e-9  # what counts as equal


class Network(NamedTuple):
    """The flows in flight. Block b's uses are entries first[b] … first[b] + uses[b] - 1.

    Of every entry: resource, weight, block, and its neighbours in the list of its resource, which
    begins at head[r] (-1: empty). demand[r]: its flows' weight · cap together. seen_*: when a
    resource or block was last visited; found_*: those of the component at hand.
    """

    capacity: F8
    contention: F8  # of each resource, Costs.contention
    first: I8
    uses: I4
    resource: I4
    weight: F8
    block: I4
    next: I8
    back: I8
    head: I8
    demand: F8
    cap: F8
    rate: F8
    fresh: F8  # the rate just computed
    seen_resource: I8
    seen_block: I8
    found_resource: I4
    found_block: I4
    room: F8  # capacity not given out yet
    load: F8  # weight of flows that still grow
    left: I4  # scratch of `fill`
    stopped: I4


def network(capacity: F8, contention: F8, most_uses: I8) -> Network:
    """No flows. most_uses: i8[T] the most resources that a primitive of each block uses."""
    blocks, resources = len(most_uses), len(capacity)
    first = np.concatenate([[0], np.cumsum(most_uses)]).astype(np.int64)
    entries = int(first[-1])
    return Network(
        capacity, contention, first[:-1], np.zeros(blocks, np.int32),
        np.zeros(entries, np.int32), np.zeros(entries),
        np.repeat(np.arange(blocks, dtype=np.int32), most_uses),
        np.full(entries, -1), np.full(entries, -1), np.full(resources, -1),
        np.zeros(resources), np.zeros(blocks), np.zeros(blocks), np.zeros(blocks),
        np.zeros(resources, np.int64), np.zeros(blocks, np.int64),
        np.zeros(resources, np.int32), np.zeros(blocks, np.int32),
        np.zeros(resources), np.zeros(resources),
        np.zeros(blocks, np.int32), np.zeros(blocks, np.int32),
    )  # fmt: skip


@njit(cache=True)
def join(n: Network, b: int, r: int, weight: float) -> bool:
    """Block b's flow uses resource r; its cap is set already. Whether r is now full."""
    e = n.first[b] + n.uses[b]
    n.uses[b] += 1
    n.resource[e], n.weight[e] = r, weight
    n.next[e], n.back[e] = n.head[r], -1
    if n.head[r] >= 0:
        n.back[n.head[r]] = e
    n.head[r] = e
    n.demand[r] += weight * n.cap[b]
    return _full(n, r)


@njit(cache=True)
def leave(n: Network, b: int, freed: I4, n_freed: int) -> int:
    """Block b's flow is over. Resources that were full are added to `freed`; how many it holds."""
    for e in range(n.first[b], n.first[b] + n.uses[b]):
        r = n.resource[e]
        if _full(n, r):
            freed[n_freed] = r
            n_freed += 1
        if n.back[e] >= 0:
            n.next[n.back[e]] = n.next[e]
        else:
            n.head[r] = n.next[e]
        if n.next[e] >= 0:
            n.back[n.next[e]] = n.back[e]
        n.demand[r] = 0.0 if n.head[r] < 0 else n.demand[r] - n.weight[e] * n.cap[b]
    n.uses[b] = 0
    return n_freed


@njit(cache=True)
def _full(n: Network, r: int) -> bool:
    return bool(n.demand[r] > n.capacity[r] * TIGHT)


@njit(cache=True)
def capacity_of(n: Network, r: int) -> float:
    """What a resource carries: less when more is offered than it takes (ResCCL Eq. 1)."""
    excess = n.demand[r] / n.capacity[r] - 1.0
    return float(n.capacity[r] / (1.0 + n.contention[r] * max(0.0, excess)))


@njit(cache=True)
def component(
    n: Network, dirty: I4, n_dirty: int, new: I4, n_new: int, stamp: int
) -> tuple[int, int]:
    """All flows that `new` blocks and `dirty` resources may change: (resources, blocks) found."""
    resources, blocks, at = 0, 0, 0
    for i in range(n_dirty):
        if n.seen_resource[dirty[i]] != stamp:
            n.seen_resource[dirty[i]] = stamp
            n.found_resource[resources] = dirty[i]
            resources += 1
    for i in range(n_new):
        resources, blocks = _reach(n, new[i], resources, blocks, stamp)
    while at < resources:
        e = n.head[n.found_resource[at]]
        at += 1
        while e >= 0:
            resources, blocks = _reach(n, n.block[e], resources, blocks, stamp)
            e = n.next[e]
    return resources, blocks


@njit(cache=True)
def _reach(n: Network, b: int, resources: int, blocks: int, stamp: int) -> tuple[int, int]:
    """Block b belongs to the component, and the full resources it uses."""
    if n.seen_block[b] == stamp:
        return resources, blocks
    n.seen_block[b] = stamp
    n.found_block[blocks] = b
    for e in range(n.first[b], n.first[b] + n.uses[b]):
        r = n.resource[e]
        if n.seen_resource[r] != stamp and _full(n, r):
            n.seen_resource[r] = stamp
            n.found_resource[resources] = r
            resources += 1
    return resources, blocks + 1


@njit(cache=True)
def fill(n: Network, resources: int, blocks: int, stamp: int) -> None:
    """Max-min fair rates of the component at hand, into `fresh`.

    O(levels · (resources + flows) + uses); a level is a rate at which something fills up.
    """
    for i in range(resources):
        r = n.found_resource[i]
        n.room[r], n.load[r] = capacity_of(n, r), 0.0
        e = n.head[r]
        while e >= 0:
            n.load[r] += n.weight[e]
            e = n.next[e]
    left = 0
    for i in range(blocks):
        b = n.found_block[i]
        n.fresh[b] = n.cap[b]
        if _growing(n, b, stamp):
            n.left[left] = b
            left += 1
    while left > 0:
        left = _grow(n, resources, left, stamp)


@njit(cache=True)
def _growing(n: Network, b: int, stamp: int) -> bool:
    """Whether any resource of the component may hold block b back."""
    for e in range(n.first[b], n.first[b] + n.uses[b]):
        if n.seen_resource[n.resource[e]] == stamp:
            return True
    return False


@njit(cache=True)
def _grow(n: Network, resources: int, left: int, stamp: int) -> int:
    """All growing flows reach the next level; those held there stop. How many still grow."""
    level = np.inf
    for i in range(resources):
        r = n.found_resource[i]
        if n.load[r] > 0:
            level = min(level, n.room[r] / n.load[r])
    for i in range(left):
        level = min(level, n.cap[n.left[i]])
    kept, stopped = 0, 0
    for i in range(left):
        b = n.left[i]
        held = n.cap[b] <= level * TIGHT
        for e in range(n.first[b], n.first[b] + n.uses[b]):
            r = n.resource[e]
            held |= n.seen_resource[r] == stamp and n.room[r] <= level * n.load[r] * TIGHT
        if held:
            n.fresh[b] = min(level, n.cap[b])
            n.stopped[stopped] = b
            stopped += 1
        else:
            n.left[kept] = b
            kept += 1
    for i in range(stopped):
        _settle(n, n.stopped[i], stamp)
    return kept


@njit(cache=True)
def _settle(n: Network, b: int, stamp: int) -> None:
    """What block b's flow takes is no longer to be shared out."""
    for e in range(n.first[b], n.first[b] + n.uses[b]):
        r = n.resource[e]
        if n.seen_resource[r] == stamp:
            n.room[r] = max(0.0, n.room[r] - n.weight[e] * n.fresh[b])
            n.load[r] -= n.weight[e]
            if n.load[r] < 1e-9:
                n.load[r] = 0.0
