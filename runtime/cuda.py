"""cuda: launches a generated collective on one GPU: all ranks as virtual ranks of one grid.

Arrays are CuPy's; with CuPy for ROCm the same code launches the HIP kernels. The kernel comes from
nvcc (or hipcc) as a binary when that is on PATH, else from NVRTC through CuPy. All thread blocks
wait for each other, so the launch is cooperative and refused when they cannot all be resident at
once. CuPy is imported only when a launcher is made.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hccc.base.building.build import build_once, digest_of
from hccc.base.building.compiler import TIMEOUT_S, environment
from hccc.base.diagnostics import Note, UserError, fail
from hccc.base.files.libraries import stem_of
from hccc.ir.catalogue import Catalogue
from hccc.ir.collective import Collective
from hccc.runtime.abi import (
    FaultRecord,
    LocalRecord,
    Params,
    RankRecord,
    Trace,
    TracedParams,
    WindowRecord,
    all_memory,
)
from hccc.runtime.build import Variant
from hccc.runtime.fault import LaunchError, LaunchFault
from hccc.runtime.layout import FLAG_STRIDE, LayoutShape
from hccc.runtime.picks import picks_of
from hccc.runtime.recording import LaunchRecording, Recorder, on_device
from hccc.runtime.request import (
    INT,
    LaunchRequest,
    check_aliases,
    check_buffers,
    check_shape,
    check_size,
    deadlines_of,
)

KERNEL = "hccc_kernel"
# hccc_clock: nanoseconds on NVIDIA; on AMD the constant counter of MI300 (others are slower,
# so a deadline there is later, never earlier).
CUDA_TICKS = 10**9
HIP_TICKS = 10**8


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """CuPy, and the current GPU."""

    cupy: Any
    hip: bool
    arch: str  # sm_90, gfx942
    units: int  # streaming multiprocessors or compute units
    cooperative: bool


def find_device() -> CudaDevice:
    """Finds the current GPU. Raises UserError E456 without CuPy, E457 without a GPU."""
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        raise fail(
            "E456",
            f"CuPy cannot be imported ({error})",
            help="pip install 'hccc[cuda]' (or cupy-rocm-7-0), or launch on the CPU",
        ) from error
    runtime = cupy.cuda.runtime
    try:
        if runtime.getDeviceCount() < 1:
            raise _no_gpu("CuPy finds none")
        return _describe(cupy, runtime.getDevice())
    except runtime.CUDARuntimeError as error:
        raise _no_gpu(str(error)) from error


def _no_gpu(reason: str) -> UserError:
    return fail("E457", f"no usable GPU: {reason}", help="launch on the CPU")


def _describe(cupy: Any, index: int) -> CudaDevice:
    properties = cupy.cuda.runtime.getDeviceProperties(index)
    hip = bool(cupy.cuda.runtime.is_hip)
    name = properties.get("gcnArchName", b"")
    gcn = (name.decode() if isinstance(name, bytes) else str(name)).partition(":")[0]
    attributes = cupy.cuda.Device(index).attributes
    return CudaDevice(
        cupy=cupy,
        hip=hip,
        arch=gcn if hip else f"sm_{properties['major']}{properties['minor']}",
        units=int(properties["multiProcessorCount"]),
        cooperative=bool(attributes.get("CooperativeLaunch", 1)),
    )


def compile_command(device: CudaDevice, source: Path, options: Sequence[str]) -> list[str] | None:
    """Returns the command that makes a binary of `source`, without `-o`; None: there is no
    compiler."""
    if device.hip:
        compiler = shutil.which("hipcc")
        target = ["--genco", f"--offload-arch={device.arch}"]
    else:
        compiler = shutil.which("nvcc")
        target = ["-cubin", f"-arch={device.arch}"]
    return [compiler, "-std=c++17", "-O3", *target, *options, str(source)] if compiler else None


def build_binary(source: Path, command: list[str], searched: Sequence[Path]) -> Path:
    """Runs `command` unless its result is cached. Raises UserError E414."""
    asked = [command[0], "--version"]
    version = subprocess.run(
        asked, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment()
    )
    words = [*command, hashlib.sha256(version.stdout.encode()).hexdigest()]
    return build_once(source, stem_of(source, digest_of(searched, words)), ".bin", command)


def _check_grid(device: CudaDevice, kernel: Any, blocks: int, threads: int) -> None:
    """Raises UserError E432 unless all blocks can be resident at once."""
    if not device.cooperative:
        raise fail("E432", f"this GPU ({device.arch}) has no cooperative launch")
    driver = device.cupy.cuda.driver
    per_unit = driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.kernel.ptr, threads, 0)
    if blocks <= per_unit * device.units:
        return
    room = f"{per_unit} blocks of {threads} threads on each of {device.units} units"
    raise fail(
        "E432",
        f"{blocks} thread blocks must run at once, this GPU holds {per_unit * device.units}",
        notes=[Note(room)],
        help="use fewer channels, fewer thread blocks or fewer ranks",
    )


@dataclass(frozen=True, slots=True)
class KernelUnit:
    """The kernels of a launch: their source, their shape, threads of a block, and bytes from a
    rank's flags to theirs."""

    source: Path
    shape: LayoutShape
    threads: int
    flags_at: int = 0


