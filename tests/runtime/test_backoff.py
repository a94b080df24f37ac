"""How a waiting thread gives its core away: it sleeps where others keep the core, else it yields."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtime.handwritten import INCLUDE, PROGRAMS

US, MS = 1000, 1000000
Turn = Callable[[int, int], int]


@pytest.fixture
def turn(tmp_path: Path) -> Turn:
    """Returns the function of programs/backoff.cpp, of a thread that has not waited yet."""
    if not shutil.which("g++"):
        pytest.skip("no g++")
    library = tmp_path / "backoff.so"
    flags = ["-std=c++17", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}"]
    subprocess.run(["g++", *flags, str(PROGRAMS / "backoff.cpp"), "-o", str(library)], check=True)
    function = ctypes.CDLL(str(library)).turn
    function.argtypes = [ctypes.c_ulonglong, ctypes.c_ulonglong]
    return lambda after, yields: int(function(after, yields))


def test_a_thread_that_kept_the_core_once_makes_no_other_sleep(turn: Turn) -> None:
    turns = [(US, US), (US, 3 * MS), (US, US), (5 * MS, US), (US, 3 * MS), (US, US)]
    assert [turn(*one) for one in turns] == [0] * len(turns)


def test_threads_that_keep_the_core_make_others_sleep_for_a_while(turn: Turn) -> None:
    assert [turn(US, 3 * MS), turn(US, 3 * MS)] == [0, 0]
    assert [turn(US, 3 * MS) for _ in range(100)] == [1] * 100
    assert [turn(200 * MS, US), turn(US, US)] == [0, 0]


def test_a_thread_that_has_slept_sleeps_again_while_others_keep_the_core(turn: Turn) -> None:
    assert [turn(US, 3 * MS), turn(US, 3 * MS), turn(US, US)] == [0, 0, 1]
    while turn(US, 3 * MS):
        pass
    assert turn(US, US) == 1
