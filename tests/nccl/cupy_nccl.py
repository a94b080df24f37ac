"""CuPy's NCCL on arrays of NumPy, which needs no GPU: two ranks in one thread."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np


def main() -> None:
    """Adds and sends. Raises AssertionError where a call is wrong."""
    nccl: Any = importlib.import_module("cupy.cuda.nccl")
    ranks = nccl.NcclCommunicator.initAll(2)
    x = [np.full(100, r + 1, np.float32) for r in range(2)]
    nccl.groupStart()
    for one, rank in zip(x, ranks, strict=True):
        at = one.ctypes.data
        rank.allReduce(at, at, one.size, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, 0)
    nccl.groupEnd()
    assert all((one == 3).all() for one in x)
    assert [rank.rank_id() for rank in ranks] == [0, 1]
    for rank in ranks:
        rank.check_async_error()
        rank.destroy()
    print("right")


if __name__ == "__main__":
    main()
