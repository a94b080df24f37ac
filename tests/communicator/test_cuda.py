"""Libraries for CUDA in communicators, over a runtime of CUDA that works on the CPU."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.ir.catalogue import Range, assembled
from hccc.ir.uneven import RECEIVE, SEND, BlockTable
from hccc.runtime.communicator import Communicator, CommunicatorError, group
from hccc.runtime.communicator.communicator import Result
from hccc.runtime.communicator.runtime_library import library as runtime_library
from hccc.runtime.device.device_layer import library as device_library
from hccc.runtime.device.device_layer import use
from tests.communicator import cuda
from tests.communicator.test_calls import COUNT, pattern
from tests.communicator.test_refusals import SAID, WRONGS, told
from tests.communicator.test_uneven import collective, images, random_tables, rows
from tests.communicator.world import Lost, alone, await_marks, mark, run, start
from tests.emit import plans

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not cuda.have_compiler(), reason="no g++"),
]
VICTIM, TYPE_INT32, SUM = 1, 2, 0
LONG_S = 4  # of a call


@pytest.fixture(scope="session")
def sums(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds an AllReduce of three ranks."""
    place = tmp_path_factory.mktemp("sums") / "kernels"
    return cuda.library(plans.compiled(plans.mesh_allreduce(3)), place, runtime)


