"""job_order: the order in which all ranks do the tasks of a Job: (step, micro-batch).

A call is cut into micro-batches, and each goes through all steps. Tasks of one *wave* need nothing
of each other: a step of a micro-batch is in a wave with later steps of earlier micro-batches. Of a
wave the later micro-batches come first: a border is busy with them while what goes back over it is
reduced. Steps that need nothing from over a border come before all others, in waves of their own,
below 0: what goes over it then waits for no call that itself waits for what comes. All ranks keep
this order in their calls of libraries, which is free of deadlock: a task needs earlier ones only.
"""

from __future__ import annotations

from dataclasses import dataclass

from hccc.ir.job import Job, JobOp

Place = tuple[int, int]  # a vendor cluster, and a part


@dataclass(frozen=True, slots=True)
class JobTaskAt:
    """A task in the order: its wave, its micro-batch, its step. wave: below 0 where the step needs
    nothing from over a border."""

    wave: int
    batch: int
    step: int


def touched(job: Job, i: int) -> tuple[list[Place], list[Place]]:
    """Returns the places that step `i` reads, and those that it writes."""
    op, src, dst, part, *_ = job.steps[i].tolist()
    if op == JobOp.ALLGATHER:
        per = job.collective.chunks_per_block
        places = [(src, r * per + part) for r in job.clusters.members(src)]
        return places, places
    return [(src, part)], [(dst, part)]


def levels(job: Job) -> list[tuple[int, bool]]:
    """Returns how many steps lie before each step, one after another, and whether it needs nothing
    from over a border.

    A step comes after those that wrote what it reads or writes, and those that read what it writes.
    """
    written: dict[Place, int] = {}
    used: dict[Place, int] = {}
    away: set[Place] = set()  # what copies over borders, or steps after them, have touched
    found = []
    for i in range(len(job)):
        reads, writes = touched(job, i)
        after = [written.get(place, 0) for place in reads]
        level = max([*after, *(used.get(place, 0) for place in writes)], default=0)
        places = {*reads, *writes}
        home = not (JobOp(job.steps["op"][i]).crosses or places & away)
        away |= set() if home else places
        found.append((level, home))
        written |= dict.fromkeys(writes, level + 1)
        for place in (*reads, *writes):
            used[place] = max(used.get(place, 0), level + 1)
    return found


def order(job: Job, batches: int) -> list[JobTaskAt]:
    """Returns all tasks of a call in so many micro-batches. O(tasks · log tasks)."""
    of = levels(job)
    last = max((level for level, home in of if home), default=0)
    tasks = [
        (level + q - (last + batches if home else 0), q, i)
        for q in range(batches)
        for i, (level, home) in enumerate(of)
    ]
    in_order = sorted(tasks, key=lambda task: (task[0], -task[1], task[2]))
    return [JobTaskAt(*task) for task in in_order]
