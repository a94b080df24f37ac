"""Ranks of several platforms in one job: CPUs, and CUDA over a runtime that works on the CPU, on
hosts of their own (HCCC_HOST_ID), with libraries of one plan."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from hccc.api import functions as api
from hccc.driver.assumed import usual_hosts
from hccc.driver.options import Options
from hccc.emit.targets import CPU
from hccc.ir.collective import OpType
from hccc.runtime.communicator import Communicator, CommunicatorError
from hccc.runtime.communicator.communicator import Result
from hccc.runtime.communicator.kernels import built
from hccc.runtime.communicator.runtime_library import library as runtime_library
from hccc.runtime.transport.ucx_transport import available
from hccc.synth.builtin import registry
from tests.communicator import cuda
from tests.communicator.test_calls import pattern
from tests.communicator.test_cuda import CudaRank
from tests.communicator.test_hosts import HOSTS
from tests.communicator.world import Lost, await_marks, mark, start

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not cuda.have_compiler(), reason="no g++"),
]
N, ROOT, INT32, FLOAT32, SUM, COUNTS = 4, 1, 2, 7, 0, (1003, 3, 70_001)
PLATFORMS = ["cuda+cuda", "cuda+host", "host+cuda"]
VICTIM = 3


class Shape(NamedTuple):
    """Blocks of a collective's input and output, and what a rank gets of all inputs."""

    send: int
    receive: int
    words: tuple[int, ...]  # of its C function, behind the type
    of: Callable[[list[Any], int], Any]


def _columns(x: list[Any], r: int) -> Any:
    return np.concatenate([one.reshape(N, -1)[r] for one in x])


def _columns_sum(x: list[Any]) -> Any:
    return np.sum(x, axis=0, dtype=np.int32).reshape(N, -1)


SHAPES = {
    OpType.ALLREDUCE: Shape(1, 1, (SUM,), lambda x, r: sum(x)),
    OpType.ALLGATHER: Shape(1, N, (), lambda x, r: np.concatenate(x)),
    OpType.REDUCESCATTER: Shape(N, 1, (SUM,), lambda x, r: _columns_sum(x)[r]),
    OpType.ALLTOALL: Shape(N, N, (), _columns),
    OpType.BROADCAST: Shape(1, 1, (ROOT,), lambda x, r: x[ROOT]),
    OpType.REDUCE: Shape(1, 1, (SUM, ROOT), lambda x, r: sum(x) if r == ROOT else None),
    OpType.GATHER: Shape(1, N, (ROOT,), lambda x, r: np.concatenate(x) if r == ROOT else None),
    OpType.SCATTER: Shape(N, 1, (ROOT,), lambda x, r: x[ROOT].reshape(N, -1)[r]),
}
FUNCTIONS = {"Allreduce": "AllReduce", "Allgather": "AllGather", "Reducescatter": "ReduceScatter"}
FUNCTIONS["Alltoall"] = "AllToAll"
Libraries = dict[OpType, dict[str, Path]]


@pytest.fixture(autouse=True)
def ucx() -> None:
    """Skips where there is no UCX."""
    usable, text = available()
    if not usable:
        pytest.skip(text)


