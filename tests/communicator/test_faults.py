"""Ranks that die, stall, leave or call something else: every other rank is told, and goes on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hccc.base.building.build import build_alone
from hccc.base.diagnostics import UserError
from hccc.runtime.communicator import Communicator, CommunicatorError
from hccc.runtime.communicator.communicator import Result
from hccc.runtime.communicator.rank import unique_id
from hccc.runtime.communicator.runtime_library import build
from tests.communicator.conftest import Library
from tests.communicator.world import Lost, loaded, start
from tests.emit import plans
from tests.marks import LONG, slow

COUNT, VICTIM, BEFORE = 50_000, 1, 5


def _die(c: Communicator, x: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _exit(c: Communicator, x: Any) -> None:
    os._exit(0)


def _leave(c: Communicator, x: Any) -> None:
    c.destroy()
    time.sleep(1)  # its process lives on


def _abort(c: Communicator, x: Any) -> None:
    c.abort()


def _stall(c: Communicator, x: Any) -> None:
    time.sleep(4)


def _sum(c: Communicator, x: Any) -> None:
    c.all_reduce(x)


def _nothing(c: Communicator, x: Any) -> None:
    c.all_reduce(x[:0])


def _other_count(c: Communicator, x: Any) -> None:
    c.all_reduce(x[:100])


def _other_operation(c: Communicator, x: Any) -> None:
    c.all_reduce(x, op="max")


def _other_type(c: Communicator, x: Any) -> None:
    c.all_reduce(x.view(np.int32))


# (the victim's action, the others' result, text of their error)
WRONGS: dict[str, tuple[Callable[[Communicator, Any], None], Result, str]] = {
    "die": (_die, Result.REMOTE_ERROR, "rank 1 is gone"),
    "exit": (_exit, Result.REMOTE_ERROR, "rank 1 is gone"),
    "leave": (_leave, Result.INVALID_USAGE, "rank 1 has left the communicator"),
    "abort": (_abort, Result.ABORTED, "rank 1 has aborted"),
    "stall": (
        _stall,
        Result.TIMEOUT,
        "timed out after 2 s: rank 1 has not started the call: "
        "its last was Allreduce of 50000 float32 (sum) in place",
    ),
}
SILENT = {"die", "exit"}


def wrong_once(communicator: Communicator, place: Path, how: str) -> Any:
    """Makes a few right calls, then a wrong call at one rank."""
    c = loaded(communicator, place)
    c.set_timeout(2)
    x = c.empty(COUNT)
    for _ in range(BEFORE):
        c.all_reduce(x)
    started = time.monotonic()
    try:
        if c.rank == VICTIM:
            WRONGS[how][0](c, x)
            return None
        c.all_reduce(x)
    except CommunicatorError as error:
        with pytest.raises(CommunicatorError) as again:
            c.all_reduce(x)
        assert again.value.result is error.result and c.error is error.result
        return Lost(error.result, error.text, time.monotonic() - started)
    raise AssertionError("nobody was told")


QUICK = {"die"}


@pytest.mark.slow
@pytest.mark.parametrize("how", [how if how in QUICK else slow(how) for how in WRONGS])
def test_every_rank_is_told(sums: Path, how: str) -> None:
    silent = [VICTIM] if how in SILENT else []
    found = start(3, wrong_once, sums, how).outcomes(silent=silent)
    for rank in (0, 2):
        lost = found[rank]
        assert isinstance(lost, Lost)
        assert lost.result is WRONGS[how][1] and WRONGS[how][2] in lost.text, lost.text
        # Others may notice a death before they make the call, or in the one before.
        early = how in {"abort", *SILENT} and f"call {BEFORE + 1}" in lost.text
        assert f"call {BEFORE + 2}" in lost.text or early, lost.text
        assert lost.seconds < 4


OTHERS = {_other_count: "of 100 float32", _other_operation: "float32 (max)", _other_type: "int32"}


def other_calls(communicator: Communicator, place: Path) -> list[str]:
    """Makes another call at one rank, several times, and a right one behind each."""
    c = loaded(communicator, place)
    x = c.empty(COUNT)
    texts = []
    for other in (*OTHERS, _nothing):
        with pytest.raises(CommunicatorError) as caught:
            (other if c.rank == VICTIM else _sum)(c, x)
        assert c.error is Result.SUCCESS and caught.value.result is Result.INVALID_USAGE
        texts.append(caught.value.text)
        x[:] = c.rank
        c.all_reduce(x)
        assert (x == 3).all()
    return texts


@pytest.mark.slow
def test_another_call_at_one_rank_costs_nothing(sums: Path) -> None:
    found = start(3, other_calls, sums).outcomes()
    assert found[0] == found[1] == found[2]
    for text, said in zip(found[0], (*OTHERS.values(), "of 0 float32"), strict=True):
        assert said in text and "rank 1 calls" in text, text


def test_a_rank_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCCC_TIMEOUT", "0.3")
    with pytest.raises(CommunicatorError, match="timed out: rank 1 of 2 did not come") as error:
        Communicator.join(unique_id(), 2, 0)
    assert error.value.result is Result.TIMEOUT


def without_room(communicator: Communicator, place: Path) -> Any:
    """Makes a call with memory that has to be copied, and no room for the copy at one rank."""
    c = loaded(communicator, place)
    started = time.monotonic()
    with pytest.raises(CommunicatorError) as caught:
        c.all_reduce(np.zeros(200_000, np.float32))
    seconds = time.monotonic() - started
    time.sleep(1 if c.rank == VICTIM else 0)  # its end is not what the others are told
    assert c.error is caught.value.result
    return Lost(caught.value.result, caught.value.text, seconds)


@pytest.mark.slow
def test_no_room_at_one_rank_is_told_to_all(sums: Path) -> None:
    world = start(
        3,
        without_room,
        sums,
        of_rank=lambda rank: {"HCCC_HEAP_BYTES": str(1 << 18)} if rank == VICTIM else {},
    )
    for lost in world.outcomes().values():
        assert lost.result is Result.SYSTEM_ERROR and lost.seconds < 10
        assert "no room for" in lost.text and "HCCC_HEAP_BYTES" in lost.text, lost.text


THREADS = """
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
static int left;  // threads that can still be started; 0: any number
extern "C" void only(int threads) { left = threads + 1; }
extern "C" int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *x) {
  if (left == 1) return EAGAIN;
  if (left) --left;
  return ((decltype(&pthread_create))dlsym(RTLD_NEXT, "pthread_create"))(t, a, f, x);
}
"""
WITHOUT_THREADS = """
import ctypes, os, signal
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from hccc.runtime.communicator import Communicator, CommunicatorError, unique_id
def state():
    return signal.pthread_sigmask(signal.SIG_BLOCK, []), len(os.listdir("/proc/self/fd"))
