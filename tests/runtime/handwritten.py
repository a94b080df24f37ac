"""The hand-written programs of this folder, as communicators, and buffers to launch them on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hccc.runtime
from hccc.ir.collective import Collective, OpType
from hccc.runtime.cpu import CpuLauncher
from hccc.runtime.layout import LayoutShape

PROGRAMS = Path(__file__).parent / "programs"
INCLUDE = Path(hccc.runtime.__path__[0]) / "include"

RING = LayoutShape(4, 4, 1, 2, 8, 0, 0, 0, 0, 1)
MESH = LayoutShape(4, 4, 2, 1, 0, 0, 0, 0, 0, 1)
STAGED = LayoutShape(4, 1, 1, 2, 4, 0, 0, 1, 0, 2)
MANY = LayoutShape(32, 16, 4, 16, 16, 0, 0, 0, 0, 1)
STUCK = LayoutShape(2, 1, 2, 2, 4, 0, 0, 0, 0, 1)

ALLREDUCE = Collective(OpType.ALLREDUCE, 4, 4)
ALLGATHER = Collective(OpType.ALLGATHER, 4, 4)


def communicator(name: str, shape: LayoutShape, collective: Collective) -> CpuLauncher:
    """Makes a launcher of the CPU build of programs/<name>_cpu.cpp."""
    source = PROGRAMS / f"{name}_cpu.cpp"
    return CpuLauncher(source, "program", shape, collective, include=[INCLUDE])


def pattern(rank: int, count: int, dtype: Any) -> NDArray[Any]:
    """Returns values that differ by rank and element, small enough to be summed exactly."""
    lowest = 0 if np.dtype(dtype).kind == "u" else -9
    values = (np.arange(count) * 7 + rank * 13) % 29 + lowest
    return np.asarray(values, dtype)


def misaligned(count: int, dtype: Any, elements: int) -> NDArray[Any]:
    """Returns an array that begins `elements` elements past a 64-byte boundary."""
    size = np.dtype(dtype).itemsize
    memory = np.zeros(count * size + 128 + elements * size, np.uint8)
    start = -memory.ctypes.data % 64 + elements * size
    return memory[start : start + count * size].view(dtype)
