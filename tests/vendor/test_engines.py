"""Tests of the engines: every call against NumPy, and what faults end in."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hccc.runtime.communicator import Communicator, CommunicatorError, unique_id
from hccc.runtime.communicator.communicator import Result
from hccc.runtime.communicator.runtime_library import ROOMS
from hccc.runtime.vendor.engines import load
from tests.communicator import world
from tests.communicator.world import Lost
from tests.vendor import conformance

_BOTH = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float32", "float64", "float16"]
MPI_TYPES = [*_BOTH, "int16", "uint16"]
NCCL_TYPES = [*_BOTH, "int16"]
OPS = list(conformance.OPS)
LIMIT = 2.0  # seconds of a call in tests of faults


def _checked(n: int, vendor: str, file: str | None, *plan: Any, **options: Any) -> tuple[str, int]:
    """Returns the engine's name, and how many results were compared; all were right."""
    words = (conformance.check, vendor, file, unique_id(), plan)
    found = world.start(n, *words, **options).outcomes(timeout=240)
    assert not any(isinstance(one, Lost) for one in found.values()), found
    wrong = [line for _, _, lines in found.values() for line in lines]
    assert not wrong, "\n".join(wrong[:10])
    return found[0][0], sum(made for _, made, _ in found.values())


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 3])
def test_every_call_of_mpich(mpich: str, n: int) -> None:
    """MPICH starts without mpirun."""
    name, made = _checked(n, "mpich", mpich, MPI_TYPES, OPS)
    assert name.startswith("MPICH 5.")
    assert made > 1000 * n


@pytest.mark.slow
def test_every_call_of_oneccl(oneccl: str) -> None:
    """oneCCL spins, and is slow where cores are few: two types and lengths."""
    name, made = _checked(2, "oneccl", oneccl, ["float32", "int64"], ["sum", "max"], (1, 257))
    assert name.startswith("oneCCL 2022.")
    assert made > 200


@pytest.mark.parametrize("n", [1, 3])
def test_every_call_of_nccl(stand_in: str, n: int) -> None:
    """The same file serves NCCL and RCCL; here a library of the host's memory stands in."""
    name, made = _checked(n, "nccl", stand_in, NCCL_TYPES, OPS)
    assert name == "NCCL 2.28.3"
    assert made > 1000 * n


@pytest.mark.slow
def test_every_call_of_hccc() -> None:
    """hccc's own standard collectives are an engine as well."""
    name, made = _checked(
        2, "own", None, ["float32"], ["sum"], (1, 257), environment={"HCCC_STANDARD": "1"}
    )
    assert name.startswith("hccc ")
    assert made > 50


def _meets_fault(c: Communicator, vendor: str, file: str, id: bytes, fault: str) -> Any:
    """Has rank 1 be at fault before the second call; others return what they were told."""
    engine = load(vendor, file)
    comm = engine.join(id, c.n_ranks, c.rank, timeout=20)
    x = np.ones(5, "float32")
    comm.all_reduce(x)
    comm.set_timeout(LIMIT)
    if c.rank == 1 and fault == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if c.rank == 1 and fault == "does not come":
        time.sleep(LIMIT + 3)
        return None
    started = time.monotonic()
    try:
        comm.all_reduce(x)
    except CommunicatorError as error:
        lost = comm.error
        took = time.monotonic() - started
        world.mark(c.rank)
        world.await_marks((0, 2))  # a rank that has left is gone too
        comm.abort()
        comm.destroy()
        return error.result, error.text, lost, took
    return "no error"


@pytest.mark.slow
@pytest.mark.parametrize("vendor", ["mpich", "oneccl"])
@pytest.mark.parametrize("fault", ["dies", "does not come"])
def test_a_rank_that_is_gone_ends_a_call(
    vendor: str, fault: str, request: pytest.FixtureRequest
) -> None:
    """Others get an error within the deadline; it names a rank that has died."""
    file = request.getfixturevalue(vendor)
    job = world.start(3, _meets_fault, vendor, file, unique_id(), fault)
    found = job.outcomes(timeout=60, silent=[1])
    for rank in (0, 2):
        result, text, lost, took = found[rank]
        assert result == lost
        assert took < LIMIT + 2
        if fault == "dies":
            assert result == Result.REMOTE_ERROR
            assert "rank 1 is gone" in text
        else:
            assert result == Result.TIMEOUT or "gave up" in text or "is gone" in text
            assert "AllReduce of 5 float32, sum" in text


