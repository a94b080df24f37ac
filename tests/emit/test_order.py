"""Primitives that a call skips: the order among the others stays the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hccc.emit.order import Order
from hccc.ir.plan import Plan
from hccc.ir.primitives import Guard
from hccc.testing import plans
from tests.health_checks import EVERY_CHECK

Bools = NDArray[np.bool_]


def closure(before: Bools) -> Bools:
    """Returns the transitive closure. before[i, j]: i comes before j."""
    found = before.copy()
    for k in range(len(found)):
        found |= found[:, k : k + 1] & found[k]
    return found


def enforced(plan: Plan) -> Bools:
    """Returns the order that program order and flags enforce."""
    before = np.zeros((len(plan), len(plan)), np.bool_)
    poster = {
        (int(r), int(f)): int(p)
        for r, f, p in zip(plan.posts.rank, plan.posts.flag, plan.posts.owner(), strict=True)
    }
    rank, block = plan.rank_of(), plan.block_of()
    for i in range(len(plan)):
        if i and block[i] == block[i - 1]:
            before[i - 1, i] = True
        for flag in plan.waits.row(i):
            before[poster[int(rank[i]), int(flag)], i] = True
    return closure(before)


def kept(order: Order) -> Bools:
    """Returns the order enforced when only active primitives run, waiting as `order` says."""
    rows = np.flatnonzero(order.active).tolist()
    before = np.zeros((len(order.active),) * 2, np.bool_)
    for k, i in enumerate(rows):
        if k and order.block[i] == order.block[rows[k - 1]]:
            before[rows[k - 1], i] = True
        for pred in order.preds(range(i, i + 1)):
            assert order.active[pred]
            before[pred, i] = True
    return closure(before)


@settings(max_examples=40, deadline=None, suppress_health_check=EVERY_CHECK, derandomize=True)
@given(plans(), st.data())
def test_order_survives_what_is_skipped(plan: Plan, data: st.DataObject) -> None:
    """Any primitives may be skipped, not only the copies that hccc itself guards."""
    guards = st.sampled_from([Guard.ALWAYS, Guard.IN_PLACE, Guard.OUT_OF_PLACE])
    guard = data.draw(st.lists(guards, min_size=len(plan), max_size=len(plan)))
    plan = replace(plan, guard=np.array(guard, np.uint8))
    before = enforced(plan)
    for in_place in (False, True):
        order = Order(plan, in_place)
        both = np.outer(order.active, order.active)
        assert np.array_equal(kept(order) & both, before & both)
