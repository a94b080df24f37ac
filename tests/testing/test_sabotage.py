"""Random faults in random plans: refused by a proof, or harmless in every run tried."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, event, given, note, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import Source, UserError
from hccc.driver.compilation import compile_text
from hccc.driver.options import Options
from hccc.ir import plan_check
from hccc.ir.arrays import Csr
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Guard, Transport
from hccc.proofs.prove import prove
from hccc.testing import correct_programs, exact_inputs, execute, expected, plans
from hccc.testing.grow import Choose
from tests.health_checks import EVERY_CHECK
from tests.marks import LONG
from tests.passes.textbook import with_operands
from tests.sabotage import (
    changed,
    swapped_rows,
    without_operand,
    without_wait,
)

Fault = Callable[[Plan, Choose], Plan]


def wrong_operand(plan: Plan, pick: Choose) -> Plan:
    side = ("src", "dst")[pick(1)]
    o = getattr(plan, side)
    k = pick(len(o.rank) - 1)
    what = pick(2)
    if o.buffer[k] == Buffer.QUEUE:
        fault = {"slot": pick(int(plan.queues.length[o.rank[k]]) - 1)}
    elif what == 0:
        fault = {"slot": pick(int(o.slot.max()) + 1)}
    elif what == 1:
        fault = {"rank": pick(plan.n_ranks - 1)}
    else:
        fault = {"buffer": pick(Buffer.STAGE)}
    return with_operands(plan, side, changed(o, k, **fault))


def lost_operand(plan: Plan, pick: Choose) -> Plan:
    side = ("src", "dst")[pick(1)]
    o = getattr(plan, side)
    k = pick(len(o.rank) - 1)
    assume(o.counts()[o.owner()[k]] > 1 and o.buffer[k] != Buffer.QUEUE)
    return with_operands(plan, side, without_operand(o, k))


def lost_wait(plan: Plan, pick: Choose) -> Plan:
    assume(len(plan.waits.index))
    return without_wait(plan, pick(len(plan.waits.index) - 1))


def wrong_wait(plan: Plan, pick: Choose) -> Plan:
    assume(len(plan.waits.index))
    k = pick(len(plan.waits.index) - 1)
    index = plan.waits.index.copy()
    index[k] = pick(int(plan.n_flags[plan.rank_of()[plan.waits.owner()[k]]]) - 1)
    return replace(plan, waits=Csr(plan.waits.ptr, index))


def wrong_order(plan: Plan, pick: Choose) -> Plan:
    b = pick(len(plan.tb_ptr) - 2)
    lo, n = int(plan.tb_ptr[b]), int(plan.tb_ptr[b + 1] - plan.tb_ptr[b])
    return swapped_rows(plan, lo + pick(n - 1), lo + pick(n - 1))


def wrong_mark(plan: Plan, pick: Choose) -> Plan:
    i, field = pick(len(plan) - 1), ("final", "guard")[pick(1)]
    marks = getattr(plan, field).copy()
    marks[i] = (marks[i] + 1) % 2 if field == "final" else pick(len(Guard) - 1)
    return replace(plan, final=marks) if field == "final" else replace(plan, guard=marks)


def joined_blocks(plan: Plan, pick: Choose) -> Plan:
    """Joins two neighbouring blocks of a rank: all of the first, then all of the second."""
    rank_of_block = plan.block_rank()
    inner = np.flatnonzero(rank_of_block[1:] == rank_of_block[:-1]) + 1
    assume(len(inner))
    b = int(inner[pick(len(inner) - 1)])
    n_tb = plan.n_tb.copy()
    n_tb[rank_of_block[b]] -= 1
    return replace(plan, n_tb=n_tb, tb_ptr=np.delete(plan.tb_ptr, b))


FAULTS = [
    wrong_operand,
    lost_operand,
    lost_wait,
    wrong_wait,
    wrong_order,
    wrong_mark,
    joined_blocks,
]


HARMLESS_CHECKS = ("E315", "nothing waits for")  # spare memory, an idle flag: proofs can go on


def refused(plan: Plan) -> str | None:
    """Returns the code of the check or proof that refuses `plan`, or None."""
    for step in (plan_check.check, prove):
        try:
            step(plan)
        except UserError as error:
            if not any(text in str(error) for text in HARMLESS_CHECKS):
                return error.problem.code
    return None


def assert_harmless(plan: Plan, seeds: int) -> None:
    op = "avg" if plan.collective.reduces and plan.averages else "sum"
    for seed in range(seeds):
        x = exact_inputs(plan.collective, np.int64, (1 + seed % 5,), seed=seed)
        want = expected(plan.collective, x, op, np.int64)
        got = execute(plan, x, op, in_place=plan.in_place and seed % 2 == 1, seed=seed)
        assert all(np.array_equal(a, b) for a, b in zip(want, got, strict=True))


@pytest.mark.quick(3)
@pytest.mark.parametrize("examples", [8, pytest.param(60 * LONG, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_survives(fault: Fault, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=EVERY_CHECK)
    @given(plans(correct_programs(max_ranks=5, max_transfers=32)), st.data())
    def law(plan: Plan, data: st.DataObject) -> None:
        def pick(bound: int) -> int:
            return data.draw(st.integers(0, bound)) if bound > 0 else 0

        mutant = fault(plan, pick)
        code = refused(mutant)
        event(f"{code}")
        note(str(code))
        if code is None:
            assert_harmless(mutant, seeds=8)

    law()


def test_a_message_that_only_some_calls_take_is_refused() -> None:
    """Skipped, it would stay in its queue, and the next to send would wait for its slot."""
    program = "ResCCLAlgo(nRanks=2, OpType='Allgather', GPUPerNode=2, NICPerNode=2):\n"
    program += "    transfer(0, 1, 0, 0, recv)\n    transfer(1, 0, 0, 1, recv)\n"
    plan = compile_text(Source("x", program), Options(transport=Transport.STAGED)).plan
    takes = plan.src.owner()[plan.src.buffer == Buffer.QUEUE]
    guard = plan.guard.copy()
    guard[takes[0]] = Guard.IN_PLACE
    with pytest.raises(UserError, match="in every kind of call"):
        plan_check.check(replace(plan, guard=guard))