@pytest.fixture(scope="session")
def libraries(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Libraries:
    """Builds each collective over two hosts of two ranks: for CUDA, and for the CPU from the
    directory of the same plan."""
    where, found = usual_hosts([2, 2]), {}
    for op in SHAPES:
        name = "hierarchical" if op is OpType.ALLREDUCE else "direct"
        program = registry.make(name, where, op, ROOT)
        (plan,) = api.compile(program, Options(tune="off")).catalogue.plans
        place = tmp_path_factory.mktemp(op.value)
        its = {
            "cuda": cuda.library(plan, place / "cuda", runtime),
            "cpu": cuda.emitted(plan, place / "cpu", CPU),
        }
        built(its["cpu"], ["int32"], ["sum"])
        found[op] = its
    return found


class HostRank:
    """A rank in memory of the host, with CudaRank's functions."""

    def __init__(self, communicator: Communicator) -> None:
        self.c = communicator

    def empty(self, count: int) -> np.ndarray[Any, Any]:
        """Returns an array in memory of hcccMemAlloc."""
        made: np.ndarray[Any, Any] = self.c.empty(count, "int32")
        return made

    def foreign(self, count: int) -> np.ndarray[Any, Any]:
        """Returns an array of the process's own."""
        return np.empty(count, np.int32)

    def wait(self) -> None:
        """Returns at once: calls have ended."""


def rank_of(c: Communicator, libraries: Libraries, *ops: OpType) -> CudaRank | HostRank:
    """Loads the libraries of the rank's platform."""
    on_cuda = c.platform == "cuda"
    rank = CudaRank(c) if on_cuda else HostRank(c)
    for op in ops:
        place = libraries[op][c.platform]
        c.load(place) if on_cuda else c.load(place, ["int32"], ["sum"])
    return rank


def perform(rank: CudaRank | HostRank, op: OpType, send: Any, receive: Any, count: int) -> None:
    """Makes a call by the C interface, in the default stream. Raises CommunicatorError."""
    name = FUNCTIONS.get(op.value, op.value)
    words = (send.ctypes.data, receive.ctypes.data, count, INT32, *SHAPES[op].words)
    result = runtime_library().call(name, *words, rank.c._handle, None)
    if result:
        raise CommunicatorError(Result(result), runtime_library().last_error())


def checks(rank: CudaRank | HostRank, op: OpType, count: int, shared: bool) -> bytes:
    """Makes one call of data that differ by rank, place and call, and returns its result's bits."""
    shape, r, make = SHAPES[op], rank.c.rank, rank.empty if shared else rank.foreign
    inputs = [pattern(q, count, shape.send) + count + shared for q in range(N)]
    send, receive = make(shape.send * count), make(shape.receive * count)
    send[:] = inputs[r]
    receive[:] = -1
    perform(rank, op, send, receive, count)
    rank.wait()
    wanted = shape.of(inputs, r)
    if wanted is not None:
        assert np.array_equal(receive, wanted), (op, count, shared)
    return b"" if wanted is None else receive.tobytes()


def all_of_them(communicator: Communicator, libraries: Libraries) -> dict[str, bytes]:
    """Makes all collectives, of several lengths, in memory that peers reach and in others."""
    rank = rank_of(communicator, libraries, *SHAPES)
    found = {}
    for op in SHAPES:
        for count in COUNTS:
            for shared in (True, False):
                found[f"{op.value}{count}{shared}"] = checks(rank, op, count, shared)
    return found


def on(platforms: str, runtime: Path, **more: str) -> Callable[[int], Mapping[str, str]]:
    """Returns the environment of each rank. platforms: of each host of two ranks."""

    def of_rank(rank: int) -> Mapping[str, str]:
        host = rank // 2
        on_cuda = platforms.split("+")[host] == "cuda"
        its = cuda.environment(runtime, HCCC_SCRATCH_BYTES=str(32 << 20)) if on_cuda else {}
        return {**HOSTS, **its, "HCCC_HOST_ID": f"host{host}", **more}

    return of_rank


def test_all_collectives_have_the_bits_of_cpus(
    runtime: Path, libraries: Libraries, tmp_path: Path
) -> None:
    words = (all_of_them, libraries)
    wanted = start(N, *words, of_rank=on("host+host", runtime)).outcomes(timeout=300)
    for platforms in PLATFORMS:
        log = tmp_path / platforms
        more = {"HCCC_DEBUG": "INFO", "HCCC_DEBUG_FILE": str(log), "HCCC_SLICE_BYTES": "16384"}
        found = start(N, *words, of_rank=on(platforms, runtime, **more)).outcomes(timeout=300)
        assert found == wanted, platforms
        assert (
            "memory of a device, which UCX cannot reach: staged through 8 slots of 16384 bytes"
            in log.read_text()
        )


def _floats(rank: int) -> Any:
    """Returns floats of a rank whose sums depend on the order in which they are added."""
    return np.random.default_rng(rank).normal(size=COUNTS[0]).astype(np.float32)


def float_sums(communicator: Communicator, its: dict[str, Path]) -> list[bytes]:
    """Adds floats in both kinds of memory, and returns the bits of the sums."""
    c, place = communicator, its[communicator.platform]
    rank: CudaRank | HostRank = CudaRank(c, place) if c.platform == "cuda" else HostRank(c)
    if c.platform != "cuda":
        c.load(place, ["float32"], ["sum"])
    found = []
    for make in (rank.empty, rank.foreign):
        send, receive = make(COUNTS[0]), make(COUNTS[0])
        send.view(np.float32)[:] = _floats(c.rank)
        words = (send.ctypes.data, receive.ctypes.data, COUNTS[0], FLOAT32, SUM)
        assert not runtime_library().call("AllReduce", *words, c._handle, None)
        rank.wait()
        found.append(receive.tobytes())
    return found


def test_sums_of_floats_have_the_bits_of_cpus(runtime: Path, tmp_path: Path) -> None:
    """Which are those of one order of adding: another one's differ."""
    program = registry.make("hierarchical", usual_hosts([2, 2]), OpType.ALLREDUCE, ROOT)
    (plan,) = api.compile(program, Options(tune="off")).catalogue.plans
    its = {
        "cuda": cuda.library(plan, tmp_path / "cuda", runtime, "float32"),
        "cpu": cuda.emitted(plan, tmp_path / "cpu", CPU),
    }
    built(its["cpu"], ["float32"], ["sum"])
    wanted = start(N, float_sums, its, of_rank=on("host+host", runtime)).outcomes()
    sums = np.frombuffer(wanted[0][0], np.float32)
    a, b, c, d = map(_floats, range(N))
    assert np.allclose(sums, a + b + c + d, atol=1e-5)
    assert len({x.tobytes() for x in (a + b + c + d, d + c + b + a, (a + b) + (c + d))}) == 3
    assert wanted == dict.fromkeys(range(N), [sums.tobytes()] * 2)
    for platforms in PLATFORMS:
        assert start(N, float_sums, its, of_rank=on(platforms, runtime)).outcomes() == wanted


def killed(communicator: Communicator, libraries: Libraries) -> Lost:
    """Has a rank killed, in a call of the others, and returns what these are told."""
    rank = rank_of(communicator, libraries, OpType.ALLREDUCE)
    checks(rank, OpType.ALLREDUCE, 1003, True)
    mark(communicator.rank)
    if communicator.rank == VICTIM:
        await_marks(range(N))  # its part of the call is done before the others' are
        os.kill(os.getpid(), signal.SIGKILL)
    return told(rank)


def told(rank: CudaRank | HostRank) -> Lost:
    """Returns the error of a call, at once on a CPU, later on a GPU."""
    since = time.monotonic()
    send, receive = rank.empty(1003), rank.empty(1003)
    try:
        perform(rank, OpType.ALLREDUCE, send, receive, 1003)
        while time.monotonic() < since + 30:
            if rank.c.error:
                rank.c.check()
            time.sleep(0.01)
    except CommunicatorError as error:
        return Lost(error.result, error.text, time.monotonic() - since)
    raise AssertionError("no error")


@pytest.mark.parametrize("platforms", PLATFORMS)
def test_a_killed_rank_is_told_to_all(runtime: Path, libraries: Libraries, platforms: str) -> None:
    found = start(N, killed, libraries, of_rank=on(platforms, runtime, HCCC_TIMEOUT="8"))
    for one in found.outcomes(silent=[VICTIM]).values():
        assert isinstance(one, Lost) and one.seconds < 10, one
        assert f"rank {VICTIM}" in one.text, one.text


def other_call(communicator: Communicator, libraries: Libraries) -> str:
    """Has one rank make another call, which costs nothing: a right one works afterwards."""
    rank = rank_of(communicator, libraries, OpType.ALLREDUCE, OpType.ALLGATHER)
    checks(rank, OpType.ALLREDUCE, 1003, True)
    send, receive = rank.empty(1003), rank.empty(1003 * N)
    op = OpType.ALLGATHER if communicator.rank == VICTIM else OpType.ALLREDUCE
    text, since = "", time.monotonic()
    try:
        perform(rank, op, send, receive, 1003)
        while not rank.c.error and time.monotonic() < since + 30:
            time.sleep(0.01)
        rank.c.check()
    except CommunicatorError as error:
        text = error.text
    checks(rank, OpType.ALLREDUCE, 70_001, True)
    return text


@pytest.mark.parametrize("platforms", PLATFORMS)
def test_another_call_at_one_rank_costs_nothing(
    runtime: Path, libraries: Libraries, platforms: str
) -> None:
    found = start(N, other_call, libraries, of_rank=on(platforms, runtime)).outcomes()
    for text in found.values():
        assert isinstance(text, str) and "Allgather" in text and "Allreduce" in text, found


def fewer_types(communicator: Communicator, libraries: Libraries) -> str:
    """Loads more types at ranks of CPUs than others have, and returns the error of one of these;
    others work."""
    c, places = communicator, libraries[OpType.ALLREDUCE]
    text = ""
    if c.platform == "cuda":
        rank: CudaRank | HostRank = CudaRank(c, places["cuda"])
    else:
        rank = HostRank(c)
        c.load(places["cpu"], ["int32", "float32"], ["sum"])
        try:
            c.all_reduce(c.empty(10, "float32"))
        except CommunicatorError as error:
            text = error.text
    checks(rank, OpType.ALLREDUCE, 1003, True)
    return text


def test_types_are_those_that_all_ranks_have(runtime: Path, libraries: Libraries) -> None:
    found = start(N, fewer_types, libraries, of_rank=on("cuda+host", runtime)).outcomes()
    assert found[0] == found[1] == ""
    assert "is not built for float32, sum, at another rank" in found[2] and found[2] == found[3]


def messages(communicator: Communicator) -> str:
    """Returns the error of a message to memory of a device."""
    if communicator.platform == "cuda":
        return ""
    try:
        communicator.send(np.zeros(4, np.float32), 0)
    except CommunicatorError as error:
        return error.text
    return "sent"


def test_messages_to_devices_are_refused(runtime: Path) -> None:
    found = start(N, messages, of_rank=on("cuda+host", runtime)).outcomes()
    assert "rank 0 has memory of a device: sends and receives of it are not there" in found[2]


def test_hosts_are_of_one_platform_each(runtime: Path) -> None:
    platform = on("cuda+host", runtime)

    def of_rank(rank: int) -> Mapping[str, str]:
        return {**platform(0 if rank < 3 else 3), "HCCC_HOST_ID": f"host{rank // 2}"}

    found = start(N, messages, of_rank=of_rank).outcomes()
    texts = " ".join(one.text for one in found.values())
    assert "rank 3 has memory of host, rank 2 of cuda, and they are on one host" in texts
