"""cores: the cores of each node that run the thread blocks of a call, and the cost of its launch.

Nodes without `cores` run all blocks at once. Small calls have one core: waking another takes longer
than the call (`small` of a cluster's launch, `hccc_small_launch` of the runtime).
"""

from __future__ import annotations

import numpy as np

from hccc.ir.arrays import I4, I8, places
from hccc.ir.plan import Plan
from hccc.ir.topology import Launch, Topology

SMALL = Launch._fields.index("small")


def cores_at_work(t: Topology, block: float) -> I8:
    """Returns the cores of each node that run a call with blocks of `block` bytes: i8[N], 0: no
    limit."""
    small = np.bincount(t.node, minlength=t.n_nodes) * block <= t.launch[:, SMALL]
    return np.where(small, np.minimum(t.cores, 1), t.cores).astype(np.int64)


def launch(plan: Plan, t: Topology, cores: I8) -> float:
    """Returns the µs of a launch: the longest of any node, since all begin at once.

    cores: i8[N], those at work. They share the thread blocks of their node; without cores, each GPU
    starts its own blocks.
    """
    blocks = plan.n_tb.astype(np.int64) * plan.channels
    there = np.bincount(t.node, blocks, t.n_nodes)
    most = np.zeros(t.n_nodes)
    np.maximum.at(most, t.node, blocks)
    at_work = np.clip(cores, 1, np.maximum(there, 1))
    base, entry, wake, _ = t.launch.T
    started = np.where(cores > 0, there / at_work, most)
    took = base + entry * started + np.where(at_work > 1, wake, 0.0)
    return float(np.where(there > 0, took, 0.0).max())


def core_of(plan: Plan, t: Topology, cores: I8) -> I4:
    """Returns the core that runs each primitive, numbered over all nodes, or -1 if cores are no
    limit: i4[P].

    cores: i8[N], those at work, the first of their node. A node deals its thread blocks out in
    equal runs, rank by rank (`runtime/include/hccc/team.h`); the blocks of a core run in turn.
    """
    widest = max(int(plan.n_tb.max(initial=1)), 1)
    rank = plan.block_rank()
    node, size = t.node[rank], np.bincount(t.node, minlength=t.n_nodes)
    place = (rank - t.first_rank[node]) * widest + places(plan.n_tb)
    core = place * cores[node] // (size[node] * widest)
    first = np.cumsum(t.cores, dtype=np.int64) - t.cores
    block: I4 = np.where(cores[node] > 0, first[node] + core, -1).astype(np.int32)
    return block[plan.block_of()]
