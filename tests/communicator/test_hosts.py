"""Ranks of several hosts: HCCC_HOST_ID divides this host's ranks into hosts, joined by UCX."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hccc.api import functions as api
from hccc.driver.options import Options
from hccc.runtime.communicator import Communicator, CommunicatorError
from hccc.runtime.communicator.communicator import Result
from hccc.runtime.communicator.kernels import built
from hccc.runtime.transport.ucx_transport import available
from tests.communicator.conftest import Library
from tests.communicator.world import Lost, loaded, start
from tests.emit import plans

HOSTS = {"UCX_TLS": "tcp,self", "HCCC_NETWORK": "lo"}  # as between hosts


@pytest.fixture(autouse=True)
def ucx() -> None:
    """Skips where there is no UCX."""
    usable, text = available()
    if not usable:
        pytest.skip(text)


@pytest.fixture(scope="session")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds an AllReduce over two nodes of two ranks."""
    program = plans.hierarchical_mesh(2, 2, channels=2)
    place = tmp_path_factory.mktemp("hosts") / "kernels"
    api.write(api.compile(program, Options(tune="off")), place)
    built(place, ["float32", "int32"], ["sum", "max"])
    return place


def on_hosts(rank: int) -> dict[str, str]:
    return {**HOSTS, "HCCC_HOST_ID": f"host{rank // 2}"}


def sums(communicator: Communicator, place: Path) -> bool:
    """Checks sums of data that differ by call: late data would be the previous call's."""
    c, n = loaded(communicator, place), communicator.n_ranks
    for call in range(60):
        count = (1000, 70_001, 3)[call % 3]
        shared = bool(call % 2)
        x = c.empty(count, "int32") if shared else np.empty(count, np.int32)
        x[:] = np.arange(count) * (c.rank + 1) + call
        y = np.zeros_like(x)
        c.all_reduce(x, y)
        assert (y == np.arange(count) * (n * (n + 1) // 2) + n * call).all(), call
        c.all_reduce(x)
        assert np.array_equal(x, y)
    return True


def test_sums_over_two_hosts(apart: Path) -> None:
    found = start(4, sums, apart, of_rank=on_hosts).outcomes()
    assert set(found.values()) == {True}


@pytest.mark.slow
def test_memory_that_hosts_do_not_share(library: Library) -> None:
    """A library that takes all ranks to share memory is refused."""
    place = library(plans.compiled(plans.mesh_allreduce(4)))
    found = start(4, sums, place, of_rank=on_hosts).outcomes()
    assert all("on different hosts" in one.text for one in found.values())


def until_lost(communicator: Communicator, place: Path) -> Any:
    c = loaded(communicator, place)
    x = c.empty(10_000)
    started = time.monotonic()
    try:
        for call in range(1_000_000):
            if c.rank == 3 and call == 20:
                os.kill(os.getpid(), signal.SIGKILL)
            c.all_reduce(x)
    except CommunicatorError as error:
        return Lost(error.result, error.text, time.monotonic() - started)
    return None


@pytest.mark.slow
def test_a_rank_of_another_host_dies(apart: Path) -> None:
    found = start(4, until_lost, apart, of_rank=on_hosts).outcomes(silent=[3])
    for lost in found.values():
        assert lost.result is Result.REMOTE_ERROR and "rank 3" in lost.text, lost.text
        assert lost.seconds < 5
