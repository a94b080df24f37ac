"""NVIDIA's bindings of NCCL on arrays of NumPy: `python bindings.py FILE N RANK`, an id in FILE."""

from __future__ import annotations

import ctypes
import importlib
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

nccl: Any = importlib.import_module("nccl.bindings.nccl")
FLOAT32, SUM, ID_BYTES = 7, 0, 128


def joined(file: Path, n: int, rank: int) -> Any:
    """Makes a communicator, by an id that rank 0 writes."""
    id_ = nccl.get_unique_id() if rank == 0 else nccl.UniqueId()
    if rank == 0:
        fresh = file.with_suffix(".new")
        fresh.write_bytes(ctypes.string_at(id_.ptr, ID_BYTES))
        fresh.rename(file)
    while not file.exists():
        time.sleep(0.01)
    ctypes.memmove(id_.ptr, file.read_bytes(), ID_BYTES)
    return nccl.comm_init_rank(n, id_.ptr, rank)


def main(file: Path, n: int, rank: int) -> None:
    """Makes calls of all kinds. Raises AssertionError where one is wrong."""
    comm = joined(file, n, rank)
    assert (nccl.comm_count(comm), nccl.comm_user_rank(comm)) == (n, rank)
    assert nccl.team_world(comm).n_ranks == n
    x = np.arange(5000, dtype=np.float32) * (rank + 1)
    y, both = np.zeros_like(x), np.zeros(2 * x.size, np.float32)
    nccl.all_reduce(x.ctypes.data, y.ctypes.data, x.size, FLOAT32, SUM, comm, 0)
    assert np.array_equal(y, np.arange(5000, dtype=np.float32) * (n * (n + 1) // 2))
    nccl.group_start()
    nccl.send(x.ctypes.data, x.size, FLOAT32, (rank + 1) % n, comm, 0)
    nccl.recv(y.ctypes.data, y.size, FLOAT32, (rank - 1) % n, comm, 0)
    nccl.group_end()
    assert np.array_equal(y, np.arange(5000, dtype=np.float32) * ((rank - 1) % n + 1))
    nccl.all_gather(x.ctypes.data, both.ctypes.data, x.size, FLOAT32, comm, 0)
    assert both[2 * x.size - 1] == 4999 * n
    refused(comm)
    half = nccl.comm_split(comm, rank, 0, 0)
    assert nccl.comm_count(half) == 1
    for one in (half, comm):
        nccl.comm_destroy(one)
    print("right")


def refused(comm: Any) -> None:
    """Asks for what is not there, and is told why."""
    for call, arguments, why in [
        (nccl.comm_suspend, (comm, 1), "ncclCommSuspend is not there"),
        (nccl.signal, (0, 0, 0, 0, comm, 0), "ncclSignal is not there"),
    ]:
        try:
            call(*arguments)
        except nccl.NCCLError:
            assert why in nccl.get_last_error(comm)
        else:
            raise AssertionError(why)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
