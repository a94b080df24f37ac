"""carried: what proxies do for a mixed Plan, in the order that it enforces (kernel-protocol §4).

A primitive hands its network puts, and the flags that it raises in other memory domains, to a
proxy, which carries what one thread block hands over in that order, some time later. So they are
what a row of its own does, after the primitive, in a block of its own: the block's *carrier*. A
carried put reads the place at the primitive's rank that the bytes are kept in; who waits for a
carried flag waits for the carrier's row. Nothing else does: what a proxy has read is known where
it wrote, and to who waited for that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.analysis.grouping import graph
from hccc.analysis.locations import Locations
from hccc.analysis.waits import by_flag, by_queue
from hccc.ir.arrays import B1, I4, I8, Csr, starts
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Transport


@dataclass(frozen=True, slots=True, eq=False)
class Carriers:
    """P rows of thread blocks, then C rows of carriers. tb_ptr: i8[T + carriers + 1]; of: i4[C],
    the primitive that each carries for; row: i4[P], the carrier's row of each primitive, or -1."""

    tb_ptr: I8
    of: I4
    row: I4

    def primitive(self, i: int) -> int:
        """The primitive that row `i` is, or carries for."""
        n = len(self.row)
        return i if i < n else int(self.of[i - n])

    def column(self, values: I4) -> I4:
        """A column of primitives, for all rows."""
        return np.concatenate([values, values[self.of]])

    def edges(self, row: I4, pred: I4, away: B1) -> Csr:
        """The edges (row, pred), those `away` from the carriers, and theirs from primitives."""
        n = len(self.row)
        own = np.arange(n, n + len(self.of), dtype=np.int32)
        rows = np.concatenate([row, own])
        return graph(rows, np.concatenate([self.handed(pred, away), self.of]), n + len(self.of))

    def handed(self, pred: I4, away: B1) -> I4:
        """The rows that `pred` are, those `away` of their carriers."""
        return np.where(away, self.row[pred], pred).astype(np.int32)


def carriers(tb_ptr: I8, busy: B1) -> Carriers:
    """The carriers of primitives in blocks `tb_ptr`, where `busy`: b1[P]. O(P)."""
    n, of = len(busy), np.flatnonzero(busy).astype(np.int32)
    row = np.full(n, -1, np.int32)
    row[of] = n + np.arange(len(of), dtype=np.int32)
    counts = np.diff(starts(busy)[tb_ptr])
    return Carriers(np.concatenate([tb_ptr, n + np.cumsum(counts[counts > 0])]), of, row)


def enforced_with_carriers(plan: Plan) -> tuple[Carriers, Csr]:
    """The carriers of `plan` and what every row waits for, through flags and queues. O(n log n).

    Raises:
        UserError E301: as `waits.enforced`.
    """
    row, pred = by_flag(plan)
    away = np.zeros(len(row), np.bool_)
    busy = np.zeros(len(plan), np.bool_)
    if plan.transport is Transport.MIXED:
        domain = plan.memory_domain[plan.rank_of()]
        away = domain[row] != domain[pred]
        busy[pred[away]] = True
        busy[plan.dst.owner()[plan.network_puts()]] = True
    if len(plan.queues):
        receiver, sender = by_queue(plan)
        row, pred = np.concatenate([row, receiver]), np.concatenate([pred, sender])
        away = np.concatenate([away, np.zeros(len(receiver), np.bool_)])
    made = carriers(plan.tb_ptr, busy)
    return made, made.edges(row, pred, away)


def locate_carried(plan: Plan, made: Carriers, where: Locations) -> Locations:
    """`where` with every network put at its carrier's row, which reads what it carries."""
    if not len(made.of):
        return where
    put, n = plan.network_puts(), len(plan)
    row = plan.dst.owner()
    total = n + len(made.of)
    carried = np.where(put, made.row[row], row)
    order = np.argsort(carried, kind="stable")
    dst_ptr = starts(np.bincount(carried, minlength=total))
    place = _local_places(plan, where)[made.of]
    carries = np.bincount(row[put], minlength=n)[made.of] > 0
    counts = np.concatenate([plan.src.counts(), carries.astype(np.int64)])
    return where._replace(
        src_ptr=starts(counts), src=np.concatenate([where.src, place[carries]]),
        dst_ptr=dst_ptr, dst=where.dst[order],
        active=np.concatenate([where.active, where.active[made.of]]),
    )  # fmt: skip


def _local_places(plan: Plan, where: Locations) -> I4:
    """The location that each primitive's network puts are carried from: its first destination in
    memory of its own rank, else its only source: i4[P]."""
    row, rank = plan.dst.owner(), plan.rank_of()
    own = (plan.dst.buffer != Buffer.QUEUE) & (plan.dst.rank == rank[row])
    place: I4 = where.src[plan.src.ptr[:-1]].copy()
    at = np.flatnonzero(own)[::-1]
    place[row[at]] = where.dst[at]  # of several, the first is written last
    return place
