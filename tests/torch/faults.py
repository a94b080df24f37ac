"""Cases of ranks that are late, gone, or make other calls."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module

import pytest

from hccc.runtime.torch.installed import torch

dist = torch.distributed
LIMIT_S = 2


@contextmanager
def joined() -> Iterator[None]:
    """Makes a group of all, whose first call has been made."""
    import_module("hccc.torch")
    dist.init_process_group("hccc", timeout=timedelta(seconds=60))
    dist.all_reduce(torch.ones(2))
    yield
    dist.destroy_process_group()


def killed() -> None:
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        for _ in range(100):
            dist.all_reduce(torch.ones(2))
    work = dist.all_reduce(torch.ones(2), async_op=True)  # the group stays lost
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        work.wait()
    if torch.__version__ >= "2.13":  # before, Python could not have it
        assert isinstance(work.exception(), dist.DistBackendError)
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        work.get_future().wait()


def late() -> None:
    group = dist.new_group(timeout=timedelta(seconds=LIMIT_S))
    dist.barrier(group)
    if dist.get_rank() == 1:
        time.sleep(2 * LIMIT_S)
        with pytest.raises(dist.DistBackendError):
            dist.all_reduce(torch.ones(2), group=group)
        return
    started = time.monotonic()
    with pytest.raises(dist.DistBackendError, match=r"timed out.*rank 1"):
        dist.all_reduce(torch.ones(2), group=group)
    assert LIMIT_S / 2 < time.monotonic() - started < 3 * LIMIT_S


def other_calls() -> None:
    """Checks that another call at one rank loses nothing."""
    with pytest.raises(dist.DistBackendError, match=r"AllReduce|Allreduce"):
        dist.all_reduce(torch.ones(2 + dist.get_rank()))
    dist.barrier()


def missing() -> None:
    """Checks that a monitored barrier names the rank that does not come."""
    group, limit = dist.new_group(), timedelta(seconds=LIMIT_S)
    if dist.get_rank() == 1:
        dist.distributed_c10d._get_default_store().wait(["told"], timedelta(seconds=60))
    else:
        with pytest.raises(dist.DistBackendError, match=r"Rank 1 failed to pass"):
            group.monitored_barrier(timeout=limit)
        dist.distributed_c10d._get_default_store().set("told", "")


def again() -> None:
    """Makes groups over the same store one after another."""
    for _ in range(3):
        group = dist.new_group(backend="hccc")
        dist.barrier(group)
        dist.destroy_process_group(group)
