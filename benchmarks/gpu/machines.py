"""The device that is measured: a GPU through CuPy, or the host as a stand-in for dry runs."""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from os import cpu_count
from pathlib import Path
from typing import Any, Protocol

import interpreter
import numpy as np

from hccc.emit import directory
from hccc.emit.targets import CPU, CUDA, HIP, Target
from hccc.ir.plan import Plan
from hccc.runtime.cpu import CpuCommunicator
from hccc.runtime.cuda import CudaCommunicator, build_binary, compile_command, find_device
from hccc.runtime.layout import shape_of
from hccc.runtime.measure.perf import Bind, Memory
from hccc.runtime.measure.session import DeviceSession, HostSession
from hccc.runtime.request import Request

Arrays = Sequence[Any]
STALL = 1 << 30  # bytes of the copy that launches queue up behind


class Kernel(Protocol):
    """One built kernel."""

    def build(self, request: Request) -> None:
        """Compiles what `request` needs; may run in any thread."""

    def burst(self, inputs: Arrays, outputs: Arrays, request: Request, n: int) -> list[float]:
        """Seconds of each of `n` launches one behind the other."""
        ...

    def resources(self, request: Request) -> str:
        """What a thread block takes, after the first launch; "" where that is not known."""
        ...


class Machine(Protocol):
    """Where kernels run. `capacity`: thread blocks held at once; `numpy`: NumPy or CuPy."""

    title: str
    capacity: int
    numpy: Any

    def facts(self) -> dict[str, str]:
        """What a reader must know of it."""
        ...

    def kernel(self, plan: Plan, folder: Path, interpreted: bool) -> Kernel:
        """Writes the sources of a kernel into `folder`; it is not built yet."""
        ...

    def bind(self, kernel: Kernel, dtype: str, op: str) -> Bind:
        """For `perf.measure`."""
        ...

    def copies(self, size: int, n: int) -> list[float]:
        """Seconds of each of `n` plain copies of `size` bytes in device memory."""
        ...


class HostKernel(CpuCommunicator):
    """A kernel of CPU threads."""

    def build(self, requests: Request | Sequence[Request]) -> None:
        """Compiles."""
        super().build([requests] if isinstance(requests, Request) else requests)

    def burst(self, inputs: Arrays, outputs: Arrays, request: Request, n: int) -> list[float]:
        """Launches."""
        return [self.launch(inputs, outputs, request) for _ in range(n)]

    def resources(self, request: Request) -> str:
        """Nothing to say."""
        return ""


class GpuKernel(CudaCommunicator):
    """A GPU kernel whose launches are timed one behind the other, without the host's part."""

    def build(self, request: Request) -> None:
        """Runs nvcc, if there is one; loading is left to the first launch (as is NVRTC)."""
        variant = request.variant(self.collective)
        options = [*variant.defines(), "-DHCCC_SYSTEM_SCOPE=0"]
        options += [f"-I{path}" for path in self._searched]
        if command := compile_command(self.device, self.source, options):
            build_binary(self.source, command, self._searched)

    def burst(self, inputs: Arrays, outputs: Arrays, request: Request, n: int) -> list[float]:
        """Launches behind a long copy, an event between every two."""
        cuda = self.device.cupy.cuda
        kernel = self._kernel(request.variant(self.collective)).kernel
        local = self._locals([a.data.ptr for a in inputs], [a.data.ptr for a in outputs])
        params = self._params(self._table(request), local, request)
        grid = (self.shape.blocks * self.shape.channels, self.shape.ranks)
        events = [cuda.Event() for _ in range(n + 1)]
        # The host needs longer to launch a small collective than the GPU to run it: let it get
        # ahead, so that events are apart by the kernels alone.
        stall(self.device.cupy)
        events[0].record()
        for event in events[1:]:
            kernel(grid, (self.threads,), (params,), enable_cooperative_groups=True)
            event.record()
        return _elapsed(cuda, events, lambda: self._check_fault(request))

    def resources(self, request: Request) -> str:
        """Registers and memory of a thread block."""
        k = self._kernel(request.variant(self.collective))
        return (
            f"{k.num_regs} registers and {k.local_size_bytes} bytes of local memory a thread, "
            f"{k.shared_size_bytes} bytes of shared memory a block"
        )


def stall(cupy: Any) -> None:
    """Queues about half a millisecond of copying."""
    source, target = _pads(cupy)
    target.data.copy_from_device_async(source.data, STALL)


@cache
def _pads(cupy: Any) -> tuple[Any, Any]:
    return cupy.empty(STALL, np.uint8), cupy.empty(STALL, np.uint8)


