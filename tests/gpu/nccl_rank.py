"""A rank of a program of NCCL's, by CuPy, with an id in FILE.

`python -m tests.gpu.nccl_rank FILE N RANK`
"""

from __future__ import annotations

import ast
import importlib
import sys
import time
from pathlib import Path
from typing import Any

cupy: Any = importlib.import_module("cupy")
nccl: Any = importlib.import_module("cupy.cuda.nccl")
COUNT = 5000


def joined(file: Path, n: int, rank: int) -> Any:
    """Makes a communicator, by an id that rank 0 writes."""
    if rank == 0:
        fresh = file.with_suffix(".new")
        fresh.write_text(repr(nccl.get_unique_id()))
        fresh.rename(file)
    while not file.exists():
        time.sleep(0.01)
    unique = ast.literal_eval(file.read_text())  # bytes, of CuPy before 13 a tuple of numbers
    return nccl.NcclCommunicator(n, unique, rank)


def main(file: Path, n: int, rank: int) -> None:
    """Makes calls on memory of the GPU, in a stream. Raises AssertionError where one is wrong."""
    comm = joined(file, n, rank)
    assert comm.rank_id() == rank
    with cupy.cuda.Stream(non_blocking=True) as stream:
        x = cupy.arange(COUNT, dtype=cupy.float32) * (rank + 1)
        y, all_ = cupy.zeros_like(x), cupy.zeros(n * COUNT, cupy.float32)
        at = x.data.ptr, y.data.ptr
        for _ in range(3):
            comm.allReduce(*at, COUNT, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr)
        comm.allGather(x.data.ptr, all_.data.ptr, COUNT, nccl.NCCL_FLOAT32, stream.ptr)
        part = cupy.zeros(COUNT, cupy.float32)
        comm.reduceScatter(
            all_.data.ptr, part.data.ptr, COUNT, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr
        )
        comm.broadcast(x.data.ptr, x.data.ptr, COUNT, nccl.NCCL_FLOAT32, n - 1, stream.ptr)
        stream.synchronize()
        one = cupy.arange(COUNT, dtype=cupy.float32)
        assert (y == one * (n * (n + 1) // 2)).all()
        assert all((all_[r * COUNT : (r + 1) * COUNT] == one * (r + 1)).all() for r in range(n))
        assert (part == one * (rank + 1) * n).all()
        assert (x == one * n).all()
    comm.check_async_error()
    comm.destroy()
    print("right")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
