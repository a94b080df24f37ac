"""Faults of jobs: a rank dies, a library fails or hangs: one error everywhere, in time."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from hccc.driver.assumed import VARIABLE, text_of
from hccc.ir.collective import OpType
from hccc.ir.job import vendor_clusters
from hccc.runtime.communicator import Communicator, CommunicatorError
from hccc.runtime.communicator.communicator import Result
from hccc.runtime.communicator.runtime_library import COMMUNICATOR, library
from hccc.runtime.job.loaded import LoadedJob
from hccc.synth.builtin.hetccl import hetccl
from tests.communicator.world import Lost, await_marks, mark, run, start

# The deadline is for what hangs: a rank that dies is told before it also where other tests run.
DEADLINE, COUNT, BEFORE = 4.0, 60_000, 3
DIES, FAILS, HANGS, NEVER = -1, 1, 2, 3
# Rank 1 is in the lane of its library alone; borders are ranks 0 and 2.
V = vendor_clusters([("a", [0, 1], [0], [1]), ("b", [2, 3], [2], [1])])
STANDARD = {"HCCC_STANDARD": "1", "HCCC_TIMEOUT": "60"}


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiles the library of a vendor for these tests."""
    made = tmp_path_factory.mktemp("stand_in") / "stand_in.so"
    rooms = COMMUNICATOR.source.parents[1]
    include = [f"-I{rooms / room / 'include'}" for room in ("vendor", "communicator")]
    source = str(Path(__file__).parent / "stand_in.cpp")
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", *include]
    subprocess.run(["g++", *flags, source, "-o", str(made)], check=True)
    return made


def table(file: Path, how: int, after: int) -> int:
    """Returns the table of the stand-in, which goes wrong after so many calls."""
    own = ctypes.c_void_p()
    assert not library().call("_vendor_load", b"own", None, ctypes.byref(own))
    made = ctypes.CDLL(str(file)).stand_in
    made.restype, made.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    return int(made(own, how, after))


def sums(c: Communicator, file: Path, victim: int, how: int, by_library: bool = False) -> Lost:
    """Makes calls, in which the library of one rank goes wrong, or the rank dies."""
    each = 3 if by_library else 2  # reductions of a call
    at = table(file, how if c.rank == victim else 0, each * BEFORE + each - 1)
    words = (c.handle, c.rank, hetccl(V, OpType.ALLREDUCE), None, None, [(0, 1)], at)
    job = LoadedJob(*words, by_library=by_library)
    x = c.empty(COUNT)
    x[:] = 1
    started = time.monotonic()

    def call() -> None:
        nonlocal started
        started = time.monotonic()
        job.run(x.ctypes.data, x.ctypes.data, COUNT, 7, 0, DEADLINE)

    for _ in range(BEFORE):
        call()
    if how == DIES and c.rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(BEFORE):
        try:
            call()
        except CommunicatorError as error:
            took = time.monotonic() - started
            with pytest.raises(CommunicatorError) as again:
                call()
            assert str(again.value) == str(error), "a job that is lost says why"
            left = time.monotonic()
            job.end()
            assert time.monotonic() - left < 2, "its end waits"
            return Lost(error.result, error.text, took)
    raise AssertionError("nobody was told")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "how", "result", "text"),
    [
        (0, DIES, Result.REMOTE_ERROR, "rank 0 is gone"),
        (1, DIES, Result.REMOTE_ERROR, "rank 1 is gone"),
        (1, FAILS, Result.SYSTEM_ERROR, "part(1)): stand-in: the device is on fire"),
        (3, HANGS, Result.TIMEOUT, f"timed out after {DEADLINE:g} s"),
        (1, NEVER, Result.TIMEOUT, f"timed out after {DEADLINE:g} s"),
    ],
    ids=["border", "inside", "fails", "hangs", "never"],
)
def test_every_rank_is_told(
    stand_in: Path, victim: int, how: int, result: Result, text: str
) -> None:
    silent = [victim] if how == DIES else []
    found = start(4, sums, stand_in, victim, how, environment=STANDARD).outcomes(silent=silent)
    for rank in set(range(4)) - set(silent):
        lost = found[rank]
        assert isinstance(lost, Lost) and lost.result is result, lost
        assert text in lost.text and "step " in lost.text, lost.text
        assert lost.seconds < DEADLINE + 2, lost


