"""job_table: a Job as the text that communicators load (`runtime/job/saved.cpp`), and back.

    hccc job 1
    name pair
    collective Allreduce 2 1 0
    cluster 0
    border 0
    weights 1
    cluster 1
    border 1
    weights 1
    steps 2
    7 0 1 0 -1 -1
    6 1 0 0 -1 -1
    micro_batches 1
    0 1
    end 8d5b4d1c4a2f6e03

The collective's ranks, parts and root follow its name, Allgatherv and so on for blocks of lengths
of their own; a cluster's line has its ranks; a step's
columns are those of JOB_STEP without the line; micro-batches are bytes of calls and into how many
those of so many bytes or more are cut. The last line is a checksum of all before it. Vendors are
not in it: each rank says its own. Whoever writes a table has proved the job (`verify_job`): a
reader checks that it is sound, and whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from hccc.base.diagnostics import fail
from hccc.ir.collective import Collective, spelled
from hccc.ir.job import JOB_STEP, Job, check, vendor_clusters

JOB_TABLE_VERSION = 1
_FNV_BASIS, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
_HELP = "`hccc compile JOB -o FILE` writes one"


def dumps(job: Job, micro_batches: Sequence[tuple[int, int]] = ()) -> str:
    """Writes a job's table. micro_batches: bytes of calls, in rising order, and into how many those
    of so many bytes or more are cut; without any the first calls find it out."""
    text = "".join(f"{line}\n" for line in _lines(job, micro_batches))
    return f"{text}end {_checksum(text.encode()):016x}\n"


def loads(text: str, name: str = "job") -> tuple[Job, list[tuple[int, int]]]:
    """Loads the Job of a table, and its micro-batches; `name` is how messages call it.

    Raises:
        UserError: E407 it is no table, or damaged; E208 not a sound Job.
    """
    body, _, last = text.rpartition("end ")
    if last != f"{_checksum(body.encode()):016x}\n":
        raise fail("E407", f"{name}: is no table of a job, or is cut off or damaged", help=_HELP)
    try:
        job, micro_batches = _read(deque(line.split() for line in body.splitlines()))
    except (ValueError, IndexError, OverflowError):
        message = f"{name}: is no table of a job of version {JOB_TABLE_VERSION}"
        raise fail("E407", message, help=_HELP) from None
    if problems := check(job):
        raise fail("E208", f"{name}: {problems[0]}")
    return job, micro_batches


def _read(rows: deque[list[str]]) -> tuple[Job, list[tuple[int, int]]]:
    """Reads the words of lines. Raises ValueError, IndexError, OverflowError where they are not
    what `_lines` writes."""

    def after(word: str) -> list[str]:
        first, *rest = rows.popleft()
        if first != word:
            raise ValueError(word)
        return rest

    def table(word: str, columns: int) -> list[tuple[int, ...]]:
        (length,) = after(word)
        found = [tuple(map(int, rows.popleft())) for _ in range(int(length))]
        if any(len(row) != columns for row in found):
            raise ValueError(word)
        return found

    if after("hccc") != ["job", str(JOB_TABLE_VERSION)]:
        raise ValueError("version")
    (name,) = after("name")
    name_of_op, *numbers = after("collective")
    n_ranks, n_parts, root = map(int, numbers)
    clusters: list[tuple[str, list[int], list[int], list[int]]] = []
    while rows[0][0] == "cluster":
        ranks, border, weights = (
            list(map(int, after(word))) for word in ("cluster", "border", "weights")
        )
        clusters.append((str(len(clusters)), ranks, border, weights))
    steps = np.array([(*row, 0) for row in table("steps", len(JOB_STEP.names or ()) - 1)], JOB_STEP)
    found = spelled(name_of_op)
    if found is None:
        raise ValueError(name_of_op)
    op, uneven = found
    collective = Collective(op, n_ranks, n_parts, root, uneven)
    micro_batches = [(size, count) for size, count in table("micro_batches", 2)]
    return Job(name, collective, vendor_clusters(clusters), steps), micro_batches


def _lines(job: Job, micro_batches: Sequence[tuple[int, int]]) -> Iterator[str]:
    c, v = job.collective, job.clusters
    yield f"hccc job {JOB_TABLE_VERSION}"
    yield f"name {job.name}"
    yield f"collective {c.name} {c.n_ranks} {c.n_chunks} {c.root}"
    for k in range(len(v)):
        weight = v.weight[v.borders.ptr[k] : v.borders.ptr[k + 1]].tolist()
        rows = (("cluster", v.members(k)), ("border", v.border(k)), ("weights", weight))
        for name, numbers in rows:
            yield f"{name} {' '.join(map(str, numbers))}"
    yield f"steps {len(job)}"
    for step in job.steps.tolist():
        yield " ".join(map(str, step[:-1]))
    yield f"micro_batches {len(micro_batches)}"
    for size, count in micro_batches:
        yield f"{size} {count}"


def _checksum(data: bytes) -> int:
    """Returns the FNV-1a hash of bytes, 64 bits."""
    found = _FNV_BASIS
    for byte in data:
        found = (found ^ byte) * _FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return found
