"""renumber: plans of ranks with other numbers are proved, and give what the collective says."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import InternalError, UserError
from hccc.driver.compilation import compile_program
from hccc.driver.options import Options
from hccc.ir import plan_json
from hccc.ir.collective import PROGRAMMABLE, OpType
from hccc.ir.plan import Plan
from hccc.ir.program import Program
from hccc.passes.renumber import renumber
from hccc.proofs.prove import check_plan
from hccc.testing.judge import first_fault
from hccc.testing.strategies import correct_programs, options
from tests.emit import plans
from tests.marks import LONG

RENUMBERED = [op for op in PROGRAMMABLE if op is not OpType.SENDRECV]
PROGRAMS = st.sampled_from(RENUMBERED).flatmap(
    lambda op: correct_programs(op, max_ranks=5, max_transfers=40, uneven=None)
)


@settings(max_examples=12 * LONG)
@given(PROGRAMS, options(prove=False), st.randoms(use_true_random=False))
def test_a_renumbered_plan_does_the_same_for_other_ranks(
    program: Program, how: Options, rng: Random
) -> None:
    plan = compile_program(program, how).plan
    number = np.array(rng.sample(range(plan.n_ranks), plan.n_ranks))
    made = renumber(plan, number)
    check_plan(made)
    assert first_fault(made, lambda n: rng.randint(0, n), 2) is None
    back = renumber(made, np.argsort(number))
    assert plan_json.dumps(back) == plan_json.dumps(replace(plan, gpus_per_node=plan.n_ranks))


def alltoall(nodes: int) -> Plan:
    program = replace(plans.alltoall(4), gpus_per_node=4 // nodes)
    return compile_program(program, Options(tune="off")).plan


def test_hosts_are_those_of_the_renumbered_ranks() -> None:
    made = renumber(alltoall(2), np.array([1, 3, 0, 2]))
    check_plan(made)
    assert made.memory_domain.tolist() == [0, 1, 0, 1]
    assert made.gpus_per_node == 4
    puts = made.network_puts()
    source = made.rank_of()[made.dst.owner()[puts]]
    ends = {*zip(source.tolist(), made.dst.rank[puts].tolist(), strict=True)}
    assert ends == {(s, d) for s in range(4) for d in range(4) if (s - d) % 2}


@pytest.mark.parametrize("column", ["chunk", "slot"])
def test_blocks_that_keep_their_numbers_are_refused(column: str) -> None:
    plan = alltoall(1)
    made = renumber(plan, np.array([1, 0, 2, 3]))
    rows = np.argsort(np.array([1, 0, 2, 3])[plan.rank_of()], kind="stable")
    wrong = {
        "chunk": replace(made, chunk=plan.chunk[rows]),
        "slot": replace(made, dst=replace(made.dst, slot=plan.dst.take(rows).slot)),
    }
    with pytest.raises(UserError):
        check_plan(wrong[column])


def test_ranks_whose_order_counts_are_not_renumbered() -> None:
    c = replace(plans.alltoall(2).collective, op=OpType.SENDRECV, n_chunks=2)
    with pytest.raises(InternalError, match="SendRecv"):
        renumber(replace(alltoall(1), collective=c), np.array([1, 0]))
