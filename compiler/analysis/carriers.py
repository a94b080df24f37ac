"""carriers: the work of proxies for a mixed Plan, in the order that the Plan enforces
(kernel-protocol §4).

A primitive hands two things to a proxy: its network puts, and the flags that it raises in other
memory domains. The proxy carries everything for one rank in the order in which a thread block hands
it over, some time later. So each is modelled as a row of its own, after the primitive, in a block
of its own: the *carrier* of that thread block and that peer. The row of a carried put reads the
place at the primitive's rank that keeps the bytes. A primitive that waits for a carried flag waits
for the carrier's row. No other primitive does: a proxy's read is known to be over only at the rank
that it wrote to, and to primitives that waited for that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.analysis.grouping import graph
from hccc.analysis.locations import Locations
from hccc.analysis.waits import by_flag, by_queue
from hccc.ir.arrays import B1, I4, I8, Csr, starts
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport, put_places


@dataclass(frozen=True, slots=True, eq=False)
class Carriers:
    """P rows of thread blocks, then C rows of carriers.

    tb_ptr: i8[T + carriers + 1]; of: i4[C], the primitive that each carries for; peer: i4[C], the
    rank that it carries to.
    """

    primitives: int
    tb_ptr: I8
    of: I4
    peer: I4

    def primitive(self, i: int) -> int:
        """Returns the primitive of row `i`: itself, or the one it carries for."""
        n = self.primitives
        return i if i < n else int(self.of[i - n])

    def column(self, values: I4) -> I4:
        """Extends a column of primitives to all rows."""
        return np.concatenate([values, values[self.of]])

    def edges(self, row: I4, pred: I4, away: B1, rank: I4) -> Csr:
        """Builds the edges (row, pred); the edges marked `away` come from the carriers to `rank`
        (i4[edges], where the row runs). Adds the edges from primitives to their carriers."""
        n, total = self.primitives, self.primitives + len(self.of)
        rows = np.concatenate([row, np.arange(n, total, dtype=np.int32)])
        return graph(rows, np.concatenate([self.handed(pred, away, rank), self.of]), total)

    def handed(self, pred: I4, away: B1, rank: I4) -> I4:
        """Returns the rows of `pred`; for those marked `away`, the rows of their carriers to
        `rank`."""
        rows = pred.astype(np.int32)
        rows[away] = self.row(pred[away], rank[away])
        return rows

    def row(self, of: I4, peer: I4) -> I4:
        """Returns the carriers' rows for primitives `of` and ranks `peer`."""
        order = np.lexsort((self.peer, self.of))
        width = int(self.peer.max(initial=0)) + 1
        known = self.of[order].astype(np.int64) * width + self.peer[order]
        at = np.searchsorted(known, of.astype(np.int64) * width + peer)
        return (self.primitives + order[at]).astype(np.int32)


def carriers(tb_ptr: I8, of: I4, peer: I4) -> Carriers:
    """Builds the carriers, where primitives `of`, in blocks `tb_ptr`, hand something over for ranks
    `peer` (i4[k] each, in any order, repeated or not). O(P + k log k)."""
    n, block = int(tb_ptr[-1]), np.searchsorted(tb_ptr, of, side="right") - 1
    width = int(peer.max(initial=0)) + 1
    lanes, lane = np.unique(block.astype(np.int64) * width + peer, return_inverse=True)
    found = np.unique(lane.astype(np.int64) * max(n, 1) + of)
    lane, of = found // max(n, 1), (found % max(n, 1)).astype(np.int32)
    ends = n + np.cumsum(np.bincount(lane, minlength=len(lanes)))
    return Carriers(n, np.concatenate([tb_ptr, ends]), of, (lanes % width)[lane].astype(np.int32))


def enforced_with_carriers(plan: Plan) -> tuple[Carriers, Csr]:
    """Returns the carriers of `plan`, and the rows that each row waits for, through flags and
    queues. O(n log n).

    Raises:
        UserError E301: as `waits.enforced`.
    """
    row, pred = by_flag(plan)
    away, rank = np.zeros(len(row), np.bool_), plan.rank_of()
    of, peer = np.zeros(0, np.int32), np.zeros(0, np.int32)
    if plan.transport is Transport.MIXED:
        domain, puts = plan.memory_domain[rank], plan.network_puts()
        away = domain[row] != domain[pred]
        of = np.concatenate([pred[away], plan.dst.owner()[puts]])
        peer = np.concatenate([rank[row[away]], plan.dst.rank[puts]])
    if len(plan.queues):
        receiver, sender = by_queue(plan)
        row, pred = np.concatenate([row, receiver]), np.concatenate([pred, sender])
        away = np.concatenate([away, np.zeros(len(receiver), np.bool_)])
    made = carriers(plan.tb_ptr, of, peer)
    return made, made.edges(row, pred, away, rank[row])


def locate_carried(plan: Plan, made: Carriers, where: Locations) -> Locations:
    """Returns `where` with every network put at its carrier's row, which reads the bytes it
    carries."""
    if not len(made.of):
        return where
    put, n = plan.network_puts(), len(plan)
    total = n + len(made.of)
    carried = made.handed(plan.dst.owner(), put, plan.dst.rank)
    order = np.argsort(carried, kind="stable")
    dst_ptr = starts(np.bincount(carried, minlength=total))
    places = put_places(plan.src, plan.dst, plan.rank_of(), where.src, where.dst)
    place = places[made.of]
    carries = np.bincount(carried[put], minlength=total)[n:] > 0
    counts = np.concatenate([plan.src.counts(), carries.astype(np.int64)])
    return where._replace(
        src_ptr=starts(counts),
        src=np.concatenate([where.src, place[carries]]),
        dst_ptr=dst_ptr,
        dst=where.dst[order],
        active=np.concatenate([where.active, where.active[made.of]]),
    )
