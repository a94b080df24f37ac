"""Cases of groups that run jobs over two vendor clusters, beside gloo."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

import hccc.torch
from hccc.ir.collective import ROOTED
from hccc.ir.job import Job, vendor_clusters
from hccc.runtime.torch.installed import torch
from hccc.synth.builtin.hetccl import OPS, hetccl
from tests.torch import cases

dist: Any = torch.distributed
# Cases of all groups.
all_gather, all_to_all, broadcast = cases.all_gather, cases.all_to_all, cases.broadcast
futures, gather, groups = cases.futures, cases.gather, cases.groups
reduce, reduce_scatter, scatter = cases.reduce, cases.reduce_scatter, cases.scatter
CLUSTERS = vendor_clusters([("MPICH", [0, 1], [0, 1], [1, 2]), ("own", [2], [2], [1])])
ROOT = 1  # of rooted jobs: other roots have the standard collectives


def jobs() -> list[Job]:
    return [hetccl(CLUSTERS, op, ROOT if op in ROOTED else 0) for op in OPS]


@contextmanager
def joined() -> Iterator[None]:
    """Makes a group of each backend, and has hccc's run jobs, or a table of one."""
    with cases.joined():
        if table := os.environ.get("HCCC_TEST_TABLE"):
            hccc.torch.load(table, dist.group.WORLD)
        for job in [] if table else jobs():
            hccc.torch.load(
                job,
                dist.group.WORLD,
                vendor="mpich" if dist.get_rank() < 2 else None,
                file=os.environ["HCCC_TEST_MPICH"] if dist.get_rank() < 2 else None,
                micro_batches=[(0, 1), (1 << 16, 2)],
            )
        yield


def all_reduce() -> None:
    """Checks what MPICH and gloo both have."""
    given = [((1000,), torch.float32), ((3, 5), torch.int64), ((70_001,), torch.double)]
    for shape, dtype in given:
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):
            cases._equal(partial(_reduced, cases._random(*shape, dtype=dtype), op))
    x = torch.full((7,), float(dist.get_rank()))
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert x.tolist() == [1.0] * 7


def _reduced(given: Any, op: Any) -> tuple[cases.Call, Any]:
    x = given.clone()
    return lambda group, later: dist.all_reduce(x, op, group, later), x


def profiled() -> None:
    """Checks that profiles say which calls a job ran, and which a library."""
    names = {job.collective.op.value: job.name for job in jobs()}
    with torch.profiler.profile() as profile:
        dist.all_reduce(torch.ones(3))
        dist.all_reduce(torch.ones(3), async_op=True).wait()
        dist.broadcast(torch.ones(3), ROOT)
        dist.broadcast(torch.ones(3), 0)
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts[f"hccc:by {names['Allreduce']}"] == 2
    assert counts[f"hccc:by {names['Broadcast']}"] == 1


def training() -> None:
    """Compares two steps of DDP with gloo's."""
    found = []
    for backend in ("gloo", "hccc"):
        torch.manual_seed(1)
        plain = torch.nn.Linear(40, 30)
        model = torch.nn.parallel.DistributedDataParallel(
            plain, process_group=cases.GROUPS[backend]
        )
        for _ in range(2):
            x = torch.full((4, 40), float(dist.get_rank() + 1))
            model(x).square().mean().backward()
        found.append([one.grad.clone() for one in model.parameters()])
    torch.testing.assert_close(found[0], found[1])


def premultiplied() -> None:
    """Checks factors, which jobs do not have: what is given is multiplied before, in a copy."""
    half = dist._make_nccl_premul_sum(0.5)
    x, y = (torch.full((4,), float(dist.get_rank() + 1)) for _ in range(2))
    dist.all_reduce(x, half)
    assert x.tolist() == [3.0] * 4
    dist.reduce(y, ROOT, half)
    assert y.tolist() == [3.0 if dist.get_rank() == ROOT else dist.get_rank() + 1.0] * 4
    given, part = torch.arange(6.0), torch.empty(2)
    dist.reduce_scatter_tensor(part, given, half)
    assert part.tolist() == [3 * dist.get_rank(), 3 * dist.get_rank() + 1.5]
    assert given.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def refused() -> None:
    """Checks what a library of the job lacks: an error at every rank, and the group goes on."""
    with pytest.raises(dist.DistBackendError, match="a library of the job has no sum of bfloat16"):
        dist.all_reduce(torch.ones(3, dtype=torch.bfloat16))
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x.tolist() == [3.0] * 3
