"""The device that is measured: a GPU through CuPy, or the host as a stand-in for dry runs."""

from __future__ import annotations

import ctypes
import importlib
import platform
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import cache
from itertools import pairwise
from os import cpu_count
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.gpu import interpreter
from hccc.base.diagnostics import fail
from hccc.emit import directory
from hccc.emit.targets import CPU, CUDA, HIP, Target
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from hccc.runtime.abi import CallRecord, CommRecord
from hccc.runtime.build import Variant, build_library
from hccc.runtime.cpu import CpuLauncher
from hccc.runtime.cuda import (
    KERNEL,
    CudaDevice,
    CudaLauncher,
    build_binary,
    compile_command,
    find_device,
)
from hccc.runtime.fault import LaunchError
from hccc.runtime.layout import shape_of
from hccc.runtime.measure.perf import Bind, RankMemory
from hccc.runtime.measure.session import DeviceSession, HostSession
from hccc.runtime.request import LaunchRequest

Arrays = Sequence[Any]


class KernelKind(Enum):
    """What is timed: the generated kernel with fences for one device, the interpreter, the
    generated kernel with fences for several devices, and that through the C launcher."""

    GENERATED = "generated"
    INTERPRETED = "interpreted"
    SYSTEM = "system scope"
    LAUNCHER = "C launcher"


MARCH = "x86-64-v3"  # of CPU references that are carried along
STALL = 1 << 30  # bytes of the copy that launches queue up behind


class MeasuredKernel(Protocol):
    """One built kernel."""

    def build(self, request: LaunchRequest) -> None:
        """Compiles what `request` needs; may run in any thread."""

    def burst(self, inputs: Arrays, outputs: Arrays, request: LaunchRequest, n: int) -> list[float]:
        """Launches `n` times, one behind the other; returns the seconds of each."""
        ...

    def resources(self, request: LaunchRequest) -> str:
        """Says what a thread block takes, after the first launch; "" where that is not known."""
        ...


class MeasuredMachine(Protocol):
    """A device where kernels run. `capacity`: thread blocks held at once; `numpy`: NumPy or
    CuPy."""

    title: str
    capacity: int
    numpy: Any
    kinds: tuple[KernelKind, ...]

    def facts(self) -> dict[str, str]:
        """Returns what a reader must know of it."""
        ...

    def kernel(self, plan: Plan, folder: Path, kind: KernelKind) -> MeasuredKernel:
        """Writes the sources of a kernel into `folder`; it is not built yet."""
        ...

    def bind(self, kernel: MeasuredKernel, dtype: str, op: str) -> Bind:
        """Returns what makes sessions, for `perf.measure`."""
        ...

    def copies(self, size: int, n: int) -> list[float]:
        """Copies `size` bytes in device memory `n` times; returns the seconds of each."""
        ...

    def library(self) -> NcclLibrary | None:
        """Returns the vendor's library, where it is found."""
        ...


def carried_file(source: Path, variant: Variant, target: str, suffix: str) -> Path:
    """Returns the file of what prepare.py builds of a kernel. target: sm_90, MARCH."""
    return source.parent / f"{variant.name}-{target}{suffix}"


class HostKernel(CpuLauncher):
    """A kernel that CPU threads run."""

    def build(self, requests: LaunchRequest | Sequence[LaunchRequest]) -> None:
        """Compiles the kernel for the requests, if it is not carried along."""
        several = [requests] if isinstance(requests, LaunchRequest) else requests
        super().build(
            [r for r in several if not self._carried(r.variant(self.collective)).exists()]
        )

    def _carried(self, variant: Variant) -> Path:
        return carried_file(self.source, variant, MARCH, ".so")

    def _library(self, variant: Variant) -> Path:
        carried = self._carried(variant)
        return carried if carried.exists() else super()._library(variant)

    def burst(self, inputs: Arrays, outputs: Arrays, request: LaunchRequest, n: int) -> list[float]:
        """Launches `n` times; returns the seconds of each."""
        return [self.launch(inputs, outputs, request) for _ in range(n)]

    def resources(self, request: LaunchRequest) -> str:
        """Returns "": there is nothing to say."""
        return ""


