"""The address space that communicators take, and scratch that grows with calls."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from hccc.ir.primitives import Transport
from hccc.runtime.communicator import Communicator
from tests.communicator.conftest import Library
from tests.communicator.world import loaded, run
from tests.emit import plans

TIB = 1 << 40


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
    assert mapped("hccc-arena") < 12 * 3 << 30
    for c in kept:
        for x in (c.empty(1000), np.empty(1000, np.float32)):
            x[:] = c.rank
            c.all_reduce(x)
            assert (x == 3).all()
        c.destroy()
    return True


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
def test_scratch_grows(library: Library) -> None:
    plan = plans.compiled(plans.ring_allreduce(2), transport=Transport.STAGED)
    assert run(2, grows, library(plan)) == [True] * 2


def open_things() -> tuple[int, int]:
    """Counts descriptors and threads of this process."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


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


def check_counts(found: Sequence[list[tuple[int, int]]], most_threads: int) -> None:
    """Checks what communicators of four ranks add, at every rank, and that it goes with them."""
    for rank, counts in enumerate(found):
        for before, there, after in (counts[:3], counts[2:]):
            assert there[0] - before[0] <= (7 if rank == 0 else 4), (rank, counts)
            assert there[1] - before[1] <= most_threads, (rank, counts)
            assert after[0] <= before[0] and after[1] <= before[1], (rank, counts)


def test_descriptors_and_threads_of_a_communicator() -> None:
    """Rank 0 has a connection to each other rank; what is of processes is there once."""
    check_counts(run(4, descriptors_and_threads), most_threads=1)
