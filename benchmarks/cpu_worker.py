"""One rank of one system of `cpu.py`: does what it reads from a socket, and sleeps in between.

    python benchmarks/cpu_worker.py SYSTEM RANK RANKS PORT KEY

SYSTEM is hccc, gloo or mpi. Rivals' interpreters need no hccc, and RANK may be `-` under mpirun.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib import import_module
from multiprocessing.connection import Client
from typing import Any

import numpy as np

Run = Callable[[str, str, int], Callable[[], object]]  # (collective, memory, elements) -> one call


def gloo(rank: int, n: int) -> Run:
    torch: Any = import_module("torch")
    dist: Any = torch.distributed
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=n)

    def prepare(collective: str, memory: str, count: int) -> Callable[[], object]:
        x = torch.full((count,), float(rank))
        if collective == "allreduce":
            return lambda: dist.all_reduce(x)
        out = torch.empty(count * n)
        return lambda: dist.all_gather_into_tensor(out, x)

    return prepare


def mpi(rank: int, n: int) -> Run:
    MPI: Any = import_module("mpi4py.MPI")
    comm = MPI.COMM_WORLD

    def prepare(collective: str, memory: str, count: int) -> Callable[[], object]:
        x = np.full(count, rank, np.float32)
        if collective == "allreduce":
            return lambda: comm.Allreduce(MPI.IN_PLACE, x)
        out = np.empty(count * n, np.float32)
        return lambda: comm.Allgather(x, out)

    return prepare


def hccc(rank: int, n: int) -> Run:
    import os
    from pathlib import Path

    from hccc.runtime.communicator import Communicator

    communicator = Communicator.from_environment()
    for place in os.environ["HCCC_BENCHMARK_LIBRARIES"].split(":"):
        communicator.load(Path(place), ["float32"])

    def prepare(collective: str, memory: str, count: int) -> Callable[[], object]:
        # collective: here the name of a library
        def array(length: int) -> Any:
            made = (
                communicator.empty(length)
                if memory == "registered"
                else np.empty(length, np.float32)
            )
            made[:] = 0
            return made

        x = array(count)
        y = x if collective.startswith("allreduce") else array(count * n)
        words = (x.ctypes.data, y.ctypes.data, count, "float32", "sum")
        launch = communicator.prepared(collective, *words)
        kept = (x, y)
        return lambda: (launch(), kept)

    return prepare


SYSTEMS = {"gloo": gloo, "mpi": mpi, "hccc": hccc}


def main() -> None:
    """Does what the pipe says: prepares a call, or runs and times some, until it says None."""
    system, rank, n, port, key = sys.argv[1:]
    if rank == "-":
        rank = str(import_module("mpi4py.MPI").COMM_WORLD.rank)
    pipe = Client(("127.0.0.1", int(port)), authkey=bytes.fromhex(key))
    prepare = SYSTEMS[system](int(rank), int(n))
    pipe.send((system, int(rank)))
    call: Callable[[], object] = object
    while (told := pipe.recv()) is not None:
        word, *rest = told
        if word == "prepare":
            call = prepare(*rest)
            call()
            pipe.send(0.0)
            continue
        started = time.perf_counter()
        for _ in range(rest[0]):
            call()
        pipe.send((time.perf_counter() - started) / rest[0])


if __name__ == "__main__":
    main()
