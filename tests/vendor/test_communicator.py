"""Tests of a communicator that has a vendor's library beside hccc's own: HCCC_VENDOR."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hccc.runtime.communicator import Communicator, CommunicatorError
from hccc.runtime.communicator.communicator import Result
from tests.communicator import world
from tests.communicator.world import Lost

N, ROUNDS = 1_000, 9
CHOSEN = re.compile(r"up to 4096 bytes: (MPICH \S+|hccc) from now on: ([\d.]+) us by MPICH \S+, ")


def _environment(file: str, **more: str) -> dict[str, str]:
    return {"HCCC_VENDOR": "mpich", "HCCC_VENDOR_LIBRARY": file, **more}


def _sums(c: Communicator, *places: Path) -> list[bool]:
    """Returns whether each sum was right, in and out of place, and of a half of the ranks."""
    world.loaded(c, *places)
    found = []
    for k in range(ROUNDS):
        x = np.arange(N, dtype="float32") % 5 + c.rank + k
        wanted = c.n_ranks * (np.arange(N) % 5 + k) + sum(range(c.n_ranks))
        y = np.zeros(N, "float32")
        if k % 2:
            c.all_reduce(x, y)
        else:
            y = x
            c.all_reduce(y)
        found.append(bool(np.array_equal(y, wanted)))
    half = c.split(c.rank % 2)
    assert half is not None
    x = np.full(3, c.rank, "int32")
    out = np.zeros(3 * half.n_ranks, "int32")
    half.all_gather(x, out)
    found.append(out[::3].tolist() == list(range(c.rank % 2, c.n_ranks, 2)))
    half.destroy()
    return found


@pytest.mark.slow
def test_a_vendor_makes_what_hccc_has_no_library_for(mpich: str, tmp_path: Path) -> None:
    """No library of hccc's is loaded or made here."""
    log = tmp_path / "log.%p"
    more = {"HCCC_DEBUG": "INFO", "HCCC_DEBUG_FILE": str(log)}
    assert (
        world.run(3, _sums, environment=_environment(mpich, **more)) == [[True] * (ROUNDS + 1)] * 3
    )
    for file in tmp_path.iterdir():
        text = file.read_text()
        assert text.count("MPICH 5.0.2: Allreduce") >= ROUNDS or text.count("MPICH") > ROUNDS


@pytest.mark.slow
def test_the_faster_makes_the_rest_at_all_ranks(mpich: str, sums: Path, tmp_path: Path) -> None:
    """The first calls are made by either in turn, then all ranks choose alike, and say so."""
    more = {"HCCC_DEBUG": "INFO", "HCCC_DEBUG_FILE": str(tmp_path / "log.%p")}
    environment = _environment(mpich, **more)
    assert world.run(3, _sums, sums, environment=environment) == [[True] * (ROUNDS + 1)] * 3
    told = [CHOSEN.findall(file.read_text()) for file in tmp_path.iterdir()]
    assert len(told) == 3
    assert len(told[0]) == 1
    assert told[0] == told[1] == told[2]


def _dies(c: Communicator, before: int) -> None:
    x = np.ones(8, "float32")
    for _ in range(before):
        c.all_reduce(x)
    if c.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2)
    c.all_reduce(x)


@pytest.mark.slow
@pytest.mark.parametrize("before", [1, 4], ids=["first", "again"])
def test_a_rank_that_dies_ends_a_vendors_call(mpich: str, before: int) -> None:
    """The communicator is lost, as it is in calls of hccc's own; also in a call made again."""
    environment = _environment(mpich)
    found = world.start(3, _dies, before, environment=environment).outcomes(silent=[1])
    for rank in (0, 2):
        assert isinstance(found[rank], Lost)
        assert found[rank].result == Result.REMOTE_ERROR
        assert "rank 1" in found[rank].text


def _aborts(c: Communicator) -> tuple[str, bool]:
    """Has another thread look at the communicator, and abort it, while a call like those before
    waits for a rank that does not come."""
    x = np.ones(8, "float32")
    for _ in range(4):
        c.all_reduce(x)
    if c.rank:
        time.sleep(1)
        return "", False
    seen: list[bool] = []

    def ends() -> None:
        time.sleep(0.3)
        seen.append(c.done)
        c.abort()

    thread = threading.Thread(target=ends)
    thread.start()
    with pytest.raises(CommunicatorError) as raised:
        c.all_reduce(x)
    thread.join()
    return str(raised.value), seen[0]


@pytest.mark.slow
def test_another_thread_sees_and_aborts_a_call_that_is_made_again(mpich: str) -> None:
    text, done = world.start(2, _aborts, environment=_environment(mpich)).outcomes()[0]
    assert "abort" in text and not done


def _nothing(c: Communicator) -> Any:
    return c.rank


def test_ranks_of_several_vendors_have_none(tmp_path: Path) -> None:
    """No library serves all of them, which is said; none is looked for."""
    more = {"HCCC_DEBUG": "WARN", "HCCC_DEBUG_FILE": str(tmp_path / "log.%p")}
    of_rank: list[dict[str, str]] = [{}, _environment("/nowhere"), {"HCCC_VENDOR": "nccl"}]
    assert world.run(3, _nothing, of_rank=of_rank.__getitem__, environment=more) == [0, 1, 2]
    logs = [file.read_text() for file in tmp_path.iterdir()]
    said = "HCCC_VENDOR differs at ranks 0 and 1: no vendor's library makes calls of all ranks"
    assert [said in log for log in logs] == [True] * 3


def test_a_vendor_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    """The error has the variable and the file."""
    file = str(tmp_path / "libmpi_abi.so.1")
    found = world.run(2, _nothing, environment=_environment(file))
    assert all("HCCC_VENDOR=mpich: " in one.text and file in one.text for one in found)