@pytest.mark.slow
@pytest.mark.parametrize("how", [FAILS, HANGS], ids=["fails", "hangs"])
def test_a_library_that_reduces_at_a_border(stand_in: Path, how: int) -> None:
    """What it does wrong there is told as of any other step."""
    found = start(4, sums, stand_in, 1, how, True, environment=STANDARD).outcomes()
    for lost in found.values():
        assert isinstance(lost, Lost) and lost.seconds < DEADLINE + 2, lost
        assert lost.result is (Result.SYSTEM_ERROR if how == FAILS else Result.TIMEOUT), lost
        text = (
            "rank 1, step 4, c2cRed(1, 0, part(0)): stand-in: the device"
            if how == FAILS
            else "step "
        )
        assert text in lost.text, lost


def aborts(c: Communicator) -> list[str]:
    """Has rank 0 abort the communicator while its call and rank 1's wait for rank 2, which makes
    none. Returns what the calls said."""
    c.load(hetccl(THREE, OpType.ALLREDUCE), micro_batches=[(0, 1)])
    said: list[str] = []

    def call() -> None:
        with pytest.raises(CommunicatorError) as caught:
            c.all_reduce(c.empty(60_000))
        said.append(caught.value.text)

    caller = threading.Thread(target=call)
    if c.rank < 2:
        caller.start()
        while not said and c.done:
            pass
        mark(c.rank)
    if c.rank == 0:
        await_marks([1])
        c.abort()
    if c.rank < 2:
        caller.join()
    else:
        await_marks([0, 1, 3])
    if c.rank == 1:
        mark(3)
    return said


@pytest.mark.slow
def test_an_abort_ends_a_call() -> None:
    found = start(3, aborts, environment={"HCCC_TIMEOUT": "60"}).outcomes()
    assert "rank 0 has aborted the communicator" in found[0][0]
    assert "rank 0 has aborted the communicator" in found[1][0] and found[2] == []


def other_job(c: Communicator) -> str:
    """Loads another job at one rank, and then the same at all."""
    job = hetccl(PAIR, OpType.ALLREDUCE)
    with pytest.raises(CommunicatorError) as caught:
        c.load(job, micro_batches=[(0, 1 + c.rank)])
    with pytest.raises(CommunicatorError) as none:
        c.load(hetccl(V2, OpType.ALLREDUCE), vendor="nobody" if c.rank == 1 else "own")
    assert "rank 1 cannot run the job: there is no vendor nobody" in none.value.text
    c.load(job)
    x = c.empty(5)
    x[:] = 1 + c.rank
    c.all_reduce(x)
    assert x.tolist() == [3] * 5 and c.error is Result.SUCCESS
    return caught.value.text


PAIR = vendor_clusters([("a", [0], [0], [1]), ("b", [1], [1], [1])])
THREE = vendor_clusters([(name, [r], [r], [1]) for r, name in enumerate("abc")])
V2 = vendor_clusters([("a", [0, 1], [0, 1], [1, 1])])


@pytest.mark.slow
def test_what_ranks_load_differs() -> None:
    assert set(run(2, other_job)) == {"rank 1 loads another job than rank 0"}


def first_sums(c: Communicator, maker: str) -> tuple[str, list[float]]:
    """Makes a job's first call, for which two of the three ranks have no library yet, without a
    maker of such and then with one. Returns what the first said, and the result."""
    c.load(hetccl(TWO_AND_ONE, OpType.ALLREDUCE), micro_batches=[(0, 1)])
    x = c.empty(6)
    x[:] = 1 + c.rank
    with pytest.raises(CommunicatorError) as caught:
        c.all_reduce(x)
    os.environ["HCCC_COMMAND"] = maker
    c.all_reduce(x)
    return caught.value.text, [float(value) for value in x]


TWO_AND_ONE = vendor_clusters([("own", [0, 1], [0, 1], [1, 1]), ("own", [2], [2], [1])])


@pytest.mark.slow
def test_a_library_that_is_made_first_is_not_in_the_time_of_a_call(tmp_path: Path) -> None:
    """Whoever does not need it waits as long. Where none can be made every rank is told, and may
    call again."""
    cluster = tmp_path / "host.cluster"
    cluster.write_text(f"# {uuid.uuid4()}\n{text_of([2], 2)}")  # nobody has its libraries
    late = tmp_path / "late"
    late.write_text(f'#!/bin/sh\nsleep {DEADLINE + 1}\nexec {sys.executable} -m hccc "$@"\n')
    late.chmod(0o755)
    own = {"HCCC_STANDARD": "1", VARIABLE: str(cluster), "HCCC_PROGRESS": "off"}
    own |= {"HCCC_TIMEOUT": str(DEADLINE), "HCCC_COMMAND": "/nowhere/hccc"}
    for found in run(3, first_sums, str(late), environment=own):
        assert not isinstance(found, Lost), found
        said, sums = found
        assert "rank 0: no library" in said and "/nowhere/hccc cannot be run" in said
        assert sums == [6.0] * 6
