"""network_parts: the parts of a Plan that concern another memory domain, which a proxy carries
out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import B1, I8, places_among
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Operands


@dataclass(frozen=True, slots=True, eq=False)
class NetworkParts:
    """The parts of a Plan that a proxy carries out.

    puts: b1 of each entry of dst, the network puts; messages: b1 of each entry of src and of dst,
    those of network queues; rows: b1[P], primitives with any of these or with a flag to raise
    there; own: i8[Q], the number of each network queue among those that begin at its rank, or -1.
    """

    puts: B1
    messages: tuple[B1, B1]
    rows: B1
    own: I8


def network_parts(plan: Plan) -> NetworkParts:
    """Finds the NetworkParts of `plan`. O(operands + posts)."""
    network, puts = plan.network_queues(), plan.network_puts()
    received, sent = (_through(operands, network) for operands in (plan.src, plan.dst))
    rows = np.zeros(len(plan), np.bool_)
    rows[plan.src.owner()[received]] = True
    rows[plan.dst.owner()[puts | sent]] = True
    rows[plan.posts.owner()[plan.network_posts()]] = True
    own = np.full(len(network), -1, np.int64)
    own[network] = places_among(plan.queues.src[network])
    return NetworkParts(puts, (received, sent), rows, own)


def _through(operands: Operands, network: B1) -> B1:
    """Marks the operands that are messages of a network queue."""
    queued = operands.buffer == Buffer.QUEUE
    found = np.zeros(len(queued), np.bool_)
    found[queued] = network[operands.rank[queued]]
    return found
