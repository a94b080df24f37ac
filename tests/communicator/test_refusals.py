"""Ranks that do different things at once: each is told of both, and the communicator goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from random import Random

import numpy as np
import pytest

from hccc.runtime.communicator import Communicator, CommunicatorError, group
from hccc.runtime.communicator.communicator import Result
from tests.communicator.conftest import Library
from tests.communicator.test_hosts import apart, on_hosts
from tests.communicator.world import loaded, start
from tests.emit import plans
from tests.marks import LONG, slow

__all__ = ["apart"]
COUNT, WAITS = 1_000, 50_000  # elements; a message of so many waits for its receiver
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
    assert time.monotonic() - started < 10  # not by the deadline, of 50 s
    return caught.value.text


def works(c: Communicator, turn: int) -> None:
    """Checks sums and messages of data that differ by rank and turn."""
    n, me = c.n_ranks, c.rank
    for count in (3, WAITS):
        y, got = np.arange(count, dtype=np.int32) + 1000 * me + turn, np.empty(count, np.int32)
        with group():
            c.send(y, (me + 1) % n)
            c.recv(got, (me - 1) % n)
        assert (got == np.arange(count) + 1000 * ((me - 1) % n) + turn).all(), (turn, count)
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


def placed(
    n: int, hosts: int, library: Library, request: pytest.FixtureRequest
) -> tuple[Path, Callable[[int], dict[str, str]]]:
    """Returns an AllReduce of ranks on 1 or 2 hosts, and their environments."""
    if hosts == 2:
        return request.getfixturevalue("apart"), on_hosts
    return library(plans.compiled(plans.mesh_allreduce(n))), lambda rank: {}


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [1, slow(2)])
def test_a_rank_that_loads_or_splits(
    hosts: int, library: Library, request: pytest.FixtureRequest
) -> None:
    place, where = placed(4, hosts, library, request)
    found = start(4, different, place, WRONGS, of_rank=where).outcomes()
    for rank, texts in found.items():
        for turn, (text, wrong) in enumerate(zip(texts, WRONGS, strict=True)):
            assert f"rank {turn % 4} {SAID[wrong[0]]}" in text, (rank, text)
            assert SAID[wrong[1]] in text, (rank, text)


TYPES = {"send": "int32", "recv": "int8", "both": "int32"}


def message(c: Communicator, what: str) -> None:
    """Makes a send or receive: the kind and the peer, as in `send 2`."""
    kind, peer = what.split()
    x = np.full(WAITS, -1, TYPES[kind])
    if kind == "send":
        c.send(x, int(peer))
    elif kind == "recv":
        c.recv(x, None if peer == "any" else int(peer))
    else:  # short ones, and a receive that does not come, together
        with group():
            for _ in range(40):
                c.send(x[:3], int(peer))
            c.send(x, int(peer))
            c.recv(x, int(peer))


def with_messages(communicator: Communicator, place: Path, turns: list[list[str]]) -> list[str]:
    """Does what each turn has for the rank, and right things behind it."""
    c, texts = loaded(communicator, place), []
    for turn, acts in enumerate(turns):
        act = acts[c.rank]
        if " " in act:
            texts.append(told(lambda: message(c, act)))  # noqa: B023
        else:
            texts.append(told(lambda: ACTS[act](c, place)))  # noqa: B023
        works(c, turn)
    return texts


TWO = {
    "recv 1, sum": ["recv 1", "sum"],
    "sum, send 0": ["sum", "send 0"],
    "both 1, sum": ["both 1", "sum"],
    "recv any, split": ["recv any", "split"],
    "load, recv 0": ["load", "recv 0"],
}
THREE = {
    "sum, send 2, sum": ["sum", "send 2", "sum"],
    "split, split, recv 0": ["split", "split", "recv 0"],
    "recv 1, recv 2, sum": ["recv 1", "recv 2", "sum"],  # the first waits for the second
    "load, both 0, sum": ["load", "both 0", "sum"],
    "recv any, send 0, sum": ["recv any", "recv 2", "sum"],
}


BETWEEN_HOSTS = {
    "send 2, three sums": ["send 2", "sum", "sum", "sum"],
    "recv 0 of another host": ["sum", "sum", "recv 0", "sum"],
    "a chain over hosts": ["both 3", "load", "load", "recv 1"],
    "recv any, split": ["split", "recv any", "split", "split"],
}


def said(act: str, n: int) -> str:
    kind, _, peer = act.partition(" ")
    if not peer:
        return SAID[act]
    other = "any rank" if peer == "any" else f"rank {peer}"
    name, way = ("hcccSend", "to") if kind == "send" else ("hcccRecv", "from")
    return f"calls {name} of {WAITS} {TYPES[kind]} {way} {other}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "turns", [TWO, THREE, slow(BETWEEN_HOSTS)], ids=["2 ranks", "3 ranks", "2 hosts"]
)
def test_a_message_that_waits_for_a_rank_in_a_call(
    library: Library, request: pytest.FixtureRequest, turns: dict[str, list[str]]
) -> None:
    n = len(next(iter(turns.values())))
    place, where = placed(n, 1 + (turns is BETWEEN_HOSTS), library, request)
    found = start(n, with_messages, place, list(turns.values()), of_rank=where).outcomes()
    for texts in zip(*found.values(), strict=True):
        assert len(set(texts)) == 1, texts
    for text, acts in zip(found[0], turns.values(), strict=True):
        both = [rank for rank, act in enumerate(acts) if f"rank {rank} {said(act, n)}" in text]
        assert len(both) == 2, (text, acts)  # a message and whom it waits for
        assert any(acts[a].endswith((f" {b}", " any")) for a, b in permutations(both)), (text, acts)


def drawn(chance: Random, n: int) -> list[str]:
    """Draws what each rank does, so that all are refused: some call, and each message waits for a
    rank that calls, or that waits itself."""
    order = chance.sample(range(n), n)
    calls = [order[0]] + [r for r in order[1:] if chance.random() < 0.5]
    acts = dict.fromkeys(calls, chance.choice(list(ACTS)))
    if len(calls) == n:
        acts[order[-1]] = chance.choice([name for name in ACTS if name != acts[order[0]]])
    for r in order:
        if r not in acts:
            kind = chance.choice(["send", "recv", "both"])
            acts[r] = f"{kind} {chance.choice(list(acts))}"
    return [acts[r] for r in range(n)]


def random_turns(communicator: Communicator, place: Path, seed: int, turns: int) -> list[str]:
    c, texts = loaded(communicator, place), []
    chance, own = Random(seed), Random(seed + 1 + communicator.rank)
    for turn in range(turns):
        act = drawn(chance, c.n_ranks)[c.rank]
        if own.random() < 0.2:
            time.sleep(own.uniform(0, 0.05))
        does = message if " " in act else lambda c, act: ACTS[act](c, place)
        texts.append(told(lambda: does(c, act)))  # noqa: B023
        for k in range(own.randrange(2)):
            assert c.error is Result.SUCCESS, k
        works(c, turn)
    return texts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "hosts", "turns"), [(3, 1, 30 * LONG), slow(4, 1, 100 * LONG), slow(4, 2, 15 * LONG)]
)
def test_random_turns(
    n: int, hosts: int, turns: int, library: Library, request: pytest.FixtureRequest
) -> None:
    """Every rank is told the same two things, and nothing is mistaken for something else."""
    place, where = placed(n, hosts, library, request)
    found = start(n, random_turns, place, 7 * n + hosts, turns, of_rank=where).outcomes(600)
    for texts in zip(*found.values(), strict=True):
        assert len(set(texts)) == 1, texts
