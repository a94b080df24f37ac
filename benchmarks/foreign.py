"""Buffers that peers do not map: process_vm_readv beside copies through shared memory.

    python -m benchmarks.foreign [--sizes 4K,...,64M] [--iters 15] [--json]

What a rank has to do with another's buffer that is not of `hcccMemAlloc`: read it by the kernel's
copy (process_vm_readv), or have its owner copy it into shared memory, in slices of 1 MiB as the
communicator does, and read it there. `staged` is the time of both copies one after the other,
though in a call the owner's runs on another core: a bound from above. Interleaved, medians.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import multiprocessing
import os
import statistics
import time
from dataclasses import asdict, dataclass
from multiprocessing import shared_memory
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from hccc.cli.types import Size

SIZES = "4K,16K,64K,256K,1M,4M,16M,64M"
SLICE = 1 << 20  # bytes; staging.h
LIBC = ctypes.CDLL(None, use_errno=True)


class IoVector(ctypes.Structure):
    """The C struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


@dataclass(frozen=True)
class CopyRow:
    """Medians of one size, in seconds."""

    bytes: int
    readv: float
    staged: float


def own(most: int, told: Any) -> None:
    """Owns the buffer that is read, until the pipe says that all is measured."""
    buffer = np.full(most, 7, np.uint8)
    told.send(buffer.ctypes.data)
    told.recv()


def read(process: int, address: int, into: Any) -> None:
    """Reads into.nbytes bytes of another process.

    Raises:
        OSError: the kernel refused.
    """
    done = 0
    while done < into.nbytes:
        here = IoVector(into.ctypes.data + done, into.nbytes - done)
        there = IoVector(address + done, into.nbytes - done)
        got = LIBC.process_vm_readv(process, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        if got <= 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        done += got


def stage(buffer: Any, shared: Any, into: Any) -> None:
    """Copies through shared memory, a slice at a time."""
    for at in range(0, into.nbytes, SLICE):
        part = slice(at, min(at + SLICE, into.nbytes))
        shared[: part.stop - at] = buffer[part]
        into[part] = shared[: part.stop - at]


def timed(action: Any, *arguments: Any) -> float:
    """Returns the seconds that an action takes."""
    start = time.perf_counter()
    action(*arguments)
    return time.perf_counter() - start


def rows(sizes: list[int], iters: int) -> list[CopyRow]:
    """Measures each size, both ways in turn."""
    most = max(sizes)
    here, there = multiprocessing.Pipe()
    owner = multiprocessing.Process(target=own, args=(most, there), daemon=True)
    owner.start()
    address, made = here.recv(), []
    buffer, into = np.full(most, 7, np.uint8), np.zeros(most, np.uint8)
    memory = shared_memory.SharedMemory(create=True, size=SLICE)
    shared: Any = np.ndarray(SLICE, np.uint8, memory.buf)
    assert owner.pid
    try:
        for size in sizes:
            times: list[tuple[float, float]] = []
            for _ in range(iters + 2):
                first = timed(read, owner.pid, address, into[:size])
                times.append((first, timed(stage, buffer[:size], shared, into[:size])))
            medians = [statistics.median(one) for one in zip(*times[2:], strict=True)]
            made.append(CopyRow(size, medians[0], medians[1]))
            assert (into[:size] == 7).all()
    finally:
        here.send(None)
        owner.join()
        del shared
        memory.close()
        memory.unlink()
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--iters", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    sizes = [int(Size().convert(one, None, None)) for one in given.sizes.split(",")]
    found = rows(sizes, given.iters)
    if given.json:
        print(json.dumps([asdict(row) for row in found]))
        return
    table = Table("bytes", "process_vm_readv, GB/s", "staged, GB/s", "ratio")
    for row in found:
        rates = [row.bytes / one / 1e9 for one in (row.readv, row.staged)]
        ratio = row.readv / row.staged
        table.add_row(f"{row.bytes:,}", *(f"{one:.2f}" for one in rates), f"{ratio:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
