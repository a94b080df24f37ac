"""Ranks that stand still, and hosts that are cut off: named by all others, in time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import benchmarks.namespaces as namespaces
import benchmarks.stops as stops
from hccc.runtime.communicator import Communicator, CommunicatorError, errors
from hccc.runtime.communicator.buffers import TYPES
from hccc.runtime.communicator.communicator import Result
from hccc.runtime.communicator.runtime_library import library as runtime
from hccc.runtime.transport.ucx_transport import available
from tests.communicator.conftest import Library
from tests.communicator.test_hosts import apart, on_hosts
from tests.communicator.world import Lost, World, loaded, run, start
from tests.emit import plans
from tests.marks import slow

__all__ = ["apart"]
DEADLINE_S, MORE_S = 1.0, 2.0


@pytest.fixture
def ucx() -> None:
    """Skips where there is no UCX."""
    usable, text = available()
    if not usable:
        pytest.skip(text)


def lost(c: Communicator, x: Any, since: float) -> Lost:
    """Makes calls until one fails, and times that. since: when the first may have begun."""
    for _ in range(1_000_000):
        try:
            c.all_reduce(x)
        except CommunicatorError as error:
            return Lost(error.result, error.text, time.monotonic() - since)
        since = time.monotonic()
    raise AssertionError("nothing failed")


def until_lost(communicator: Communicator, place: Path, joined: Path) -> Lost:
    """Makes calls until one fails. joined: a directory with a file for each rank that does."""
    c = loaded(communicator, place)
    c.set_timeout(DEADLINE_S)
    x = c.empty(3_000)
    (joined / str(c.rank)).touch()
    return lost(c, x, time.monotonic())


def begin(
    n: int, place: Path, joined: Path, of_rank: Mapping[int, Mapping[str, str]] | None = None
) -> World:
    """Starts ranks, and returns while they make calls."""
    said = of_rank or {}
    world = start(n, until_lost, place, joined, of_rank=lambda rank: said.get(rank, {}))
    until = time.monotonic() + 60
    while len(os.listdir(joined)) < n and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.2)
    return world


def stop(world: World, victims: range | list[int]) -> None:
    for rank in victims:
        pid = world.processes[rank].pid
        assert pid
        os.kill(pid, signal.SIGSTOP)


def check(found: Mapping[int, Any], said: str) -> None:
    """Checks that all survivors timed out in time, and named the same ranks."""
    for rank, one in found.items():
        assert isinstance(one, Lost) and one.result is Result.TIMEOUT, (rank, one)
        assert "timed out" in one.text and said in one.text, (rank, one.text)
        assert one.seconds < DEADLINE_S + MORE_S, (rank, one)


@pytest.mark.quick(0)
@pytest.mark.parametrize("n, victim", [(5, 0), slow(8, 5)])
def test_a_rank_that_is_stopped(library: Library, tmp_path: Path, n: int, victim: int) -> None:
    """Rank 0 too, through which ranks have their news."""
    place = library(plans.compiled(plans.ring_allreduce(n)))
    world = begin(n, place, tmp_path)
    stop(world, [victim])
    check(world.outcomes(timeout=20, silent=[victim]), f"rank {victim} stands still")


def late_and_stopped(communicator: Communicator, place: Path) -> Lost | None:
    """Makes a call for which rank 2 is late, and in which rank 1 then stops."""
    c = loaded(communicator, place)
    c.set_timeout(DEADLINE_S)
    x = c.empty(3_000)
    c.all_reduce(x)
    if c.rank == 2:
        time.sleep(0.7 * DEADLINE_S)
    since = time.monotonic()
    if c.rank == 1:
        time.sleep(0.8 * DEADLINE_S)
        os.kill(os.getpid(), signal.SIGSTOP)
    return lost(c, x, since)


@pytest.mark.slow
def test_a_late_rank_gives_no_wait_more_time(library: Library) -> None:
    place = library(plans.compiled(plans.ring_allreduce(5)))
    found = start(5, late_and_stopped, place).outcomes(timeout=20, silent=[1])
    check(found, "rank 1 stands still")


def late(communicator: Communicator, place: Path) -> Lost:
    """Makes a call for which rank 3 comes after the deadline."""
    c = loaded(communicator, place)
    c.set_timeout(DEADLINE_S)
    x = c.empty(3_000)
    c.all_reduce(x)
    since = time.monotonic()
    if c.rank == 3:
        time.sleep(DEADLINE_S + 0.7)
    return lost(c, x, since)


@pytest.mark.slow
def test_a_rank_that_does_not_come(library: Library) -> None:
    place = library(plans.compiled(plans.ring_allreduce(5)))
    found = start(5, late, place).outcomes(timeout=20)
    check(found, "rank 3 has not started the call: its last was Allreduce of 3000 float32 (sum)")


@pytest.mark.slow
@pytest.mark.usefixtures("ucx")
@pytest.mark.parametrize("victims", [[3], [0, 1], [2, 3]], ids=str)
def test_ranks_of_one_of_two_hosts(apart: Path, tmp_path: Path, victims: list[int]) -> None:
    world = begin(4, apart, tmp_path, {rank: on_hosts(rank) for rank in range(4)})
    stop(world, victims)
    found = world.outcomes(timeout=20, silent=victims)
    check(found, f"rank {victims[0]} " if len(victims) == 1 or 0 in victims else "ranks 2 and 3 ")
    for one in found.values():
        assert "stands still" in one.text or "not answered" in one.text, one.text


def leaves_early(communicator: Communicator, place: Path) -> Lost | None:
    c = loaded(communicator, place)
    x = c.empty(3_000)
    c.all_reduce(x)
    if c.rank == 0:
        c.destroy()
        time.sleep(4)  # its process lives on
        return None
    since = time.monotonic()
    found = lost(c, x, since)
    time.sleep(max(0, 3 - found.seconds))  # so that none learns from others that leave
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("ucx")
def test_rank_0_leaves_before_the_last_call(apart: Path) -> None:
    """All ranks of all hosts learn it at once, although their news came through rank 0."""
    found = start(4, leaves_early, apart, of_rank=on_hosts).outcomes(timeout=30)
    assert found.pop(0) is None
    said = (
        "rank 0 has left the communicator; its last call was Allreduce",
        "rank 0, over the network",
    )
    for one in found.values():
        assert any(text in one.text for text in said) and one.seconds < 2, one


def mixed(communicator: Communicator, *places: Path) -> bool:
    """Makes calls in place at one rank, and out of place at others."""
    c, n = loaded(communicator, *places), communicator.n_ranks
    for count, turn in ((1_000, 0), (1_000, 1), (300_000, 2), (70_001, 0)):
        here = c.rank % n == turn
        x = c.empty(count, "int32")
        x[:] = np.arange(count) + c.rank
        y = x if here else np.zeros(count, np.int32)
        c.all_reduce(x, y)
        assert (y == n * np.arange(count) + n * (n - 1) // 2).all(), count
        all_ = c.empty(n * count, "int32")
        own = all_[c.rank * count :][:count] if here else c.empty(count, "int32")
        own[:] = np.arange(count) + c.rank
        c.all_gather(own, all_)
        assert (all_.reshape(n, -1) == np.arange(count) + np.arange(n)[:, None]).all(), count
        blocks = c.empty((n, count), "int32")
        blocks[:] = np.arange(count) + np.arange(n)[:, None] + n * c.rank
        got = blocks if here else np.zeros((n, count), np.int32)
        c.all_to_all(blocks, got)
        assert (got == np.arange(count) + n * np.arange(n)[:, None] + c.rank).all(), count
    return True


@pytest.mark.slow
def test_in_place_at_some_ranks(library: Library) -> None:
    """One plan serves both; or, where a plan in place stages, ranks in place copy their input."""
    made = plans.ring_allreduce(3), plans.ring_allgather(3), plans.alltoall(3)
    assert run(3, mixed, *[library(plans.compiled(one)) for one in made]) == [True] * 3


def freed(communicator: Communicator, place: Path) -> bool:
    """Passes memory that was freed, or is too short: it is refused at once, and costs nothing."""
    c = loaded(communicator, place)
    x = c.empty(3_000)
    at = c.empty(100_000).ctypes.data  # freed again
    for pointer, count in ((at, 1_000), (x.ctypes.data, 1 << 20)):
        with pytest.raises(CommunicatorError, match="in no allocation of hcccMemAlloc") as error:
            words = (pointer, pointer, count, TYPES.index("float32"), 0)
            errors.check(runtime().call("AllReduce", *words, c.handle, None))
        assert error.value.result is Result.INVALID_ARGUMENT
    c.all_reduce(x)
    return True


@pytest.mark.slow
def test_memory_that_is_no_more(sums: Path) -> None:
    found = start(3, freed, sums).outcomes()
    assert set(found.values()) == {True}


@pytest.mark.slow
@pytest.mark.usefixtures("ucx")
@pytest.mark.skipif(bool(namespaces.missing()), reason="no namespaces")
def test_the_campaign() -> None:
    """A few trials of `benchmarks.stops`, cut cables too."""
    outcomes = stops.measured([stops.drawn(k, DEADLINE_S, 1 + k % 2) for k in range(12)], 4)
    for one in outcomes:
        assert not one.hung and not one.unnamed and one.over < MORE_S, one
