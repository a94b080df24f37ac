"""Jobs on real data: ranks in processes, libraries of vendors, every collective."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hccc.ir.collective import Collective
from hccc.ir.job import Job, VendorClusters, vendor_clusters
from hccc.runtime.communicator import Communicator
from hccc.runtime.communicator.communicator import allocate
from hccc.runtime.measure import perf
from hccc.runtime.measure.patterns import Pattern
from hccc.synth.builtin.hetccl import OPS, hetccl
from tests.communicator.world import run

# Interleaved ranks, a vendor cluster of one, borders of unlike numbers and weights.
UNEVEN = vendor_clusters(
    [("a", [0, 2, 5], [0, 5], [1, 2]), ("b", [1], [1], [1]), ("c", [3, 4], [3, 4], [1, 1])]
)
EVEN = vendor_clusters([("a", [0, 1], [0, 1], [1, 1]), ("b", [2, 3], [2, 3], [1, 1])])
CALLS = ((0, "float32", "sum"), (1, "int64", "max"), (7, "bfloat16", "prod"), (60, "int32", "avg"))
CALLS = (*CALLS, (4099, "float32", "sum"))


def wrong_calls(c: Communicator, jobs: list[Job], batches: int) -> list[str]:
    """Returns the calls whose results are wrong at this rank: of all jobs, in place and not."""
    wrong = []
    for job in jobs:
        c.load(job, micro_batches=[(0, batches)])
    for seed, (job, (count, dtype, op)) in enumerate((job, one) for job in jobs for one in CALLS):
        reduction = op if job.collective.reduces else "sum"
        for in_place in (False, True):
            pattern = Pattern(job.collective, dtype, reduction, count, seed)
            made = _call(c, job, pattern, in_place)
            if made:
                wrong.append(f"{job.name} of {count} {dtype}, {op}, in place {in_place}: {made}")
    return wrong


def _call(c: Communicator, job: Job, p: Pattern, in_place: bool) -> int:
    memory = perf.allocate(p, c.rank, in_place, lambda n: allocate(n, "uint8"))
    perf.fill(p, c.rank, memory)
    base, size = memory.slab.ctypes.data, memory.slab.itemsize
    send = base + memory.send_at * size if memory.sends else None
    receive = base + memory.receive_at * size if memory.receives else None
    c.prepared(job.name, send, receive, p.count, p.dtype, p.op)()
    with np.errstate(all="ignore"):
        return perf.wrong_at(p, c.rank, memory, perf.wanted(p), not in_place)


def _jobs(v: VendorClusters, ops: Any, root: int) -> list[Job]:
    rooted = {op: root if Collective(op, 2, 4).rooted else 0 for op in ops}
    return [hetccl(v, op, rooted[op]) for op in ops]


@pytest.mark.parametrize(
    ("v", "batches", "root"), [(UNEVEN, 1, 4), (UNEVEN, 3, 0), (EVEN, 2, 1)], ids=str
)
def test_every_collective_by_own_plans(v: VendorClusters, batches: int, root: int) -> None:
    found = run(v.n_ranks, wrong_calls, _jobs(v, OPS, root), batches, environment=STANDARD)
    assert found == [[]] * v.n_ranks


STANDARD = {"HCCC_STANDARD": "1"}
