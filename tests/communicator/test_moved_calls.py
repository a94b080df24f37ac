"""Long calls whose bytes only move, as messages: results, places, and where it is not done."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from hccc.runtime.communicator import Communicator, CommunicatorError
from tests.communicator.conftest import Library
from tests.communicator.test_calls import pattern, performs, placed, plan_of
from tests.communicator.test_faults import wait_until_joined
from tests.communicator.world import Lost, loaded, start

pytestmark = pytest.mark.slow  # standard libraries are made
LEAST, LEAST_OF_ONE = (64 << 10) // 4, (32 << 10) // 4  # int32 of the largest buffer
LONG = (4 << 20) // 4
N, ROOT = 3, 1
DEADLINE_S = 2.0
MADE = {"HCCC_STANDARD": "1", "HCCC_TIMEOUT": "300", "HCCC_PROGRESS": "off"}
BLOCKS = {"broadcast": 1, "scatter": N, "gather": N, "all_to_all": N, "all_gather": N}


def as_messages(folder: Path) -> int:
    """Counts the calls of ranks that wrote into a folder that went as messages, or through a ring
    where ranks share cores."""
    ways = ("blocks are sent as messages", "it goes through its root's ring")
    return sum(log.read_text().count(way) for log in folder.iterdir() for way in ways)


def logged(folder: Path) -> dict[str, str]:
    log = {"HCCC_DEBUG_SUBSYS": "MEM", "HCCC_DEBUG_FILE": str(folder / "%p")}
    return {"HCCC_DEBUG": "INFO", **log, **MADE}


def of_lengths(communicator: Communicator, name: str, counts: list[int]) -> bool:
    return all(performs(communicator, name, ROOT, count) for count in counts)


@pytest.mark.parametrize("name", BLOCKS)
def test_results(name: str, tmp_path: Path) -> None:
    least = (LEAST_OF_ONE if name in ("scatter", "gather") else LEAST) // BLOCKS[name]
    each = start(N, of_lengths, name, [least + 7, least - 7], environment=logged(tmp_path))
    assert each.outcomes(timeout=300) == dict.fromkeys(range(N), True)
    # Of the longer, in two of three ways: not where all memory is the heap's.
    assert as_messages(tmp_path) == 2 * N


def test_a_long_allgather(tmp_path: Path) -> None:
    each = start(N, of_lengths, "all_gather", [LONG // N + 7], environment=logged(tmp_path))
    assert each.outcomes(timeout=300) == dict.fromkeys(range(N), True)
    assert as_messages(tmp_path) == 2 * N


def in_place(communicator: Communicator) -> bool:
    """Checks an Alltoall in place at some ranks, in memory that is not shared."""
    c, count = communicator, LEAST // N + 3
    blocks = [pattern(r, count, N).reshape(N, count) for r in range(N)]
    x = placed(c, blocks[c.rank].reshape(-1), False)
    into = x if c.rank else placed(c, x, False)
    c.all_to_all(x, into)
    return all((into[r * count :][:count] == blocks[r][c.rank]).all() for r in range(N))


def test_in_place(tmp_path: Path) -> None:
    found = start(N, in_place, environment=logged(tmp_path)).outcomes(timeout=300)
    assert found == dict.fromkeys(range(N), True)
    assert as_messages(tmp_path) == N


def test_ranks_that_may_not_read(tmp_path: Path) -> None:
    """All ranks copy then."""

    def of_rank(rank: int) -> Mapping[str, str]:
        return {"HCCC_PEER_READS": "0"} if rank == 2 else {}

    words = (of_lengths, "broadcast", [LEAST])
    found = start(N, *words, environment=logged(tmp_path), of_rank=of_rank).outcomes(timeout=300)
    assert found == dict.fromkeys(range(N), True) and as_messages(tmp_path) == 0


def with_library(communicator: Communicator, place: Path) -> bool:
    return performs(loaded(communicator, place), "broadcast", ROOT, LEAST)


def test_a_users_library_runs_as_it_was_written(library: Library, tmp_path: Path) -> None:
    place = library(plan_of("broadcast", N, ROOT))
    found = start(N, with_library, place, environment=logged(tmp_path)).outcomes(timeout=300)
    assert found == dict.fromkeys(range(N), True) and as_messages(tmp_path) == 0


def until_lost(communicator: Communicator, joined: Path) -> Lost:
    """Makes long Broadcasts until one fails, and times that one."""
    x = np.zeros(1 << 25, np.int32)
    communicator.broadcast(x, root=ROOT)  # makes the library
    communicator.set_timeout(DEADLINE_S)
    (joined / str(communicator.rank)).touch()
    for call in range(1_000_000):
        x[:] = call if communicator.rank == ROOT else -1
        started = time.monotonic()
        try:
            communicator.broadcast(x, root=ROOT)
        except CommunicatorError as error:
            return Lost(error.result, error.text, time.monotonic() - started)
        assert (x == call).all()
    raise AssertionError("nothing failed")


@pytest.mark.parametrize("victim", [ROOT, 2])
def test_a_rank_that_is_killed(victim: int, tmp_path: Path) -> None:
    joined, logs = tmp_path / "joined", tmp_path / "logs"
    joined.mkdir()
    logs.mkdir()
    world = start(N, until_lost, joined, environment=logged(logs))
    wait_until_joined(joined, N)
    time.sleep(0.3)
    os.kill(world.processes[victim].pid or 0, signal.SIGKILL)
    found = world.outcomes(timeout=60, silent=[victim])
    assert len(found) == N - 1 and as_messages(logs) >= N
    for lost in found.values():
        assert isinstance(lost, Lost) and f"rank {victim}" in lost.text, lost
        assert lost.seconds < DEADLINE_S + 2, lost