@pytest.fixture(scope="session")
def packets(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the same by packets."""
    plan = driver.compile_program(plans.mesh_allreduce(3), Options(protocol="ll")).plan
    place = tmp_path_factory.mktemp("packets") / "kernels"
    return cuda.library(replace(plan, max_bytes=1 << 20), place, runtime)  # as the tests' calls


class CudaRank:
    """A rank, its memory as arrays that the CPU reads too, and streams of the platform."""

    def __init__(self, communicator: Communicator, place: Path | None = None) -> None:
        self.c = communicator
        use("cuda")
        self.device = device_library()
        if place:
            self.c.load(place)

    def empty(self, count: int) -> np.ndarray[Any, Any]:
        """Returns an array in memory of hcccMemAlloc."""
        pointer = ctypes.c_void_p()
        assert not runtime_library().call("MemAlloc", ctypes.byref(pointer), count * 4)
        memory = (ctypes.c_int32 * count).from_address(pointer.value or 0)
        return np.ctypeslib.as_array(memory)

    def foreign(self, count: int) -> np.ndarray[Any, Any]:
        """Returns an array in device memory that is not shown to peers."""
        pointer = ctypes.c_void_p()
        self.device.call("Malloc", ctypes.byref(pointer), count * 4)
        memory = (ctypes.c_int32 * count).from_address(pointer.value or 0)
        return np.ctypeslib.as_array(memory)

    def stream(self) -> int:
        """Makes a stream."""
        made = ctypes.c_void_p()
        self.device.call("StreamCreateWithFlags", ctypes.byref(made), 1)
        return made.value or 0

    def all_reduce(self, send: Any, receive: Any, stream: int | None = None) -> None:
        """Puts it into the stream. Raises CommunicatorError."""
        words = (send.ctypes.data, receive.ctypes.data, send.size, TYPE_INT32, SUM)
        result = runtime_library().call("AllReduce", *words, self.c._handle, stream)
        if result:
            raise CommunicatorError(Result(result), runtime_library().last_error())

    def wait(self, stream: int | None = None) -> None:
        """Synchronizes with a stream."""
        self.device.call("StreamSynchronize", stream)


def all_reduces(communicator: Communicator, place: Path) -> bool:
    """Checks AllReduce in and out of place, in both kinds of memory, in several streams."""
    rank = CudaRank(communicator, place)
    me, n = rank.c.rank, rank.c.n_ranks
    streams = [None, rank.stream(), rank.stream()]
    for turn, count in enumerate((COUNT, 1, 70_001, COUNT)):
        wanted = sum(pattern(r, count) for r in range(n))
        for make in (rank.empty, rank.foreign):
            send, receive, stream = make(count), make(count), streams[turn % 3]
            send[:] = pattern(me, count)
            rank.all_reduce(send, receive, stream)
            rank.all_reduce(send, send, streams[(turn + me) % 3])
            rank.wait(stream)
            assert np.array_equal(receive, wanted), (count, make)
            rank.wait(streams[(turn + me) % 3])
            assert np.array_equal(send, wanted), (count, make)
    return True


@pytest.mark.parametrize(
    ("has", "name"),
    [
        ("vmm descriptor", "descriptors"),
        ("vmm descriptor fabric", "fabric handles"),
        ("", "legacy handles"),
    ],
)
def test_all_reduce(runtime: Path, sums: Path, tmp_path: Path, has: str, name: str) -> None:
    log = {"HCCC_DEBUG": "INFO", "HCCC_DEBUG_FILE": str(tmp_path / "log")}
    environment = cuda.environment(runtime, has, **log)
    assert run(3, all_reduces, sums, environment=environment) == [True] * 3
    text = (tmp_path / "log").read_text()
    assert f"cuda 0: memory is shared by {name}\n" in text
    assert f"flags and scratch of rank 2, 18874368 bytes, by {name}" in text


@pytest.fixture(scope="session")
def blocks(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds an Alltoallv of three ranks."""
    program = plans.alltoall(3)
    program = replace(program, collective=replace(program.collective, uneven=True))
    place = tmp_path_factory.mktemp("blocks") / "kernels"
    return cuda.library(plans.compiled(program), place, runtime)


def uneven(communicator: Communicator, place: Path) -> str:
    """Makes calls of any lengths in two streams, in both kinds of memory; returns the error of one
    with lengths that differ, after which a right one works."""
    rank = CudaRank(communicator, place)
    streams = [None, rank.stream()]

    def call(table: BlockTable, make: Any, number: int) -> None:
        stream = streams[number % 2]
        before = images(table, rank.c.rank, number)
        send, receive = (make(max(1, len(one)))[: len(one)] for one in before[:2])
        send[:], receive[:] = before[:2]
        words: list[Any] = []
        for which, array in ((SEND, send), (RECEIVE, receive)):
            words.append(array.ctypes.data)
            words += [(ctypes.c_size_t * 3)(*row) for row in rows(table, rank.c.rank, which)]
        handle = rank.c._handle
        result = runtime_library().call("AllToAllv", *words, TYPE_INT32, handle, stream)
        if result:
            raise CommunicatorError(Result(result), runtime_library().last_error())
        rank.wait(stream)
        assert np.array_equal(receive, before[2]), number

    for number, table in enumerate(random_tables("all_to_all", 11, 12)):
        call(table, (rank.empty, rank.foreign)[number % 3 % 2], number)
    lengths = np.arange(9)
    right = BlockTable.packed(collective("all_to_all"), lengths)
    wrong = BlockTable.packed(right.collective, lengths + (lengths == 1) * 7)  # from rank 0 to 1
    with pytest.raises(CommunicatorError) as caught:
        call(wrong if rank.c.rank == 1 else right, rank.empty, 0)
    rank.device.call("StreamBeginCapture", streams[1], 0)
    with pytest.raises(CommunicatorError, match="Alltoallv cannot be captured in a graph"):
        call(right, rank.empty, 1)
    rank.device.call("StreamEndCapture", streams[1], ctypes.byref(ctypes.c_void_p()))
    call(right, rank.foreign, 1)
    return caught.value.text


def test_blocks_of_any_length(runtime: Path, blocks: Path) -> None:
    texts = run(3, uneven, blocks, environment=cuda.environment(runtime))
    assert len(set(texts)) == 1
    assert texts[0].endswith("rank 0 sends 1 elements to rank 1, which receives 8 from it")


class OnDevice:
    """An array in memory of the device, as CuPy shows its own."""

    def __init__(self, of: np.ndarray[Any, Any]) -> None:
        self.of = of

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.of.__array_interface__, "version": 3}