class GpuKernel(CudaLauncher):
    """A GPU kernel whose launches are timed one behind the other, without the host's part."""

    suffix = ".cubin"

    def build(self, request: LaunchRequest) -> None:
        """Runs nvcc, if there is one and nothing is carried along; loading is left to the first
        launch (as is NVRTC)."""
        variant = request.variant(self.collective)
        command = compile_command(self.device, self.source, self.options(variant))
        if command and not self._carried(variant).exists():
            build_binary(self.source, command, self._searched)

    def _carried(self, variant: Variant) -> Path:
        return carried_file(self.source, variant, self.device.arch, self.suffix)

    def _load(self, source: Path, variant: Variant) -> Any:
        carried = self._carried(variant)
        if carried.exists():
            return self.device.cupy.RawModule(path=str(carried)).get_function(KERNEL)
        return super()._load(source, variant)

    def burst(self, inputs: Arrays, outputs: Arrays, request: LaunchRequest, n: int) -> list[float]:
        """Launches behind a long copy, an event between every two. Forgets a lost launch."""
        cuda = self.device.cupy.cuda
        local = self._locals([a.data.ptr for a in inputs], [a.data.ptr for a in outputs])
        launch = self._launcher(self._table(self.unit_of(request), request), local, request)
        events = [cuda.Event() for _ in range(n + 1)]
        # The host needs longer to launch a small collective than the GPU to run it: let it get
        # ahead, so that events are apart by the kernels alone.
        stall(self.device.cupy)
        events[0].record()
        for event in events[1:]:
            launch()
            event.record()
        try:
            return elapsed(cuda, events, lambda: self._check_fault(request))
        except LaunchError:
            self.reset()
            raise

    def _launcher(self, table: Any, local: Any, request: LaunchRequest) -> Callable[[], None]:
        """Returns the function that queues one launch."""
        unit = self.unit_of(request)
        kernel = self._kernel(unit, request.variant(self.collective)).kernel
        params = self._params(unit, table, local, request)
        grid = (unit.shape.blocks * unit.shape.channels, unit.shape.ranks)
        return lambda: kernel(grid, (unit.threads,), (params,), enable_cooperative_groups=True)

    def resources(self, request: LaunchRequest) -> str:
        """Says what registers and memory a thread block takes."""
        k = self._kernel(self.unit_of(request), request.variant(self.collective))
        return (
            f"{k.num_regs} registers and {k.local_size_bytes} bytes of local memory a thread, "
            f"{k.shared_size_bytes} bytes of shared memory a block"
        )


class SystemKernel(GpuKernel):
    """A GPU kernel with fences that reach other devices and the host."""

    system_scope = 1


