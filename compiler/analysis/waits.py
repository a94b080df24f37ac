"""waits: the order a Plan enforces between thread blocks, read from its flags and queues.

The proofs start from this, not from the dependencies the compiler meant to enforce.
"""

from __future__ import annotations

import numpy as np

from hccc.analysis.grouping import graph
from hccc.base.diagnostics import fail
from hccc.ir.arrays import I4, I8, Csr, starts
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Operands


def enforced(plan: Plan) -> Csr:
    """Returns for every primitive the primitives it waits for, through flags and queues. O(n log
    n).

    Raises:
        UserError E301: a wait on a flag that no primitive raises, or that two primitives raise.
    """
    row, pred = by_flag(plan)
    if len(plan.queues):
        more_row, more_pred = by_queue(plan)
        row, pred = np.concatenate([row, more_row]), np.concatenate([pred, more_pred])
    return graph(row, pred, len(plan))


def by_flag(plan: Plan) -> tuple[I4, I4]:
    """Returns the primitive that waits for each flag and the one that raises it: i4[waits] each.
    Raises as `enforced`."""
    base = starts(plan.n_flags)
    poster = np.full(int(base[-1]), -1, np.int32)
    key = base[plan.posts.rank] + plan.posts.flag
    times = np.bincount(key, minlength=1)
    if times.max() > 1:
        twice = int(np.argmax(times > 1))
        at = int(np.searchsorted(base, twice, side="right")) - 1
        raise fail("E301", f"flag {twice - base[at]} of rank {at} is raised by two primitives")
    poster[key] = plan.posts.owner()
    row = plan.waits.owner()
    pred = poster[base[plan.rank_of()[row]] + plan.waits.index]
    if (pred < 0).any():
        i = int(np.flatnonzero(pred < 0)[0])
        raise fail(
            "E301",
            f"{name(plan, int(row[i]))} waits for flag {plan.waits.index[i]} of its rank, "
            "which no primitive raises",
        )
    return row, pred


def messages(operands: Operands) -> tuple[I8, I4]:
    """Returns the queue messages among `operands`: (queue · 2**32 + message index, primitive), by
    primitive."""
    queue = operands.buffer == Buffer.QUEUE
    key = operands.rank[queue].astype(np.int64) << 32 | operands.slot[queue].astype(np.int64)
    return key, operands.owner()[queue]


def by_queue(plan: Plan) -> tuple[I4, I4]:
    """Returns the receiver and the sender of every message: i4[messages] each, by receiver.

    Raises:
        UserError E301: the messages sent are not the ones received.
    """
    sent, sender = messages(plan.dst)
    received, receiver = messages(plan.src)
    order = np.argsort(sent, kind="stable")
    if not np.array_equal(sent[order], np.sort(received)) or (np.diff(sent[order]) == 0).any():
        raise fail("E301", "the messages sent through the queues are not the ones received")
    return receiver, sender[order][np.searchsorted(sent[order], received)]


def name(plan: Plan, i: int) -> str:
    """Writes a primitive as `rank 3 block 1 primitive 4 (chunk 7, line 12)`, for messages."""
    block = int(np.searchsorted(plan.tb_ptr, i, side="right")) - 1
    rank = int(plan.block_rank()[block])
    tb = block - int(plan.n_tb[:rank].sum())
    line = f", line {plan.line[i]}" if plan.line[i] else ""
    return (
        f"rank {rank} block {tb} primitive {i - plan.tb_ptr[block]} (chunk {plan.chunk[i]}{line})"
    )


def how(plan: Plan) -> str:
    """Writes the kinds of calls that `plan` serves, such as `in and out of place`."""
    if plan.in_place and plan.out_of_place:
        return "in and out of place"
    return "in place" if plan.in_place else "out of place"