def counted_on_the_device(communicator: Communicator, place: Path) -> int:
    """Makes calls whose lengths and places a stream writes late, in C and in Python."""
    rank = CudaRank(communicator, place)
    me, stream = rank.c.rank, rank.stream()
    late = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: time.sleep(0.3))

    def in_c(send: Any, receive: Any, counts: Any) -> None:
        out, at, back, to = (row.ctypes.data for row in counts.reshape(4, 3))
        words = (send.ctypes.data, out, at, receive.ctypes.data, back, to, TYPE_INT32)
        result = runtime_library().call("AllToAllv", *words, rank.c._handle, stream)
        if result:
            raise CommunicatorError(Result(result), runtime_library().last_error())

    def in_python(send: Any, receive: Any, counts: Any) -> None:
        out, at, back, to = map(OnDevice, counts.reshape(4, 3))
        rank.c.all_to_all_v(OnDevice(send), OnDevice(receive), out, back, at, to, stream=stream)

    tables = random_tables("all_to_all", 5, 4)
    there = rank.foreign(24).view(np.int64)
    for number, table in enumerate(tables):
        before = images(table, me, number)
        send, receive = (rank.empty(max(1, len(one)))[: len(one)] for one in before[:2])
        send[:], receive[:] = before[:2]
        numbers = np.array([rows(table, me, which) for which in (SEND, RECEIVE)], np.int64)
        there[:] = 1 << 40  # more than there is
        rank.device.call("LaunchHostFunc", stream, late, None)
        words = (there.ctypes.data, numbers.ctypes.data, numbers.nbytes, 4, stream)
        rank.device.call("MemcpyAsync", *words)
        (in_c, in_python)[number % 2](send, receive, there)
        rank.wait(stream)
        assert np.array_equal(receive, before[2]), number
    rank.device.call("StreamBeginCapture", stream, 0)
    x = rank.empty(3)
    with pytest.raises(CommunicatorError, match="Alltoallv cannot be captured in a graph"):
        in_c(x, x, there)
    rank.device.call("StreamEndCapture", stream, ctypes.byref(ctypes.c_void_p()))
    return len(tables)


def test_lengths_in_memory_of_the_device(runtime: Path, blocks: Path) -> None:
    found = run(3, counted_on_the_device, blocks, environment=cuda.environment(runtime))
    assert found == [4] * 3


def uneven_once(communicator: Communicator, place: Path, other: Path, how: str) -> None:
    """Makes an uneven call that rank 1 does not make."""
    rank = CudaRank(communicator, place)
    rank.c.load(other)
    rank.c.set_timeout(2)
    x, ones = rank.empty(3), (ctypes.c_size_t * 3)(1, 1, 1)
    if rank.c.rank == VICTIM and how == "late":
        time.sleep(4)
    elif rank.c.rank == VICTIM:
        rank.all_reduce(x, x)
        async_error(rank.c, 10)
        return
    at = x.ctypes.data
    words = (at, ones, None, at, ones, None, TYPE_INT32, rank.c._handle, None)
    result = runtime_library().call("AllToAllv", *words)
    raise CommunicatorError(Result(result), runtime_library().last_error())


@pytest.mark.parametrize(
    ("how", "result", "text"),
    [
        ("late", Result.TIMEOUT, "timed out after 2 s: rank 1 has not started the call"),
        ("other", Result.INVALID_USAGE, "rank 1 calls Allreduce of 3 int32"),
    ],
)
def test_a_rank_that_does_not_make_an_uneven_call(
    runtime: Path, sums: Path, blocks: Path, how: str, result: Result, text: str
) -> None:
    environment = cuda.environment(runtime)
    found = start(3, uneven_once, blocks, sums, how, environment=environment).outcomes()
    for rank in (0, 2):
        assert found[rank].result is result and text in found[rank].text, found


def async_error(c: Communicator, seconds: float) -> Lost:
    """Returns the error that the communicator reports within `seconds` without being called."""
    started = time.monotonic()
    while c.error is Result.SUCCESS:
        assert time.monotonic() - started < seconds, "nobody was told"
        time.sleep(0.01)
    waited = time.monotonic() - started
    with pytest.raises(CommunicatorError) as said:
        c.check()
    return Lost(c.error, said.value.text, waited)


