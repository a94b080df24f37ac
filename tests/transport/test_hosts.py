"""Hosts made of network namespaces, with lines of 1 and 10 Gbit/s."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

import benchmarks.namespaces as namespaces
from tests.transport.conftest import SIZE, opened
from tests.transport.ends import LINE, EndProcess, Message

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def possible(ucx: None) -> None:
    """Skips where there are no namespaces."""
    if namespaces.missing():
        pytest.skip(namespaces.missing())


@pytest.fixture(params=[(2, "1gbit"), (2, "10gbit"), (4, "1gbit"), (4, "10gbit")], ids=str)
def ranks(request: pytest.FixtureRequest) -> Iterator[list[EndProcess]]:
    """Yields a rank on each of n hosts."""
    n, rate = request.param
    environment = {**os.environ, "HCCC_NETWORK": namespaces.DEVICE}
    with namespaces.hosts(n, rate) as hosts:
        processes = opened([EndProcess(environment, host.before()) for host in hosts])
        yield processes
        assert [process.end() for process in processes] == [0] * n


def parted(peers: int, peer: int, seed: int) -> list[Message]:
    """Messages of all sizes from one of so many peers, into its part of the window."""
    chance = random.Random(seed * 100 + peer)
    room = SIZE // peers
    place, messages = peer * room, []
    for i in range(1, 25):
        size = chance.choice([0, 5, 4000, 70_000, chance.randrange(1 << 20)])
        if place + size > (peer + 1) * room:
            break
        tb = chance.randrange(-1, 3)
        counter = LINE * (8 * peer + tb + 2) if chance.random() < 0.6 else -1
        messages.append(Message(seed * 1000 + i, place, size, tb, 0, counter, i))
        place += size
    return [*messages, Message(0, place, 0, -1, 0, LINE * (8 * peer), 100)]


def test_all_send_to_all(ranks: list[EndProcess]) -> None:
    n = len(ranks)
    for seed in range(3):
        for process in ranks:
            process.call("clear")
        for source, target in permutations(range(n), 2):
            ranks[source].tell("send", target, parted(n, source, seed))
        for source, _ in permutations(range(n), 2):
            ranks[source].answer()
        for target in range(n):
            for source in range(n):
                if source != target:
                    ranks[target].tell("expect", parted(n, source, seed))
        for target in range(n):
            assert [ranks[target].answer() for _ in range(n - 1)] == [[]] * (n - 1)
    assert all(process.call("failed") == [] for process in ranks)


def test_a_line_that_is_cut_is_told_at_the_deadline() -> None:
    environment = {**os.environ, "HCCC_NETWORK": namespaces.DEVICE}
    with namespaces.hosts(2, "1gbit") as hosts:
        a, b = opened([EndProcess(environment, host.before()) for host in hosts], timeout_s=0.5)
        cut = ["ip", "-n", hosts[0].namespace, "link", "set", namespaces.DEVICE, "down"]
        subprocess.run(cut, check=True)
        a.call("send", 1, [Message(0, 0, 1 << 20, 0, 0, LINE, 1)])
        assert a.call("failed", True) == [[1, "rank 1: it has taken nothing for 0.5 s"]]
        assert [a.end(), b.end()] == [0, 0]


def test_no_namespace_is_left() -> None:
    def left() -> str:
        return subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout

    with pytest.raises(KeyError), namespaces.hosts(4, "1gbit") as hosts:
        assert hosts[3].namespace in left()
        raise KeyError
    assert hosts[3].namespace not in left()


def test_the_benchmark_runs() -> None:
    command = [sys.executable, "-m", "benchmarks.transport", "--json"]
    command += ["--rates", "10", "--sizes", "64K,1M", "--iters", "3"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120, cwd=ROOT
    )
    rows = json.loads(done.stdout)["rows"]
    assert [row["size"] for row in rows] == [1 << 16, 1 << 20]
    assert all(0 < row["share"] < 5 for row in rows)
