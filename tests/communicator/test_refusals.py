"""Ranks that do different things at once: each is told of both, and the communicator goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hccc.runtime.communicator import Communicator, CommunicatorError
from hccc.runtime.communicator.communicator import Result
from tests.communicator.conftest import Library
from tests.communicator.test_hosts import apart, on_hosts
from tests.communicator.world import loaded, start
from tests.emit import plans
from tests.marks import slow

__all__ = ["apart"]
COUNT = 1_000
Act = Callable[[Communicator, Path], None]


def _sum(c: Communicator, place: Path) -> None:
    c.all_reduce(c.empty(COUNT, "int32"))


def _load(c: Communicator, place: Path) -> None:
    c.load(place, ["float32", "int32"], ["sum", "max"])


def _split(c: Communicator, place: Path) -> None:
    c.split(0)


ACTS: dict[str, Act] = {"sum": _sum, "load": _load, "split": _split}
SAID = {
    "sum": "calls Allreduce of",
    "load": "calls hcccCommLoad",
    "split": "calls hcccCommSplit",
}


def told(act: Callable[[], None]) -> str:
    """Returns the error of what is refused."""
    started = time.monotonic()
    with pytest.raises(CommunicatorError) as caught:
        act()
    assert caught.value.result is Result.INVALID_USAGE, caught.value.text
    assert time.monotonic() - started < 10  # not by the deadline, of 20 s
    return caught.value.text


def works(c: Communicator, turn: int) -> None:
    """Checks sums and messages of data that differ by rank and turn."""
    n, me = c.n_ranks, c.rank
    x = np.arange(COUNT, dtype=np.int32) * (me + 1) + turn
    c.all_reduce(x)
    assert (x == np.arange(COUNT) * (n * (n + 1) // 2) + turn * n).all(), turn
    assert c.error is Result.SUCCESS


def different(communicator: Communicator, place: Path, wrongs: list[tuple[str, str]]) -> list[str]:
    """Has one rank do what the others do not, time after time, and right things behind it."""
    c, texts = loaded(communicator, place), []
    for turn, (one, other) in enumerate(wrongs):
        mine = c.rank == turn % c.n_ranks
        texts.append(told(lambda: ACTS[one if mine else other](c, place)))  # noqa: B023
        works(c, turn)
        _load(c, place)
        half = c.split(c.rank % 2)
        assert half and half.n_ranks == (c.n_ranks + 1 - c.rank % 2) // 2
        half.destroy()
        works(c, turn + 100)
    return texts


WRONGS = [
    ("load", "sum"),
    ("sum", "load"),
    ("split", "sum"),
    ("sum", "split"),
    ("load", "split"),
    ("split", "load"),
]


@pytest.mark.parametrize("hosts", [1, slow(2)])
def test_a_rank_that_loads_or_splits(hosts: int, library: Library, apart: Path) -> None:
    place = apart if hosts == 2 else library(plans.compiled(plans.mesh_allreduce(4)))
    where = on_hosts if hosts == 2 else lambda rank: {}
    found = start(4, different, place, WRONGS, of_rank=where).outcomes()
    for rank, texts in found.items():
        for turn, (text, wrong) in enumerate(zip(texts, WRONGS, strict=True)):
            assert f"rank {turn % 4} {SAID[wrong[0]]}" in text, (rank, text)
            assert SAID[wrong[1]] in text, (rank, text)
