"""stages: cut where data changes between staying in a node and crossing."""

import numpy as np
import pytest

from hccc.analysis.stages import stages
from hccc.ir import primitives as primitives_ir
from hccc.ir.collective import OpType
from hccc.ir.primitives import Transport
from hccc.ir.program import Program
from hccc.passes.allocate import allocate, by_task
from hccc.passes.depend import depend
from hccc.passes.place import place
from hccc.passes.requeue import requeue
from hccc.passes.sync import sync
from tests.passes.textbook import (
    RECV,
    SMALL,
    hm_allreduce,
    lowered,
    program,
    ring_allgather,
    verdict,
    works,
)


def by_hand(p: Program) -> list[int]:
    """Returns every task's stage from the definition, over all paths."""
    dag = depend(p)
    node = [r // p.gpus_per_node for r in range(p.collective.n_ranks)]
    crosses = [node[t["src"]] != node[t["dst"]] for t in p.transfers]
    found: list[int] = []
    for i in range(len(p)):
        before = [int(x) for x in dag.preds.row(i)]
        found.append(max((found[b] + (crosses[b] != crosses[i]) for b in before), default=0))
    return found


@pytest.mark.parametrize("p", [*SMALL.values(), hm_allreduce(2, 4), hm_allreduce(3, 2)])
def test_the_definition(p: Program) -> None:
    assert stages(depend(p)).tolist() == by_hand(p)


def test_hierarchical_mesh_is_within_between_within() -> None:
    p = hm_allreduce(4, 4)
    stage, t = stages(depend(p)), p.transfers
    inside = t["src"] // 4 == t["dst"] // 4
    assert set(stage[~inside]) == {1} and set(stage[inside]) == {0, 2}
    assert (stage[inside & (t["op"] == RECV)] == 2).all()


def test_one_node_is_one_stage() -> None:
    assert not stages(depend(ring_allgather(8))).any()


def test_there_and_back_are_three() -> None:
    rows = [(0, 1, 0, 0, RECV), (1, 2, 1, 0, RECV), (2, 3, 2, 0, RECV)]
    assert stages(depend(program(OpType.BROADCAST, 4, 1, rows, gpus=2))).tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", SMALL)
def test_parts_have_queues_of_their_own(name: str) -> None:
    """Any parts at all: still the same messages, each end of a queue still in turn."""
    p = lowered(SMALL[name], Transport.STAGED)
    part = np.random.default_rng(0).integers(0, 3, len(p.dag)).astype(np.int32)
    split = requeue(p, by_task(p, part))
    assert len(p.queues) < len(split.queues) <= 3 * len(p.queues) or len(p.queues) == len(p.dag)
    assert primitives_ir.check(split) == []
    assert split.queues.length.sum() == p.queues.length.sum()
    plan = sync(allocate(place(split), "connection"), "", 1)
    assert verdict(plan) is None
    assert works(plan)


def test_one_part_and_direct_plans_stay() -> None:
    p = lowered(SMALL["ring allreduce"], Transport.STAGED)
    assert requeue(p, np.zeros(len(p), np.int32)) is p
    p = lowered(SMALL["ring allreduce"])
    assert requeue(p, np.arange(len(p), dtype=np.int32)) is p
