"""A CuPy without a GPU: arrays in host memory, and kernels that the host's compiler builds from
the CUDA source that NVRTC would get. As much of its interface as hccc and its benchmark use."""

from __future__ import annotations

import ctypes
import subprocess
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from hccc.runtime.machines import arrays

# What follows the CUDA source: a launch of the grid by CPU threads, as cuLaunchCooperativeKernel.
ENTRY = """
#include "hccc/cpu_runtime.h"
extern "C" int fake_launch(hccc_params* p, int x, int y, int threads) {
  if (x != hccc_blocks_of_rank || y != HCCC_RANKS || threads != HCCC_THREADS) return -1;
  return hccc_run_team(hccc_cpu_block, p, x * y, 2, false);
}
"""


_NUMBERS = count()


class Pointer(arrays.Pointer):
    """cupy.cuda.MemoryPointer."""

    def copy_from_device_async(self, source: Pointer, size: int) -> None:
        """Copies as cudaMemcpyAsync does."""
        ctypes.memmove(self.ptr, source.ptr, size)


class Array(arrays.DeviceArray):
    """cupy.ndarray."""

    @property
    def data(self) -> Any:
        """Its memory."""
        return Pointer(super().data.ptr)


def _owned(array: Any) -> Any:
    """Copies an array to its own memory, away from the host's."""
    return np.array(array).view(Array)


class Event:
    """cupy.cuda.Event: everything is done when it is asked for."""

    at = 0.0

    def record(self) -> None:
        """Records the time now."""
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        """Returns at once; the event must have been recorded."""
        assert self.at, "an event was awaited that was never recorded"


class RawKernel:
    """cupy.RawKernel."""

    num_regs, local_size_bytes, shared_size_bytes = 64, 0, 444

    def __init__(self, code: str, options: Sequence[str], place: Path) -> None:
        self._code, self._options, self._place = code, options, place
        self._function: Any = None

    @property
    def kernel(self) -> Callable[..., None]:
        """cupy.cuda.Function; compiles at first use."""
        if self._function is None:
            # Never the same name twice: dlopen would give the library it has under that name.
            source = self._place / f"kernel{next(_NUMBERS)}.cpp"
            source.write_text(self._code + ENTRY, encoding="utf-8")
            library = source.with_suffix(".so")
            flags = ["-O0", "-shared", "-fPIC", "-pthread", "-D__device__="]
            subprocess.run(["g++", *self._options, *flags, source, "-o", library], check=True)
            self._function = ctypes.CDLL(str(library)).fake_launch
        return Function(self._function)


class Function:
    """cupy.cuda.Function."""

    ptr = 1

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(
        self,
        grid: tuple[int, int],
        block: tuple[int],
        args: tuple[Any],
        *,
        enable_cooperative_groups: bool = False,
    ) -> None:
        """Launches. Structures are passed as arrays of one element."""
        (argument,) = args
        assert enable_cooperative_groups and argument.size == 1
        params = ctypes.create_string_buffer(argument.tobytes())
        assert self._function(ctypes.byref(params), *grid, *block) == 0


class Built:
    """cupy.RawKernel of a file that was built before."""

    num_regs, local_size_bytes, shared_size_bytes = 64, 0, 444

    def __init__(self, path: str) -> None:
        self.kernel = Function(ctypes.CDLL(path).fake_launch)


def fake_cupy(place: Path, units: int) -> ModuleType:
    """Makes the module `cupy`, for a GPU of `units` multiprocessors; builds in `place`."""
    made = ModuleType("cupy")
    properties = {"name": b"Fake GPU", "major": 9, "minor": 0, "multiProcessorCount": units}
    error = type("CUDARuntimeError", (RuntimeError,), {})
    runtime = SimpleNamespace(
        CUDARuntimeError=error,
        is_hip=False,
        getDeviceCount=lambda: 1,
        getDevice=lambda: 0,
        getDeviceProperties=lambda _: properties,
        runtimeGetVersion=lambda: 13000,
        driverGetVersion=lambda: 13000,
    )
    cuda = SimpleNamespace(
        runtime=runtime,
        Event=Event,
        get_current_stream=lambda: SimpleNamespace(ptr=0),
        get_elapsed_time=lambda a, b: (b.at - a.at) * 1e3,
        Device=lambda _: SimpleNamespace(attributes={"CooperativeLaunch": 1}),
        driver=SimpleNamespace(occupancyMaxActiveBlocksPerMultiprocessor=lambda *_: 2),
        compiler=SimpleNamespace(CompileException=type("CompileException", (Exception,), {})),
    )
    functions: dict[str, Any] = {
        "__version__": "0",
        "cuda": cuda,
        "array_equal": np.array_equal,
        "sqrt": np.sqrt,
        "asarray": _owned,
        "asnumpy": np.array,
        "zeros": lambda *a: _owned(np.zeros(*a)),
        "empty": lambda *a: _owned(np.empty(*a)),
        "arange": lambda n, dtype: _owned(np.arange(n, dtype=dtype)),
        "RawModule": lambda code="", options=(), path="": SimpleNamespace(
            get_function=lambda name: Built(path) if path else RawKernel(code, options, place)
        ),
    }
    for name, value in functions.items():
        setattr(made, name, value)
    return made
