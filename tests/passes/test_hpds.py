"""Schedulers make linear extensions, in sub-pipelines without link conflicts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import InternalError
from hccc.ir import pipeline as pipeline_ir
from hccc.ir.collective import Collective, OpType
from hccc.ir.dag import Dag
from hccc.ir.pipeline import Pipeline
from hccc.ir.program import TRANSFER, Program
from hccc.passes.allocate import allocate
from hccc.passes.depend import depend
from hccc.passes.hpds import LOOKS, hpds
from hccc.passes.list_schedule import list_schedule
from hccc.passes.lower import lower
from hccc.passes.place import place
from hccc.passes.round_robin import round_robin
from hccc.passes.sync import sync
from tests.marks import LONG
from tests.passes.textbook import (
    RECV,
    RRC,
    SMALL,
    SWEEP,
    alg_1,
    all_pairs,
    all_to_one,
    alltoall,
    few,
    flat_broadcast,
    gather,
    hm_allgather,
    hm_allreduce,
    one_link,
    one_link_many_chunks,
    one_to_all,
    planned,
    program,
    verdict,
    works,
)

Scheduler = Callable[[Dag], Pipeline]

HM = [f(n, g) for f in (hm_allreduce, hm_allgather) for n, g in [(2, 4), (2, 8), (4, 4), (4, 8)]]


def links(program: Program, i: int) -> list[tuple[int | str, ...]]:
    """Returns the links of task i, without Topology: a pair of GPUs, or two NIC sides."""
    t, per, nics = program.transfers[i], program.gpus_per_node, program.nics_per_node
    src, dst = int(t["src"]), int(t["dst"])
    if src // per == dst // per:
        return [(src, dst)]
    nic = [(r // per, r % per * nics // per) for r in (src, dst)]
    return [("send", *nic[0]), ("receive", *nic[1])]


@pytest.mark.parametrize("pass_", [hpds, list_schedule, round_robin])
@pytest.mark.parametrize("p", [*SMALL.values(), *HM[:2], replace(HM[0], nics_per_node=2)])
def test_sub_pipelines_are_free_of_link_conflicts(p: Program, pass_: Scheduler) -> None:
    pipeline = pass_(depend(p))
    assert pipeline_ir.check(pipeline) == []
    for k in range(pipeline.n_sub):
        tasks = pipeline.order[pipeline.start[k] : pipeline.start[k + 1]]
        used = [x for i in tasks for x in links(p, int(i))]
        assert len(set(used)) == len(used)


@pytest.mark.parametrize("p", HM)
def test_hpds_needs_no_more_sub_pipelines_than_round_robin(p: Program) -> None:
    dag = depend(p)
    assert hpds(dag).n_sub <= round_robin(dag).n_sub


@pytest.mark.parametrize("p", HM)
def test_hpds_fills_the_busiest_link(p: Program) -> None:
    """No schedule has fewer sub-pipelines than the busiest link has tasks."""
    dag = depend(p)
    floor = max(np.bincount(dag.tx).max(), np.bincount(dag.rx).max())
    assert floor <= hpds(dag).n_sub <= 1.5 * floor


def swapped(pipeline: Pipeline, a: int, b: int) -> Pipeline:
    order = pipeline.order.copy()
    order[[a, b]] = order[[b, a]]
    return replace(pipeline, order=order)


# All but the programs without dependencies.
DEPENDENT = [name for name, program in SMALL.items() if len(depend(program).preds.index)]


@SWEEP
@pytest.mark.parametrize("name", DEPENDENT)
def test_swapping_dependent_tasks_is_noticed(name: str, most: int) -> None:
    """check says no; so does sync, or the proofs, or nothing was changed after all."""
    pipeline = hpds(depend(SMALL[name]))
    position = np.empty(len(pipeline.order), np.int64)
    position[pipeline.order] = np.arange(len(position))
    dag = pipeline.dag
    pairs = zip(position[dag.preds.index], position[dag.preds.owner()], strict=True)
    for a, b in few(pairs, most):
        wrong = swapped(pipeline, int(a), int(b))
        assert "a task comes before one that it depends on" in pipeline_ir.check(wrong)
        try:
            plan = sync(allocate(place(lower(wrong)), "connection"))
        except InternalError:
            continue
        assert verdict(plan) is not None or works(plan)


def test_two_tasks_on_one_link_are_noticed() -> None:
    pipeline = hpds(depend(SMALL["ring allgather"]))
    merged = replace(pipeline, start=np.delete(pipeline.start, 1))
    assert pipeline_ir.check(merged) == ["two tasks of a sub-pipeline share a resource"]


def test_a_missing_or_doubled_task_is_noticed() -> None:
    pipeline = hpds(depend(SMALL["ring allgather"]))
    order = pipeline.order.copy()
    order[0] = order[1]
    assert pipeline_ir.check(replace(pipeline, order=order))


def test_hpds_is_work_conserving() -> None:
    """A task left out of a sub-pipeline has a busy link or a dependency in or after it."""
    pipeline = hpds(depend(hm_allreduce(2, 4)))
    sub = np.empty(len(pipeline.order), np.int64)
    sub[pipeline.order] = pipeline.sub_of_position()
    dag = pipeline.dag
    for i in range(len(dag)):
        earliest = max((int(sub[j]) for j in dag.preds.row(i)), default=0)
        for k in range(earliest, int(sub[i])):
            busy = {x for j in np.flatnonzero(sub == k) for x in links(dag.program, int(j))}
            waits = any(sub[j] == k for j in dag.preds.row(i))
            assert waits or busy & set(links(dag.program, i))


@pytest.mark.parametrize("name", SMALL)
def test_every_schedule_gives_the_result(name: str) -> None:
    for pass_ in (hpds, round_robin):
        assert works(planned(lower(pass_(depend(SMALL[name])))))


# Looks in vain before tasks wait at a resource: the schedule is the same for all of them.
MANY_LOOKS = (0, 1, 3, LOOKS, 1 << 30)
SHAPES = {
    "one link": one_link(40),
    "one link, many chunks": one_link_many_chunks(40),
    "one to all": one_to_all(40),
    "all to one": all_to_one(40),
    "gather": gather(40),
    "flat broadcast": flat_broadcast(12),
    "alltoall": alltoall(12),
    "alltoall of nodes": replace(alltoall(12), gpus_per_node=1, nics_per_node=1),
    "alltoall, shared nics": replace(alltoall(12), gpus_per_node=4, nics_per_node=2),
    "hm allreduce": hm_allreduce(4, 4),
    "hm allreduce, one nic": replace(hm_allreduce(4, 4), nics_per_node=1),
    "hm allgather": hm_allgather(4, 4),
    "all pairs": all_pairs(16),
}


def assert_hpds(dag: Dag, all_looks: Sequence[int] = MANY_LOOKS) -> None:
    want = alg_1(dag)
    for looks in all_looks:
        found = hpds(dag, looks)
        assert [found.order[a:b].tolist() for a, b in pairwise(found.start)] == want


@pytest.mark.parametrize("p", [*SMALL.values(), *SHAPES.values()], ids=[*SMALL, *SHAPES])
def test_hpds_is_algorithm_1(p: Program | Dag) -> None:
    assert_hpds(p if isinstance(p, Dag) else depend(p))


@st.composite
def tables(draw: st.DrawFn, most: int) -> Program:
    """Draws programs of any transfers, right or wrong, on nodes that share NICs."""
    per_node = draw(st.sampled_from([1, 2, 4]))
    ranks, chunks = per_node * draw(st.integers(2, 4)), draw(st.integers(1, 6))
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, ranks - 1),
                st.integers(1, ranks - 1),
                st.integers(0, 12),
                st.integers(0, chunks - 1),
                st.sampled_from([RECV, RRC]),
            ),
            min_size=1,
            max_size=most,
        )
    )
    table = [(src, (src + by) % ranks, step, chunk, op) for src, by, step, chunk, op in rows]
    nics = draw(st.sampled_from([n for n in (1, 2, 4) if n <= per_node]))
    return program(OpType.ALLREDUCE, ranks, chunks, table, gpus=per_node, nics=nics)


@settings(deadline=None)
@given(tables(60))
def test_hpds_is_algorithm_1_for_any_table(p: Program) -> None:
    assert_hpds(depend(p))


@pytest.mark.slow
@settings(max_examples=1000 * LONG, deadline=None)
@given(tables(400))
def test_hpds_is_algorithm_1_for_any_larger_table(p: Program) -> None:
    assert_hpds(depend(p))


@pytest.mark.slow
@pytest.mark.parametrize(
    "p",
    [
        one_link(3000),
        one_link_many_chunks(400),
        one_to_all(3000),
        gather(400),
        alltoall(48),
        replace(alltoall(48), gpus_per_node=8, nics_per_node=4),
        flat_broadcast(48),
        hm_allreduce(8, 8),
    ],
)
def test_hpds_is_algorithm_1_for_larger_shapes(p: Program) -> None:
    assert_hpds(depend(p))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1 << 17, 1), (1, 1 << 17)], ids=str)
def test_hpds_takes_time_in_proportion(shape: tuple[int, int]) -> None:
    """Minutes where a sub-pipeline looks at every chunk, every blocked task, or every service."""
    steps, chunks = shape
    table = np.zeros(max(shape), TRANSFER)
    table["dst"] = 1
    table["step" if steps > 1 else "chunk"] = np.arange(len(table))
    c = Collective(OpType.BROADCAST, 2, chunks, 0)
    pipeline = hpds(depend(Program("link", c, 1, 16, 2, 2, table)))
    assert np.array_equal(pipeline.order, np.arange(len(table)))
    assert pipeline.n_sub == len(table)