def wrong_once(communicator: Communicator, place: Path, how: str) -> Any:
    """Makes right calls, then a call that does not end at the other ranks, which only look."""
    rank = CudaRank(communicator, place)
    x = rank.empty(COUNT)
    for _ in range(3):
        rank.all_reduce(x, x)
    rank.wait()
    mark(rank.c.rank)
    if rank.c.rank == VICTIM:
        await_marks(range(3))  # their parts of the calls are done as well
        if how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "abort":
            time.sleep(0.2)
            rank.c.abort()
            return None
        if how == "stall":
            time.sleep(4)
            return None
    rank.all_reduce(x, x)
    rank.all_reduce(x, x)  # does nothing, after the error
    lost = async_error(rank.c, 4)
    rank.wait()
    return lost


@pytest.mark.parametrize(
    ("how", "result", "text"),
    [
        ("die", Result.REMOTE_ERROR, "rank 1 is gone"),
        ("abort", Result.ABORTED, "rank 1 has aborted"),
        ("stall", Result.TIMEOUT, "rank 1 has not started the call"),
    ],
)
def test_errors_are_seen_later(
    runtime: Path, sums: Path, how: str, result: Result, text: str
) -> None:
    environment = cuda.environment(runtime, HCCC_TIMEOUT="1.5")
    silent = [VICTIM] if how == "die" else []
    found = start(3, wrong_once, sums, how, environment=environment).outcomes(silent=silent)
    for rank in (0, 2):
        assert isinstance(found[rank], Lost), found
        assert found[rank].result is result and text in found[rank].text, found[rank].text


def late_and_stopped(communicator: Communicator, place: Path) -> Lost | None:
    """Launches a call for which rank 2 is late, and in which rank 1 then stops."""
    rank = CudaRank(communicator, place)
    send, receive = rank.empty(1 << 24), rank.empty(1 << 24)
    if rank.c.rank == 2:
        time.sleep(0.7 * LONG_S)
        mark(2)
    rank.all_reduce(send, receive)
    if rank.c.rank == VICTIM:
        await_marks([2])
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGSTOP)
    return async_error(rank.c, LONG_S + 2)


def test_a_late_rank_gives_no_wait_of_a_kernel_more_time(runtime: Path, sums: Path) -> None:
    environment = cuda.environment(runtime, HCCC_TIMEOUT=str(LONG_S))
    found = start(3, late_and_stopped, sums, environment=environment).outcomes(silent=[VICTIM])
    for rank in (0, 2):
        assert isinstance(found[rank], Lost) and found[rank].result is Result.TIMEOUT, found
        assert "timed out after 4 s: rank 1 stands still" in found[rank].text, found[rank].text
        assert found[rank].seconds < LONG_S + 2, found


def other_calls(communicator: Communicator, place: Path, blocks: Path) -> list[str]:
    """Makes another call at one rank, several times, and right ones behind each."""
    rank = CudaRank(communicator, place)
    rank.c.load(blocks)
    x, me = rank.empty(COUNT), rank.c.rank
    stream, texts = rank.stream(), []

    def uneven() -> None:
        ones = (ctypes.c_size_t * 3)(1, 1, 1)
        words = (x.ctypes.data, ones, None, x.ctypes.data, ones, None, TYPE_INT32)
        result = runtime_library().call("AllToAllv", *words, rank.c._handle, stream)
        if result:
            raise CommunicatorError(Result(result), runtime_library().last_error())

    def shorter() -> None:
        rank.all_reduce(x[:100], x[:100], stream)

    for turn, other in enumerate((shorter, uneven, shorter)):
        with pytest.raises(CommunicatorError) as caught:
            if me == turn:
                other()
            for _ in range(2):  # the second does nothing
                rank.all_reduce(x, x, stream)
            caught_late = async_error(rank.c, 5)
            assert caught_late.result is Result.INVALID_USAGE
            rank.c.check()
        texts.append(caught.value.text)
        rank.wait(stream)
        for _ in range(3):
            x[:] = me
            rank.all_reduce(x, x, stream)
            rank.wait(stream)
            assert (x == 3).all()
        assert rank.c.error is Result.SUCCESS
    return texts


SAID_OF_OTHERS = ("of 100 int32", "Alltoallv of int32", "of 100 int32")


