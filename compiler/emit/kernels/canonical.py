"""canonical: a Plan whose primitives list destinations, waits and posts alike at every rank.

Their order within a primitive changes nothing (all destinations get the same value, all waits come
first, all posts last), but passes list them in the order of the schedule. Sorted by distance in
nodes and GPUs, alike primitives of different ranks look alike. Sources stay as they are, since
their order determines the result's bits.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hccc.ir.arrays import I4, I8, Csr
from hccc.ir.plan import Plan, Posts
from hccc.ir.primitives import Buffer
from hccc.ir.ranks import rank_distance


def canonical(plan: Plan) -> Plan:
    """Returns the same program, with every primitive's lists in rank-symmetric order. O(P log
    P)."""
    owner = plan.rank_of()
    dst, posts, waits = plan.dst, plan.posts, plan.waits
    row = dst.owner()
    queued = dst.buffer == Buffer.QUEUE
    there = dst.rank.astype(np.int64)
    there[queued] = plan.queues.dst[dst.rank[queued]]
    by_dst = np.lexsort((dst.slot, distance(plan, owner[row], there), dst.buffer, row))
    order = replace(dst, rank=dst.rank[by_dst], buffer=dst.buffer[by_dst], slot=dst.slot[by_dst])
    row = posts.owner()
    by_post = np.lexsort((posts.flag, distance(plan, owner[row], posts.rank), row))
    by_wait = np.lexsort((waits.index, waits.owner()))
    return replace(
        plan,
        dst=order,
        posts=Posts(posts.ptr, posts.rank[by_post], posts.flag[by_post]),
        waits=Csr(waits.ptr, waits.index[by_wait]),
    )


def distance(plan: Plan, here: I4 | I8, there: I4 | I8) -> I8:
    """Returns `rank_distance` on the ranks of `plan`."""
    return rank_distance(plan.n_ranks, plan.gpus_per_node, here, there)
