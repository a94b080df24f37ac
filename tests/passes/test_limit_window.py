"""limit_window, and the classes behind it: which windows the queues of a mixed plan carry."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hccc.analysis.queue_classes import any_window, classes, stuck_for_long
from hccc.analysis.waits import enforced
from hccc.base.diagnostics import UserError
from hccc.driver.compilation import compile_program
from hccc.driver.options import Options
from hccc.ir.plan import Plan
from hccc.passes.limit_window import limit_window
from hccc.proofs.deadlock import deadlock
from hccc.testing import Hang, exact_inputs, execute
from tests.passes.textbook import lowered, ring_allreduce, works


def ring_in_one_block(slots: int = 2) -> Plan:
    """Makes the plan of a ring of four nodes with one thread block a rank: a primitive reduces each
    chunk that arrives and sends it on, and the block has both turns of a chunk."""
    way = Options(network_lowering="slots", fuse="full", max_sms=1, slots=slots)
    return compile_program(replace(ring_allreduce(4), gpus_per_node=1, nics_per_node=1), way).plan


def test_classes_are_what_messages_join() -> None:
    node = classes(6, np.array([1, 3, 4]), np.array([0, 1, 5]))
    assert node.tolist() == [0, 0, 2, 0, 4, 4]


def test_a_circle_of_messages_limits_the_window() -> None:
    for slots in (1, 2, 8):
        plan = ring_in_one_block(slots)
        longest = int(plan.queues.length.max())
        assert plan.max_window == max(1, slots // longest)
        assert works(plan, micro_batches=5)
        assert limit_window(replace(plan, max_window=0)).max_window == plan.max_window


def test_a_larger_window_is_refused_and_hangs() -> None:
    plan = replace(ring_in_one_block(), max_window=0)
    assert len(stuck_for_long(plan, enforced(plan)))
    with pytest.raises(UserError, match="circle of sends and receives") as caught:
        deadlock(plan)
    assert caught.value.problem.code == "E303"
    with pytest.raises(Hang):
        for seed in range(5):
            execute(plan, exact_inputs(plan.collective, np.int64, (40,)), seed=seed)


def test_a_window_that_queues_can_hold_is_proved() -> None:
    plan = ring_in_one_block(8)
    longest = int(plan.queues.length.max())
    assert "a window of" in deadlock(replace(plan, max_window=8 // longest)).claim
    with pytest.raises(UserError, match="window"):
        deadlock(replace(plan, max_window=8 // longest + 1))


def test_auto_merges_only_what_every_window_can_run() -> None:
    p = replace(ring_allreduce(4), gpus_per_node=1, nics_per_node=1)
    plan = compile_program(p, Options(network_lowering="slots")).plan
    assert plan.max_window == 0 and limit_window(plan) is plan
    assert works(plan, micro_batches=7)
    direct = lowered(ring_allreduce(4))
    assert any_window(direct, direct.owner)  # no queues
