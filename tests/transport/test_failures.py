"""Peers that die, stop or leave; wrong descriptors; leaks afterwards."""

from __future__ import annotations

import os
import random
import signal
import time
from itertools import permutations, product
from pathlib import Path

import pytest

from hccc.base.diagnostics import UserError
from tests.marks import LONG
from tests.transport.conftest import TURN, made
from tests.transport.ends import LINE, End, EndProcess, Message, joined

LARGE = 8 << 20


def message(tb: int, size: int, value: int) -> Message:
    """Makes a message of a block."""
    return Message(tb, tb * LARGE, size, tb, 0, LINE * (tb + 1), value)


def carried(source: EndProcess, target: EndProcess, peer: int, tb: int, value: int) -> None:
    """Checks that a message arrives."""
    one = message(tb, 1000, value)
    source.call("send", peer, [one])
    assert target.call("expect", [one]) == []


@pytest.mark.parametrize("layers", ["tcp,self", "shm,tcp,self"])
def test_the_death_of_a_peer_is_told_and_others_go_on(ucx: None, layers: str) -> None:
    a, b, c = made(3, layers)
    carried(a, b, 1, 0, 1)
    c.kill()
    a.call("send", 2, [message(1, LARGE, 1)])
    for process in (a, b):  # b has never sent anything
        ((rank, text),) = process.call("failed", True)
        assert rank == 2
        assert text.startswith("rank 2: ")
    carried(a, b, 1, 0, 2)
    a.call("completed", TURN + 3)  # transfers to the dead rank are complete too
    assert [a.end(), b.end()] == [0, 0]


def test_a_peer_that_takes_nothing_has_failed_at_the_deadline(ucx: None) -> None:
    a, b = made(2, timeout_s=0.3)
    b.process.send_signal(signal.SIGSTOP)
    a.call("send", 1, [message(0, LARGE, 1)])
    assert a.call("failed", True) == [[1, "rank 1: it has taken nothing for 0.3 s"]]
    assert a.end() == 0
    b.process.send_signal(signal.SIGCONT)
    assert b.end() == 0


def test_who_does_not_answer_is_named(ucx: None) -> None:
    ends = [End(rank, 3, 4096, network="lo") for rank in range(3)]
    for rank, end in enumerate(ends):
        for peer, other in enumerate(ends):
            if rank != peer:
                end.connect(peer, other.blob())
    with pytest.raises(UserError, match="it is not started"):
        ends[0].ready()
    ends[0].start()
    ends[1].start()
    for end in ends[:2]:
        with pytest.raises(UserError, match="rank 2 does not answer"):
            end.ready(0.1)
    ends[2].start()
    for end in ends:
        end.ready()
    for end in ends:
        end.close()


@pytest.mark.slow
def test_stopping_ends_beside_a_peer_that_hangs(ucx: None) -> None:
    a, b = made(2)
    b.process.send_signal(signal.SIGSTOP)
    a.call("send", 1, [message(0, LARGE, 1)])
    begin = time.monotonic()
    assert a.end() == 0
    assert time.monotonic() - begin < 20
    b.process.send_signal(signal.SIGCONT)
    assert b.end() == 0


def test_who_leaves_has_not_failed(ucx: None) -> None:
    with joined() as (a, b):
        last = list(message(0, 1000, 1))
        b.send(0, [last])
        b.completed(1)
        b.close()
        assert a.expect([last]) == []
        time.sleep(0.1)
        assert a.failures == []
        a.send(1, [last])
        assert a.failed(True) == [(1, "rank 1: it has left, and there is a transfer for it")]


WRONG = {
    "no such rank": {"peer": 9},
    "itself": {"peer": 0},
    "no such source": {"peer": 1, "source_window": 40, "target_window": 3, "bytes": 4},
    "no such target": {"peer": 1, "source_window": 2, "target_window": 40, "bytes": 4},
    "before it": {"peer": 1, "source_window": 2, "target_window": 3, "source": -1, "bytes": 4},
    "behind it": {
        "peer": 1,
        "source_window": 2,
        "target_window": 3,
        "target": 2**63 - 1,
        "bytes": 2,
    },
    "negative": {"peer": 1, "source_window": 2, "target_window": 3, "bytes": -1},
    "no such counter": {"peer": 1, "counter": 1 << 40},
    "counter askew": {"peer": 1, "counter": 2},
}


def test_wrong_descriptors_are_told_once_and_touch_nothing(ucx: None) -> None:
    with joined() as (a, b):
        for fields in WRONG.values():
            a.submit(**fields)
        a.completed(len(WRONG))
        assert a.failed(True) == [(0, "a transfer is for rank 9, which is none")]
        one = list(message(0, 1000, 1))
        a.send(1, [one])
        assert b.expect([one]) == []
        assert b.statistics()["received_transfers"] == 1


@pytest.mark.parametrize("kind", [kind for kind in WRONG if kind != "no such rank"])
def test_each_wrong_descriptor_is_told(ucx: None, kind: str) -> None:
    with joined() as (a, b):
        a.submit(**WRONG[kind])
        ((rank, text),) = a.failed(True)
        assert rank == 0
        assert "a transfer" in text
        assert b.failures == []


def held() -> tuple[int, int, int]:
    """Returns the numbers of threads, descriptors and shared mappings of this process."""
    maps = Path("/proc/self/maps").read_text()
    return (
        len(os.listdir("/proc/self/task")),
        len(os.listdir("/proc/self/fd")),
        maps.count(" rw-s "),
    )


def test_nothing_is_left(ucx: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_TLS", "shm,tcp,self")
    seen = []
    for value in range(1, 4):
        with joined() as (a, b):
            one = message(0, 1 << 20, value)
            a.send(1, [list(one)])
            assert b.expect([list(one)]) == []
        seen.append(held())
    assert seen[1] == seen[2]


def mixture(source: int, value: int) -> list[Message]:
    """Messages of several blocks from a rank, into its part of the window."""
    sizes = (10, 5_000, 90_000, 800_000)
    return [
        Message(
            value + k,
            source * (4 << 20) + (k << 20),
            size,
            k - 1,
            0,
            LINE * (4 * source + k),
            value,
        )
        for k, size in enumerate(sizes)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12 * LONG))
def test_whoever_dies_at_any_moment_the_others_name_it_and_go_on(ucx: None, seed: int) -> None:
    chance = random.Random(seed)
    n = chance.randint(2, 4)
    processes = made(n)
    for (i, source), j in product(enumerate(processes), range(n)):
        if i != j:
            source.tell("send", j, mixture(i, 1))
    time.sleep(chance.random() * 0.02)
    dead = chance.randrange(n)
    processes[dead].kill()
    alive = [rank for rank in range(n) if rank != dead]
    for rank in alive:
        for _ in range(n - 1):
            processes[rank].answer()
        ((named, _),) = processes[rank].call("failed", True)
        assert named == dead
    for rank, peer in permutations(alive, 2):
        assert processes[peer].call("expect", mixture(rank, 1)) == []
    assert [processes[rank].end() for rank in alive] == [0] * len(alive)
