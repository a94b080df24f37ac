"""One thread with several ranks: communicators and calls that are made at once, and splits."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hccc.base.diagnostics import UserError
from hccc.runtime.communicator import Communicator, CommunicatorError, group, unique_id
from hccc.runtime.communicator.communicator import Result
from hccc.runtime.communicator.runtime_library import library as runtime
from hccc.runtime.device.device_layer import library as device_layer
from hccc.runtime.device.stream import Stream
from tests.communicator.conftest import Library
from tests.communicator.world import alone, in_threads, loaded, run
from tests.emit import plans
from tests.marks import slow

COUNT, RANKS = 1003, 3


def pattern(rank: int, turn: int = 0) -> Any:
    """Returns elements that differ by rank, place and turn; sums of a few are exact."""
    return (np.arange(COUNT, dtype=np.int32) * 31 + rank * 7919 + turn * 104_729) % 100_003


def total(ranks: range | list[int], turn: int = 0) -> Any:
    return sum(pattern(r, turn) for r in ranks)


def all_loaded(place: Path, n: int = RANKS) -> list[Communicator]:
    """Makes all ranks, with a library."""
    made = Communicator.init_all(n)
    with group():
        for c in made:
            loaded(c, place)
    return made


def grouped(sums: Path) -> bool:
    """Checks that each rank's calls keep their order in groups with ranks in any order."""
    ranks = all_loaded(sums)
    for turn in range(5):
        x = [pattern(r, turn) for r in range(RANKS)]
        y = [np.zeros_like(one) for one in x]
        with group():
            for r in range(RANKS):
                ranks[r].all_reduce(x[r], y[r])
            with group():
                for r in reversed(range(RANKS)):
                    ranks[r].all_reduce(y[r], op="max")
                    ranks[r].all_reduce(y[r])
            assert not any(one.any() for one in y)
        assert all(np.array_equal(one, RANKS * total(range(RANKS), turn)) for one in y)
    for c in ranks:
        c.destroy()
    return True


def test_one_thread_makes_calls_of_all_ranks(sums: Path) -> None:
    assert alone(grouped, sums)


def with_streams(sums: Path) -> bool:
    """Checks that calls with and without streams in one group keep their order."""
    device_layer()
    ranks = all_loaded(sums)
    streams = [Stream() for _ in ranks]
    y = [np.zeros(COUNT, np.int32) for _ in ranks]
    with group():
        for c, stream, one in zip(ranks, streams, y, strict=True):
            c.all_reduce(pattern(c.rank), one, stream=stream)
            c.all_reduce(one)
            c.all_reduce(one, op="max", stream=stream)
            c.all_reduce(one, stream=stream)
    for stream in streams:
        stream.synchronize()
    assert all(np.array_equal(one, RANKS * RANKS * total(range(RANKS))) for one in y)
    for c in ranks:
        c.destroy()
    return True


def test_groups_of_calls_in_streams(sums: Path) -> None:
    device_layer()
    assert alone(with_streams, sums)


def cancelled(sums: Path) -> list[str]:
    """Checks that a refused call cancels its whole group, and that calls go on after it."""
    ranks = all_loaded(sums)
    x = [pattern(r) for r in range(RANKS)]
    texts = []
    missing = unique_id()
    wrongs: list[tuple[type[Exception], Callable[[], object]]] = [
        (CommunicatorError, lambda: ranks[2].broadcast(x[2], 0)),
        (UserError, lambda: ranks[2].all_reduce(x[2], x[1][:5])),
        (UserError, lambda: ranks[0].destroy()),
        (UserError, lambda: Communicator.join(missing, 2, 0).all_reduce(x[0])),
        (KeyError, lambda: os.environ["NOTHING"]),
    ]
    for kind, wrong in wrongs:
        with pytest.raises(kind) as caught, group():
            ranks[0].all_reduce(x[0])
            ranks[1].all_reduce(x[1])
            wrong()
        texts.append(str(caught.value))
        assert all(np.array_equal(x[r], pattern(r)) for r in range(RANKS))
    with group():
        for r in range(RANKS):
            ranks[r].all_reduce(x[r])
    assert all(np.array_equal(one, total(range(RANKS))) for one in x)
    return texts


def test_a_group_of_which_a_call_is_refused(sums: Path) -> None:
    missing, lengths, used, unmade, other = alone(cancelled, sums)
    assert "no library is loaded" in missing and "5 received" in lengths
    assert "communicators end before it" in used
    assert "made when its group ends" in unmade and "NOTHING" in other


def bytes_gathered() -> list[list[int]]:
    """Returns what each rank has of all ranks' words, after a group of one call each."""
    ranks = Communicator.init_all(RANKS)
    words = [np.zeros((RANKS, 2), np.int32) for _ in ranks]
    with group():
        for r, c in enumerate(ranks):
            words[r][r] = [r, 100 + r]
            at = words[r].ctypes.data
            assert not runtime().call("CommGatherBytes", c._handle, at, words[r][r].nbytes)
    return [one.ravel().tolist() for one in words]