@pytest.mark.parametrize("has", ["vmm descriptor", ""])
def test_another_call_at_one_rank_costs_nothing(
    runtime: Path, sums: Path, blocks: Path, has: str
) -> None:
    environment = cuda.environment(runtime, has)
    found = run(3, other_calls, sums, blocks, environment=environment)
    assert found[0] == found[1] == found[2]
    for text, said in zip(found[0], SAID_OF_OTHERS, strict=True):
        assert said in text and f"Allreduce of {COUNT} int32 (sum) in place" in text, text


def different_on_gpus(communicator: Communicator, place: Path) -> list[str]:
    """Makes launches that differ, which return before their ranks are told."""
    rank, texts = CudaRank(communicator, place), []
    c, stream = rank.c, rank.stream()
    x = rank.empty(COUNT)

    def act(name: str) -> None:
        if name == "load":
            c.load(place)
        elif name == "split":
            c.split(0)
        else:
            rank.all_reduce(x, x, stream)
            until = time.monotonic() + 5
            while c.error is Result.SUCCESS and time.monotonic() < until:
                time.sleep(0.001)
            c.check()

    for turn, (one, other) in enumerate(WRONGS):
        name = one if c.rank == turn % c.n_ranks else other
        texts.append(told(lambda: act(name)))  # noqa: B023
        for _ in range(2):
            rank.wait(stream)
            x[:] = c.rank + turn
            rank.all_reduce(x, x, stream)
            rank.wait(stream)
            assert (x == 3 + 3 * turn).all()
            c.load(place)
        assert c.error is Result.SUCCESS
    return texts


@pytest.mark.parametrize("has", ["vmm descriptor", ""])
def test_a_rank_that_loads_or_splits_on_a_gpu(runtime: Path, sums: Path, has: str) -> None:
    environment = cuda.environment(runtime, has)
    found = start(3, different_on_gpus, sums, environment=environment).outcomes()
    for rank, texts in found.items():
        for turn, (text, wrong) in enumerate(zip(texts, WRONGS, strict=True)):
            assert f"rank {turn % 3} {SAID[wrong[0]]}" in text, (rank, text)
            assert SAID[wrong[1]] in text, (rank, text)


def one_call(communicator: Communicator, place: Path) -> bool:
    rank = CudaRank(communicator, place)
    x = rank.empty(COUNT)
    rank.all_reduce(x, x)
    rank.wait()
    rank.c.check()
    return True


@pytest.mark.parametrize(
    ("has", "more", "of_one", "text"),
    [
        ("vmm descriptor", {}, "cuMemImportFromShareableHandle", "mapping another rank's memory"),
        ("vmm descriptor", {}, "cuMemExportToShareableHandle", "a handle of memory"),
        ("vmm descriptor", {}, "cuMemSetAccess", "memory of the device"),
        ("", {}, "cudaIpcOpenMemHandle", "mapping another rank's memory"),
        ("", {"HCCC_HANDLES": "descriptor"}, "", "memory of cuda 0 has: legacy"),
    ],
)
def test_a_device_that_refuses(
    runtime: Path, sums: Path, has: str, more: dict[str, str], of_one: str, text: str
) -> None:
    """Whichever call it is, and at one rank alone: all ranks end with an error."""
    environment = cuda.environment(runtime, has, **more, HCCC_TIMEOUT="5")
    found = start(
        3,
        one_call,
        sums,
        environment=environment,
        of_rank=lambda rank: {"FAKE_CUDA_REFUSES": of_one} if rank == VICTIM else {},
    ).outcomes()
    assert all(isinstance(one, Lost) for one in found.values()), found
    assert text in found[VICTIM].text, found


def test_ranks_whose_devices_differ(runtime: Path, sums: Path) -> None:
    environment = cuda.environment(runtime)
    found = start(
        3,
        one_call,
        sums,
        environment=environment,
        of_rank=lambda rank: {"FAKE_CUDA_LACKS": "cuMemMap"} if rank == VICTIM else {},
    ).outcomes()
    said = "is shared by descriptors, which rank 1's device does not have: set HCCC_HANDLES"
    assert all(isinstance(one, Lost) for one in found.values()), found
    assert said in found[0].text and said in found[VICTIM].text
    alike = {**environment, "HCCC_HANDLES": "legacy"}
    found = start(
        3,
        one_call,
        sums,
        environment=alike,
        of_rank=lambda rank: {"FAKE_CUDA_LACKS": "cuMemMap"} if rank == VICTIM else {},
    ).outcomes()
    assert found == dict.fromkeys(range(3), True)


