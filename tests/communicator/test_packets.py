"""Communicators run libraries of protocol LL: results, calls that differ, ranks that die."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hccc.driver import compilation as driver
from hccc.driver.assumed import cluster_of
from hccc.driver.options import Options
from hccc.ir.op_type import OpType
from hccc.runtime.communicator import Communicator, CommunicatorError
from hccc.runtime.communicator.communicator import Result
from hccc.synth.builtin.direct import direct
from tests.communicator.conftest import Library
from tests.communicator.test_calls import performs
from tests.communicator.test_faults import OTHERS, VICTIM, other_calls, wrong_once
from tests.communicator.test_lifetimes import free, taken
from tests.communicator.world import Lost, run, start
from tests.emit import plans
from tests.marks import slow


@pytest.fixture(scope="module")
def packets(library: Library) -> Path:
    """Builds an AllReduce of three ranks that exchange packets."""
    plan = driver.compile_program(plans.mesh_allreduce(3), Options(protocol="ll")).plan
    return library(replace(plan, max_bytes=1 << 20))  # as large as the tests' calls


def sums(c: Communicator, place: Path) -> bool:
    """Makes calls of many lengths, from memory of hccc's and from any other."""
    c.load(place, ["float32"], ["sum"])
    right = True
    for k, count in enumerate([1, 50_000, 2, 0, 900, 3, 50_000, 0, 0, 7] * 20):
        x = np.full(count, c.rank + k, np.float32) if k % 2 else c.empty(count)
        x[:] = c.rank + k + np.arange(count) % 5
        c.all_reduce(x)
        right &= bool((x == 3 + 3 * k + 3 * (np.arange(count) % 5)).all())
    return right


@pytest.mark.slow
def test_sums_of_many_lengths(packets: Path) -> None:
    assert run(3, sums, packets) == [True] * 3


@pytest.mark.slow
def test_another_call_at_one_rank_costs_nothing(packets: Path) -> None:
    found = start(3, other_calls, packets).outcomes()
    assert found[0] == found[1] == found[2]
    for text, said in zip(found[0], (*OTHERS.values(), "of 0 float32"), strict=True):
        assert said in text and "rank 1 calls" in text, text


@pytest.mark.slow
@pytest.mark.parametrize("how", [slow("die"), "stall"])
def test_every_rank_is_told(packets: Path, how: str) -> None:
    silent = [VICTIM] if how == "die" else []
    found = start(3, wrong_once, packets, how).outcomes(silent=silent)
    for rank in (0, 2):
        lost = found[rank]
        assert isinstance(lost, Lost) and lost.seconds < 4
        said = "rank 1 is gone" if how == "die" else "rank 1 has not started the call"
        assert said in lost.text, lost.text


def _gather(c: Communicator) -> None:
    c.all_gather(np.zeros(2, np.float32), np.zeros(6, np.float32))


def _sum_of(count: int) -> Callable[[Communicator], None]:
    return lambda c: c.all_reduce(np.zeros(count, np.float32))


# What rank 1 calls where others add two elements: packets of another call, or none of that library.
SHORT_OTHERS = {_sum_of(3): "of 3 float32", _sum_of(0): "of 0 float32", _gather: "Allgather of 2"}


def short_calls(c: Communicator, places: tuple[Path, Path]) -> list[str]:
    """Makes calls that packets announce between others that are agreed on; then other calls at one
    rank, and right ones behind each."""
    for place in places:
        c.load(place, ["float32"], ["sum"])
    x, y, gathered = np.zeros(2, np.float32), np.zeros(2, np.float32), np.zeros(6, np.float32)

    def right(k: int) -> None:
        x[:] = c.rank + k
        apart = (c.rank + k) % 2  # in place at some ranks
        c.all_reduce(x, y if apart else None)
        assert ((y if apart else x) == 3 + 3 * k).all()
        if k % 3 == 0:
            c.all_gather(np.full(2, c.rank + k, np.float32), gathered)
            assert (gathered == np.repeat(np.arange(3) + k, 2)).all()

    for k in range(200):
        right(k)
    texts = []
    for k, other in enumerate(SHORT_OTHERS):
        with pytest.raises(CommunicatorError) as caught:
            (other if c.rank == VICTIM else _sum_of(2))(c)
        assert c.error is Result.SUCCESS and caught.value.result is Result.INVALID_USAGE
        texts.append(caught.value.text)
        right(k)
    return texts


@pytest.mark.slow
def test_short_calls_are_announced_by_packets(packets: Path, library: Library) -> None:
    gather = library(driver.compile_program(plans.ring_allgather(3), Options()).plan)
    found = start(3, short_calls, (packets, gather)).outcomes()
    assert found[0] == found[1] == found[2]
    for text, said in zip(found[0], SHORT_OTHERS.values(), strict=True):
        assert "rank 1 calls" in text and said in text and "of 2 float32" in text, text


