"""job_table: a Job as the text that communicators load (`runtime/job/saved.cpp` reads it).

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

The collective's ranks, parts and root follow its name; a cluster's line has its ranks; a step's
columns are those of JOB_STEP without the line; micro-batches are bytes of calls and into how many
those of so many bytes or more are cut. The last line is a checksum of all before it. Whoever writes
a table has proved the job (`verify_job`): a reader checks that it is sound, and whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hccc.ir.job import Job

JOB_TABLE_VERSION = 1
_FNV_BASIS, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


def dumps(job: Job, micro_batches: Sequence[tuple[int, int]] = ()) -> str:
    """Writes a job's table. micro_batches: bytes of calls, in rising order, and into how many those
    of so many bytes or more are cut; without any the first calls find it out."""
    text = "".join(f"{line}\n" for line in _lines(job, micro_batches))
    return f"{text}end {_checksum(text.encode()):016x}\n"


def _lines(job: Job, micro_batches: Sequence[tuple[int, int]]) -> Iterator[str]:
    c, v = job.collective, job.clusters
    yield f"hccc job {JOB_TABLE_VERSION}"
    yield f"name {job.name}"
    yield f"collective {c.op.value} {c.n_ranks} {c.n_chunks} {c.root}"
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
