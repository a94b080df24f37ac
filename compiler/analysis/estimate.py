"""estimate: the time when each primitive would run, by the topology's cost model, not simulated.

`fuse` and `allocate` need to compare choices; this estimate is enough for that and linear.
Task-level execution (ResCCL §3): a primitive runs all micro-batches, its successors follow one
micro-batch behind. A primitive takes as long as the slowest link it uses, or as its block needs to
read and write, and longer by γ for every source that it reduces (α + cβ + cγ, HeteCCL §4.2).
Channels share links; each has thread blocks of its own, which move and reduce its part of a chunk.
The unit is the topology's: µs, or without a cluster the time of one intra-node chunk transfer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hccc.analysis.connections import connections
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8
from hccc.ir.primitives import Primitives, crossing
from hccc.network.routes import cost, resources

NEAR = 1.05  # of candidates this close in time, the one with the least memory traffic wins
MICRO_BATCHES = 16  # enough for the steady state to outweigh the fill
F8 = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """Start and end of every primitive, f8[n], and the end of the last."""

    start: F8
    end: F8
    makespan: float


@njit
def _start_and_end(
    block: I4, n_blocks: int, unit: F8, dep_ptr: I8, dep: I4, batches: int
) -> tuple[F8, F8]:
    """Computes the start and end of each primitive: after the one before it in its block and, by a
    micro-batch, after those it depends on. O(n + dependencies)."""
    n = len(block)
    start, end = np.zeros(n), np.zeros(n)
    free = np.zeros(n_blocks)
    for i in range(n):
        first, last = free[block[i]], 0.0
        for k in range(dep_ptr[i], dep_ptr[i + 1]):
            p = dep[k]
            first = max(first, start[p] + unit[p])
            last = max(last, end[p])
        start[i] = first
        end[i] = max(first + batches * unit[i], last + unit[i])
        free[block[i]] = end[i]
    return start, end


def remote(p: Primitives) -> tuple[I4, I4, I4]:
    """Lists every use of a link: (primitive, from rank, to rank), i4[m] each, sorted by
    primitive."""
    row, src, dst = crossing(p.src, p.dst, p.queues, p.owner)
    order = np.argsort(row, kind="stable")
    return row[order], src[order], dst[order]


def estimate(p: Primitives, block: I4, batches: int = MICRO_BATCHES) -> Estimate:
    """Estimates `p` with primitive i in thread block `block[i]` (numbered over all ranks).

    Links are shared freely here; `link_time` bounds their load. O(primitives + dependencies).
    """
    row, src, dst = remote(p)
    topology = p.dag.topology
    sources, destinations = p.src.counts(), p.dst.counts()
    channels = p.dag.program.channels
    copies = (sources + destinations) / 2  # a copy reads once and writes once
    unit = topology.block_cost()[p.owner] * copies / channels
    np.maximum.at(unit, row, cost(topology, src, dst))
    unit += topology.reduce_cost()[p.owner] * (sources - 1) / channels
    n_blocks = int(block.max()) + 1 if len(block) else 0
    start, end = _start_and_end(block, n_blocks, unit, p.deps.ptr, p.deps.index, batches)
    return Estimate(start, end, float(end.max(initial=0.0)))


def link_time(p: Primitives, batches: int = MICRO_BATCHES) -> float:
    """Returns the time for which the busiest link is in use: no allocation is faster. O(link
    uses)."""
    _, src, dst = remote(p)
    topology = p.dag.topology
    time = cost(topology, src, dst) * batches
    tx, rx = resources(topology, src, dst)
    load = np.zeros(1 + int(max(tx.max(initial=0), rx.max(initial=0))))
    for used, busy in ((tx, time), (rx, np.where(tx == rx, 0.0, time))):
        load += np.bincount(used, busy, len(load))
    return float(load.max(initial=0.0))


def least_traffic(candidates: Sequence[Primitives]) -> Primitives:
    """Returns the candidate with the least memory traffic among the nearly fastest.

    Each is timed with a thread block for each connection. They move the same bytes over the same
    links.
    """
    links = link_time(candidates[0])
    traffic = [len(p.src.rank) + len(p.dst.rank) for p in candidates]

    def time(p: Primitives) -> float:
        return max(links, estimate(p, connections(p).of).makespan)

    least = candidates[int(np.argmin(traffic))]
    lasts = time(least)
    if lasts <= NEAR * links:  # nothing can be faster than the links
        return least
    times = [lasts if p is least else time(p) for p in candidates]
    near = [i for i, t in enumerate(times) if t <= NEAR * min(times)]
    return candidates[min(near, key=lambda i: (traffic[i], i))]
