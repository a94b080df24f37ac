"""Memory of a device: the same calls, with windows that peers map when they are first used."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hccc.base.diagnostics import UserError
from hccc.runtime.communicator import Communicator
from hccc.runtime.communicator.communicator import Result
from hccc.runtime.device.stream import Stream
from tests.communicator.conftest import Library
from tests.communicator.test_calls import (
    COUNT,
    all_reduces,
    of_threads,
    one_of_all,
    pattern,
    plan_of,
)
from tests.communicator.test_faults import VICTIM, until_lost, wait_until_joined, wrong_once
from tests.communicator.world import Lost, alone, loaded, run, start
from tests.emit import plans
from tests.marks import slow

DEVICE = {"HCCC_HEAP": "device", "HCCC_PLATFORM": "cpu"}
SEGMENT = 64 << 20


@pytest.mark.slow
@pytest.mark.parametrize("handles", ["descriptor", "legacy"])
def test_all_reduce(sums: Path, handles: str, tmp_path: Path) -> None:
    log = {"HCCC_DEBUG": "INFO", "HCCC_DEBUG_FILE": str(tmp_path / "log")}
    environment = {**DEVICE, "HCCC_HANDLES": handles, **log}
    assert run(3, all_reduces, sums, environment=environment) == [True] * 3
    text = (tmp_path / "log").read_text()
    name = {"descriptor": "descriptors", "legacy": "legacy handles"}[handles]
    assert f"memory is shared by {name}, as HCCC_HANDLES says" in text
    assert f"flags and scratch of rank 2, 285212672 bytes, by {name}" in text
    assert f"a segment of rank 1, {SEGMENT} bytes, by {name}" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["all_gather", "all_to_all", "scatter", "reduce"])
def test_other_collectives(library: Library, name: str) -> None:
    place = library(plan_of(name, 3, 1))
    assert run(3, one_of_all, place, name, 1, environment=DEVICE) == [True] * 3


def threads_on_a_device(sums: Path) -> bool:
    os.environ.update(DEVICE)
    return bool(of_threads(sums))


def test_ranks_may_be_threads(sums: Path) -> None:
    assert alone(threads_on_a_device, sums)


def many_segments(communicator: Communicator, place: Path) -> int:
    """Checks ranks that go on to new memory, each at other times."""
    c, n = loaded(communicator, place), communicator.n_ranks
    own = random.Random(c.rank)
    kept = [c.empty(COUNT, "int32")]
    for call in range(12):
        if own.random() < 0.4:
            kept.append(c.empty(SEGMENT // 4 + own.randrange(100), "int32"))
        x = own.choice(kept)[:COUNT]
        x[:] = pattern(c.rank + call, COUNT)
        time.sleep(own.choice([0, 0, 0.01]))
        c.all_reduce(x)
        assert np.array_equal(x, sum(pattern(r + call, COUNT) for r in range(n))), call
    return len(kept)


@pytest.mark.slow
def test_new_memory_in_between(sums: Path) -> None:
    assert max(run(3, many_segments, sums, environment=DEVICE)) > 3


def new_memory_at_one(communicator: Communicator, place: Path) -> bool:
    """Checks calls in which the other ranks wait while one rank first shows its memory."""
    c = loaded(communicator, place)
    x = c.empty(COUNT, "int32")
    for _ in range(2):
        if c.rank == VICTIM:
            x = c.empty(SEGMENT // 2, "int32")[:COUNT]
            time.sleep(0.3)
        x[:] = c.rank + 1
        c.all_reduce(x)
        assert (x == 6).all()
    return True


@pytest.mark.slow
def test_memory_that_is_shown_while_others_wait(sums: Path) -> None:
    assert run(3, new_memory_at_one, sums, environment=DEVICE) == [True] * 3


def in_a_stream(communicator: Communicator, place: Path) -> bool:
    """Checks memory new to a stream, whose thread must not call the device layer."""
    c = loaded(communicator, place)
    with Stream() as stream:
        for _ in range(3):
            x, y = c.empty(SEGMENT // 4, "int32"), np.zeros(COUNT, np.int32)
            x[:COUNT], y[:] = c.rank + 1, c.rank + 2
            c.all_reduce(x[:COUNT], stream=stream)
            c.all_reduce(y, stream=stream)
            stream.synchronize()
            c.check()
            assert (x[:COUNT] == 6).all() and (y == 9).all()
    return True


@pytest.mark.slow
def test_calls_in_streams(sums: Path) -> None:
    assert run(3, in_a_stream, sums, environment=DEVICE) == [True] * 3


@pytest.mark.slow
@pytest.mark.parametrize("how", ["die", *map(slow, ["leave", "abort", "stall"])])
def test_every_rank_is_told(sums: Path, how: str) -> None:
    silent = [VICTIM] if how == "die" else []
    environment = {**DEVICE, "HCCC_TIMEOUT": "2"}
    found = start(3, wrong_once, sums, how, environment=environment).outcomes(silent=silent)
    for rank in (0, 2):
        assert isinstance(found[rank], Lost) and found[rank].seconds < 4
        assert "rank 1" in found[rank].text


def stopped_monitor(communicator: Communicator, place: Path) -> Any:
    """Stops a rank, so that it maps nothing: ranks that show memory must not wait for ever."""
    c = loaded(communicator, place)
    c.set_timeout(1)
    x = c.empty(COUNT, "int32")
    c.all_reduce(x)
    if c.rank == VICTIM:
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.3)
    c.all_reduce(c.empty(SEGMENT, "int32")[:COUNT])
    return None


@pytest.mark.slow
def test_a_rank_that_maps_nothing(sums: Path) -> None:
    found = start(3, stopped_monitor, sums, environment=DEVICE).outcomes(silent=[VICTIM])
    for rank in (0, 2):
        assert isinstance(found[rank], Lost) and found[rank].result is Result.TIMEOUT
        assert "rank 1 stands still" in found[rank].text


@pytest.mark.slow
def test_a_process_dies(library: Library, tmp_path: Path) -> None:
    place = library(plans.compiled(plans.mesh_allreduce(4)))
    world = start(4, until_lost, place, 1, tmp_path, environment=DEVICE)
    wait_until_joined(tmp_path, 4)
    time.sleep(0.5)
    pid = world.processes[VICTIM].pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    found = world.outcomes(timeout=30, silent=[VICTIM])
    for rank in {0, 2, 3}:
        assert isinstance(found[rank], Lost) and f"rank {VICTIM}" in found[rank].text


def open_things() -> tuple[int, int, int]:
    """Descriptors, threads, and mappings of shared memory of this process."""
    maps = Path("/proc/self/maps").read_text().count("memfd:hccc")
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), maps


def again_and_again(communicator: Communicator, place: Path) -> Any:
    communicator.destroy()
    before: Any = None
    for turn in range(3):
        c = loaded(Communicator.from_environment(), place)
        x = c.empty(COUNT, "int32")
        x[:] = c.rank + 1
        c.all_reduce(x)
        assert (x == 6).all()
        with pytest.raises(UserError):
            if c.rank == turn:
                time.sleep(0.1)
                c.abort()
            c.all_reduce(x)
        c.destroy()
        del x, c
        time.sleep(0.3)
        now = open_things()
        assert before in (None, now), (before, now)
        before = now if turn else None
        assert now[2] == 0
    return True


@pytest.mark.slow
def test_nothing_is_left_behind(sums: Path) -> None:
    found = start(3, again_and_again, sums, environment=DEVICE).outcomes()
    assert found == dict.fromkeys(range(3), True)


def one_call(communicator: Communicator) -> bool:
    return True


@pytest.mark.parametrize(
    ("environment", "of_one", "said"),
    [
        ({"HCCC_HEAP": "shared"}, {}, "HCCC_HEAP is neither host nor device"),
        (DEVICE, {"HCCC_HEAP": "host"}, "rank 1 has memory of host, rank 0 of cpu"),
        (
            {**DEVICE, "HCCC_PLATFORM": "cuda", "HCCC_CUDA_LIBRARY": "/no"},
            {},
            "not here: $HCCC_CUDA",
        ),
        ({**DEVICE, "HCCC_HANDLES": "fabric"}, {}, "memory of cpu 0 has: descriptor, legacy"),
        ({**DEVICE, "HCCC_HANDLES": "some"}, {}, "none of fabric, descriptor and legacy"),
        ({**DEVICE, "HCCC_SCRATCH_BYTES": "much"}, {}, "HCCC_SCRATCH_BYTES is not a number"),
    ],
)
def test_what_is_refused(environment: dict[str, str], of_one: dict[str, str], said: str) -> None:
    found = start(
        2, one_call, environment=environment, of_rank=lambda rank: of_one if rank == 1 else {}
    ).outcomes()
    assert all(isinstance(one, Lost) for one in found.values())
    assert any(said in one.text for one in found.values()), found
