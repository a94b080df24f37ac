"""sum_orders: the order that the analysis finds is the one in which a Plan's sums are made."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings

from hccc.analysis.sum_orders import SumOrders, sum_orders
from hccc.ir.choices import Accumulate
from hccc.ir.collective import OpType
from hccc.ir.plan import Plan
from hccc.passes.fuse import fuse
from hccc.testing import execute
from hccc.testing.strategies import correct_programs, options, plans
from tests.health_checks import EVERY_CHECK
from tests.marks import LONG
from tests.passes.textbook import (
    lowered,
    mesh_allreduce,
    planned,
    ring_allreduce,
    ring_reducescatter,
)

CHOICES = options(prove=False)


def orders(plan: Plan) -> list[str]:
    """Returns a line for each group of receive slots, out of place."""
    found = sum_orders([plan])
    return [
        f"{','.join(map(str, one.chunks))} at {','.join(map(str, one.ranks))}: "
        + found.text(one.node)
        for one in found.groups(found.ends[0])
    ]


def test_a_ring() -> None:
    assert orders(planned(lowered(ring_allreduce(3)))) == [
        "0 at 0,1,2: r2 + (r1 + r0)",
        "1 at 0,1,2: r0 + (r2 + r1)",
        "2 at 0,1,2: r1 + (r0 + r2)",
    ]
    assert orders(planned(lowered(ring_reducescatter(3))))[0] == "0 at 0: r0 + (r2 + r1)"


def test_what_a_primitive_adds_is_one_sum_unless_it_rounds_each() -> None:
    plain, merged = (planned(fuse(lowered(mesh_allreduce(4)), how)) for how in ("none", "reduce"))
    assert orders(plain)[0] == "0,1 at 0,1,2,3: ((r0 + r1) + r2) + r3"
    assert orders(merged)[0] == "0,1 at 0,1,2,3: r0 + r1 + r2 + r3"
    both = sum_orders([plain, merged])
    assert not np.array_equal(both.ends[0].node, both.ends[2].node)
    rounded = [replace(plan, accumulate=Accumulate.SAME) for plan in (plain, merged)]
    assert orders(rounded[1])[0] == "0,1 at 0,1,2,3: ((r0 + r1) + r2) + r3"
    alike = sum_orders(rounded)
    assert all(np.array_equal(ends.node, alike.ends[0].node) for ends in alike.ends)


def test_texts_are_cut() -> None:
    found = sum_orders([planned(lowered(ring_allreduce(20)))])
    node = int(found.ends[0].node[0])
    assert found.text(node, 16) == "r19 + (r18 + …"
    assert found.text(node).endswith("(r1 + r0" + ")" * 18)


@dataclass(frozen=True)
class Term:
    """A value that remembers how it was added: a rank, or two terms in either order."""

    of: object

    def __add__(self, other: Term) -> Term:
        return Term(frozenset([self, other]))


def term(found: SumOrders, node: int) -> Term:
    """Returns a sum as terms."""
    if node < found.n_ranks:
        return Term(node)
    left, right = int(found.sums.left[node]), int(found.sums.right[node])
    return term(found, left) if left == right else term(found, left) + term(found, right)


@pytest.mark.parametrize("op", [OpType.ALLREDUCE, OpType.REDUCESCATTER, OpType.REDUCE])
def test_the_order_is_that_of_an_execution(op: OpType) -> None:
    """Executes plans on terms instead of numbers, in any interleaving."""

    @settings(max_examples=10 * LONG, deadline=None, suppress_health_check=EVERY_CHECK)
    @given(plans(correct_programs(op, max_ranks=6, max_transfers=40), CHOICES))
    def holds(plan: Plan) -> None:
        c, found = plan.collective, sum_orders([plan])
        for ends in found.ends:
            slots = [c.input_blocks(r) * c.chunks_per_block for r in range(c.n_ranks)]
            x = [np.array([[Term(r)]] * n, object).reshape(n, 1) for r, n in enumerate(slots)]
            got = execute(plan, x, in_place=ends.in_place, seed=3)
            want = [term(found, int(node)) for node in ends.node]
            assert [one for rank in got for one in rank[:, 0]] == want

    holds()


def test_equal_sums_are_one_node() -> None:
    """As many sums as there are different ones, whatever the number of chunks and calls."""
    found = sum_orders([planned(lowered(ring_allreduce(8)))] * 3)
    assert int(found.sums.used[0]) == 8 + 8 * 7
