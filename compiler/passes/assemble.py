"""assemble: an Allreduce, or a Reducescatter, of an Allgather.

Backwards, from receivers to senders and with the last step first, the copies of an Allgather are
sums: each rank adds what it gets to what it has, and a chunk ends where the Allgather begins with
it. That is a Reducescatter. With the Allgather behind it, it is an Allreduce. Where a rank sends a
chunk to several in one step, what comes back comes in steps of its own, one after another.

Source: HeteCCL §6.1, which makes TE-CCL's AllReduce so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.base.diagnostics import fail
from hccc.ir.collective import Collective, OpType
from hccc.ir.program import TRANSFER, Op, Program
from hccc.passes.verify import verify

OPS = (OpType.ALLREDUCE, OpType.REDUCESCATTER)


def assemble(gather: Program, op: OpType) -> Program:
    """Returns the program of a collective of OPS; `gather` is a proved Allgather. O(n log n) for n
    transfers.

    Raises:
        UserError: E451 there is no way to `op`, `gather` is no Allgather, or a rank gets a chunk
        twice, which would be added twice.
    """
    c = gather.collective
    if op not in OPS or c.op is not OpType.ALLGATHER or c.uneven:
        made = " and ".join(one.value for one in OPS)
        message = f"{gather.name} is {c.title}, and {op.value} was asked for"
        raise fail("E451", message, help=f"{made} are assembled of an Allgather")
    _check_once(gather)
    sums = _backwards(gather.transfers, c.n_chunks)
    behind = gather.transfers.copy() if op is OpType.ALLREDUCE else np.zeros(0, TRANSFER)
    behind["step"] += sums["step"].max(initial=-1) + 1
    behind["line"] = 0
    old, new = OpType.ALLGATHER.value.lower(), op.value.lower()
    name = gather.name.replace(old, new) if old in gather.name else f"{gather.name}_{new}"
    collective = Collective(op, c.n_ranks, c.n_chunks)
    transfers = np.concatenate([sums, behind])
    assembled = replace(gather, name=name, collective=collective, transfers=transfers, origin=None)
    return verify(assembled)


def _backwards(copies: NDArray[Any], n_chunks: int) -> NDArray[Any]:
    """Returns the sums that copies are backwards, by step; of one step no two at one place."""
    sums = copies[::-1].copy()
    sums["src"], sums["dst"] = copies["dst"][::-1], copies["src"][::-1]
    sums["op"], sums["line"] = Op.RRC, 0
    step = sums["step"].max(initial=0) - sums["step"].astype(np.int64)
    place = sums["dst"].astype(np.int64) * n_chunks + sums["chunk"]
    order = np.lexsort((place, step))
    first = np.ones(len(sums), bool)
    first[1:] = (np.diff(place[order]) != 0) | (np.diff(step[order]) != 0)
    begin = np.maximum.accumulate(np.where(first, np.arange(len(sums)), 0))
    turn = np.empty(len(sums), np.int64)
    turn[order] = np.arange(len(sums)) - begin
    sums["step"] = np.unique(step * (turn.max(initial=0) + 1) + turn, return_inverse=True)[1]
    return sums[np.argsort(sums["step"], kind="stable")]


def _check_once(gather: Program) -> None:
    """Raises UserError E451 where a rank gets a chunk twice, or one that it had."""
    c, t = gather.collective, gather.transfers
    keys = t["dst"].astype(np.int64) * c.n_chunks + t["chunk"]
    order = np.argsort(keys, kind="stable")
    again = np.zeros(len(t), bool)
    again[order[1:]] = np.diff(keys[order]) == 0
    again |= c.holds(t["dst"], t["chunk"])
    if again.any():
        first = int(np.flatnonzero(again)[0])
        message = f"{gather.describe(first)} brings what its destination has"
        help = "take the transfer out: backwards, it would be added twice"
        raise fail("E451", message, gather.span(first), help=help)
