"""How a waiting thread gives its core away: it yields, or sleeps where others keep the core."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.runtime.handwritten import INCLUDE, PROGRAMS

US, MS = 1000, 1000000
Turn = Callable[[int, int], int]


@pytest.fixture(params=["oversubscribed", "a core each"])
def oversubscribed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "oversubscribed")


@pytest.fixture
def turn(oversubscribed: bool, tmp_path: Path) -> Turn:
    """Returns the function of programs/backoff.cpp, of a thread that has not waited yet."""
    if not shutil.which("g++"):
        pytest.skip("no g++")
    library = tmp_path / "backoff.so"
    flags = ["-std=c++17", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}"]
    subprocess.run(["g++", *flags, str(PROGRAMS / "backoff.cpp"), "-o", str(library)], check=True)
    function = ctypes.CDLL(str(library)).turn
    function.argtypes = [ctypes.c_bool, ctypes.c_ulonglong, ctypes.c_ulonglong]
    return lambda after, yields: int(function(oversubscribed, after, yields))


@pytest.mark.parametrize("oversubscribed", [True])
def test_a_core_that_was_kept_once_is_yielded_again(turn: Turn) -> None:
    turns = [(US, US), (US, 3 * MS), (US, US), (5 * MS, US), (US, 3 * MS), (US, US)]
    assert [turn(*one) for one in turns] == [0] * len(turns)


@pytest.mark.parametrize("oversubscribed", [True])
def test_a_core_that_is_kept_turn_after_turn_makes_who_waits_sleep(turn: Turn) -> None:
    assert [turn(US, 3 * MS), turn(US, 3 * MS)] == [0, 0]
    assert [turn(US, 3 * MS) for _ in range(100)] == [1] * 100


@pytest.mark.parametrize("oversubscribed", [False])
def test_a_thread_with_a_core_of_its_own_sleeps_after_one_long_turn(turn: Turn) -> None:
    assert [turn(US, US), turn(US, 3 * MS), turn(US, US)] == [0, 0, 1]


def test_a_thread_that_has_slept_yields_and_sleeps_again_while_others_keep_the_core(
    turn: Turn,
) -> None:
    while not turn(US, 3 * MS):
        pass
    while turn(US, 3 * MS):
        pass
    assert turn(US, US) == 1
    assert [turn(200 * MS, US), turn(US, US)] == [0, 0]


def test_a_thread_sleeps_for_longer_where_it_does_so_again_soon(turn: Turn) -> None:
    def sleeps(after: int) -> int:
        turn(after, US)
        while not turn(US, 3 * MS):
            pass
        found = 1
        while turn(US, US):
            found += 1
        return found

    found = [sleeps(US) for _ in range(5)]
    assert 100 < found[0] < 200  # 10 ms, 60 us each
    assert all(1.9 < b / a < 2.1 for a, b in pairwise(found[:4]))
    assert 9.5 < found[4] / found[0] < 10.5
    assert sleeps(500 * MS) == found[0]
