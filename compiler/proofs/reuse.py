"""reuse: in protocol LL no packet is overwritten before it is read (kernel-protocol §14).

A rank's launches are numbered, its epochs, and take the same slots as every second one before.
So a sender w that begins epoch e + 2 overwrites what its receiver r got in epoch e. It may, if r
has left e: if r had begun e + 1, since a rank leaves one launch before it begins the next. And w
knows that r had, if in e + 1 it waited for anything that r sends there, or that somebody sends who
waited for r, and so on: packets are of one epoch only.

So for every connection w → r there must be a path through program order and waits from some
primitive of r to one of w. Only the first part of a block has packets in every launch; messages of
the other chunks do not count. The other proofs of a launch then hold for each of them by itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hccc.analysis.execution_order import execution_order
from hccc.analysis.grouping import graph
from hccc.analysis.waits import by_flag, by_queue, enforced
from hccc.base.diagnostics import fail
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8, Csr
from hccc.ir.plan import Plan
from hccc.proofs.proof import Proof

BITS = 64  # ranks that are followed at once


def reuse(plan: Plan) -> Proof:
    """Proves that `plan`'s packet slots are free whenever they are written; it must have passed
    `deadlock`. O(ranks / 64 · (primitives + waits)).

    Raises:
        UserError E308: a rank sends to one that it never hears of within a launch.
    """
    rank, order = plan.rank_of(), execution_order(plan, enforced(plan))
    waits = _certain(plan)
    first = np.zeros(len(plan) + 1, np.bool_)
    first[plan.tb_ptr] = True
    q = plan.queues
    hears = np.zeros(len(q), np.bool_)
    for low in range(0, plan.n_ranks, BITS):
        heard = _heard(order, first, waits.ptr, waits.index, rank, low, plan.n_ranks)
        some = (q.dst >= low) & (q.dst < low + BITS)
        bit = (q.dst[some] - low).astype(np.uint64)
        hears[some] = heard[q.src[some]] >> bit & np.uint64(1)
    if not hears.all():
        at = int(np.argmin(hears))
        raise fail(
            "E308",
            f"rank {q.src[at]} sends packets to rank {q.dst[at]} and never hears of it within a "
            "launch, so it could overwrite packets that are not read yet",
            help="--protocol ll is for collectives in which all ranks hear of those they send to, "
            "such as Allreduce, Allgather, Reducescatter and Alltoall; else --protocol simple",
        )
    slots = {"packet slots": int(q.length.sum()), "connections": len(q)}
    return Proof("reuse", "no packet is overwritten before it is read", dict(slots))


def _certain(plan: Plan) -> Csr:
    """Returns for every primitive those that it waits for in every launch."""
    row, pred = by_flag(plan)
    receiver, sender = by_queue(plan)
    sent = plan.length_index()[receiver] == 0
    rows, preds = np.concatenate([row, receiver[sent]]), np.concatenate([pred, sender[sent]])
    return graph(rows, preds, len(plan))


@njit
def _heard(
    order: I4, first: NDArray[np.bool_], ptr: I8, preds: I4, rank: I4, low: int, n_ranks: int
) -> NDArray[np.uint64]:
    """Returns the ranks of [low, low + 64) that each rank hears of in a launch: u8[n_ranks]."""
    known = np.zeros(len(order), np.uint64)
    heard = np.zeros(n_ranks, np.uint64)
    for i in order:
        of = np.uint64(0) if first[i] else known[i - 1]
        for k in range(ptr[i], ptr[i + 1]):
            of |= known[preds[k]]
        if low <= rank[i] < low + 64:
            of |= np.uint64(1) << np.uint64(rank[i] - low)
        known[i] = of
        heard[rank[i]] |= of
    return heard
