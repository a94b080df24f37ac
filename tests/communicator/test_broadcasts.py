"""Short Broadcasts, whose root goes on before the others have come: results, how far it goes, and
what ranks are told that call something else, leave or die."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from hccc.runtime.communicator import Communicator, CommunicatorError
from hccc.runtime.communicator.communicator import Result
from tests.communicator.test_faults import wait_until_joined
from tests.communicator.test_moved_calls import logged
from tests.communicator.world import Lost, await_marks, mark, run, start

pytestmark = pytest.mark.slow  # standard libraries are made
N, VICTIM = 3, 1
AHEAD = 32  # calls
MOST = 16 << 10  # bytes of a call that is not agreed on
DEADLINE_S = 2.0
MADE = {"HCCC_STANDARD": "1", "HCCC_TIMEOUT": "300", "HCCC_PROGRESS": "off"}
Act = Callable[[Communicator], object]


def sent(turn: int, root: int, n: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return ((np.arange(n) * 7 + turn * 31 + root) % 251).astype(np.uint8)


def spreads(c: Communicator, turn: int, root: int, n: int) -> None:
    """Checks a Broadcast of n bytes, and that none beside them is written."""
    wanted = sent(turn, root, n)
    memory = np.full(n + 128, 253, np.uint8)
    own = memory[64:][:n]
    if c.rank == root:
        own[:] = wanted
    c.broadcast(own, root)
    assert (own == wanted).all(), (turn, root, n)
    assert (memory[:64] == 253).all() and (memory[64 + n :] == 253).all()


def of_any_root(c: Communicator, seed: int, turns: int) -> bool:
    """Makes Broadcasts of many lengths and all roots, and sums in between; some ranks are late."""
    random, own = Random(seed), Random(seed + c.rank)
    lengths = (1, 40, 48, 49, 1000, 8191, 8192, 8193, MOST - 1, MOST, MOST + 1, 70_000, 700_000)
    for turn in range(turns):
        root, n, times = random.randrange(c.n_ranks), random.choice(lengths), random.randint(1, 50)
        for k in range(times if n <= MOST else 1):
            if own.random() < 0.02:
                time.sleep(0.002)
            spreads(c, turn + k, root, n)
        if random.random() < 0.2:
            x = np.full(5, c.rank, np.int32)
            c.all_reduce(x)
            assert (x == sum(range(c.n_ranks))).all()
    return True


def test_results(tmp_path: Path) -> None:
    found = start(N, of_any_root, 1, 150, environment=logged(tmp_path)).outcomes(timeout=300)
    assert found == dict.fromkeys(range(N), True)


def test_results_of_ranks_that_share_cores(tmp_path: Path) -> None:
    """Longer ones go through the ring, too."""
    crowded = {**logged(tmp_path), "HCCC_CPU_WORKERS": "64"}
    found = start(N, of_any_root, 2, 100, environment=crowded).outcomes(timeout=300)
    assert found == dict.fromkeys(range(N), True)
    told = [log.read_text() for log in tmp_path.iterdir()]
    assert len(told) == N and all("goes through its root's ring" in one for one in told)
    assert not any("sent as messages" in one for one in told)


def first_calls(c: Communicator) -> None:
    """Makes the libraries."""
    c.broadcast(np.zeros(1, np.uint8), 0)
    c.all_reduce(np.zeros(1, np.int32))


def goes_on(c: Communicator) -> bool:
    first_calls(c)
    if c.rank == 0:
        for turn in range(AHEAD):
            spreads(c, turn, 0, 9)
        mark(0)
    else:
        await_marks([0])
        for turn in range(AHEAD):
            spreads(c, turn, 0, 9)
    spreads(c, 0, 2, 9)
    return True


def test_a_root_goes_on_before_the_others_have_come() -> None:
    assert run(N, goes_on, environment=MADE) == [True] * N


def waits(c: Communicator) -> tuple[int, Result, str]:
    first_calls(c)
    c.set_timeout(1)
    if c.rank == VICTIM:
        await_marks([0, 2], 30)
    for call in range(1000):
        try:
            c.broadcast(np.zeros(1, np.uint8), 2 if call == AHEAD // 2 else 0)
        except CommunicatorError as error:
            mark(c.rank)
            return call, error.result, error.text
    raise AssertionError("nothing failed")


def test_nobody_is_further_ahead_than_the_ring_has_pieces() -> None:
    """Also where ranks take turns as roots, of which each has a ring."""
    found = run(N, waits, environment=MADE)
    assert [call for call, _, _ in found] == [AHEAD, 0, AHEAD]
    for _, result, text in found:
        assert result is Result.TIMEOUT and f"rank {VICTIM}" in text, text


def short(c: Communicator) -> None:
    c.broadcast(np.zeros(5, np.int32), 0)


OTHERS: dict[str, Act] = {
    "Allreduce of 5 int32": lambda c: c.all_reduce(np.zeros(5, np.int32)),
    "Broadcast of 6 int32": lambda c: c.broadcast(np.zeros(6, np.int32), 0),
    "Broadcast of 5 float32": lambda c: c.broadcast(np.zeros(5, np.float32), 0),
    "root 2": lambda c: c.broadcast(np.zeros(5, np.int32), 2),
    "Broadcast of 0 int32": lambda c: c.broadcast(np.zeros(0, np.int32), 0),
    "Broadcast of 20000 int32": lambda c: c.broadcast(np.zeros(20_000, np.int32), 0),
    "hcccCommSplit": lambda c: c.split(0),
}


def differs(c: Communicator) -> list[str]:
    """Calls something else at one rank, after the others, and right things behind it. Returns what
    each was told."""
    first_calls(c)
    texts = []
    for k, other in enumerate(OTHERS.values()):
        for turn in range(40):
            spreads(c, turn, k % c.n_ranks, 20)
        with pytest.raises(CommunicatorError) as caught:
            if c.rank == VICTIM:
                time.sleep(0.02)  # others have gone on by then
                other(c)
            for _ in range(AHEAD + 1):
                short(c)
        assert c.error is Result.SUCCESS and caught.value.result is Result.INVALID_USAGE
        texts.append(caught.value.text)
        for turn in range(40):
            spreads(c, turn, k % c.n_ranks, 20)
        c.all_reduce(np.zeros(1, np.int32))
    return texts


def test_calls_that_differ_are_told_at_every_rank() -> None:
    found = start(N, differs, environment=MADE).outcomes(timeout=300)
    assert found[0] == found[1] == found[2]
    for text, said in zip(found[0], OTHERS, strict=True):
        assert f"rank {VICTIM} calls" in text and said in text, text
        assert "Broadcast of 5 int32 with root 0" in text, text


def leaves(c: Communicator) -> str:
    first_calls(c)
    if c.rank == 0:
        for turn in range(5):
            spreads(c, turn, 0, 3000)
        c.destroy()
        mark(0)
        return ""
    await_marks([0])
    for turn in range(5):
        spreads(c, turn, 0, 3000)
    with pytest.raises(CommunicatorError) as caught:
        spreads(c, 5, 0, 3000)
    return caught.value.text


def test_what_a_root_sent_before_it_left_arrives() -> None:
    found = run(N, leaves, environment=MADE)
    assert all("rank 0 has left the communicator" in text for text in found[1:])


def until_lost(c: Communicator, joined: Path) -> Lost:
    first_calls(c)
    c.set_timeout(DEADLINE_S)
    (joined / str(c.rank)).touch()
    while True:
        started = time.monotonic()
        try:
            spreads(c, 1, 0, 5000)
        except CommunicatorError as error:
            return Lost(error.result, error.text, time.monotonic() - started)


@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_that_is_killed(victim: int, tmp_path: Path) -> None:
    world = start(N, until_lost, tmp_path, environment=MADE)
    wait_until_joined(tmp_path, N)
    time.sleep(0.2)
    os.kill(world.processes[victim].pid or 0, signal.SIGKILL)
    found = world.outcomes(timeout=60, silent=[victim])
    assert len(found) == N - 1
    for lost in found.values():
        assert isinstance(lost, Lost) and f"rank {victim}" in lost.text, lost
        assert lost.seconds < DEADLINE_S + 2, lost