class LaunchedKernel(SystemKernel):
    """A GPU kernel through the generated library's own launcher, as a C program calls it."""

    suffix = ".so"

    def __init__(self, plan: Plan, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._name = plan.name
        self._entries: dict[Variant, Any] = {}
        self.host_us = 0.0  # of the last call

    def build(self, request: LaunchRequest) -> None:
        """Builds a shared library, if none is carried along."""
        variant = request.variant(self.collective)
        path = self._carried(variant)
        if not path.exists():
            path = build_binary(self.source, library_command(self, variant), self._searched)
        entry = ctypes.CDLL(str(path))[f"{self._name}_cuda_{variant.dtype}_{variant.op}"]
        entry.argtypes = [ctypes.POINTER(CommRecord), ctypes.POINTER(CallRecord), ctypes.c_void_p]
        self._entries[variant] = entry

    def _launcher(self, table: Any, local: Any, request: LaunchRequest) -> Callable[[], None]:
        """Returns the function that calls the library."""
        n, entry = self.shape.ranks, self._entries[request.variant(self.collective)]
        comm = CommRecord.of(n, table.data.ptr, self._fault.data.ptr)
        call = CallRecord.of(
            count=request.count,
            micro_batch_bytes=request.micro_batch,
            window=request.window,
            timeout_s=request.timeout,
            in_place=request.in_place,
            n_local=n,
            local=local.data.ptr,
        )
        stream = self.device.cupy.cuda.get_current_stream().ptr

        def launch() -> None:
            begin = time.perf_counter()
            status = entry(ctypes.byref(comm), ctypes.byref(call), stream)
            self.host_us = 1e6 * (time.perf_counter() - begin)
            if status:
                raise fail("E432", f"{self._name}: the C launcher returned status {status}")

        return launch

    def resources(self, request: LaunchRequest) -> str:
        """Returns "": the kernel is built apart."""
        return ""


class TargetKernel:
    """A GPU kernel that is built here and runs on a machine elsewhere. kind: None for its CPU."""

    def __init__(
        self, plan: Plan, folder: Path, device: CudaDevice, kind: KernelKind | None
    ) -> None:
        self.plan, self.device, self.kind = plan, device, kind
        self.source = _write(plan, CUDA if kind else CPU, folder, kind or KernelKind.GENERATED)

    def options(self, variant: Variant) -> list[str]:
        """Returns the compiler's options for a variant."""
        far = self.kind in (KernelKind.SYSTEM, KernelKind.LAUNCHER)
        return [*variant.defines(), f"-DHCCC_SYSTEM_SCOPE={far:d}", f"-I{self.source.parent}"]

    def build(self, request: LaunchRequest) -> None:
        """Builds what is carried along.

        Raises:
            RuntimeError: the compiler is not there, or fails.
        """
        variant = request.variant(self.plan.collective)
        made = self._built(variant)
        for path in self.source.parent.iterdir():  # headers, and what else a directory has
            if path not in (self.source, made):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _built(self, variant: Variant) -> Path:
        if self.kind is None:
            made = carried_file(self.source, variant, MARCH, ".so")
            library = build_library(self.source, variant, flags=[f"-march={MARCH}"])
            return Path(shutil.copyfile(library, made))
        if self.kind is KernelKind.LAUNCHER:
            made = carried_file(self.source, variant, self.device.arch, LaunchedKernel.suffix)
            command: list[str] | None = library_command(self, variant)
        else:
            made = carried_file(self.source, variant, self.device.arch, GpuKernel.suffix)
            command = compile_command(self.device, self.source, self.options(variant))
        if command is None:
            raise RuntimeError("nvcc is not on PATH")
        ran = subprocess.run([*command, "-o", str(made)], capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(f"{shlex.join(command)}:\n{ran.stderr}")
        return made


def library_command(kernel: LaunchedKernel | TargetKernel, variant: Variant) -> list[str]:
    """Returns nvcc's command for a library with the host part, without `-o`."""
    flags = ["-std=c++17", "-O3", "-shared", "-Xcompiler", "-fPIC", f"-arch={kernel.device.arch}"]
    options = kernel.options(variant)
    return [shutil.which("nvcc") or "nvcc", *flags, *options, str(kernel.source)]


def stall(cupy: Any) -> None:
    """Queues about half a millisecond of copying."""
    source, target = _pads(cupy)
    target.data.copy_from_device_async(source.data, STALL)


@cache
def _pads(cupy: Any) -> tuple[Any, Any]:
    return cupy.empty(STALL, np.uint8), cupy.empty(STALL, np.uint8)


def elapsed(cuda: Any, events: Sequence[Any], check: Callable[[], None]) -> list[float]:
    """Waits for the last event, and returns the seconds from each to the next."""
    events[-1].synchronize()
    check()
    return [float(cuda.get_elapsed_time(a, b)) * 1e-3 for a, b in pairwise(events)]


def build_all(kernels: Iterable[tuple[MeasuredKernel, LaunchRequest]]) -> None:
    """Compiles many kernels, a core each."""
    with ThreadPoolExecutor(cpu_count()) as pool:
        for _ in pool.map(lambda pair: pair[0].build(pair[1]), kernels):
            pass


def _write(plan: Plan, target: Target, folder: Path, kind: KernelKind) -> Path:
    """Writes the translation unit of a kernel, in a folder of its own, if it is not there."""
    source = folder / f"{plan.name}{target.suffix}"
    if source.exists():
        return source
    if kind is KernelKind.INTERPRETED:
        files = interpreter.files(plan, [target])
    else:
        files = directory.files(Catalogue.of(plan), [target])
    interpreter.write(folder, files)
    return source


class HostMachine:
    """The host's threads as a device. Its times are not a GPU's: it serves to try everything
    else."""

    def __init__(self) -> None:
        self.title = "CPU"
        self.capacity = 128
        self.numpy: Any = np
        self.kinds: tuple[KernelKind, ...] = (KernelKind.GENERATED, KernelKind.INTERPRETED)

    def facts(self) -> dict[str, str]:
        """Returns the host's cores and name."""
        name = platform.processor() or platform.machine()
        return {"device": f"CPU, {name}, {cpu_count()} cores", "python": platform.python_version()}

    def kernel(self, plan: Plan, folder: Path, kind: KernelKind) -> HostKernel:
        """Writes a kernel of CPU threads."""
        source = _write(plan, CPU, folder, kind)
        return HostKernel(source, plan.name, shape_of(plan), plan.collective)

    def bind(self, kernel: Any, dtype: str, op: str) -> Bind:
        """Returns what makes sessions over the host's memory."""

        def bound(memory: Sequence[RankMemory], count: int, in_place: bool) -> HostSession:
            return HostSession(kernel, LaunchRequest(count, dtype, op, in_place, 16384), memory)

        return bound

    def copies(self, size: int, n: int) -> list[float]:
        """Copies with NumPy: one thread."""
        source, target = np.zeros(size, np.uint8), np.ones(size, np.uint8)
        taken = []
        for _ in range(n):
            begin = time.perf_counter()
            np.copyto(target, source)
            taken.append(time.perf_counter() - begin)
        return taken

    def library(self) -> None:
        """Returns None: there is none."""


class NcclLibrary:
    """NCCL's AllReduce with one rank: it has no more where there is one GPU.

    Raises:
        ImportError: CuPy was built without NCCL.
        RuntimeError: NCCL does not start.
    """

    def __init__(self, cupy: Any) -> None:
        self._nccl, self._cupy = importlib.import_module("cupy.cuda.nccl"), cupy
        if not self._nccl.available:
            raise ImportError("CuPy was built without NCCL")
        self._rank = self._nccl.NcclCommunicator(1, self._nccl.get_unique_id(), 0)
        self.name = f"NCCL {self._nccl.get_version()}, AllReduce of one rank"

    def burst(self, size: int, dtype: str, n: int) -> list[float]:
        """Calls `n` times with `size` bytes, one behind the other; returns the seconds of each."""
        nccl, cuda = self._nccl, self._cupy.cuda
        # 9 is ncclBfloat16, which CuPy has no name for.
        kind, width = (nccl.NCCL_FLOAT32, 4) if dtype == "float32" else (9, 2)
        source, target = (self._cupy.zeros(size, np.uint8) for _ in range(2))
        stream = cuda.get_current_stream().ptr
        events = [cuda.Event() for _ in range(n + 1)]
        stall(self._cupy)
        events[0].record()
        for event in events[1:]:
            self._rank.allReduce(
                source.data.ptr, target.data.ptr, size // width, kind, nccl.NCCL_SUM, stream
            )
            event.record()
        return elapsed(cuda, events, lambda: None)


class GpuMachine:
    """The current GPU.

    Raises:
        UserError: E456 without CuPy, E457 without a GPU.
    """

    def __init__(self) -> None:
        self.device = find_device()
        self.numpy: Any = self.device.cupy
        # Blocks of up to 512 threads are compiled to be resident in pairs.
        self.capacity = 2 * self.device.units
        launcher = not self.device.hip and shutil.which("nvcc")
        self.kinds = tuple(k for k in KernelKind if k is not KernelKind.LAUNCHER or launcher)
        runtime = self.numpy.cuda.runtime
        name = runtime.getDeviceProperties(runtime.getDevice())["name"]
        self.title = name.decode() if isinstance(name, bytes) else str(name)

    def facts(self) -> dict[str, str]:
        """Returns the GPU's name, versions and clocks."""
        runtime = self.numpy.cuda.runtime
        found = {
            "device": f"{self.title}, {self.device.arch}, {self.device.units} units",
            "CuPy": str(self.numpy.__version__),
            "runtime": str(runtime.runtimeGetVersion()),
            "driver API": str(runtime.driverGetVersion()),
            "python": platform.python_version(),
        }
        return found | _smi(() if self.device.hip else SMI_FIELDS)

    def kernel(self, plan: Plan, folder: Path, kind: KernelKind) -> GpuKernel:
        """Writes a kernel for the GPU."""
        source = _write(plan, HIP if self.device.hip else CUDA, folder, kind)
        arguments = (source, shape_of(plan), plan.collective, plan.warps)
        if kind is KernelKind.LAUNCHER:
            return LaunchedKernel(plan, *arguments)
        return (SystemKernel if kind is KernelKind.SYSTEM else GpuKernel)(*arguments)

    def bind(self, kernel: Any, dtype: str, op: str) -> Bind:
        """Returns what makes sessions over copies in device memory."""

        def bound(memory: Sequence[RankMemory], count: int, in_place: bool) -> DeviceSession:
            request = LaunchRequest(count, dtype, op, in_place, 16384, timeout=5)
            return DeviceSession(kernel, request, memory, self.numpy)

        return bound

    def copies(self, size: int, n: int) -> list[float]:
        """Copies by cudaMemcpyAsync, device to device."""
        source, target = (self.numpy.zeros(size, np.uint8) for _ in range(2))
        cuda = self.numpy.cuda
        events = [cuda.Event() for _ in range(n + 1)]
        stall(self.numpy)
        events[0].record()
        for event in events[1:]:
            target.data.copy_from_device_async(source.data, size)
            event.record()
        return elapsed(cuda, events, lambda: None)

    def library(self) -> NcclLibrary | None:
        """Returns NCCL through CuPy."""
        try:
            return None if self.device.hip else NcclLibrary(self.numpy)
        except (ImportError, RuntimeError):
            return None


SMI_FIELDS = ("driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.limit")


def _smi(fields: Sequence[str]) -> dict[str, str]:
    """Returns what nvidia-smi reports; empty where it is missing or refuses."""
    if not fields:
        return {}
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    values = said.stdout.splitlines()[0].split(", ") if said.stdout else []
    return dict(zip(fields, values, strict=False))