def test_a_fabric_without_a_channel(runtime: Path, sums: Path, tmp_path: Path) -> None:
    """A device that says that it has them, and cannot make one."""
    log = {"HCCC_DEBUG": "INFO", "HCCC_DEBUG_FILE": str(tmp_path / "log")}
    environment = cuda.environment(runtime, "vmm fabric", **log)
    refuses = {"FAKE_CUDA_REFUSES": "cuMemExportToShareableHandle"}
    assert run(3, one_call, sums, environment={**environment, **refuses}) == [True] * 3
    assert "memory is shared by legacy handles\n" in (tmp_path / "log").read_text()


def launched_late(communicator: Communicator, place: Path) -> int:
    """Returns how many kernels were loaded by a launch."""
    one_call(communicator, place)
    return ctypes.c_int.in_dll(ctypes.CDLL(str(place)), "working_late_loads").value


def test_kernels_are_loaded_with_their_library(runtime: Path, sums: Path) -> None:
    found = run(3, launched_late, sums, environment=cuda.environment(runtime))
    assert found == [0] * 3


def maps_late(communicator: Communicator, place: Path) -> Lost:
    """Passes a buffer that the others, which have launched the call, have not mapped."""
    pointer, handle = ctypes.c_void_p(), ctypes.c_void_p()
    assert not runtime_library().call("MemAlloc", ctypes.byref(pointer), COUNT * 4)
    words = (communicator.handle, pointer, COUNT * 4, ctypes.byref(handle))
    assert not runtime_library().call("CommRegister", *words)  # all ranks map it
    rank = CudaRank(communicator, place)  # all ranks meet
    x = np.ctypeslib.as_array((ctypes.c_int32 * COUNT).from_address(pointer.value or 0))
    rank.all_reduce(x, x)
    rank.wait()
    if rank.c.rank:
        rank.all_reduce(x, x)
        mark(rank.c.rank)
        return async_error(rank.c, 6)
    x = rank.empty(17 << 20)  # a segment of its own
    await_marks((1, 2))
    started = time.monotonic()
    with pytest.raises(CommunicatorError) as said:
        rank.all_reduce(x[:COUNT], x[:COUNT])
    return Lost(said.value.result, said.value.text, time.monotonic() - started)


@pytest.mark.parametrize(
    ("has", "blocks", "first", "others"),
    [("vmm descriptor", "cuMemMap", "3", "60"), ("", "cudaIpcOpenMemHandle", "60", "3")],
)
def test_a_device_that_maps_nothing_beside_kernels(
    runtime: Path, sums: Path, has: str, blocks: str, first: str, others: str
) -> None:
    """Whose deadline is the first ends it at all ranks, with the names of both."""
    found = run(
        3,
        maps_late,
        sums,
        environment=cuda.environment(runtime, has, FAKE_CUDA_BLOCKS=blocks),
        of_rank=lambda rank: {"HCCC_TIMEOUT": others if rank else first},
    )
    for one in found:
        assert one.result is Result.TIMEOUT and one.seconds < 5.5, found
        if first == "3":
            assert "rank 1, rank 2 could not map its buffers" in one.text, one.text
        else:
            assert "could not map memory of rank 0" in one.text, one.text


def host_memory(communicator: Communicator, place: Path) -> str:
    rank = CudaRank(communicator, place)
    x = np.zeros(COUNT, np.int32)
    with pytest.raises(CommunicatorError) as said:
        rank.all_reduce(x, x)
    rank.c.check()
    return said.value.text


def test_memory_of_the_host_is_refused(runtime: Path, sums: Path) -> None:
    environment = cuda.environment(runtime)
    found = run(3, host_memory, sums, environment=environment)
    assert found == ["the send buffer is no memory of cuda 0"] * 3


