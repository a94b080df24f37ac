"""primitive_text: the work of a plan's primitives, in words and in roles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from hccc.ir import text
from hccc.ir.arrays import B1, I4, I8, Csr, csr_from_pairs
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Guard, Operands
from hccc.pictures import palette


class PrimitiveRole(IntEnum):
    """The role of a primitive at its rank."""

    COPY = 0
    REDUCE = 1
    LOCAL = 2


LOOKS = {
    PrimitiveRole.COPY: ("copy between ranks", palette.COPY),
    PrimitiveRole.REDUCE: ("reduce", palette.REDUCE),
    PrimitiveRole.LOCAL: ("local copy", palette.LOCAL),
}


@dataclass(frozen=True, slots=True, eq=False)
class PrimitiveText:
    """The texts of all primitives.

    kind: i4[P]; sources, targets: [P], the other ranks whose memory each reads and writes, or that
    sent or will receive a message; receives, sends: b1[P], whether it does that.
    """

    plan: Plan
    rank: I4
    kind: I4
    sources: Csr
    targets: Csr
    receives: B1
    sends: B1

    def text(self, p: int) -> str:
        """Describes a primitive: `put chunk 3 → 1`, `reduce-put chunk 3 ← 0 → 1 → 8 over the
        network`."""
        plan = self.plan
        label = f"{self.verb(p)} chunk {plan.chunk[p]}"
        label += self._ranks("←", self.sources, p) + self._ranks("→", self.targets, p)
        guard = Guard(int(plan.guard[p]))
        if guard is not Guard.ALWAYS:
            label += f" ({guard.name.lower().replace('_', ' ')} only)"
        return label

    def verb(self, p: int) -> str:
        """Returns its work on its rank's own value, as a verb."""
        if self.kind[p] == PrimitiveRole.LOCAL:
            return "copy"
        sends = "send" if self.sends[p] else "put"
        parts = ["receive"] if self.receives[p] else []
        parts += ["reduce"] if self.kind[p] == PrimitiveRole.REDUCE else []
        parts += [sends] if len(self.targets.row(p)) else []
        return "-".join(parts) or "get"

    def _ranks(self, arrow: str, ranks: Csr, p: int) -> str:
        """Writes the ranks in the memory domain of its rank, then those beyond."""
        domain, each = self.plan.memory_domain, ranks.row(p)
        far = domain[each] != domain[self.rank[p]]
        near, beyond = each[~far].tolist(), each[far].tolist()
        label = f" {arrow} {text.runs(near, 3)}" if near else ""
        return label + (f" {arrow} {text.runs(beyond, 3)} over the network" if beyond else "")

    def place(self, p: int) -> str:
        """Writes the place in the source, `algo.rccl:12`; empty for local copies."""
        line = int(self.plan.line[p])
        return f"{self.plan.source}:{line}" if line else ""


def primitive_text(plan: Plan) -> PrimitiveText:
    """Returns the texts of every primitive. O(operands log operands)."""
    rank = plan.rank_of()
    sources = _others(plan.src, rank, plan.queues.src)
    targets = _others(plan.dst, rank, plan.queues.dst)
    away = (sources.counts() + targets.counts()) > 0
    kind = np.where(
        plan.src.counts() > 1,
        PrimitiveRole.REDUCE,
        np.where(away, PrimitiveRole.COPY, PrimitiveRole.LOCAL),
    )
    receives, sends = (_queued(operands) for operands in (plan.src, plan.dst))
    return PrimitiveText(plan, rank, kind.astype(np.int32), sources, targets, receives, sends)


def _queued(operands: Operands) -> B1:
    """Marks the primitives with an operand in a queue: b1[P]."""
    found = np.zeros(len(operands), np.bool_)
    found[operands.owner()[operands.buffer == Buffer.QUEUE]] = True
    return found


def _others(operands: Operands, rank: I4, far: I4) -> Csr:
    """Returns the other rank of every operand that has one."""
    row = operands.owner()
    queue = operands.buffer == Buffer.QUEUE
    there = operands.rank.copy()
    there[queue] = far[operands.rank[queue]]
    away = there != rank[row]
    return csr_from_pairs(row[away], there[away], len(operands))


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Stretches of a thread block's time, one after the other: the micro-batches of one primitive
    within one window, or single ones.

    primitive, first, last (instances): i8[n].
    """

    primitive: I8
    first: I8
    last: I8

    def __len__(self) -> int:
        return len(self.primitive)


def spans(rows: Sequence[int] | I8, batches: int, window: int) -> Spans:
    """Returns the spans of a block whose primitives are `rows`, in the order it executes them."""
    begin = np.arange(0, batches, window)
    end = np.minimum(begin + window, batches) - 1
    p = np.tile(np.asarray(rows, np.int64), len(begin))
    each = len(np.asarray(rows))
    return Spans(p, p * batches + np.repeat(begin, each), p * batches + np.repeat(end, each))
