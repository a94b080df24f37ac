"""rates: the speed of each primitive's thread block, by the memory that it moves bytes to and from.

A block that stores to or loads from a peer, or fills a slot that a proxy sends, has the slowest of
these rates; a block with none of them copies within its own memory (cost-model §2).
"""

from __future__ import annotations

import numpy as np

from hccc.ir.arrays import B1
from hccc.ir.device import BLOCK_RATES
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer
from hccc.ir.topology import F8, Topology
from hccc.sim.transfers import by_proxy, carried_puts

STORE, LOAD, PROXY = (BLOCK_RATES.index(name) for name in ("store", "load", "proxy"))


def ways(plan: Plan, t: Topology) -> B1:
    """Tells which of BLOCK_RATES apply to each primitive: b1[4, P]. O(operands)."""
    found = np.zeros((len(BLOCK_RATES), len(plan)), np.bool_)
    rank, queues = plan.rank_of(), plan.queues
    for operands, way in ((plan.dst, STORE), (plan.src, LOAD)):
        row = operands.owner()
        away = (operands.buffer != Buffer.QUEUE) & (operands.rank != rank[row])
        if way == STORE:
            away &= ~carried_puts(plan, t)
        found[way, row[away]] = True
    sends = plan.dst.buffer == Buffer.QUEUE
    row, queue = plan.dst.owner()[sends], plan.dst.rank[sends]
    far = by_proxy(plan, t, queues.src, queues.dst)[queue]
    found[PROXY, row[far]] = found[STORE, row[~far]] = True
    found[0] = ~found[1:].any(axis=0)
    return found


def block_rates(plan: Plan, t: Topology) -> F8:
    """Returns the GB/s of the thread block of each primitive: f8[P]."""
    rates = np.array([device.block_rates for device in t.devices]).T  # [BLOCK_RATES, devices]
    mine = rates[:, t.device[plan.rank_of()]]
    slowest: F8 = np.where(ways(plan, t), mine, np.inf).min(axis=0)
    return slowest
