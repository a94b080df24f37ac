"""memory: the rates of each node's or GPU's memory in a call, by the bytes that the call touches.

Copies are fast while the touched memory stays in a cache, call after call; a device states its
rates for some sizes (`cache`). All thread blocks that share a memory share its rate, in proportion
to the bytes they move, as they share a link. Devices without `cache` have no such limit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hccc.ir.arrays import I4
from hccc.ir.memory_use import bytes_touched
from hccc.ir.plan import Plan
from hccc.ir.topology import BYTES_PER_US, F8, Topology


class MemoryRates(NamedTuple):
    """The memory rates of one call. faster: f8[n], the factor by which the thread blocks of each
    rank copy faster than their device's `block`; capacity: f8[M] bytes/µs of each memory, infinite:
    no limit."""

    faster: F8
    capacity: F8


def memory_of(t: Topology) -> tuple[I4, int]:
    """Returns the memory of each rank, or -1 if its rates are unknown, i4[n], and the number of
    memories.

    GPUs have their own; ranks that share the cores of a node share its memory too.
    """
    known = np.array([bool(device.cache) for device in t.devices])[t.device]
    if not known.any():
        return np.full(len(t), -1, np.int32), 0
    shared = t.first_rank[t.node]
    owner = np.where(t.cores[t.node] > 0, shared, np.arange(len(t)))
    owners, which = np.unique(owner[known], return_inverse=True)
    memory = np.full(len(t), -1, np.int32)
    memory[known] = which
    return memory, len(owners)


def delivered(plan: Plan, t: Topology, block: int, *, in_place: bool) -> MemoryRates:
    """Returns the memory rates of a call with blocks of `block` bytes. O(ranks)."""
    memory, count = memory_of(t)
    faster, capacity = np.ones(len(t)), np.full(count, np.inf)
    if not count:
        return MemoryRates(faster, capacity)
    known = memory >= 0
    touched = np.bincount(memory[known], bytes_touched(plan, block, in_place=in_place)[known])
    for m, first in enumerate(np.unique(memory[known], return_index=True)[1].tolist()):
        rank = int(np.flatnonzero(known)[first])
        device = t.devices[t.device[rank]]
        found = device.copies(float(touched[m]))
        faster[memory == m] = found.block / device.block
        if found.all:
            capacity[m] = found.all * BYTES_PER_US
    return MemoryRates(faster, capacity)