def exchanges(c: Communicator, places: Sequence[Path]) -> list[str]:
    """Makes calls of three collectives by packets, then another one at one rank, and right ones
    behind it. Returns the texts of the refusals."""
    for place in places:
        c.load(place, ["float32"], ["sum"])
    n = c.n_ranks

    def right(k: int, count: int) -> None:
        sent = (np.arange(n * n * count, dtype=np.float32) + k).reshape(n, n, count)
        own, block = sent[c.rank].ravel().copy(), slice(c.rank * count, (c.rank + 1) * count)
        apart = (c.rank + k) % 2
        got = np.zeros_like(own) if apart else own
        c.all_to_all(own, got)
        assert (got.reshape(n, count) == sent[:, c.rank]).all()
        own = sent[c.rank].ravel().copy()
        part = np.zeros(count, np.float32) if apart else own[block]
        c.reduce_scatter(own, part)
        assert (part == sent[:, c.rank].sum(0)).all()
        got = np.zeros(n * count, np.float32)
        part = sent[c.rank, 0].copy() if apart else got[block]
        part[:] = sent[c.rank, 0]
        c.all_gather(part, got)
        assert (got.reshape(n, count) == sent[:, 0]).all()

    for k in range(120):
        right(k, (1, 300, 2, 17)[k % 4])
    texts = []
    for k, count in enumerate((2, 0, 3)):
        x, y = np.zeros(n * count, np.float32), np.zeros(n * count, np.float32)
        with pytest.raises(CommunicatorError) as caught:
            if c.rank == VICTIM:
                c.all_to_all(x, y)
            else:
                c.all_gather(np.zeros(2, np.float32), np.zeros(2 * n, np.float32))
        assert c.error is Result.SUCCESS and caught.value.result is Result.INVALID_USAGE
        texts.append(caught.value.text)
        right(k, 2)
    return texts


@pytest.mark.slow
def test_collectives_of_packets(library: Library) -> None:
    programs = (plans.alltoall(3), plans.direct_reducescatter(3), plans.ring_allgather(3))
    ll = Options(protocol="ll")
    places = [library(driver.compile_program(one, ll).plan) for one in programs]
    found = start(3, exchanges, places).outcomes()
    assert found[0] == found[1] == found[2]
    for text, count in zip(found[0], (2, 0, 3), strict=True):
        assert f"rank 1 calls Alltoall of {count} float32" in text, text
        assert "Allgather of 2 float32" in text, text


def every_root(c: Communicator, places: Sequence[Path]) -> list[str]:
    """Makes calls of all roots, then another one at one rank, and right ones behind it. Returns the
    texts of the refusals."""
    for place in places:
        c.load(place, ["int32"], ["sum"])
    for turn in range(20):
        for root in (*range(c.n_ranks), *reversed(range(c.n_ranks))):
            for count in (1, 300):
                assert performs(c, "broadcast", root, count + turn)
                assert performs(c, "reduce", root, count + turn)
            assert performs(c, "gather", 1, 1 + turn)
            assert performs(c, "scatter", 1, 1 + turn)
    x = np.zeros(6, np.int32)
    others: list[tuple[Callable[[], None], Callable[[], None]]] = [
        (lambda: c.broadcast(x, 0), lambda: c.broadcast(x, 2)),
        (lambda: c.broadcast(x, 0), lambda: c.reduce(x, x.copy(), 0)),
        (lambda: c.reduce(x, x.copy(), 0), lambda: c.reduce(x[:3], x[:3].copy(), 0)),
        (lambda: c.broadcast(x, 0), lambda: c.broadcast(x[:0], 0)),
    ]
    texts = []
    for usual, other in others:
        for _ in range(3):  # some ranks come late
            time.sleep(0.001 * c.rank)
            c.broadcast(x, 1)
        with pytest.raises(CommunicatorError) as caught:
            (other if c.rank == VICTIM else usual)()
        assert c.error is Result.SUCCESS and caught.value.result is Result.INVALID_USAGE
        texts.append(caught.value.text)
        assert performs(c, "broadcast", 2, 7) and performs(c, "reduce", 0, 7)
    return texts


@pytest.mark.slow
def test_rooted_collectives_of_packets(library: Library) -> None:
    """Nobody ends a call that another does not make: all are told of it in that call."""
    places = []
    for op in (OpType.BROADCAST, OpType.REDUCE, OpType.GATHER, OpType.SCATTER):
        program = direct(cluster_of([3]), op, 1)
        plan = driver.compile_program(program, Options(protocol="ll")).plan
        assert plan.greets
        places.append(library(replace(plan, name=f"{op.value.lower()}_packets")))
    found = start(3, every_root, places).outcomes()
    assert found[0] == found[1] == found[2]
    said = ("root 2", "Reduce of 6", "Reduce of 3", "Broadcast of 0")
    for text, one in zip(found[0], said, strict=True):
        assert "rank 1 calls" in text and one in text, text


def made_again(c: Communicator, places: tuple[Path, Path]) -> list[str]:
    """Makes calls again and again: of more lengths than are kept, from buffers by turns, from one
    that was freed, and with a library loaded in between."""
    c.load(places[0], ["float32"], ["sum"])
    texts = []
    arrays = [c.empty(900), np.zeros(900, np.float32), taken(900).view(np.float32)]

    def right(k: int, array: Any, count: int) -> None:
        part = array[:count]
        part[:] = c.rank + k + np.arange(count) % 7
        c.all_reduce(part)
        assert (part == 3 + 3 * k + 3 * (np.arange(count) % 7)).all()

    for k in range(240):
        right(k, arrays[k // 2 % 3], (2, 2, 2, 900, 5, 77, 2, 8, 13)[k // 5 % 9])
    right(0, arrays[2], 2)
    free(arrays[2])
    for _ in range(2):
        with pytest.raises(CommunicatorError) as caught:
            c.all_reduce(arrays[2][:2])
        texts.append(caught.value.text)
        right(1, arrays[0], 2)
    c.load(places[1], ["float32"], ["sum"])
    for k in range(20):
        right(k, arrays[k % 2], 2)
    return texts


@pytest.mark.slow
def test_calls_made_again(packets: Path, library: Library) -> None:
    gather = library(driver.compile_program(plans.ring_allgather(3), Options()).plan)
    found = start(3, made_again, (packets, gather)).outcomes()
    for texts in found.values():
        assert len(texts) == 2 and all("they were freed" in text for text in texts)