def refused_library(communicator: Communicator, place: Path) -> str:
    with pytest.raises(CommunicatorError) as said:
        communicator.load(place)
    return said.value.text


def test_a_library_runs_where_memory_is(sums: Path) -> None:
    """One for CUDA is refused where memory is the host's."""
    found = run(3, refused_library, sums)
    assert all("is for cuda, and memory of the communicator is the cpu's" in text for text in found)


def again_and_again(communicator: Communicator, place: Path) -> bool:
    communicator.destroy()
    before: Any = None
    for turn in range(3):
        c = Communicator.from_environment()
        rank = CudaRank(c, place)
        pointer = ctypes.c_void_p()
        assert not runtime_library().call("MemAlloc", ctypes.byref(pointer), COUNT * 4)
        x = np.ctypeslib.as_array((ctypes.c_int32 * COUNT).from_address(pointer.value or 0))
        x[:] = c.rank + 1
        rank.all_reduce(x, x)
        rank.wait()
        assert (x == 6).all()
        c.destroy()
        assert not runtime_library().call("MemFree", pointer)
        time.sleep(0.3)
        maps = Path("/proc/self/maps").read_text().count("memfd:fake-cuda")
        now = len(os.listdir("/proc/self/fd")), maps
        assert before in (None, now), (before, now)
        before = now if turn else None
        assert maps == 0
    return True


@pytest.mark.parametrize("has", ["vmm descriptor", "vmm descriptor fabric"])
def test_nothing_is_left_behind(runtime: Path, sums: Path, has: str) -> None:
    environment = cuda.environment(runtime, has)
    assert run(3, again_and_again, sums, environment=environment) == [True] * 3


def two_devices(sums: Path, runtime: Path) -> list[int]:
    """Runs all ranks in one process, on two devices."""
    os.environ.update(cuda.environment(runtime), HCCC_CPU_DEVICES="2")
    ranks = Communicator.init_all(3, [0, 1, 1])
    devices = [one.device for one in ranks]
    found = []

    def body(c: Communicator) -> None:
        rank = CudaRank(c, sums)
        rank.device.call("SetDevice", c.device)
        x = rank.foreign(COUNT)
        x[:] = pattern(c.rank, COUNT)
        stream = rank.stream()
        for _ in range(2):
            y = rank.empty(COUNT)
            rank.all_reduce(x, y, stream)
            rank.wait(stream)
            found.append(np.array_equal(y, sum(pattern(r, COUNT) for r in range(3))))

    threads = [threading.Thread(target=body, args=(c,)) for c in ranks]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    for c in ranks:
        c.destroy()
    assert found == [True] * 6
    return devices


def test_threads_of_one_process_on_two_devices(runtime: Path, sums: Path) -> None:
    assert alone(two_devices, sums, runtime) == [0, 1, 1]


def captured(communicator: Communicator, place: Path) -> bool:
    """Checks a graph launched again and again while the monitor looks at events."""
    rank = CudaRank(communicator, place)
    stream, me, n = rank.stream(), rank.c.rank, rank.c.n_ranks
    x, y = rank.empty(COUNT), rank.empty(COUNT)
    rank.all_reduce(x, y, stream)  # peers have mapped the memory
    graph, launched = ctypes.c_void_p(), ctypes.c_void_p()
    rank.device.call("StreamBeginCapture", stream, 0)
    rank.all_reduce(x, y, stream)
    time.sleep(0.3)
    rank.device.call("StreamEndCapture", stream, ctypes.byref(graph))
    rank.device.call("GraphInstantiate", ctypes.byref(launched), graph, 0)
    for turn in range(5):
        x[:] = pattern(me + turn, COUNT)
        rank.device.call("GraphLaunch", launched, stream)
        rank.wait(stream)
        assert np.array_equal(y, sum(pattern(r + turn, COUNT) for r in range(n)))
    rank.all_reduce(x, y, stream)
    rank.wait(stream)
    rank.c.check()
    return True


def test_launches_in_graphs(runtime: Path, sums: Path) -> None:
    assert run(3, captured, sums, environment=cuda.environment(runtime)) == [True] * 3


