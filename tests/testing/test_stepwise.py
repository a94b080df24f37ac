"""The step-wise executor: it finds hangs and races, and respects windows and slots."""

from dataclasses import replace

import numpy as np
import pytest

from hccc.driver.compilation import compile_program
from hccc.driver.options import Options
from hccc.ir.arrays import Csr
from hccc.ir.collective import Collective, OpType
from hccc.ir.plan import Plan, Posts
from hccc.ir.primitives import Guard, Transport
from hccc.ir.transport import PURE
from hccc.passes.allocate import by_task, channels
from hccc.passes.depend import depend
from hccc.passes.lower import lower
from hccc.passes.place import place
from hccc.passes.relay import relay
from hccc.passes.requeue import requeue
from hccc.passes.round_robin import round_robin
from hccc.passes.sync import sync
from hccc.passes.verify import verify
from hccc.testing import Hang, Poison, exact_inputs, execute, expected
from hccc.testing.grow import Row, program
from tests.passes.textbook import ring_allreduce
from tests.sabotage import without_wait

RECV, RRC = 0, 1
NONE = np.zeros(0, np.int32)
DEFAULTS = Options()


def plan_of(op: OpType, n: int, chunks: int, rows: list[Row], options: Options = DEFAULTS) -> Plan:
    p = program(Collective(op, n, chunks), rows, n, n)
    return compile_program(p, options).plan


def chain_of(transport: Transport) -> Plan:
    """Makes a Broadcast along ranks 0 → 1 → 2."""
    rows = [(0, 1, 0, 0, RECV), (1, 2, 1, 0, RECV)]
    return plan_of(OpType.BROADCAST, 3, 1, rows, Options(transport=transport, slots=1))


@pytest.fixture(params=PURE)
def chain(request: pytest.FixtureRequest) -> Plan:
    """Makes a Broadcast along ranks 0 → 1 → 2, by either transport."""
    return chain_of(request.param)


@pytest.mark.parametrize("window", [1, 2, 3, None])
def test_right_data(chain: Plan, window: int | None) -> None:
    x = exact_inputs(chain.collective, np.int64, (5,))
    want = expected(chain.collective, x, "sum", np.int64)
    for seed in range(20):
        for in_place in (False, True):
            got = execute(chain, x, in_place=in_place, window=window, seed=seed)
            assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))


def test_inputs_are_left_alone(chain: Plan) -> None:
    x = exact_inputs(chain.collective, np.int64, (2,))
    before = [a.copy() for a in x]
    execute(chain, x, in_place=True)
    assert all(np.array_equal(a, b) for a, b in zip(x, before, strict=True))


def test_the_same_seed_is_the_same_run(chain: Plan) -> None:
    x = exact_inputs(chain.collective, np.float32, (3,))
    a, b = (execute(chain, x, seed=5) for _ in range(2))
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_wait_for_nothing_is_a_hang() -> None:
    chain = chain_of(Transport.DIRECT)
    silent = replace(chain, posts=Posts(np.zeros(len(chain) + 1, np.int64), NONE, NONE))
    x = exact_inputs(chain.collective, np.int64, (1,))
    with pytest.raises(Hang, match="waits for flag"):
        execute(silent, x)


def test_a_full_queue_is_a_hang_and_names_it() -> None:
    rows = [(0, 1, 0, 0, RECV)]
    plan = plan_of(OpType.BROADCAST, 2, 1, rows, Options(transport=Transport.STAGED, slots=2))
    last = int(plan.tb_ptr[np.flatnonzero(plan.block_rank() == 1)[0]])
    waits = Csr(
        (np.arange(len(plan) + 1) > last).astype(np.int64), np.array([7])
    )  # a flag that nothing raises
    deaf = replace(plan, waits=waits)
    x = exact_inputs(plan.collective, np.int64, (3,))
    with pytest.raises(Hang, match="a free slot in queue 0"):
        execute(deaf, x)


def test_a_missing_wait_reads_poison_in_some_interleaving() -> None:
    rows = [(0, 1, 0, 0, RECV), (1, 2, 1, 0, RECV)]
    plan = without_wait(plan_of(OpType.BROADCAST, 3, 1, rows), 0)
    x = exact_inputs(plan.collective, np.int64, (2,))
    poisoned = 0
    for seed in range(40):
        try:
            execute(plan, x, seed=seed)
        except Poison as error:
            assert "holds nothing" in str(error)
            poisoned += 1
    assert 0 < poisoned < 40


def test_an_unwritten_receive_slot_is_an_error() -> None:
    chain = chain_of(Transport.DIRECT)
    idle = replace(chain, guard=np.full(len(chain), Guard.OUT_OF_PLACE))
    with pytest.raises(Poison, match="receive slot 0 of rank 1"):
        execute(idle, exact_inputs(chain.collective, np.int64, (1,)), in_place=True)


def test_avg_divides_once() -> None:
    rows = [(1, 0, 0, 0, RRC), (0, 1, 1, 0, RECV)]
    for fuse in ("none", "full"):
        plan = plan_of(OpType.ALLREDUCE, 2, 1, rows, Options(fuse=fuse))
        got = execute(plan, [np.array([[3, 8]]), np.array([[5, 2]])], "avg")
        assert [g.tolist() for g in got] == [[[4, 5]], [[4, 5]]]


def test_in_place_memory_is_shared() -> None:
    """An allgather out of place copies its own chunk; in place it is there already."""
    rows = [(0, 1, 0, 0, RECV), (1, 0, 0, 1, RECV)]
    plan = plan_of(OpType.ALLGATHER, 2, 2, rows)
    plan = replace(plan, guard=np.where(plan.guard, Guard.IN_PLACE, plan.guard))
    x = exact_inputs(plan.collective, np.int64, (1,))
    execute(plan, x, in_place=True)
    with pytest.raises(Poison, match="never written"):
        execute(plan, x)


def ring_in_one_block(slots: int) -> Plan:
    """Makes NCCL's ring allreduce of 4 ranks: one thread block a rank, which sends first."""
    p = ring_allreduce(4)
    part = np.zeros(len(p), np.int32)
    apart = lower(round_robin(depend(verify(p))), Transport.STAGED)
    return sync(channels(place(relay(requeue(apart, by_task(apart, part)))), part), "", slots)


def test_a_plan_with_a_largest_window_runs_in_it() -> None:
    """Every rank sends first, two slots: only windows of one micro-batch go through."""
    plan = ring_in_one_block(slots=2)
    x = exact_inputs(plan.collective, np.int64, (4,))
    with pytest.raises(Hang, match="a free slot in queue 0"):
        execute(plan, x)
    got = execute(replace(plan, max_window=1), x)
    want = expected(plan.collective, x, "sum", np.int64)
    assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
