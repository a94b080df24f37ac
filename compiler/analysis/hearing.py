"""hearing: of which ranks each rank hears in every launch, in protocol LL (kernel-protocol §14).

A rank hears of those that it waits for, and of those that they have waited for before. Only the
first part of a block has packets in every launch: messages of the other chunks do not count.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hccc.analysis.execution_order import execution_order
from hccc.analysis.grouping import graph
from hccc.analysis.waits import by_flag, by_queue, enforced
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8, Csr
from hccc.ir.plan import Plan

BITS = 64  # ranks that are followed at once


def hearing(plan: Plan) -> Iterator[tuple[int, NDArray[np.uint64]]]:
    """Yields for each 64 ranks the first of them, and those of them that each rank hears of before
    it ends a launch by its messages, itself too: u64[n_ranks], as bits. The plan does not hang.
    O(ranks / 64 · (primitives + waits))."""
    rank, order = plan.rank_of(), execution_order(plan, enforced(plan))
    waits = _certain(plan)
    first = np.zeros(len(plan) + 1, np.bool_)
    first[plan.tb_ptr] = True
    for low in range(0, plan.n_ranks, BITS):
        yield low, _heard(order, first, waits.ptr, waits.index, rank, low, plan.n_ranks)


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