class CudaLauncher:
    """All ranks of one generated collective on the current GPU, with scratch and flags.

    `source` is the generated `<name>.cu` (on ROCm `<name>.hip`), `warps` its warps per block.
    Scratch and flags are allocated once and stay between launches. Not for concurrent launches.
    system_scope: whether fences reach other devices; all ranks are on this one.
    """

    system_scope = 0

    def __init__(
        self,
        source: Path,
        shape: LayoutShape,
        collective: Collective,
        warps: int,
        *,
        include: Sequence[Path] = (),
    ) -> None:
        check_shape(shape)
        self.source = source.resolve()
        self.shape = shape
        self.collective = collective
        self._alone = KernelUnit(self.source, shape, 32 * warps)
        self.device = self._find_device()
        self._searched = (self.source.parent, *(path.resolve() for path in include))
        self.kernels: dict[tuple[Path, Variant], Any] = {}
        self._flags = self._zeros(shape.ranks * self.flag_bytes)
        self._scratch = self._zeros(0)
        self._fault = self._zeros(ctypes.sizeof(FaultRecord))
        self._windows = self._upload((WindowRecord * 1)(all_memory()))
        self._ranks: Any = None
        self._blocks: Any = None  # of the last launch
        self._trace = Trace()  # of no slots: nothing is recorded

    def _find_device(self) -> CudaDevice:
        return find_device()

    @property
    def flag_bytes(self) -> int:
        """Bytes of one rank's flags."""
        return self.shape.flag_bytes

    def unit_of(self, request: LaunchRequest) -> KernelUnit:
        """Returns the kernels of a launch."""
        return self._alone

    def window_of(self, request: LaunchRequest) -> int:
        """Returns the window of a launch, 0 for all micro-batches."""
        return request.window

    def _zeros(self, size: int) -> Any:
        # CuPy's allocator aligns to 512 bytes.
        return self.device.cupy.zeros(max(size, FLAG_STRIDE), np.uint8)

    def launch(
        self, inputs: Sequence[Any | None], outputs: Sequence[Any | None], request: LaunchRequest
    ) -> float:
        """Runs the collective in the current stream, waits, and returns the kernel's seconds.

        `inputs[r]`, `outputs[r]`: CuPy arrays of rank r, None where the collective has none
        there. What CuPy lacks (bfloat16, 8-bit floats) may be passed as uint16 or uint8. Raises
        UserError E414 (build), E422 and E423 (buffers), E432 (does not fit), E454 (too large),
        LaunchError E420 (deadline, now or in an earlier launch: `reset`).
        """
        unit = self.unit_of(request)
        check_size(unit.shape, request)
        check_buffers(self.collective, request, inputs, outputs)
        send, receive = addresses_of(inputs), addresses_of(outputs)
        check_aliases(self.collective, request, send, receive)
        kernel = self._kernel(unit, request.variant(self.collective))
        self._register([(inputs, outputs)])
        table = self._table(unit, request)
        local = self._locals(send, receive, request.scalars)
        seconds = self._run(unit, kernel, self._params(unit, table, local, request))
        self._check_fault(request)
        return seconds

    def record(
        self,
        inputs: Sequence[Any | None],
        outputs: Sequence[Any | None],
        request: LaunchRequest,
        slots: int,
    ) -> LaunchRecording:
        """Runs the collective once and returns the kernels' records. slots: of a thread block.

        Raises UserError E459 on AMD, where Python cannot read the rate of the device's clock; and
        as `launch`.
        """
        if self.device.hip:
            raise fail("E459", "launches are not recorded on AMD GPUs", help="leave --trace out")
        shape = self.unit_of(request).shape
        recorder = Recorder(range(shape.ranks), shape.blocks * shape.channels, slots)
        with on_device(recorder, self._zeros, self.device.cupy.asnumpy) as self._trace:
            self.launch(inputs, outputs, request)
        return recorder.read()

    def _run(self, unit: KernelUnit, kernel: Any, params: Any) -> float:
        events = self.device.cupy.cuda.Event
        start, stop = events(), events()
        grid = (unit.shape.blocks * unit.shape.channels, unit.shape.ranks)
        start.record()
        # Not RawKernel's own cooperative flag: with it CuPy compiles relocatable code and links
        # a library that wheels do not bring, which only grid-wide barriers would need.
        launch = kernel.kernel
        launch(grid, (unit.threads,), (params,), enable_cooperative_groups=True)
        stop.record()
        stop.synchronize()
        return float(self.device.cupy.cuda.get_elapsed_time(start, stop)) * 1e-3

    def _kernel(self, unit: KernelUnit, variant: Variant) -> Any:
        if (unit.source, variant) not in self.kernels:
            kernel = self._load(unit.source, variant)
            _check_grid(self.device, kernel, unit.shape.launch_blocks, unit.threads)
            self.kernels[unit.source, variant] = kernel
        return self.kernels[unit.source, variant]

    def options(self, variant: Variant) -> list[str]:
        """Returns the compiler's options for a variant."""
        scope = f"-DHCCC_SYSTEM_SCOPE={self.system_scope}"
        return [*variant.defines(), scope, *(f"-I{path}" for path in self._searched)]

    def _load(self, source: Path, variant: Variant) -> Any:
        options = self.options(variant)
        module = self.device.cupy.RawModule
        command = compile_command(self.device, source, options)
        if command:
            path = build_binary(source, command, self._searched)
            return module(path=str(path)).get_function(KERNEL)
        code = source.read_text(encoding="utf-8")
        options = ["-std=c++17", *options]
        made = module(code=code, options=tuple(options))
        try:
            kernel = made.get_function(KERNEL)
            _ = kernel.kernel  # compiles now
            return kernel
        except self.device.cupy.cuda.compiler.CompileException as error:
            lines = "\n".join(str(error).splitlines()[:12])
            raise fail("E414", f"NVRTC failed on {source}", notes=[Note(lines)]) from error

    def reset(self) -> None:
        """Clears a fault: counters of all ranks begin at zero again. No launch may be running."""
        self._flags.fill(0)
        self._fault.fill(0)

    def _upload(self, table: ctypes.Array[Any]) -> Any:
        return self.device.cupy.asarray(np.frombuffer(bytes(table), np.uint8))

    def _locals(
        self, send: Sequence[int], receive: Sequence[int], scalars: Sequence[int] = ()
    ) -> Any:
        """Makes hccc_local[n_ranks] in device memory; it must live as long as the launch."""
        n = self.shape.ranks
        rows = map(LocalRecord, send, receive, [0] * n, scalars or [0] * n)
        return self._upload((LocalRecord * n)(*rows))

    def _table(self, unit: KernelUnit, request: LaunchRequest) -> Any:
        """Returns the table of ranks in device memory, hccc_rank[n_ranks]; made anew with
        scratch."""
        ranks, shape = range(self.shape.ranks), unit.shape
        need = shape.scratch_bytes(request.count, request.itemsize, request.micro_batch)
        if self._scratch.nbytes < need * shape.ranks:
            self._scratch, self._ranks = self._zeros(need * shape.ranks), None
        if self._ranks is None:
            rows = [
                RankRecord(
                    self._flags.data.ptr + r * self.flag_bytes,
                    self._scratch.data.ptr + r * need,
                    *self._windows_of(r),
                )
                for r in ranks
            ]
            self._ranks = self._upload((RankRecord * shape.ranks)(*rows))
        return self._ranks

    def _register(self, calls: Sequence[tuple[Sequence[Any | None], Sequence[Any | None]]]) -> None:
        """Makes windows of the inputs and outputs of calls, where all memory is not one."""

    def _windows_of(self, rank: int) -> tuple[int, int, int]:
        """Returns the address of a rank's windows, how many they are, and whether multicast
        addresses follow. A multicast address needs the memory of several devices."""
        return self._windows.data.ptr, 1, 0

    def _params(self, unit: KernelUnit, table: Any, local: Any, request: LaunchRequest) -> Any:
        """Makes hccc_params as CuPy passes a structure by value: an array of one structured
        element."""
        sizes = unit.shape.sizes(request.count, request.itemsize, request.micro_batch)
        ticks = HIP_TICKS if self.device.hip else CUDA_TICKS
        made, traced = (TracedParams, {"trace": self._trace}) if request.trace else (Params, {})
        words = None if request.blocks is None else request.blocks.words()
        self._blocks = None if words is None else self.device.cupy.asarray(words)
        params = made(
            blocks=0 if self._blocks is None else self._blocks.data.ptr,
            ranks=table.data.ptr,
            local=local.data.ptr,
            fault=self._fault.data.ptr,
            flags_at=unit.flags_at,
            count=request.count,
            part=sizes.part,
            micro=sizes.micro,
            batches=sizes.batches,
            window=min(self.window_of(request) or max(sizes.batches, 1), INT),
            first_rank=0,
            in_place=request.in_place,
            **deadlines_of(request, unit.shape, ticks),
            **traced,
        )
        return np.frombuffer(bytearray(bytes(params)), _structured(made))

    def plan_of(self, request: LaunchRequest) -> str:
        """Returns the name of the plan of a launch."""
        return ""

    def _check_fault(self, request: LaunchRequest) -> None:
        record = FaultRecord.from_buffer_copy(self.device.cupy.asnumpy(self._fault).tobytes())
        if record.claimed:
            raise LaunchError(LaunchFault.of(record), request.timeout, self.plan_of(request))