def test_bytes_are_gathered_without_a_library() -> None:
    assert alone(bytes_gathered) == [[0, 100, 1, 101, 2, 102]] * RANKS


def in_c(sums: Path) -> bool:
    """Checks groups as C programs see them: a group's end returns the error of a call in it."""
    call = runtime().call
    assert call("GroupEnd") == Result.INVALID_USAGE
    assert "no group is open" in runtime().last_error()
    ranks = all_loaded(sums)
    assert call("GroupStart") == call("GroupStart") == 0
    handles = [c.handle for c in ranks]
    x = [pattern(r) for r in range(RANKS)]
    at = [one.ctypes.data for one in x]
    for r in range(RANKS):
        assert call("AllReduce", at[r], at[r], COUNT, 2, 0, handles[r], None) == 0
    assert call("CommDestroy", handles[0]) == Result.INVALID_USAGE
    assert "the group that is open uses the communicator" in runtime().last_error()
    assert call("AllReduce", None, None, COUNT, 2, 0, handles[0], None) == Result.INVALID_ARGUMENT
    call("GroupEnd")
    assert call("GroupEnd") == Result.INVALID_USAGE
    assert "uses the communicator" in runtime().last_error()
    assert all(np.array_equal(x[r], pattern(r)) for r in range(RANKS))
    made = (ctypes.c_void_p * 2)()
    assert call("CommInitAll", made, 0, None) == Result.INVALID_ARGUMENT
    assert call("CommInitAll", made, 2, (ctypes.c_int * 2)(0, -1)) == Result.INVALID_ARGUMENT
    assert [c.device for c in Communicator.init_all(2, [5, 7])] == [5, 7]
    return True


def test_results_of_groups(sums: Path) -> None:
    assert alone(in_c, sums)


def disagree(sums: Path) -> list[str]:
    """Checks a group whose ranks disagree: the group returns one error, and nothing is lost."""
    ranks = all_loaded(sums)
    x = [pattern(r) for r in range(RANKS)]
    with pytest.raises(CommunicatorError) as caught, group():
        for r in range(RANKS):
            ranks[r].all_reduce(x[r][: 100 if r == 1 else COUNT])
    assert caught.value.result is Result.INVALID_USAGE
    assert {c.error for c in ranks} == {Result.SUCCESS}
    with group():
        for r in range(RANKS):
            ranks[r].all_reduce(x[r])
    assert all(np.array_equal(one, total(range(RANKS))) for one in x)
    for c in ranks:
        c.destroy()
    return [caught.value.text]


def test_a_group_whose_ranks_disagree(sums: Path) -> None:
    (text,) = alone(disagree, sums)
    assert "Allreduce of 100 int32" in text


def parts(communicator: Communicator, pair: Path) -> Any:
    """Splits into ranks 0 and 2, in reverse order, and ranks 1 and 3; then without rank 3."""
    c = communicator
    color, key = c.rank % 2, -c.rank if c.rank % 2 == 0 else 0
    made = c.split(color, key)
    assert made
    loaded(made, pair)
    x = pattern(c.rank)
    made.all_reduce(x)
    assert np.array_equal(x, total([color, color + 2]))
    order = made.rank, made.n_ranks
    made.destroy()
    rest = c.split(0 if c.rank < 3 else None)
    with pytest.raises(CommunicatorError) as caught:
        c.split(-7 if c.rank == 1 else 0)
    assert caught.value.result is (Result.INVALID_ARGUMENT if c.rank == 1 else Result.REMOTE_ERROR)
    return order, rest and (rest.rank, rest.n_ranks)


@pytest.mark.slow
@pytest.mark.parametrize("everywhere", [in_threads, slow(run)])
def test_splits(library: Library, everywhere: Callable[..., list[Any]]) -> None:
    pair = library(plans.compiled(plans.mesh_allreduce(2)))
    found = everywhere(4, parts, pair)
    assert [order for order, _ in found] == [(1, 2), (0, 2), (0, 2), (1, 2)]
    assert [rest for _, rest in found] == [(0, 3), (1, 3), (2, 3), None]


def split_at_once(pair: Path) -> bool:
    """Splits four ranks of one thread, in a group."""
    ranks = Communicator.init_all(4)
    with group():
        made = [c.split(c.rank // 2) for c in ranks]
    pairs = [c for c in made if c]
    assert [c.rank for c in pairs] == [0, 1, 0, 1]
    with group():
        for c in pairs:
            loaded(c, pair)
    x = [pattern(r) for r in range(4)]
    with group():
        for c, one in zip(pairs, x, strict=True):
            c.all_reduce(one)
    assert all(np.array_equal(x[r], total([r // 2 * 2, r // 2 * 2 + 1])) for r in range(4))
    return True


@pytest.mark.slow
def test_splits_in_a_group(library: Library) -> None:
    assert alone(split_at_once, library(plans.compiled(plans.mesh_allreduce(2))))