def of_both(communicator: Communicator, place: Path) -> list[str]:
    """Checks a communicator of the host and one of the device that is split from it, and back."""
    tell = runtime_library().call
    assert not tell("SetMemory", b"cuda", 0)
    there = communicator.split(0, communicator.rank)
    assert there
    rank = CudaRank(there, place)
    x, y = rank.empty(COUNT), rank.foreign(COUNT)
    assert not tell("SetMemory", None, 0)
    for one in (x, y):
        one[:] = pattern(rank.c.rank, COUNT)
        rank.all_reduce(one, one)
    me, after, before = communicator.rank, (communicator.rank + 1) % 3, (communicator.rank + 2) % 3
    here, got = communicator.empty(COUNT, "int32"), communicator.empty(COUNT, "int32")
    here[:] = me
    with group():
        communicator.send(here, after)
        communicator.recv(got, before)
    assert (got == before).all()
    rank.wait()
    wanted = sum(pattern(r, COUNT) for r in range(3))
    assert np.array_equal(x, wanted) and np.array_equal(y, wanted)
    again = there.split(0, communicator.rank)
    assert again and not tell("SetMemory", b"cpu", 0)
    back = there.split(0, communicator.rank)
    assert back
    assert tell("SetMemory", b"vpu", 0) == Result.INVALID_ARGUMENT
    return [one.platform for one in (communicator, there, again, back)]


def test_one_process_has_memory_of_both(runtime: Path, sums: Path) -> None:
    environment = {**cuda.environment(runtime), "HCCC_PLATFORM": "cpu"}
    found = run(3, of_both, sums, environment=environment)
    assert found == [["cpu", "cuda", "cuda", "cpu"]] * 3


def test_calls_by_packets(runtime: Path, packets: Path) -> None:
    environment = cuda.environment(runtime)
    assert run(3, all_reduces, packets, environment=environment) == [True] * 3


def test_short_calls_by_packets_and_others_by_counters(runtime: Path, tmp_path: Path) -> None:
    """One library has both: calls of 4 KB, 4 bytes and 280 KB, one after the other."""
    program = plans.mesh_allreduce(3)
    counters = driver.compile_program(program, Options(tune="off")).plan
    packets = driver.compile_program(program, Options(protocol="ll")).plan
    ranges = [
        Range(kind, *part, 0, 1 << 16) for kind in (False, True) for part in ((0, 0), (8192, 1))
    ]
    made = assembled("both", [packets, counters], ranges)
    place = cuda.library(made, tmp_path / "kernels", runtime)
    assert run(3, all_reduces, place, environment=cuda.environment(runtime)) == [True] * 3


@pytest.mark.parametrize(
    ("how", "text"),
    [("die", "rank 1 is gone"), ("stall", "rank 1 has not started the call")],
)
def test_packets_that_do_not_come(runtime: Path, packets: Path, how: str, text: str) -> None:
    environment = cuda.environment(runtime, HCCC_TIMEOUT="1.5")
    silent = [VICTIM] if how == "die" else []
    found = start(3, wrong_once, packets, how, environment=environment).outcomes(silent=silent)
    for rank in (0, 2):
        assert isinstance(found[rank], Lost) and text in found[rank].text, found


def test_packets_of_another_call(runtime: Path, packets: Path, blocks: Path) -> None:
    """Flags are zeroed after each: epochs begin anew."""
    found = run(3, other_calls, packets, blocks, environment=cuda.environment(runtime))
    assert found[0] == found[1] == found[2]
    for text, said in zip(found[0], SAID_OF_OTHERS, strict=True):
        assert said in text and f"Allreduce of {COUNT} int32 (sum) in place" in text, text


def test_packets_in_graphs(runtime: Path, packets: Path) -> None:
    assert run(3, captured, packets, environment=cuda.environment(runtime)) == [True] * 3


def no_gpu(communicator: Communicator) -> str:
    assert runtime_library().call("SetMemory", b"cuda", 0)
    assert communicator.split(0)  # nothing was told
    return runtime_library().last_error()


def test_memory_of_a_gpu_that_is_not_here() -> None:
    (text,) = run(1, no_gpu, environment={"HCCC_CUDA_LIBRARY": "/nowhere"})
    assert "its platform" in text
