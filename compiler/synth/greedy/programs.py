"""programs: schedules of copies as Programs, for every collective that is one, or two.

An Allgather and a Broadcast are copies. A Reducescatter and a Reduce are those of the turned
cluster, backwards. An Allreduce is a Reducescatter to roots and an Allgather from them, the roots
being the owners of the chunks (HeteCCL App. I).
"""

from __future__ import annotations

import numpy as np

from hccc.ir.arrays import I4, I8
from hccc.ir.collective import Collective, OpType
from hccc.ir.program import Op, Program
from hccc.ir.topology import Topology
from hccc.synth.common.transfer_table import program
from hccc.synth.greedy.schedule import Schedule

COPIES = frozenset({OpType.ALLGATHER, OpType.BROADCAST})
SUMS = frozenset({OpType.REDUCESCATTER, OpType.REDUCE})
OPS = COPIES | SUMS | {OpType.ALLREDUCE}
Columns = dict[str, I8 | int]


def owners(t: Topology, op: OpType, root: int, chunks: int) -> I4:
    """The rank that has each chunk in the end of its sum, or before it is copied: i4[K].

    chunks: of a rank, of the root, or, of an Allreduce, of the rank that has most: every node owns
    as much as any other, whatever its size, since what enters it is what its network must carry.
    Shares are rounded.
    """
    n = len(t)
    if op in (OpType.BROADCAST, OpType.REDUCE):
        return np.full(chunks, root, np.int32)
    if op is not OpType.ALLREDUCE:
        return np.repeat(np.arange(n, dtype=np.int32), chunks)
    node = t.dense_memory_domain()
    size = np.bincount(node)[node]
    share = np.maximum(1, np.rint(chunks * size.min() / size)).astype(np.int64)
    return np.repeat(np.arange(n, dtype=np.int32), share)


def from_schedules(
    name: str,
    t: Topology,
    op: OpType,
    root: int,
    owner: I4,
    copies: Schedule | None,
    sums: Schedule | None,
    channels: int = 1,
) -> Program:
    """The Program of `op`. copies, sums: schedules of copies of chunks from their owners, sums over
    the turned cluster; which there must be depends on `op`.

    Raises:
        UserError: E452 it is too large.
    """
    parts = list[Columns]()
    begin = 0
    if sums is not None:
        parts.append(_columns(sums.reversed(), 0, Op.RRC))
        begin = sums.steps
    if copies is not None:
        parts.append(_columns(copies, begin, Op.RECV))
    columns: Columns = {
        key: np.concatenate([np.broadcast_to(part[key], part["src"].shape) for part in parts])  # type: ignore[union-attr]
        for key in ("src", "dst", "step", "chunk", "op")
    }
    return program(name, Collective(op, len(t), len(owner), root), t, channels, columns)


def _columns(s: Schedule, begin: int, op: Op) -> Columns:
    step = s.step.astype(np.int64) + begin
    return {"src": s.src, "dst": s.dst, "step": step, "chunk": s.chunk, "op": int(op)}
