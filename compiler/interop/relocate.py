"""relocate: moves values of an imported Plan out of slots that are too short for them.

MSCCL's chunks are all of one length, so its schedules may park a chunk in any slot of a user
buffer. hccc's are not: a block's last chunks are shorter, or empty, where counts do not divide. A
value that is too long for its slot gets a slot of scratch memory instead, which has room for any
chunk. Its writers and readers follow; flags and order stay, so every ordering still holds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hccc.analysis.execution_order import execution_order
from hccc.analysis.locations import Locations, locate
from hccc.analysis.waits import enforced
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4, I8, places
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Operands


def relocate(plan: Plan) -> Plan:
    """Returns `plan`, labelled, with the values that are too long moved to scratch. O(operands +
    locations).

    If calls in and out of place would need different operands, the Plan is returned unchanged.
    """
    per = plan.collective.chunks_per_block
    user = (plan.dst.buffer == Buffer.INPUT) | (plan.dst.buffer == Buffer.OUTPUT)
    short = user & (plan.dst.slot % per > plan.chunk[plan.dst.owner()] % per)
    if not short.any():
        return plan
    order = execution_order(plan, enforced(plan))
    writers = [_writers(plan, order, in_place) for in_place in plan.modes]
    read_short = [(w >= 0) & short[w] for w in writers]
    for w, read in zip(writers, read_short, strict=True):
        if not np.array_equal(read, read_short[0]) or (w[read] != writers[0][read]).any():
            return plan
    slot, scratch = _scratch(plan, short)
    return replace(
        plan,
        src=_moved(plan.src, read_short[0], slot[writers[0]], plan.dst.rank[writers[0]]),
        dst=_moved(plan.dst, short, slot, plan.dst.rank),
        scratch_slots=scratch,
    )


def _writers(plan: Plan, order: I4, in_place: bool) -> I4:
    """Finds for every source operand the destination operand whose value it reads, or -1."""
    where = locate(plan, in_place=in_place)
    return _last_writes(order, where)


@njit
def _last_writes(order: I4, where: Locations) -> I4:
    last = np.full(len(where.start), -1, np.int32)
    writer = np.full(len(where.src), -1, np.int32)
    for i in order:
        if not where.active[i]:
            continue
        for k in range(where.src_ptr[i], where.src_ptr[i + 1]):
            writer[k] = last[where.src[k]]
        for k in range(where.dst_ptr[i], where.dst_ptr[i + 1]):
            last[where.dst[k]] = k
    return writer


def _scratch(plan: Plan, short: B1) -> tuple[I8, I8]:
    """Gives every short destination a slot of scratch, the same for the same place; returns the
    slots, i8[operands], and how many each rank has then, i8[n_ranks]."""
    o = plan.dst
    taken = np.stack([o.rank, o.buffer, o.slot], axis=1)[short].astype(np.int64)
    distinct, which = np.unique(taken, axis=0, return_inverse=True)
    rank = distinct[:, 0]
    more = np.bincount(rank, minlength=plan.n_ranks)
    within = places(more)
    slot = np.zeros(len(o.rank), np.int64)
    slot[short] = (plan.scratch_slots[rank] + within)[which.ravel()]
    return slot, plan.scratch_slots + more


def _moved(operands: Operands, there: B1, slot: I8, rank: I4) -> Operands:
    """Returns `operands` with the marked ones in scratch, at their new slots."""
    return Operands(
        operands.ptr,
        np.where(there, rank, operands.rank),
        np.where(there, Buffer.SCRATCH, operands.buffer),
        np.where(there, slot, operands.slot),
    )