class CudaCatalogueLauncher(CudaLauncher):
    """All ranks of a catalogue, whose plan for the size of a launch is picked here.

    `place` has the generated `<name>_1.cu` and so on (on ROCm `.hip`: `suffix`). Flags are those of
    all plans, scratch the most of any launch yet. Otherwise as `CudaLauncher`.
    """

    def __init__(
        self, place: Path, suffix: str, catalogue: Catalogue, *, include: Sequence[Path] = ()
    ) -> None:
        self._picks = picks_of(catalogue)
        for shape in self._picks.shapes:
            check_shape(shape)
        self._sources = [place.resolve() / f"{plan.name}{suffix}" for plan in catalogue.plans]
        first, warps = self._picks.shapes[0], catalogue.plans[0].warps
        super().__init__(self._sources[0], first, catalogue.collective, warps, include=include)

    @property
    def flag_bytes(self) -> int:
        """Bytes of one rank's flags, those of all plans."""
        return self._picks.flag_bytes

    def plan_of(self, request: LaunchRequest) -> str:
        """Returns the name of the plan of a launch."""
        return self._picks.plan_of(request)

    def unit_of(self, request: LaunchRequest) -> KernelUnit:
        """Returns the kernels of the plan of a launch."""
        plan = self._picks.range_of(request).plan
        threads = 32 * self._picks.catalogue.plans[plan].warps
        shape, at = self._picks.shape_of(request), self._picks.flags_at(plan)
        return KernelUnit(self._sources[plan], shape, threads, at)

    def window_of(self, request: LaunchRequest) -> int:
        """Returns the window of a launch: the range's, where the launch names none."""
        return self._picks.window_of(request)


def _structured(structure: type[ctypes.Structure]) -> np.dtype[np.void]:
    """Returns the NumPy dtype of a C structure: one field of as many bytes."""
    size = ctypes.sizeof(structure)
    return np.dtype({"names": ["bytes"], "formats": [(np.uint8, (size,))], "itemsize": size})


def addresses_of(arrays: Sequence[Any | None]) -> list[int]:
    """Returns the addresses of arrays, 0 for None."""
    return [0 if a is None else int(a.data.ptr) for a in arrays]
