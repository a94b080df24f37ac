"""A rank on a GPU, by hccc's own communicator: standard collectives, types, memory, graphs.

`hccc launch -n 2 -m tests.gpu.rank` with HCCC_PLATFORM=cuda; rank 0 prints what calls take.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hccc.runtime.communicator import Communicator

cupy: Any = importlib.import_module("cupy")
COUNT, ROUNDS = 10_007, 50
SIZES = (8, 4 << 10, 64 << 10, 1 << 20, 16 << 20)


def own(rank: int, count: int = COUNT, dtype: str = "float32") -> Any:
    """Makes what a rank gives: small numbers that differ by rank and place."""
    return ((np.arange(count) * 7 + rank * 31) % 61).astype(dtype)


def check(what: str, found: Any, wanted: Any) -> None:
    """Raises AssertionError where an element is not what it should be."""
    wrong = np.flatnonzero(cupy.asnumpy(found) != wanted)
    assert not wrong.size, f"{what}: {wrong.size} wrong, the first is {wrong[0]}"


def collectives(comm: Communicator, make: Callable[[int], Any], what: str) -> None:
    """Checks each collective in memory that `make` makes."""
    n, r = comm.n_ranks, comm.rank

    def filled(count: int = COUNT) -> Any:
        x = make(count)
        x[:] = cupy.asarray(own(r, count))
        return x

    x = filled()
    comm.all_reduce(x)
    check(f"{what}: all_reduce", x, sum(own(s) for s in range(n)))
    x = filled()
    comm.broadcast(x, root=n - 1)
    check(f"{what}: broadcast", x, own(n - 1))
    y = make(n * COUNT)
    comm.all_gather(filled(), y)
    check(f"{what}: all_gather", y, np.concatenate([own(s) for s in range(n)]))
    z = make(COUNT)
    comm.reduce_scatter(filled(n * COUNT), z)
    total = np.sum([own(s, n * COUNT) for s in range(n)], axis=0).reshape(n, COUNT)
    check(f"{what}: reduce_scatter", z, total[r])
    comm.all_to_all(filled(n * COUNT), y)
    parts = [own(s, n * COUNT).reshape(n, COUNT)[r] for s in range(n)]
    check(f"{what}: all_to_all", y, np.concatenate(parts))


def types(comm: Communicator) -> None:
    """Checks sums of other types, and another reduction."""
    n, r = comm.n_ranks, comm.rank
    for dtype in ("int8", "float16", "float64", "int64"):
        x = cupy.asarray(own(r, dtype=dtype))
        comm.all_reduce(x)
        check(dtype, x, sum(own(s, dtype=dtype) for s in range(n)))
    x = cupy.asarray(own(r))
    comm.all_reduce(x, op="max")
    check("max", x, np.max([own(s) for s in range(n)], axis=0))
    x = cupy.asarray(own(r, COUNT + 1))[1:]  # off the alignment of 16 bytes
    comm.all_reduce(x)
    check("misaligned", x, sum(own(s, COUNT + 1)[1:] for s in range(n)))


def graphs(comm: Communicator) -> None:
    """Captures a call, and replays it on new data."""
    n, r = comm.n_ranks, comm.rank
    x, y = comm.empty(COUNT), comm.empty(COUNT)
    comm.all_reduce(x, y)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        comm.all_reduce(x, y, stream=stream.ptr)
        graph = stream.end_capture()
        for k in range(20):
            x[:] = cupy.asarray(own(r + 10 * k))
            graph.launch(stream)
            stream.synchronize()
            check(f"replay {k}", y, sum(own(s + 10 * k) for s in range(n)))


def times(comm: Communicator) -> None:
    """Prints what an AllReduce takes, in µs, from memory of the communicator's."""
    for size in SIZES:
        x = comm.empty(size // 4)
        stream = cupy.cuda.Stream(non_blocking=True)
        found = []
        for _ in range(5):
            stream.synchronize()
            comm.all_reduce(x, stream=stream.ptr)
            stream.synchronize()
            began = time.perf_counter()
            for _ in range(ROUNDS):
                comm.all_reduce(x, stream=stream.ptr)
            stream.synchronize()
            found.append((time.perf_counter() - began) / ROUNDS * 1e6)
        if comm.rank == 0:
            print(f"{size:>10,} bytes: {sorted(found)[2]:.1f} µs a call", flush=True)


def main() -> None:
    """Checks all, then measures."""
    cupy.cuda.Device(0).use()
    with Communicator.from_environment() as comm:
        for what, make in (("foreign", lambda n: cupy.zeros(n, "float32")), ("own", comm.empty)):
            collectives(comm, make, what)
            print(what, "memory is right", flush=True)
        types(comm)
        print("types are right", flush=True)
        graphs(comm)
        print("graphs are right", flush=True)
        times(comm)
    print("right", flush=True)


if __name__ == "__main__":
    main()
