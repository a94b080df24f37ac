"""Memory that calls and graphs use: freed by its owner, it is nobody else's before they end."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hccc.runtime.communicator import Communicator
from hccc.runtime.communicator.runtime_library import library as runtime_library
from hccc.runtime.device.stream import Stream
from tests.communicator import cuda
from tests.communicator.test_cuda import CudaRank
from tests.communicator.test_streams import gate
from tests.communicator.world import loaded, run
from tests.emit import plans

RANKS, COUNT = 3, 1003
HEAP = 4 << 20
LARGE = 3 << 18  # elements: only one such array has room in a heap of HEAP bytes
needs_compiler = pytest.mark.skipif(not cuda.have_compiler(), reason="no g++")


@pytest.fixture(scope="session")
def cuda_sums(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds an AllReduce of three ranks for CUDA."""
    place = tmp_path_factory.mktemp("cuda_sums") / "kernels"
    return cuda.library(plans.compiled(plans.mesh_allreduce(RANKS)), place, runtime)


def pattern(rank: int, count: int = COUNT) -> Any:
    """Returns elements that differ by rank and place; sums of a few are exact."""
    return (np.arange(count, dtype=np.int32) * 31 + rank * 7919) % 100_003


def total(count: int = COUNT) -> Any:
    return sum(pattern(r, count) for r in range(RANKS))


def taken(count: int) -> Any:
    """Returns an array in memory of hcccMemAlloc, which stays until it is freed by hand."""
    pointer = ctypes.c_void_p()
    result = runtime_library().call("MemAlloc", ctypes.byref(pointer), count * 4)
    if result:
        raise MemoryError(runtime_library().last_error())
    return np.ctypeslib.as_array((ctypes.c_int32 * count).from_address(pointer.value or 0))


def free(array: Any) -> None:
    assert not runtime_library().call("MemFree", ctypes.c_void_p(array.ctypes.data))


def captured(rank: CudaRank, x: Any, y: Any, stream: int) -> ctypes.c_void_p:
    """Captures a call and returns its graph, to be launched."""
    graph, launched = ctypes.c_void_p(), ctypes.c_void_p()
    rank.device.call("StreamBeginCapture", stream, 0)
    rank.all_reduce(x, y, stream)
    rank.device.call("StreamEndCapture", stream, ctypes.byref(graph))
    rank.device.call("GraphInstantiate", ctypes.byref(launched), graph, 0)
    return launched


def staged_graphs(communicator: Communicator, place: Path) -> list[tuple[bool, int]]:
    """Captures calls whose buffers are copied, each larger than the one before, which takes other
    memory for the copies; then launches the graphs beside memory that was allocated since."""
    rank = CudaRank(communicator, place)
    stream = rank.stream()
    graphs = []
    for count in (COUNT, 5 * COUNT, 20 * COUNT):
        x, y = rank.foreign(count), rank.foreign(count)
        rank.all_reduce(x, y, stream)
        graphs.append((captured(rank, x, y, stream), x, y))
    rank.wait(stream)
    mine = [rank.empty(COUNT) for _ in range(8)]
    for one in mine:
        one[:] = 7
    found = []
    for graph, x, y in graphs:
        x[:] = pattern(rank.c.rank, x.size)
        rank.device.call("GraphLaunch", graph, stream)
        rank.wait(stream)
        found.append((np.array_equal(y, total(x.size)), sum(int((one != 7).sum()) for one in mine)))
    rank.c.check()
    return found


@pytest.mark.slow
@needs_compiler
def test_a_graph_keeps_the_memory_of_its_copies(runtime: Path, cuda_sums: Path) -> None:
    found = run(RANKS, staged_graphs, cuda_sums, environment=cuda.environment(runtime))
    assert found == [[(True, 0)] * 3] * RANKS


def freed_early(communicator: Communicator, place: Path) -> int:
    """Frees the input of a call that other ranks make later, and allocates as much again."""
    rank = CudaRank(communicator, place)
    stream, me = rank.stream(), rank.c.rank
    x, y = rank.empty(COUNT), rank.empty(COUNT)
    rank.all_reduce(x, y, stream)
    rank.wait(stream)
    x[:] = pattern(me)
    if me:
        time.sleep(0.5)
    rank.all_reduce(x, y, stream)
    free(x)
    if not me:
        rank.empty(COUNT)[:] = 7
    rank.wait(stream)
    rank.c.check()
    return int((y != total()).sum())


@pytest.mark.slow
@needs_compiler
def test_freed_memory_outlives_launched_calls(runtime: Path, cuda_sums: Path) -> None:
    environment = cuda.environment(runtime)
    assert run(RANKS, freed_early, cuda_sums, environment=environment) == [0] * RANKS


def in_a_small_heap(communicator: Communicator, place: Path) -> bool:
    """Checks that an allocation waits for calls that use freed memory, and for no graph."""
    rank = CudaRank(communicator, place)
    stream, me = rank.stream(), rank.c.rank
    for turn in range(3):
        x = taken(LARGE)
        x[:] = pattern(me, LARGE)
        if me == turn:
            time.sleep(0.3)
        rank.all_reduce(x, x, stream)
        free(x)
    x, y = taken(COUNT), taken(LARGE)
    captured(rank, x, x, stream)
    free(x)
    free(y)
    y = taken(LARGE)
    graph = captured(rank, y, y, stream)
    free(y)
    with pytest.raises(MemoryError, match="no room"):
        taken(LARGE)
    kept = taken(COUNT)
    rank.device.call("GraphLaunch", graph, stream)
    rank.wait(stream)
    communicator.destroy()
    free(taken(LARGE))
    free(kept)
    return True


@pytest.mark.slow
@needs_compiler
def test_freed_memory_comes_back(runtime: Path, cuda_sums: Path) -> None:
    environment = cuda.environment(runtime, HCCC_HEAP_BYTES=str(HEAP))
    assert run(RANKS, in_a_small_heap, cuda_sums, environment=environment) == [True] * RANKS


def freed_in_a_stream(communicator: Communicator, sums: Path) -> tuple[int, int]:
    """Frees the input of a call that its stream has not come to, and allocates as much again."""
    c = loaded(communicator, sums)
    with Stream() as stream:
        x, y = taken(COUNT), c.empty(COUNT, "int32")
        x[:] = pattern(c.rank)
        opened = gate(stream)
        c.all_reduce(x, y, stream=stream)
        free(x)
        other = c.empty(COUNT, "int32")
        other[:] = 7
        opened.set()
        stream.synchronize()
        c.check()
    return int((y != total()).sum()), int((other != 7).sum())


@pytest.mark.slow
def test_freed_memory_outlives_calls_in_streams(sums: Path) -> None:
    assert run(RANKS, freed_in_a_stream, sums) == [(0, 0)] * RANKS
