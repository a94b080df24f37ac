"""verify_job: right jobs pass, for every shape of vendor clusters; mutants of them do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import UserError
from hccc.ir.collective import ROOTED, OpType
from hccc.ir.job import JOB_STEP, Job, JobOp, VendorClusters, vendor_clusters
from hccc.passes.expand import expand
from hccc.passes.verify_job import verify_job
from hccc.synth.builtin.hetccl import OPS, hetccl
from hccc.testing.job_reference import Memory, clusters

UNEVEN = vendor_clusters(
    [("a", [0, 2, 5], [0, 5], [1, 2]), ("b", [1], [1], [1]), ("c", [3, 4], [3, 4], [1, 1])]
)


@pytest.mark.parametrize("op", OPS)
@settings(max_examples=12, deadline=None)
@given(v=clusters(), n=st.integers(0, 9), data=st.data())
def test_hetccl_is_right_on_all_vendor_clusters(
    op: OpType, v: VendorClusters, n: int, data: st.DataObject
) -> None:
    root = data.draw(st.integers(0, v.n_ranks - 1)) if op in ROOTED else 0
    job = verify_job(hetccl(v, op, root))
    memory = Memory(job, n)
    memory.run()
    assert memory.right()


@pytest.mark.parametrize("op", OPS)
@settings(max_examples=8, deadline=None)
@given(v=clusters(), data=st.data())
def test_what_crosses_each_border_is_the_closed_form(
    op: OpType, v: VendorClusters, data: st.DataObject
) -> None:
    """docs/jobs.md §4: exact, in elements of a block of n = 12 · C."""
    root = data.draw(st.integers(0, v.n_ranks - 1)) if op in ROOTED else 0
    job, n = hetccl(v, op, root), 12 * len(v)
    memory = Memory(job, n // job.collective.chunks_per_block)
    memory.run()
    size, g, count = [len(v.members(c)) for c in range(len(v))], v.n_ranks, len(v)
    home = int(v.of_ranks()[root])
    for c in range(count):
        sent = sum(x for (a, _), x in memory.sent.items() if a == c)
        got = sum(x for (_, b), x in memory.sent.items() if b == c)
        after, before, mine = (c + 1) % count, (c - 1) % count, c == home
        last, first = (home - 1) % count == c, (home + 1) % count == c
        assert (sent, got) == {
            OpType.ALLREDUCE: (2 * n * (count - 1) // count,) * 2,
            OpType.ALLGATHER: ((g - size[after]) * n, (g - size[c]) * n),
            OpType.REDUCESCATTER: ((g - size[c]) * n, (g - size[before]) * n),
            OpType.BROADCAST: (n * (not last), n * (not mine)),
            OpType.REDUCE: (n * (not mine), n * (not first)),
            OpType.GATHER: (size[c] * n * (not mine), (g - size[c]) * n * mine),
            OpType.SCATTER: ((g - size[c]) * n * mine, size[c] * n * (not mine)),
            OpType.ALLTOALL: (size[c] * (g - size[c]) * n,) * 2,
        }[op], c
    crossed = job.crossings() * (n // job.collective.chunks_per_block)
    assert {pair: x for pair, x in np.ndenumerate(crossed) if x} == memory.sent


def test_alltoall_to_many_ranks_is_made_of_templates() -> None:
    rows = [("a", list(range(16)), [0, 8], [1, 1]), ("b", list(range(16, 32)), [16], [1])]
    job = hetccl(vendor_clusters(rows), OpType.ALLTOALL)
    assert job.crossings().tolist() == [[0, 256], [256, 0]]
    verify_job(job)


def changed(job: Job, rows: list[int], **columns: int) -> Job:
    """Returns a job of some of a job's steps; columns: new values of the last of them."""
    steps = job.steps[rows].copy()
    for name, value in columns.items():
        steps[name][-1] = value
    return replace(job, steps=steps)


def refused(job: Job) -> str:
    with pytest.raises(UserError) as caught:
        verify_job(job)
    return caught.value.problem.code


def mutants(job: Job) -> list[tuple[str, Job]]:
    """Drops, doubles and misplaces each step over a border."""
    found, parts = [], job.collective.n_chunks
    for i in np.flatnonzero(job.steps["op"] >= JobOp.C2C_CPY).tolist():
        rows = list(range(len(job)))
        found.append((f"dropped {i}", changed(job, rows[:i] + rows[i + 1 :])))
        found.append((f"doubled {i}", changed(job, [*rows[: i + 1], *rows[i:]])))
        if parts > 1:
            steps = job.steps.copy()
            steps["part"][i] = (steps["part"][i] + 1) % parts
            found.append((f"misplaced {i}", replace(job, steps=steps)))
        steps = job.steps.copy()
        steps["src"][i], steps["dst"][i] = steps["dst"][i], steps["src"][i]
        steps["sender"][i], steps["receiver"][i] = steps["receiver"][i], steps["sender"][i]
        found.append((f"turned {i}", replace(job, steps=steps)))
    return found


@pytest.mark.parametrize("op", OPS)
def test_mutants_are_refused(op: OpType) -> None:
    made = mutants(hetccl(UNEVEN, op, 2))
    assert made
    for name, mutant in made:
        assert refused(mutant) in {"E201", "E202", "E203", "E204", "E205", "E207"}, name


def test_a_copy_over_a_border_that_is_there_already() -> None:
    job = hetccl(UNEVEN, OpType.BROADCAST)
    assert refused(changed(job, [0, 1, 1, *range(2, len(job))])) == "E207"


def test_messages_name_the_step_of_the_job() -> None:
    job = hetccl(UNEVEN, OpType.ALLREDUCE)
    hop = int(np.argmax(job.steps["op"] == JobOp.C2C_RED))
    twice = changed(job, [*range(hop + 1), *range(hop, len(job))])
    with pytest.raises(UserError) as caught:
        verify_job(twice)
    problem = caught.value.problem
    assert problem.code == "E203"
    *_, step, numbers = [note.text for note in problem.notes]
    assert step == f"step {hop + 1} is {job.describe(hop)}"
    assert "borders cut a part into 3 chunks" in numbers


def test_a_job_that_is_not_sound() -> None:
    job = hetccl(UNEVEN, OpType.ALLREDUCE)
    assert refused(changed(job, [0], part=job.collective.n_chunks)) == "E208"


def test_no_steps_are_no_collective() -> None:
    assert refused(changed(hetccl(UNEVEN, OpType.ALLREDUCE), [])) == "E205"
    alone = vendor_clusters([("a", [0], [0], [1])])
    nothing = replace(hetccl(alone, OpType.ALLREDUCE), steps=np.zeros(0, JOB_STEP))
    assert len(expand(verify_job(nothing))) == 0