def join(rank):
    try:
        Communicator.join(id, 2, rank).destroy()
    except CommunicatorError as error:
        return error.result.name, error.text
only = ctypes.CDLL(os.environ["LD_PRELOAD"]).only
Communicator.join(unique_id(), 1, 0).destroy()
before, id, all_there = state(), unique_id(), Barrier(2)
with ThreadPoolExecutor(2) as pool:
    list(pool.map(lambda _: all_there.wait(), range(2)))  # both threads of the pool are started
    only(1)  # rank 0's hub
    print(*list(pool.map(join, range(2)))[1])
only(-1)
Communicator.join(unique_id(), 1, 0).destroy()
print(state() == before)
"""


def test_a_monitor_that_cannot_be_started(tmp_path: Path) -> None:
    """The thread's signals are as before, and nothing stays open."""
    build()
    source = tmp_path / "threads.cpp"
    source.write_text(THREADS)
    preload = build_alone(source, ["-O1", "-fno-strict-aliasing"])
    environment = {**os.environ, "LD_PRELOAD": str(preload)}
    command = [sys.executable, "-c", WITHOUT_THREADS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    told, same = done.stdout.splitlines()
    assert told.startswith("SYSTEM_ERROR no thread for the monitor"), done
    assert same == "True"


def no_word(communicator: Communicator) -> None:
    """Does nothing; not reached, as one rank cannot make its communicator."""


def test_why_a_rank_gives_up(sums: Path) -> None:
    """The others' errors have its reason, not only that it has left."""
    wrong = {1: {"HCCC_HEAP_BYTES": "many"}}
    found = start(3, no_word, of_rank=lambda rank: wrong.get(rank, {})).outcomes()
    for rank in (0, 2):
        assert "rank 1 gave up: HCCC_HEAP_BYTES is not a number of bytes" in found[rank].text


def open_things() -> tuple[int, int, int]:
    """Descriptors, threads, and mappings of shared memory of this process."""
    maps = Path("/proc/self/maps").read_text().count("memfd:hccc")
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), maps


