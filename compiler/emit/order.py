"""order: the primitives that a kind of call runs, and the predecessors of each.

A primitive that a call skips (`Guard`) moves nothing but still keeps an order: primitives that
waited for it wait for its predecessors, in its thread block and by its waits.
"""

from __future__ import annotations

import numpy as np

from hccc.base.diagnostics import fail
from hccc.ir.arrays import B1
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Guard


def active(plan: Plan, in_place: bool | None) -> B1:
    """Marks the primitives that move data in such a call; None: in both kinds, which must be alike.

    Raises:
        UserError E524: the kinds of call differ.
    """
    skipped = {True: Guard.OUT_OF_PLACE, False: Guard.IN_PLACE}
    if in_place is not None:
        return np.asarray(plan.guard != skipped[in_place])
    staged = (plan.src.buffer == Buffer.STAGE).any() or (plan.dst.buffer == Buffer.STAGE).any()
    if plan.guard.any() or staged:
        raise fail(
            "E524",
            "this plan copies differently in place and out of place: one file cannot serve both",
            help="export one file for each kind of call",
        )
    return np.ones(len(plan), np.bool_)


class Order:
    """The primitives that a kind of call runs, and those that each of them waits for."""

    def __init__(self, plan: Plan, in_place: bool | None) -> None:
        self._plan = plan
        self.active = active(plan, in_place)
        self.rank = plan.rank_of()
        self.block = plan.block_of()
        self._poster = {
            (int(r), int(f)): int(p)
            for r, f, p in zip(plan.posts.rank, plan.posts.flag, plan.posts.owner(), strict=True)
        }

    def first(self, row: int) -> int:
        """Returns the first primitive of a primitive's thread block."""
        return int(self._plan.tb_ptr[self.block[row]])

    def preds(self, rows: range) -> set[int]:
        """Returns the active primitives that `rows`, consecutive in one block, wait for through
        flags."""
        waiting = list(rows)
        before = rows.start - 1
        while before >= self.first(rows.start) and not self.active[before]:
            waiting.append(before)  # skipped, but what it waited for still comes first
            before -= 1
        return {p for row in waiting for w in self._waits(row) for p in self._behind(w)}

    def _waits(self, row: int) -> list[int]:
        rank = int(self.rank[row])
        return [self._poster[rank, int(flag)] for flag in self._plan.waits.row(row)]

    def _behind(self, row: int) -> set[int]:
        """Returns the active primitives that stand for `row`: itself, or its predecessors."""
        found, seen, stack = set(), set(), [row]
        while stack:
            at = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            if self.active[at]:
                found.add(at)
                continue
            stack += self._waits(at)
            if at > self.first(at):
                stack.append(at - 1)
        return found
