"""Pairs of processes that are connected, and which UCX there is."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from hccc.runtime.transport.ucx_transport import available
from tests.transport.ends import EndProcess

SIZE = 16 << 20
TURN = 2**32 - 20  # the rings' turns pass 2^32 soon


@pytest.fixture(scope="session")
def ucx() -> None:
    """Skips where there is no UCX."""
    usable, text = available()
    if not usable:
        pytest.skip(text)


def environment(layers: str) -> dict[str, str]:
    """Returns an environment in which UCX may use only `layers`, on this host alone."""
    return {**os.environ, "UCX_TLS": layers, "HCCC_NETWORK": "lo"}


def join(processes: list[EndProcess]) -> None:
    """Connects processes that have an End, each with every other, and starts them."""
    blobs = [process.call("blob") for process in processes]
    for rank, process in enumerate(processes):
        for peer, blob in enumerate(blobs):
            if peer != rank:
                process.call("connect", peer, blob)
    for process in processes:
        process.call("start")
    for process in processes:
        process.call("ready")


def made(n: int, layers: str = "tcp,self", **options: object) -> list[EndProcess]:
    """Starts n connected ranks of this host."""
    return opened([EndProcess(environment(layers)) for _ in range(n)], **options)


def opened(processes: list[EndProcess], **options: object) -> list[EndProcess]:
    """Connects and starts ranks in these processes."""
    for rank, process in enumerate(processes):
        process.tell("End", rank, len(processes), SIZE, turn=TURN, **options)
    for process in processes:
        process.answer()
    join(processes)
    return processes


@pytest.fixture(scope="module", params=["tcp,self", "shm,tcp,self"])
def pair(request: pytest.FixtureRequest, ucx: None) -> Iterator[list[EndProcess]]:
    """Yields two ranks."""
    processes = made(2, request.param, slice_bytes=1 << 18)
    yield processes
    assert [process.end() for process in processes] == [0, 0]
