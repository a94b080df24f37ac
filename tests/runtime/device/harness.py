"""One platform as tests use it: calls by name, memory, streams, host functions, a kernel."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hccc.runtime.device.description import description
from hccc.runtime.device.device_layer import DeviceLibrary, structure

VALUES = {row.name: row.value for enum in description().enums for row in enum.rows}
HostFn = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
WAIT_S = 20  # a test that waits so long has failed
H2H, H2D, D2H, D2D, DEFAULT = range(5)


class CpuBlock(ctypes.Structure):
    """hcccrtCpuBlock."""

    _fields_ = (
        ("grid_dim", ctypes.c_uint * 3),
        ("block_dim", ctypes.c_uint * 3),
        ("block_idx", ctypes.c_uint * 3),
        ("shared", ctypes.c_void_p),
        ("shared_bytes", ctypes.c_size_t),
    )


CpuFn = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(CpuBlock), ctypes.POINTER(ctypes.c_void_p))


class CpuKernel(ctypes.Structure):
    """hcccrtCpuKernel."""

    _fields_ = (
        ("magic", ctypes.c_uint),
        ("max_threads_per_block", ctypes.c_int),
        ("fn", CpuFn),
        ("shared_bytes", ctypes.c_size_t),
        ("n_arguments", ctypes.c_int),
        ("argument_bytes", ctypes.POINTER(ctypes.c_size_t)),
    )


def cpu_kernel(fn: Callable[..., int], *sizes: int, shared: int = 0, threads: int = 0) -> CpuKernel:
    """Makes a kernel of the CPU; fn(block, arguments) → 0."""
    of_sizes = (ctypes.c_size_t * len(sizes))(*sizes)
    return CpuKernel(0x68636B31, threads, CpuFn(fn), shared, len(sizes), of_sizes)


class Runtime:
    """Calls on the platform of this thread."""

    def __init__(self, library: DeviceLibrary, platform: str) -> None:
        self.library = library
        self.platform = platform
        self._kept: list[object] = []

    def __call__(self, name: str, *arguments: Any) -> None:
        self.library.call(name, *arguments)

    def error(self, name: str, *arguments: Any) -> str:
        """Returns the name of a call's result."""
        found = self.library.try_call(name, *arguments)
        rows = description().enum("Error").rows
        return next((row.name for row in rows if row.value == found), str(found))

    def number(self, name: str, *arguments: Any) -> int:
        """Returns the number that a call writes to its first argument."""
        out = ctypes.c_int(-12345)
        self(name, ctypes.byref(out), *arguments)
        return out.value

    def handle(self, name: str, *arguments: Any) -> int:
        """Returns the handle or pointer that a call writes to its first argument."""
        out = ctypes.c_void_p()
        self(name, ctypes.byref(out), *arguments)
        return out.value or 0

    def stream(self) -> int:
        """Makes a stream that the default stream does not wait for."""
        return self.handle("StreamCreateWithFlags", VALUES["StreamNonBlocking"])

    def event(self) -> int:
        """Makes an event without timing."""
        return self.handle("EventCreateWithFlags", VALUES["EventDisableTiming"])

    def put(self, data: bytes) -> int:
        """Returns device memory that holds `data`."""
        pointer = self.handle("Malloc", len(data))
        self("Memcpy", pointer, data, len(data), H2D)
        return pointer

    def get(self, pointer: int, n: int) -> bytes:
        """Reads n bytes of device memory."""
        out = (ctypes.c_char * n)()
        self("Memcpy", out, pointer, n, D2H)
        return out.raw

    def host(self, n: int) -> Any:
        """Allocates page-locked host memory, as an array of bytes."""
        return (ctypes.c_char * n).from_address(self.handle("HostAlloc", n, 0))

    def host_fn(self, fn: Callable[[], object]) -> Any:
        """Makes a function of the host that streams may call."""

        def call(_: object) -> None:
            fn()

        made = HostFn(call)
        self._kept.append(made)
        return made

    def launch_host(self, stream: int | None, fn: Callable[[], object]) -> None:
        """Enqueues a call of fn in a stream."""
        self("LaunchHostFunc", stream, self.host_fn(fn), None)

    def block(self, stream: int | None) -> threading.Event:
        """Stops a stream until the event that is returned is set."""
        gate = threading.Event()
        self.launch_host(stream, lambda: gate.wait(WAIT_S))
        return gate

    def launch(
        self,
        kernel: Any,
        stream: int | None,
        *arguments: Any,
        grid: Any = (1, 1, 1),
        block: Any = (1, 1, 1),
        shared: int = 0,
    ) -> None:
        """Launches a kernel; arguments are values of ctypes."""
        self(
            "LaunchKernel",
            *self.launch_arguments(
                kernel, stream, *arguments, grid=grid, block=block, shared=shared
            ),
        )

    def launch_arguments(
        self,
        kernel: Any,
        stream: int | None,
        *arguments: Any,
        grid: Any = (1, 1, 1),
        block: Any = (1, 1, 1),
        shared: int = 0,
    ) -> tuple[Any, ...]:
        """Returns the arguments of LaunchKernel; kernel and arguments stay where they are."""
        self._kept.append((kernel, arguments))
        dim = structure("Dim3")
        places = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        of = ctypes.addressof(kernel) if isinstance(kernel, ctypes.Structure) else kernel
        return of, dim(*grid), dim(*block), places, shared, stream


def cuda_fill(folder: Path) -> Path | None:
    """Compiles a library with a CUDA kernel fill(int *at, int n, int value); None without nvcc."""
    import shutil
    import subprocess

    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not Path(nvcc).exists():
        return None
    source = folder / "fill.cu"
    source.write_text(
        "__global__ void fill(int *at, int n, int value) {\n"
        "  const int first = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  for (int i = first; i < n; i += gridDim.x * blockDim.x) at[i] = value;\n"
        "}\n"
        'extern "C" void *fill_kernel() { return (void *)fill; }\n'
    )
    made = folder / "fill.so"
    command = [nvcc, "-arch=native", "-cudart", "shared", "-shared", "-Xcompiler", "-fPIC"]
    subprocess.run([*command, source, "-o", made], check=True, timeout=300)
    return made