def again_and_again(communicator: Communicator, place: Path) -> Any:
    """Loses the communicator and makes it anew, time after time, in the same processes."""
    communicator.destroy()
    before: Any = None
    for turn in range(4):
        c = loaded(Communicator.from_environment(), place)
        x = c.empty(COUNT)
        x[:] = c.rank + 1
        c.all_reduce(x)
        assert (x == 6).all()
        with pytest.raises(UserError):
            if c.rank == turn % 3:
                time.sleep(0.1)  # until the others are through with the call before
                c.abort()
            c.all_reduce(x)
        c.destroy()
        del x, c
        time.sleep(0.3)  # threads that end with others
        now = open_things()
        assert before in (None, now), (before, now)
        before = now if turn else None
        assert now[2] == 0
    return True


@pytest.mark.slow
def test_nothing_is_left_behind(sums: Path) -> None:
    found = start(3, again_and_again, sums).outcomes()
    assert set(found.values()) == {True}


def until_lost(communicator: Communicator, place: Path, seed: int, joined: Path) -> Any:
    """Makes calls of random sizes until a rank is lost; no result is wrong before. joined: a
    directory with a file for each rank that may be struck."""
    c, n = loaded(communicator, place), communicator.n_ranks
    c.set_timeout(2)
    (joined / str(c.rank)).touch()
    x = c.empty(1 << 18, "int32")
    own = random.Random(seed)
    for call in range(1_000_000):
        count = own.choice([1, 100, 5_000, 1 << 18])
        x[:count] = c.rank + call
        started = time.monotonic()
        try:
            c.all_reduce(x[:count])
        except CommunicatorError as error:
            return Lost(error.result, error.text, time.monotonic() - started)
        assert (x[:count] == n * call + n * (n - 1) // 2).all()
    return None


def wait_until_joined(joined: Path, n: int) -> None:
    """Returns once n ranks have a file in `joined`, or after a minute."""
    until = time.monotonic() + 60
    while len(os.listdir(joined)) < n and time.monotonic() < until:
        time.sleep(0.01)


def stricken(library: Library, joined: Path, seed: int, kind: signal.Signals) -> None:
    """Kills or stops one rank some time after all have met; checks that all others report it."""
    chance = random.Random(seed)
    n = chance.choice([2, 3, 4, 8]) if seed else 3
    place = library(plans.compiled(plans.mesh_allreduce(n)))
    victim = chance.randrange(n)
    world = start(n, until_lost, place, seed, joined, environment={"HCCC_TIMEOUT": "60"})
    wait_until_joined(joined, n)
    time.sleep(chance.uniform(0, 1.2))
    pid = world.processes[victim].pid
    assert pid
    os.kill(pid, kind)
    found = world.outcomes(timeout=30, silent=[victim])
    for rank in set(range(n)) - {victim}:
        lost = found[rank]
        assert isinstance(lost, Lost), (seed, rank, lost)
        assert f"rank {victim}" in lost.text, (seed, lost.text)
        assert lost.seconds < 2 + 2, (seed, lost)


@pytest.mark.parametrize("kind", [signal.SIGKILL, slow(signal.SIGSTOP)], ids=lambda kind: kind.name)
@pytest.mark.parametrize("seed", [0, *map(slow, range(1, 5 * LONG))])
def test_a_process_dies_or_stops(
    library: Library, tmp_path: Path, seed: int, kind: signal.Signals
) -> None:
    stricken(library, tmp_path, seed, kind)
