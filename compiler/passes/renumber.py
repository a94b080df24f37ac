"""renumber: gives the ranks of a Plan other numbers, as hosts need whose ranks are not in a row.

Chunks, and the slots of user buffers, are those of the renumbered ranks: block k of a buffer is of
the rank that is called k then. Nothing else changes, so what was proved of a Plan still holds; it
is proved again all the same, of the numbers that there are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hccc.base.diagnostics import InternalError
from hccc.ir.arrays import I4, I8, entries
from hccc.ir.collective import Collective, OpType, block_count
from hccc.ir.plan import Plan, Posts
from hccc.ir.primitives import Buffer, Operands


def renumber(plan: Plan, number: I4) -> Plan:
    """Returns `plan` with rank r called `number[r]`: i4[n_ranks], each rank once. O(its size).

    Nodes need not be ranks in a row then, so `gpus_per_node` says nothing of them, and memory
    domains alone say who shares memory.

    Raises:
        InternalError: the collective speaks of the ranks' order, as SendRecv does.
    """
    old = plan.collective
    if old.op in (OpType.SENDRECV, OpType.CUSTOM):
        raise InternalError(f"{old.name} is another collective with other numbers of ranks")
    new = replace(old, root=int(number[old.root]) if old.rooted else 0)
    back = np.argsort(number)  # the old number of each rank
    blocks = np.argsort(number[plan.block_rank()], kind="stable")
    tb_ptr, rows = entries(plan.tb_ptr, blocks)
    chunks = _chunks(old, number)
    src, dst = (_operands(plan, o.take(rows), new, number, chunks) for o in (plan.src, plan.dst))
    posts, at = entries(plan.posts.ptr, rows)
    queues = plan.queues
    domains = plan.memory_domain[back]
    _, first, which = np.unique(domains, return_index=True, return_inverse=True)
    return replace(
        plan,
        collective=new,
        gpus_per_node=plan.n_ranks,
        memory_domain=np.argsort(np.argsort(first))[which],
        n_tb=plan.n_tb[back],
        tb_ptr=tb_ptr,
        chunk=chunks[plan.chunk[rows]],
        sub=plan.sub[rows],
        line=plan.line[rows],
        final=plan.final[rows],
        guard=plan.guard[rows],
        src=src,
        dst=dst,
        waits=plan.waits.take(rows),
        posts=Posts(posts, number[plan.posts.rank[at]], plan.posts.flag[at]),
        n_flags=plan.n_flags[back],
        scratch_slots=plan.scratch_slots[back],
        stage_slots=_stage_slots(dst, plan.n_ranks),
        queues=replace(queues, src=number[queues.src], dst=number[queues.dst]),
        provenance=plan.provenance and replace(plan.provenance, cluster=None),
    )


def _chunks(c: Collective, number: I4) -> I8:
    """Returns the new number of each chunk: i8[n_chunks]."""
    n, per = c.n_ranks, c.chunks_per_block
    block = number.astype(np.int64)
    if block_count(c.op, n) == 1:
        block = np.zeros(1, np.int64)
    elif c.op is OpType.ALLTOALL:
        block = (block[:, None] * n + block).ravel()
    return (block[:, None] * per + np.arange(per)).ravel()


def _operands(plan: Plan, old: Operands, new: Collective, number: I4, chunks: I8) -> Operands:
    """Returns operands at renumbered ranks, in the slots that their chunks have there."""
    rank, slot = old.rank.astype(np.int64), old.slot.astype(np.int64)
    for buffers, chunk_of, slot_of in (
        ((Buffer.INPUT, Buffer.STAGE), plan.collective.input_chunk, new.input_slot),
        ((Buffer.OUTPUT,), plan.collective.output_chunk, new.output_slot),
    ):
        user = np.isin(old.buffer, buffers)
        chunk = chunks[chunk_of(rank[user], slot[user])]
        slot[user] = slot_of(number[rank[user]], chunk)
    memory = old.buffer != Buffer.QUEUE
    rank[memory] = number[rank[memory]]
    return Operands(old.ptr, rank, old.buffer, slot)


def _stage_slots(dst: Operands, n_ranks: int) -> I8:
    """Returns the slots up to the last that is written of each staged send buffer: i8[n_ranks]."""
    found = np.zeros(n_ranks, np.int64)
    staged = dst.buffer == Buffer.STAGE
    np.maximum.at(found, dst.rank[staged], dst.slot[staged] + np.int64(1))
    return found
