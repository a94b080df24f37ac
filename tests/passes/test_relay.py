"""relay: staged plans as NCCL runs them, proved and executed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.ir import primitives as primitives_ir
from hccc.ir.collective import OpType
from hccc.ir.plan import Plan
from hccc.ir.primitives import Primitives, Transport
from hccc.ir.program import Program
from hccc.passes.allocate import allocate, by_task, channels
from hccc.passes.depend import depend
from hccc.passes.lower import lower
from hccc.passes.place import place
from hccc.passes.relay import relay
from hccc.passes.requeue import requeue
from hccc.passes.round_robin import round_robin
from hccc.passes.sync import sync
from hccc.passes.verify import verify
from hccc.testing import correct_programs
from tests.health_checks import EVERY_CHECK
from tests.passes.textbook import (
    RECV,
    RRC,
    SMALL,
    lowered,
    program,
    ring_allreduce,
    ring_reducescatter,
    shapes,
    verdict,
    works,
)


def staged(p: Program) -> Primitives:
    """Lowers `p` in program order, as NCCL's kernels are written."""
    return lower(round_robin(depend(verify(p))), Transport.STAGED)


def nccl(p: Program, part: np.ndarray, slots: int = 8) -> Plan:
    apart = staged(p)
    merged = relay(requeue(apart, by_task(apart, part)))
    assert primitives_ir.check(merged) == []
    return replace(sync(channels(place(merged), part), "", slots), max_window=1)


def test_a_ring_is_nccls() -> None:
    """One send, n − 2 recvReduceSend, recvReduceCopySend, n − 2 recvCopySend, one recv a rank."""
    n = 6
    found = relay(staged(ring_allreduce(n)))
    assert shapes(found) == {
        (1, 1): 2 * n,
        (2, 1): (n - 2) * n,
        (2, 2): n,
        (1, 2): (n - 2) * n,
    }


def test_partial_sums_are_not_stored() -> None:
    n = 4
    assert shapes(relay(staged(ring_reducescatter(n)))) == {(1, 1): n, (2, 1): (n - 1) * n}


def test_one_primitive_takes_all_children_and_serves_all() -> None:
    """A tree's root: two children's pieces reduced, kept, and the sum sent to both."""
    rows = [(1, 0, 0, 0, RRC), (2, 0, 0, 0, RRC), (0, 1, 1, 0, RECV), (0, 2, 1, 0, RECV)]
    found = relay(staged(program(OpType.ALLREDUCE, 3, 1, rows)))
    assert shapes(found) == {(3, 3): 1, (1, 1): 4}


@pytest.mark.parametrize("slots", [1, 8])
@pytest.mark.parametrize("name", SMALL)
def test_relayed_plans_are_right(name: str, slots: int) -> None:
    """One block a rank and direction, or one a rank: right, or refused for its one slot."""
    p = SMALL[name]
    for part in (np.zeros(len(p), np.int32), (p.transfers["op"] == RECV).astype(np.int32)):
        plan = nccl(p, part, slots)
        code = verdict(plan)
        assert code is None or (slots == 1 and code == "E303")
        if code is None:
            assert works(plan, micro_batches=3)


@pytest.mark.parametrize("p", [ring_allreduce(5), SMALL["ring allgather"], SMALL["broadcast"]])
def test_one_block_a_rank_runs_a_whole_ring(p: Program) -> None:
    plan = nccl(p, np.zeros(len(p), np.int32))
    assert (plan.n_tb == 1).all()
    assert verdict(plan) is None
    assert works(plan, micro_batches=3)


def test_a_larger_window_would_hang() -> None:
    plan = nccl(ring_allreduce(4), np.zeros(24, np.int32), 2)
    assert verdict(plan) is None
    assert verdict(replace(plan, max_window=0)) == "E303"


def test_direct_primitives_stay() -> None:
    p = lowered(SMALL["ring allreduce"])
    assert relay(p) is p


def test_channels_have_blocks_and_queues_of_their_own() -> None:
    p = ring_allreduce(4)
    plan = nccl(p, (p.transfers["chunk"] % 2).astype(np.int32))
    assert (plan.n_tb == 2).all()
    assert len(plan.queues) == 8
    assert verdict(plan) is None
    assert works(plan, micro_batches=3)


def test_merged_primitives_are_fewer_than_connections_run() -> None:
    p = place(staged(ring_allreduce(4)))
    apart = sync(allocate(p, "connection"))
    assert len(nccl(ring_allreduce(4), np.zeros(24, np.int32))) == len(apart) * 7 // 12


@pytest.mark.parametrize("examples", [40, pytest.param(150, marks=pytest.mark.slow)])
def test_any_program_is_relayed_right_or_refused_for_its_slots(examples: int) -> None:
    """Random programs in random channels: never a wrong result, a race, or a circle of waits."""

    @settings(max_examples=examples, deadline=None, suppress_health_check=EVERY_CHECK)
    @given(correct_programs(), st.integers(1, 3), st.booleans(), st.sampled_from([1, 2, 8]))
    def law(p: Program, count: int, by_kind: bool, slots: int) -> None:
        part = p.transfers["chunk"] % count * 2 + (by_kind & (p.transfers["op"] == RECV))
        plan = nccl(p, part.astype(np.int32), slots)
        if verdict(plan) == "E303":
            plan = replace(plan, queue_slots=1024)
        assert verdict(plan) is None
        assert works(plan, micro_batches=3, seeds=2)

    law()
