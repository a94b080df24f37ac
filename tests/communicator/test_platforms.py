"""Ranks of several platforms in one job: CPUs, and CUDA over a runtime that works on the CPU, on
hosts of their own (HCCC_HOST_ID), with libraries of one plan."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hccc.api import functions as api
from hccc.driver.options import Options
from hccc.emit.targets import CPU
from hccc.runtime.communicator import Communicator
from hccc.runtime.communicator.communicator import Result
from hccc.runtime.transport.ucx_transport import available
from tests.communicator import cuda
from tests.communicator.test_calls import pattern
from tests.communicator.test_cuda import CudaRank
from tests.communicator.test_hosts import HOSTS
from tests.communicator.world import Lost, start
from tests.emit import plans

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not cuda.have_compiler(), reason="no g++"),
]


@pytest.fixture(autouse=True)
def ucx() -> None:
    """Skips where there is no UCX."""
    usable, text = available()
    if not usable:
        pytest.skip(text)


@pytest.fixture(scope="session")
def sums(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Builds one AllReduce over two hosts of two ranks, for CUDA, and for the CPU."""
    program = plans.hierarchical_mesh(2, 2, channels=2)
    (plan,) = api.compile(program, Options(tune="off")).catalogue.plans
    place = tmp_path_factory.mktemp("platforms")
    return {
        "cuda": cuda.library(plan, place / "cuda", runtime),
        "host": cuda.emitted(plan, place / "cpu", CPU),
    }


class HostRank:
    """A rank in memory of the host, with CudaRank's functions."""

    def __init__(self, communicator: Communicator, place: Path) -> None:
        self.c = communicator
        self.c.load(place, ["int32"], ["sum"])

    def empty(self, count: int) -> np.ndarray[Any, Any]:
        """Returns an array in memory of hcccMemAlloc."""
        return self.c.empty(count, "int32")

    def foreign(self, count: int) -> np.ndarray[Any, Any]:
        """Returns an array of the process's own."""
        return np.empty(count, np.int32)

    def all_reduce(self, send: Any, receive: Any) -> None:
        """Runs it."""
        self.c.all_reduce(send, receive)

    def wait(self) -> None:
        """Returns at once: calls have ended."""


def rank_of(c: Communicator, places: dict[str, Path]) -> CudaRank | HostRank:
    """Loads the library of the rank's platform."""
    on_cuda = c.platform == "cuda"
    return CudaRank(c, places["cuda"]) if on_cuda else HostRank(c, places["host"])


def sums_of(communicator: Communicator, places: dict[str, Path]) -> list[bytes]:
    """Checks sums of data that differ by rank and call, in both kinds of memory, in and out of
    place, and returns their bits."""
    rank = rank_of(communicator, places)
    me, n, found = communicator.rank, communicator.n_ranks, []
    for call in range(12):
        count = (1003, 70_001, 3, 1_200_000)[call % 4]
        make = rank.empty if call % 2 else rank.foreign
        wanted = sum(pattern(r, count) + call for r in range(n))
        send, receive = make(count), make(count)
        send[:] = pattern(me, count) + call
        receive[:] = -1
        rank.all_reduce(send, receive)
        rank.all_reduce(send, send)
        rank.wait()
        assert np.array_equal(receive, wanted), call
        assert np.array_equal(send, wanted), call
        found.append(receive.tobytes()[:4096])
    return found


def on(platforms: str, runtime: Path, **more: str) -> Any:
    """Returns the environment of each rank: platforms: of each host, of two ranks."""

    def of_rank(rank: int) -> Mapping[str, str]:
        host = rank // 2
        its = (
            cuda.environment(runtime, HCCC_SCRATCH_BYTES=str(32 << 20))
            if platforms.split("+")[host] == "cuda"
            else {}
        )
        return {**HOSTS, **its, "HCCC_HOST_ID": f"host{host}", **more}

    return of_rank


@pytest.mark.parametrize("platforms", ["cuda+cuda", "cuda+host", "host+cuda"])
def test_one_plan_on_two_hosts(
    runtime: Path, sums: dict[str, Path], tmp_path: Path, platforms: str
) -> None:
    log = {"HCCC_DEBUG": "INFO", "HCCC_DEBUG_FILE": str(tmp_path / "log.%r")}
    found = start(4, sums_of, sums, of_rank=on(platforms, runtime, **log)).outcomes()
    assert all(not isinstance(one, Lost) for one in found.values()), found
    assert found[0] == found[1] == found[2] == found[3]
