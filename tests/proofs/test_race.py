"""race: finds conflicting accesses without an order, in place, out of place, and no others."""

from dataclasses import replace

import numpy as np
import pytest

from hccc.base.diagnostics import Problem, UserError
from hccc.ir.arrays import Csr
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Transport
from hccc.ir.program import Program
from hccc.ir.transport import PURE
from hccc.proofs.deadlock import deadlock
from hccc.proofs.race import race
from hccc.testing import Poison, exact_inputs, execute, expected
from tests.passes.textbook import SMALL, alltoall, lowered, planned, sendrecv
from tests.sabotage import without_wait


def problem(plan: Plan) -> Problem:
    with pytest.raises(UserError) as caught:
        race(plan)
    return caught.value.problem


def unsynced(plan: Plan) -> Plan:
    """Removes every wait of `plan`."""
    return replace(plan, waits=Csr(np.zeros(len(plan) + 1, np.int64), np.zeros(0, np.int32)))


def goes_wrong(plan: Plan, seeds: int = 200) -> bool:
    """Tells whether some interleaving reads a place never written or gives wrong data."""
    x = exact_inputs(plan.collective, np.int64, (2,))
    want = expected(plan.collective, x, "sum", np.int64)
    for seed in range(seeds):
        for in_place in (False, True):
            try:
                got = execute(plan, x, in_place=in_place, seed=seed)
            except Poison:
                return True
            if not all(np.array_equal(a, b) for a, b in zip(want, got, strict=True)):
                return True
    return False


@pytest.mark.parametrize("transport", PURE)
@pytest.mark.parametrize("name", SMALL)
def test_what_is_compiled_has_none(name: str, transport: Transport) -> None:
    race(planned(lowered(SMALL[name], transport)))


@pytest.mark.parametrize("name", ["ring allgather", "ring allreduce", "broadcast", "sendrecv"])
def test_every_missing_wait_does_go_wrong_in_some_interleaving(name: str) -> None:
    """The proof refuses nothing that could not happen: a run shows each fault."""
    plan = planned(lowered(SMALL[name]))
    for k in range(len(plan.waits.index)):
        assert goes_wrong(without_wait(plan, k)), k


def test_the_message_names_both_and_how() -> None:
    found = problem(unsynced(planned(lowered(SMALL["ring allreduce"]))))
    assert found.code == "E304"
    assert found.message.count("rank ") == 2
    assert "out of place" in found.message


@pytest.mark.parametrize("p", [sendrecv(3), alltoall(3)])
def test_a_race_only_in_place(p: Program) -> None:
    """Out of place these need no wait at all; in place each rank overwrites a send slot."""
    plan = unsynced(planned(lowered(p)))
    found = problem(plan)
    assert "same memory in place" in found.message
    race(replace(plan, in_place=False))


def test_a_send_buffer_that_is_written() -> None:
    plan = planned(lowered(SMALL["ring allreduce"]))
    buffer = plan.dst.buffer.copy()
    buffer[0] = Buffer.INPUT
    assert problem(replace(plan, dst=replace(plan.dst, buffer=buffer))).code == "E305"


def test_a_wait_for_the_wrong_primitive() -> None:
    """Each wait moved to another flag of its rank: a race, unless the new order covers it."""
    plan = planned(lowered(SMALL["ring allgather"]))
    owner, caught = plan.rank_of()[plan.waits.owner()], 0
    for k in range(len(plan.waits.index)):
        index = plan.waits.index.copy()
        index[k] = (index[k] + 1) % plan.n_flags[owner[k]]
        wrong = replace(plan, waits=Csr(plan.waits.ptr, index))
        try:
            deadlock(wrong)
            race(wrong)
        except UserError:
            caught += 1
            continue
        assert not goes_wrong(wrong, seeds=20)
    assert caught > 0
