"""Schedulers make linear extensions, in sub-pipelines without link conflicts."""

from dataclasses import replace

import numpy as np
import pytest
from textbook import SMALL, SWEEP, few, hm_allgather, hm_allreduce, planned, verdict, works

from hccc.diagnostics import InternalError
from hccc.ir import pipeline as pipeline_ir
from hccc.passes.allocate import allocate
from hccc.passes.depend import depend
from hccc.passes.list_schedule import list_schedule
from hccc.passes.lower import lower
from hccc.passes.place import place
from hccc.passes.round_robin import round_robin
from hccc.passes.schedule import schedule
from hccc.passes.sync import sync

HM = [f(n, g) for f in (hm_allreduce, hm_allgather) for n, g in [(2, 4), (2, 8), (4, 4), (4, 8)]]


def links(program, i):
    """What task i occupies, told without Topology: a pair of GPUs, or two NIC sides."""
    t, per, nics = program.transfers[i], program.gpus_per_node, program.nics_per_node
    src, dst = int(t["src"]), int(t["dst"])
    if src // per == dst // per:
        return [(src, dst)]
    nic = [(r // per, r % per * nics // per) for r in (src, dst)]
    return [("send", *nic[0]), ("receive", *nic[1])]


@pytest.mark.parametrize("pass_", [schedule, list_schedule, round_robin])
@pytest.mark.parametrize("p", [*SMALL.values(), *HM[:2], replace(HM[0], nics_per_node=2)])
def test_sub_pipelines_are_free_of_link_conflicts(p, pass_):
    pipeline = pass_(depend(p))
    assert pipeline_ir.check(pipeline) == []
    for k in range(pipeline.n_sub):
        tasks = pipeline.order[pipeline.start[k] : pipeline.start[k + 1]]
        used = [x for i in tasks for x in links(p, int(i))]
        assert len(set(used)) == len(used)


@pytest.mark.parametrize("p", HM)
def test_hpds_needs_no_more_sub_pipelines_than_round_robin(p):
    dag = depend(p)
    assert schedule(dag).n_sub <= round_robin(dag).n_sub


@pytest.mark.parametrize("p", HM)
def test_hpds_fills_the_busiest_link(p):
    """No schedule has fewer sub-pipelines than the busiest link has tasks."""
    dag = depend(p)
    floor = max(np.bincount(dag.tx).max(), np.bincount(dag.rx).max())
    assert floor <= schedule(dag).n_sub <= 1.5 * floor


def swapped(pipeline, a, b):
    order = pipeline.order.copy()
    order[[a, b]] = order[[b, a]]
    return replace(pipeline, order=order)


@SWEEP
@pytest.mark.parametrize("name", SMALL)
def test_swapping_dependent_tasks_is_noticed(name, most):
    """check says no; so does sync, or the proofs, or nothing was changed after all."""
    pipeline = schedule(depend(SMALL[name]))
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


def test_two_tasks_on_one_link_are_noticed():
    pipeline = schedule(depend(SMALL["ring allgather"]))
    merged = replace(pipeline, start=np.delete(pipeline.start, 1))
    assert pipeline_ir.check(merged) == ["two tasks of a sub-pipeline share a resource"]


def test_a_missing_or_doubled_task_is_noticed():
    pipeline = schedule(depend(SMALL["ring allgather"]))
    order = pipeline.order.copy()
    order[0] = order[1]
    assert pipeline_ir.check(replace(pipeline, order=order))


def test_hpds_is_work_conserving():
    """A task left out of a sub-pipeline has a busy link or a dependency in or after it."""
    pipeline = schedule(depend(hm_allreduce(2, 4)))
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
def test_every_schedule_gives_the_result(name):
    for pass_ in (schedule, round_robin):
        assert works(planned(lower(pass_(depend(SMALL[name])))))
