"""What a plan's primitives do, in words and in kinds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from hccc import text
from hccc.ir.arrays import I4, I8, Csr, csr_from_pairs
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Guard, Operands, Transport
from hccc.pictures import palette


class Kind(IntEnum):
    """What a primitive is to its rank."""

    COPY = 0
    REDUCE = 1
    LOCAL = 2


LOOKS = {
    Kind.COPY: ("copy between ranks", palette.COPY),
    Kind.REDUCE: ("reduce", palette.REDUCE),
    Kind.LOCAL: ("local copy", palette.LOCAL),
}


@dataclass(frozen=True, slots=True, eq=False)
class PrimitiveText:
    """kind: i4[P]; sources, targets: Csr[P], the other ranks whose memory it reads and writes
    (staged: that sent or will receive the message)."""

    plan: Plan
    rank: I4
    kind: I4
    sources: Csr
    targets: Csr

    def text(self, p: int) -> str:
        """`put chunk 3 → 1`, `reduce chunk 3 ← 0`."""
        plan = self.plan
        sources, targets = self.sources.row(p).tolist(), self.targets.row(p).tolist()
        verb = _verb(self.kind[p], plan.transport, bool(sources), bool(targets))
        label = f"{verb} chunk {plan.chunk[p]}"
        if sources:
            label += f" ← {text.runs(sources, 3)}"
        if targets:
            label += f" → {text.runs(targets, 3)}"
        guard = Guard(int(plan.guard[p]))
        if guard is not Guard.ALWAYS:
            label += f" ({guard.name.lower().replace('_', ' ')} only)"
        return label

    def place(self, p: int) -> str:
        """`algo.rccl:12`; empty for local copies."""
        line = int(self.plan.line[p])
        return f"{self.plan.source}:{line}" if line else ""


def _verb(kind: int, transport: Transport, reads: bool, writes: bool) -> str:
    if kind == Kind.LOCAL:
        return "copy"
    if transport is Transport.STAGED:
        base = "receive" if reads else "send"
        base += "-reduce" if kind == Kind.REDUCE else ""
        return f"{base}-send" if reads and writes else base
    if kind == Kind.REDUCE:
        return "reduce-put" if writes else "reduce"
    return "put" if writes else "get"


def primitive_text(plan: Plan) -> PrimitiveText:
    """What every primitive does. O(operands log operands)."""
    rank = plan.rank_of()
    sources = _others(plan.src, rank, plan.queues.src)
    targets = _others(plan.dst, rank, plan.queues.dst)
    away = (sources.counts() + targets.counts()) > 0
    kind = np.where(plan.src.counts() > 1, Kind.REDUCE, np.where(away, Kind.COPY, Kind.LOCAL))
    return PrimitiveText(plan, rank, kind.astype(np.int32), sources, targets)


def _others(operands: Operands, rank: I4, far: I4) -> Csr:
    """The other rank of every operand that has one."""
    row = operands.owner()
    queue = operands.buffer == Buffer.QUEUE
    there = operands.rank.copy()
    there[queue] = far[operands.rank[queue]]
    away = there != rank[row]
    return csr_from_pairs(row[away], there[away], len(operands))


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Stretches of a thread block's time, one after the other: the micro-batches of one primitive
    within one window, or single ones. primitive, first, last (instances): i8[n]."""

    primitive: I8
    first: I8
    last: I8

    def __len__(self) -> int:
        return len(self.primitive)


def spans(rows: Sequence[int] | I8, batches: int, window: int) -> Spans:
    """The spans of a block whose primitives are `rows`, in the order it executes them."""
    begin = np.arange(0, batches, window)
    end = np.minimum(begin + window, batches) - 1
    p = np.tile(np.asarray(rows, np.int64), len(begin))
    each = len(np.asarray(rows))
    return Spans(p, p * batches + np.repeat(begin, each), p * batches + np.repeat(end, each))