def _fails(c: Communicator, file: str, id: bytes) -> Any:
    """Returns what a rank is told of its second AllReduce, and of the one after it."""
    comm = load("nccl", file).join(id, c.n_ranks, c.rank, timeout=20)
    x = np.ones(5, "float32")
    comm.all_reduce(x)
    told = []
    for _ in range(2):
        try:
            comm.all_reduce(x)
        except CommunicatorError as error:
            told.append((error.result, error.text))
            if len(told) == 1:
                assert comm.error == error.result
                comm.abort()  # as ranks do, so that others leave the call
    comm.destroy()
    return told


def test_an_error_of_a_library_is_told_by_its_name(stand_in: str) -> None:
    """The library's own text comes along, and the communicator is lost."""
    fails = {1: {"STAND_IN_FAILS": "2"}}
    found = world.run(2, _fails, stand_in, unique_id(), of_rank=lambda r: fails.get(r, {}))
    text = "NCCL 2.28.3: the stand-in failed: as STAND_IN_FAILS asks"
    assert found[1][0] == (Result.SYSTEM_ERROR, text)
    assert found[1][1] == (Result.SYSTEM_ERROR, f"the communicator is lost: {text}")
    assert found[0][0][0] == Result.REMOTE_ERROR
    assert found[0][1][1].startswith("the communicator is lost: NCCL 2.28.3: ")


def _aborted(c: Communicator, file: str, id: bytes) -> Any:
    comm = load("mpich", file).join(id, c.n_ranks, c.rank, timeout=20)
    if c.rank:
        time.sleep(1.5)
        comm.destroy()
        return None
    threading.Timer(0.3, comm.abort).start()
    started = time.monotonic()
    try:
        comm.recv(np.zeros(5, "float32"), 1)
    except CommunicatorError as error:
        comm.destroy()
        return error.result, error.text, time.monotonic() - started
    return None


@pytest.mark.slow
def test_an_abort_ends_a_call_of_another_thread(mpich: str) -> None:
    """MPI's own call would wait for ever."""
    result, text, took = world.run(2, _aborted, mpich, unique_id())[0]
    assert (result, text) == (Result.ABORTED, "Recv of 5 float32: the communicator was aborted")
    assert 0.2 < took < LIMIT


def _errors_of_loading(file: str) -> str:
    try:
        load("mpich", file)
    except CommunicatorError as error:
        return error.text
    return ""


@pytest.mark.slow
def test_an_mpi_without_the_abi_is_refused(mpich: str) -> None:
    """MPICH's other library has MPICH's own numbers."""
    said = world.alone(_errors_of_loading, str(Path(mpich).with_name("libmpi.so.12")))
    assert "has not the ABI of MPI 5.0" in said
    assert "libmpi_abi.so.1" in said


@pytest.mark.parametrize("kind", ["missing", "text"])
def test_what_is_no_library_is_refused(tmp_path: Path, kind: str) -> None:
    """The error names the file, and the variable that does."""
    file = tmp_path / "libmpi_abi.so.1"
    if kind == "text":
        file.write_text("no library")
    said = world.alone(_errors_of_loading, str(file))
    assert str(file) in said
    assert "HCCC_VENDOR_LIBRARY" in said


def test_an_unknown_vendor_is_refused() -> None:
    """The error lists those that are known."""
    with pytest.raises(CommunicatorError, match="there is no vendor cray: nccl, rccl, mpich"):
        load("cray", "/none")


def test_a_library_finds_the_environment_of_any_program(tmp_path: Path) -> None:
    """A program that is not position-independent has libc's `environ` as its own."""
    library, program = tmp_path / "library.c", tmp_path / "program.cpp"
    library.write_text(
        "#include <string.h>\nextern char **environ;\n"
        "int found(void) { return environ && *environ && strlen(*environ) > 0; }\n"
    )
    program.write_text(
        f'#include <stdlib.h>\n#include <string>\n#include "{ROOMS / "vendor" / "apart.h"}"\n'
        "int main(int, char **given) {\n"
        "  void *handle = hccc::vendor::open_apart(given[1]);\n"
        '  auto *found = reinterpret_cast<int (*)()>(dlsym(handle, "found"));\n'
        "  for (int k = 0; k < 1000; ++k) setenv(std::to_string(k).c_str(), given[1], 1);\n"
        "  return environ && found && found() == 1 ? 0 : 1;\n}\n"
    )
    made = [str(tmp_path / name) for name in ("library.so", "program")]
    subprocess.run(["gcc", "-shared", "-fPIC", str(library), "-o", made[0]], check=True)
    words = ["g++", "-std=c++17", "-fno-pie", "-no-pie", str(program), "-o", made[1]]
    subprocess.run(words, check=True)
    subprocess.run([made[1], made[0]], check=True)
