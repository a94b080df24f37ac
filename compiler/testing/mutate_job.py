"""mutate_job: one change to a step of a job; it may be right still, or no sound job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.ir.job import Job, JobOp
from hccc.testing.grow import Choose

Steps = NDArray[Any]


def mutate_job(job: Job, choose: Choose) -> tuple[Job, str]:
    """Changes a step that is chosen; returns the job and what was changed. A job without steps
    stays."""
    if not len(job):
        return job, "nothing"
    change, i = _CHANGES[choose(len(_CHANGES) - 1)], choose(len(job) - 1)
    steps = change(job.steps.copy(), i, job, choose)
    return replace(job, steps=steps), f"step {i}, {job.describe(i)}: {change.__name__[1:]}"


def _dropped(steps: Steps, i: int, job: Job, choose: Choose) -> Steps:
    return np.delete(steps, i)


def _doubled(steps: Steps, i: int, job: Job, choose: Choose) -> Steps:
    return np.insert(steps, choose(len(steps)), steps[i])


def _moved(steps: Steps, i: int, job: Job, choose: Choose) -> Steps:
    return np.insert(np.delete(steps, i), choose(len(steps) - 1), steps[i])


def _of_another_part(steps: Steps, i: int, job: Job, choose: Choose) -> Steps:
    steps["part"][i] = choose(job.collective.n_chunks - 1)
    return steps


def _turned_around(steps: Steps, i: int, job: Job, choose: Choose) -> Steps:
    for a, b in (("src", "dst"), ("sender", "receiver")):
        steps[a][i], steps[b][i] = steps[b][i], steps[a][i]
    return steps


def _of_another_cluster(steps: Steps, i: int, job: Job, choose: Choose) -> Steps:
    other = choose(len(job.clusters) - 1)
    if steps["op"][i] >= JobOp.C2C_CPY:
        steps["dst" if choose(1) else "src"][i] = other
    else:
        steps["src"][i] = steps["dst"][i] = other
    return steps


def _of_another_kind(steps: Steps, i: int, job: Job, choose: Choose) -> Steps:
    steps["op"][i] = choose(len(JobOp) - 1)
    return steps


def _of_another_end(steps: Steps, i: int, job: Job, choose: Choose) -> Steps:
    end = "sender" if choose(1) else "receiver"
    steps[end][i] = choose(job.collective.n_ranks) - 1
    return steps


_CHANGES = (
    _dropped,
    _doubled,
    _moved,
    _of_another_part,
    _turned_around,
    _of_another_cluster,
    _of_another_kind,
    _of_another_end,
)
