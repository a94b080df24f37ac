"""The address space that communicators take, and scratch that grows with calls."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hccc.ir.primitives import Transport
from hccc.runtime.communicator import Communicator
from tests.communicator.conftest import Library
from tests.communicator.world import loaded, run
from tests.emit import plans

TIB = 1 << 40
Array = NDArray[np.int32]


def mapped(name: str) -> int:
    """Returns the bytes of this process's mappings of a kind of file."""
    ranges = [
        line.split()[0].split("-")
        for line in Path("/proc/self/maps").read_text().splitlines()
        if f"memfd:{name}" in line
    ]
    return sum(int(end, 16) - int(begin, 16) for begin, end in ranges)


def many(communicator: Communicator, place: Path) -> bool:
    """Makes a dozen communicators of heaps that together nearly fill the address space."""
    heaps = mapped("hccc-heap")
    kept = [loaded(communicator, place)]
    for _ in range(11):
        kept.append(loaded(Communicator.from_environment(), place))
    assert mapped("hccc-heap") == heaps  # once, for all of them
    assert mapped("hccc-arena") < 12 * 3 * 4 << 20
    for c in kept:
        for x in (c.empty(1000), np.empty(1000, np.float32)):
            x[:] = c.rank
            c.all_reduce(x)
            assert (x == 3).all()
        c.destroy()
    return True


@pytest.mark.slow
def test_a_dozen_communicators_of_a_large_host(sums: Path) -> None:
    """Each rank has 20 TiB: mapped by every communicator, that is more than addresses there are."""
    assert run(3, many, sums, environment={"HCCC_HEAP_BYTES": str(20 * TIB)}) == [True] * 3


def grows(communicator: Communicator, place: Path) -> bool:
    """Makes calls with ever larger micro-batches, whose slots in queues are in scratch."""
    c = loaded(communicator, place)
    first, count = mapped("hccc-arena"), 1_000_003
    for micro in (1 << 10, 1 << 16, 1 << 20, 1 << 22, 1 << 10):
        c.set_cut(micro)
        x = c.empty(count, "int32")
        x[:] = np.arange(count) + c.rank
        c.all_reduce(x)
        assert np.array_equal(x, 2 * np.arange(count) + 1)
    assert mapped("hccc-arena") > first + 2 * (1 << 20)
    return True


@pytest.mark.slow
def test_scratch_grows(staged: Path) -> None:
    assert run(2, grows, staged) == [True] * 2


def open_things() -> tuple[int, int]:
    """Counts descriptors and threads of this process."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def resident(name: str) -> int:
    """Returns the bytes that are there of this process's mappings of a kind of file."""
    found, of_it = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line[0] not in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
            of_it = f"memfd:{name}" in line
        elif of_it and line.startswith("Rss:"):
            found += 1024 * int(line.split()[1])
    return found


def some(c: Communicator, call: int, count: int = 1_000_003) -> Array:
    """Makes an array that differs by rank, element and call."""
    x: Array = c.empty(count, "int32")
    x[:] = np.arange(count) * (call + 1) + 1000 * c.rank
    return x


def summed(x: Array, call: int) -> bool:
    """Returns whether an array of `some` is the sum of both ranks'."""
    return np.array_equal(x, 2 * np.arange(len(x), dtype=np.int32) * (call + 1) + 1000)


def by_turns(communicator: Communicator, place: Path) -> list[int]:
    """Returns what is there of arenas after a call of each of a few communicators of two ranks."""
    found, kept = [], []
    for call in range(5):
        c = communicator.split(0)
        assert c is not None
        kept.append(loaded(c, place))
        c.set_cut(1 << 22)
        x = some(c, call)
        c.all_reduce(x)
        assert summed(x, call)
        found.append(resident("hccc-arena"))
    return found


def at_once(communicator: Communicator, place: Path) -> bool:
    """Lets a call of a row wait, in a thread, while one of a column runs; then many of both."""
    row, column = (
        communicator.split(communicator.rank // 2),
        communicator.split(communicator.rank % 2),
    )
    assert row is not None and column is not None
    loaded(row, place)
    loaded(column, place)
    wrong: list[str] = []

    def calls(c: Communicator, first: int, n: int) -> None:
        for call in range(first, first + n):
            c.set_cut((1 << 14) << call % 5)
            x = some(c, call, 100_003 + 17 * call)
            c.all_reduce(x)
            if not summed(x, call):
                wrong.append(f"call {call}")

    waits = threading.Thread(target=calls, args=(row, 0, 1))
    if communicator.rank in (0, 3):  # the others come when their columns' calls are done
        waits.start()
        time.sleep(0.2)
    calls(column, 1, 1)
    if communicator.rank in (1, 2):
        waits.start()
    waits.join()
    both = [threading.Thread(target=calls, args=(c, 2, 20)) for c in (row, column)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert not wrong
    return True


@pytest.fixture(scope="module")
def staged(library: Library) -> Path:
    """Builds an AllReduce of two ranks whose messages lie in scratch."""
    return library(plans.compiled(plans.ring_allreduce(2), transport=Transport.STAGED))


@pytest.mark.slow
def test_communicators_of_split_share_scratch(staged: Path) -> None:
    for found in run(2, by_turns, staged):
        assert found[0] > 6 << 20  # of two ranks
        assert found[-1] < found[0] + (2 << 20), found


@pytest.mark.slow
def test_calls_of_communicators_of_split_at_once(staged: Path) -> None:
    assert run(4, at_once, staged) == [True] * 4


def descriptors_and_threads(communicator: Communicator) -> list[tuple[int, int]]:
    """Counts descriptors and threads before, in and after each of two more communicators."""

    def count() -> tuple[int, int]:
        communicator.split(None)  # all ranks have come here
        found = []
        for _ in range(10):  # the thread of a rendezvous ends a little later
            found.append(open_things())
            time.sleep(0.02)
        return min(fd for fd, _ in found), min(threads for _, threads in found)

    counts = [count()]
    for _ in range(2):
        made = communicator.split(0)
        assert made is not None
        counts.append(count())
        made.destroy()
        counts.append(count())
    return counts


def check_counts(
    found: Sequence[list[tuple[int, int]]], most_threads: int, most_descriptors: int | None = 4
) -> None:
    """Checks what communicators of four ranks add, at every rank, and that it goes with them.

    most_descriptors: at rank 0 three more; None: any number.
    """
    for rank, counts in enumerate(found):
        for before, there, after in (counts[:3], counts[2:]):
            if most_descriptors:
                most = most_descriptors + 3 * (rank == 0)
                assert there[0] - before[0] <= most, (rank, counts)
            assert there[1] - before[1] <= most_threads, (rank, counts)
            assert after[0] <= before[0] and after[1] <= before[1], (rank, counts)


@pytest.mark.slow
def test_descriptors_and_threads_of_a_communicator() -> None:
    """Rank 0 has a connection to each other rank; what is of processes is there once."""
    check_counts(run(4, descriptors_and_threads), most_threads=1)
