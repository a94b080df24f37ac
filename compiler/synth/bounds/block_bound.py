"""block_bound: what no schedule beats with so many thread blocks a rank.

A thread block moves a byte from k sources to d destinations in (k · r + d · (1 − r)) / rate, r
being the part of a copy that its read takes (cost-model §2), at the fastest rate of its device.
Of each byte of a call on n ranks this much must enter, or leave, each rank, and takes some thread
block of the rank's memory domain at least this part of a copy's time:

| collective    | of a rank                        | part of a copy  | since                    |
|---------------|----------------------------------|-----------------|--------------------------|
| Allgather     | (n − 1) / n enter                | (1 − r) + r / n | one read serves n writes |
| Broadcast     | 1 enters each but the root       | (1 − r) + r / n | the same                 |
| Reducescatter | (n − 1) / n leave                | r + (1 − r) / n | one write serves n reads |
| Reduce        | 1 leaves each but the root       | r + (1 − r) / n | the same                 |
| Allreduce     | 2 (n − 1) / n enter, on average  | min(r, 1 − r)   | `bound`, single ranks    |
| Alltoall      | (n − 1) / n enter                | 1               | each has one destination |
| Gather        | (n − 1) / n enter the root       | 1               | the same                 |
| Scatter       | (n − 1) / n leave the root       | 1               | the same                 |
| SendRecv      | 1 enters                         | 1               | the same                 |

What proxies bring into a domain, or take out of it, may cost no thread block anything: at most
what the domain's NICs carry in that time. Blocks of another domain reach none of its memory.
"""

from __future__ import annotations

import numpy as np

from hccc.ir.collective import Collective, OpType, block_count
from hccc.ir.topology import BYTES_PER_US, F8, Topology
from hccc.network.flow import network
from hccc.network.partitions import inflow
from hccc.synth.bounds.bound import OUTWARD, SPREAD, WHOLE

THREAD_BLOCKS = "thread blocks"  # as what limits


def block_bound(t: Topology, op: OpType, root: int, size: int, blocks: int) -> float:
    """Returns the µs that no schedule of a call of `size` bytes beats with `blocks` thread blocks
    a rank. O(ranks + arcs log arcs)."""
    n = len(t)
    if n < 2 or op is OpType.CUSTOM or size == 0:
        return 0.0
    most = Collective(op, n, block_count(op, n), root).most_blocks()
    domain = t.dense_memory_domain()
    offered = np.bincount(domain, blocks * _fastest(t))
    carried = _carried(t, domain, out=op in OUTWARD)
    read = np.array([device.read for device in t.devices])[t.device]
    part = _part(op, float(read.min()), float(read.max()), n)
    need = np.bincount(domain, _need(op, root, n))
    if op is OpType.ALLREDUCE:  # which ranks they enter is free
        offered, carried, need = (x.sum(keepdims=True) for x in (offered, carried, need))
    with np.errstate(invalid="ignore"):
        each = np.where(np.isinf(carried), 0.0, part * need / (offered + part * carried))
    return float(each.max()) * (size // most * most) / BYTES_PER_US


def _fastest(t: Topology) -> F8:
    """Returns the GB/s of a thread block of each rank at most: f8[ranks]."""
    rates = [
        max(*device.block_rates, *(cached.block for cached in device.cache)) for device in t.devices
    ]
    return np.array(rates)[t.device]


def _carried(t: Topology, domain: np.ndarray, *, out: bool) -> F8:
    """Returns the GB/s into each memory domain, or out of it: f8[domains]."""
    if domain.max() == 0:
        return np.zeros(1)
    net = network(t).contracted(domain)
    return inflow(net.reversed() if out else net)[0]


def _part(op: OpType, least: float, most: float, n: int) -> float:
    """Returns the part of a copy's time that a byte takes at least. least, most: of all devices'
    `read`."""
    if op is OpType.ALLREDUCE:
        return min(least, 1 - most)
    if op in SPREAD | WHOLE:
        once = least if op in OUTWARD else 1 - most
        return once + (1 - once) / n
    return 1.0


def _need(op: OpType, root: int, n: int) -> F8:
    """Returns the bytes that must enter, or leave, each rank for a byte of the call: f8[ranks]."""
    if op in WHOLE:
        return np.where(np.arange(n) == root, 0.0, 1.0)
    if op in (OpType.GATHER, OpType.SCATTER):
        return np.where(np.arange(n) == root, (n - 1) / n, 0.0)
    if op is OpType.SENDRECV:
        return np.ones(n)
    return np.full(n, (2 if op is OpType.ALLREDUCE else 1) * (n - 1) / n)
