"""What the ports of GPUs compute, on the host: deadlines of waits, counters, votes of a block."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime import gpu_text
from tests.runtime.handwritten import INCLUDE, PROGRAMS

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

WAITING, EXPIRED, LOST, POLL = range(4)  # hccc_wait_state
READS = 1024  # turns from one reading of the clock to the next
SPINS = 64
PRODUCTS = ("hccc_product",) * 2  # of floats and of doubles
FUNCTIONS = ("hccc_count", "hccc_claim", "hccc_barrier_any", *PRODUCTS)


@pytest.fixture(scope="module", params=["cuda", "hip"])
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Compiles the functions of a port for the host."""
    place = tmp_path_factory.mktemp("port")
    (place / "functions.h").write_text(gpu_text.functions(request.param, *FUNCTIONS))
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-pthread", "-w"]
    source = str(PROGRAMS / "port_functions.cpp")
    command = ["g++", *flags, f"-I{place}", f"-I{INCLUDE}", source, "-o", str(place / "port.so")]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(place / "port.so"))


def waited(turns: int, lost: int, tick: int, limit: int, period: int) -> Iterator[int]:
    """Yields the state after each turn: what deadline.h and wait.h ask of a wait."""
    started = polled = 0
    for turn in range(1, turns + 1):
        time = turn // READS * tick
        if turn % READS:
            yield WAITING
        elif turn >= lost:
            yield LOST
        elif time - (started := started or time) > limit:
            yield EXPIRED
        elif time - (polled := polled or time) > period:
            polled = time
            yield POLL
        else:
            yield WAITING


few = st.integers(1, 40)


@settings(deadline=None)
@given(few, st.integers(1, 20 * READS), few, st.integers(0, 400), st.integers(0, 90))
def test_a_wait_ends_with_its_deadline(
    port: ctypes.CDLL, reads: int, lost: int, tick: int, limit: int, period: int
) -> None:
    turns = reads * READS // 2
    states = (ctypes.c_int * turns)()
    long = map(ctypes.c_ulonglong, (tick, limit, period))
    assert port.wait_for(turns, lost, *long, states) == max(0, turns - SPINS)
    assert list(states) == list(waited(turns, lost, tick, limit, period))


def test_a_deadline_begins_again(port: ctypes.CDLL) -> None:
    port.rearmed.restype = ctypes.c_ulonglong
    assert port.rearmed() == 5001


def test_counters_count_by_one_and_a_record_is_claimed_once(port: ctypes.CDLL) -> None:
    counter = ctypes.c_uint(2**32 - 1)
    assert [port.counted(ctypes.byref(counter)) for _ in range(3)] == [-1, 0, 1]
    assert counter.value == 2
    for asked in (0, 2):  # HCCC_ABORT_REQUEST
        word = ctypes.c_uint(asked)
        assert not port.claimed(ctypes.byref(word), 5) and word.value == asked
        assert port.claimed(ctypes.byref(word), asked) and word.value == 1
        assert not port.claimed(ctypes.byref(word), asked) and word.value == 1


@settings(deadline=None)
@given(st.floats(width=32), st.floats(width=32), st.floats(), st.floats())
def test_products(port: ctypes.CDLL, a: float, b: float, x: float, y: float) -> None:
    port.product.restype, port.product.argtypes = ctypes.c_float, [ctypes.c_float] * 2
    port.long_product.restype, port.long_product.argtypes = ctypes.c_double, [ctypes.c_double] * 2
    with np.errstate(all="ignore"):
        assert np.array_equal(port.product(a, b), np.float32(a) * np.float32(b), equal_nan=True)
    assert np.array_equal(port.long_product(x, y), x * y, equal_nan=True)


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_a_vote_is_any_threads(port: ctypes.CDLL, votes: list[int]) -> None:
    results = (ctypes.c_int * len(votes))()
    port.voted(len(votes), (ctypes.c_int * len(votes))(*votes), results)
    union = max(v & 1 for v in votes) | max(v & 2 for v in votes)
    assert set(results) == {union}