def _elapsed(cuda: Any, events: Sequence[Any], check: Callable[[], None]) -> list[float]:
    events[-1].synchronize()
    check()
    return [float(cuda.get_elapsed_time(a, b)) * 1e-3 for a, b in pairwise(events)]


def build_all(kernels: Iterable[tuple[Kernel, Request]]) -> None:
    """Compiles many kernels, a core each."""
    with ThreadPoolExecutor(cpu_count()) as pool:
        for _ in pool.map(lambda pair: pair[0].build(pair[1]), kernels):
            pass


def _write(plan: Plan, target: Target, folder: Path, interpreted: bool) -> Path:
    """The translation unit of a kernel, in a folder of its own."""
    files = interpreter.files if interpreted else directory.files
    interpreter.write(folder, files(plan, [target]))
    return folder / f"{plan.name}{target.suffix}"


class Host:
    """The host's threads. Its times are not a GPU's: it serves to try everything else."""

    def __init__(self) -> None:
        self.title = "CPU"
        self.capacity = 128
        self.numpy: Any = np

    def facts(self) -> dict[str, str]:
        """Cores and name."""
        name = platform.processor() or platform.machine()
        return {"device": f"CPU, {name}, {cpu_count()} cores", "python": platform.python_version()}

    def kernel(self, plan: Plan, folder: Path, interpreted: bool) -> HostKernel:
        """A kernel of CPU threads."""
        source = _write(plan, CPU, folder, interpreted)
        return HostKernel(source, plan.name, shape_of(plan), plan.collective)

    def bind(self, kernel: Any, dtype: str, op: str) -> Bind:
        """Sessions over the host's memory."""

        def bound(memory: Sequence[Memory], count: int, in_place: bool) -> HostSession:
            return HostSession(kernel, Request(count, dtype, op, in_place, 16384), memory)

        return bound

    def copies(self, size: int, n: int) -> list[float]:
        """NumPy's copy: one thread."""
        source, target = np.zeros(size, np.uint8), np.ones(size, np.uint8)
        taken = []
        for _ in range(n):
            begin = time.perf_counter()
            np.copyto(target, source)
            taken.append(time.perf_counter() - begin)
        return taken


class Gpu:
    """The current GPU. Raises UserError E456 without CuPy, E457 without a GPU."""

    def __init__(self) -> None:
        self.device = find_device()
        self.numpy: Any = self.device.cupy
        # Blocks of up to 512 threads are compiled to be resident in pairs.
        self.capacity = 2 * self.device.units
        runtime = self.numpy.cuda.runtime
        name = runtime.getDeviceProperties(runtime.getDevice())["name"]
        self.title = name.decode() if isinstance(name, bytes) else str(name)

    def facts(self) -> dict[str, str]:
        """GPU, versions and clocks."""
        runtime = self.numpy.cuda.runtime
        found = {
            "device": f"{self.title}, {self.device.arch}, {self.device.units} units",
            "CuPy": str(self.numpy.__version__),
            "runtime": str(runtime.runtimeGetVersion()),
            "driver API": str(runtime.driverGetVersion()),
            "python": platform.python_version(),
        }
        return found | _smi(() if self.device.hip else SMI_FIELDS)

    def kernel(self, plan: Plan, folder: Path, interpreted: bool) -> GpuKernel:
        """A kernel for the GPU."""
        source = _write(plan, HIP if self.device.hip else CUDA, folder, interpreted)
        return GpuKernel(source, shape_of(plan), plan.collective, plan.warps)

    def bind(self, kernel: Any, dtype: str, op: str) -> Bind:
        """Sessions over copies in device memory."""

        def bound(memory: Sequence[Memory], count: int, in_place: bool) -> DeviceSession:
            request = Request(count, dtype, op, in_place, 16384, timeout=5)
            return DeviceSession(kernel, request, memory, self.numpy)

        return bound

    def copies(self, size: int, n: int) -> list[float]:
        """cudaMemcpyAsync, device to device."""
        source, target = (self.numpy.zeros(size, np.uint8) for _ in range(2))
        cuda = self.numpy.cuda
        events = [cuda.Event() for _ in range(n + 1)]
        stall(self.numpy)
        events[0].record()
        for event in events[1:]:
            target.data.copy_from_device_async(source.data, size)
            event.record()
        return _elapsed(cuda, events, lambda: None)


SMI_FIELDS = ("driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.limit")


def _smi(fields: Sequence[str]) -> dict[str, str]:
    """What nvidia-smi reports; empty where it is missing or refuses."""
    if not fields:
        return {}
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    values = said.stdout.splitlines()[0].split(", ") if said.stdout else []
    return dict(zip(fields, values, strict=False))
