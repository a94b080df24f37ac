"""verify_job: checks that a Job computes its collective, by the proof of Programs.

What a Program must not do no Job does: read what nobody wrote, write a place twice at once, add a
contribution twice (`verify`). Besides, nothing crosses a border that is there already: a border is
the narrowest place of a job, and a copy that is made again would only cost.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hccc.analysis.redundant import HELD, NEEDED, uses
from hccc.base.diagnostics import Note, UserError, fail
from hccc.ir.job import Job, JobOp, check
from hccc.ir.program import Program
from hccc.passes.expand import expand
from hccc.passes.verify import verify


def verify_job(job: Job) -> Job:
    """Returns `job` if it is right. Complexity: as `expand` and `verify`.

    Raises:
        UserError: E208 it breaks its invariants; E201-E205 as `verify`, with a note that names the
        step; E207 something crosses a border for nothing.
    """
    if problems := check(job):
        place = job.origin.line(0) if job.origin else None
        raise fail("E208", f"{job.name}: {problems[0]}", place)
    program = expand(job)
    try:
        verify(program)
    except UserError as error:
        raise _named(error, job, program) from None
    _refuse_waste(job, program)
    return job


def _named(error: UserError, job: Job, program: Program) -> UserError:
    """Adds what the numbers of chunks and steps of the message are in the Job."""
    pieces = program.collective.n_chunks // job.collective.n_chunks
    text = "a step here is a step of the job"
    if pieces > 1:
        text += f"; borders cut a part into {pieces} chunks: chunk k is of part(k // {pieces})"
    notes = [Note(text)]
    step = _step_in(error.problem.message)
    if step is not None and step < len(job):
        notes.insert(0, Note(f"step {step} is {job.describe(step)}", job.span(step)))
    return UserError(replace(error.problem, notes=(*error.problem.notes, *notes)))


def _step_in(message: str) -> int | None:
    """Returns the step of the transfer that a message of `verify` describes last."""
    _, found, values = message.rpartition("transfer(")
    return int(values.split(", ")[2]) if found else None


def _refuse_waste(job: Job, program: Program) -> None:
    """Raises E207 for the first step over a border that brings nothing new, or nothing needed."""
    use, step = uses(program), program.transfers["step"]
    for i in np.unique(step[use != NEEDED]).tolist():
        mine = use[step == i]
        if JobOp(int(job.steps["op"][i])).crosses and (mine != NEEDED).all():
            what = "is there already" if (mine == HELD).any() else "is never used"
            raise fail(
                "E207",
                f"step {i}, {job.describe(i)}, moves over a border what {what}",
                job.span(i),
                help="leave it out: every part crosses a border once in each direction it must",
            )
