"""launcher: launches a generated collective on a machine, each rank on a GPU of its own.

The kernels are compiled as for a communicator of several GPUs: one launch for each rank, fences
that reach all of them. Each launch has another seed, so that as many launches are as many orders of
execution. What a machine finds wrong ends a launch with the lines of both accesses; results are as
those of a GPU.
"""

from __future__ import annotations

import ctypes
import time
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hccc.runtime.abi import LocalRecord, Params, WindowRecord
from hccc.runtime.build import Variant
from hccc.runtime.cuda import CudaDevice, CudaLauncher, KernelUnit, addresses_of, build_binary
from hccc.runtime.machines.arrays import ALIGNMENT, Arrays
from hccc.runtime.machines.kernel import MachineKernel, MachineLaunch, Multicast
from hccc.runtime.request import LaunchRequest

MULTICASTS = 1 << 60  # the first multicast address: nothing else is there
ROOM = 1 << 40  # bytes from one multicast address to the next, at least those of a window
Calls = Sequence[tuple[Sequence[Any | None], Sequence[Any | None]]]


class OnMachine(CudaLauncher):
    """What launchers of machines do otherwise than on a GPU."""

    system_scope = 1  # whether fences reach other devices: each rank is one, else all are one
    arch: str
    hip: bool

    def __init__(self, *args: Any, arch: str | None = None, **options: Any) -> None:
        """Makes a launcher, as of a GPU. arch: another than the machine's own, as gfx90a."""
        self.arch = arch or self.arch
        super().__init__(*args, **options)

    def _find_device(self) -> CudaDevice:
        self.arrays, self.seed = Arrays(), 0
        self._multicasts: list[Multicast] = []
        return CudaDevice(self.arrays, hip=self.hip, arch=self.arch, units=0, cooperative=True)

    @abstractmethod
    def command(self) -> list[str]:
        """Returns the compiler and its options, without those of a variant. Raises UserError E470
        where there is none."""

    @abstractmethod
    def kernel_of(self, text: str) -> MachineKernel:
        """Returns the kernel of a text. Raises UserError E487."""

    def _kernel(self, unit: KernelUnit, variant: Variant) -> MachineKernel:
        key = unit.source, variant
        if key not in self.kernels:
            self.kernels[key] = self.kernel_of(self.text(unit.source, variant))
        kernel: MachineKernel = self.kernels[key]
        return kernel

    def text(self, source: Path, variant: Variant) -> str:
        """Returns what the compiler makes of a source. Raises UserError E470 without one, E414."""
        command = [*self.command(), *self.options(variant), str(source)]
        return build_binary(source, command, self._searched).read_text()

    def _run(self, unit: KernelUnit, kernel: Any, params: Any) -> float:
        return self._run_all(unit, kernel, [params.tobytes()])

    def _run_all(self, unit: KernelUnit, kernel: MachineKernel, calls: Sequence[bytes]) -> float:
        """Runs calls one after the other, each rank as soon as it can. Raises UserError E488."""
        start = time.perf_counter()
        self.seed += 1
        blocks, n = unit.shape.blocks * unit.shape.channels, unit.shape.ranks
        if self.system_scope:
            rows = [(_of_rank(params, rank), rank) for params in calls for rank in range(n)]
            grids = [MachineLaunch(row, blocks, 1, unit.threads, rank) for row, rank in rows]
        else:
            grids = [MachineLaunch(row, blocks, n, unit.threads, 0) for row in calls]
        if found := kernel.run(grids, self.arrays.regions(), self.seed, self._multicasts):
            raise found.error()
        return time.perf_counter() - start

    def _register(self, calls: Calls) -> None:
        """Makes of each call's inputs a window at all ranks, and of its outputs; and a multicast
        address of each that all have, and as long."""
        buffers = [one for call in calls for one in call]
        n, k = self.shape.ranks, len(buffers)
        table = (WindowRecord * (2 * n * k))()
        self._multicasts = []
        for number, arrays in enumerate(buffers):
            spans = [_page_of(array) for array in arrays]
            alike = spans[0][1] > 0 and len({size for _, size in spans}) == 1
            begin = MULTICASTS + ROOM * number if alike else 0
            for rank, (base, size) in enumerate(spans):
                table[2 * k * rank + number] = WindowRecord(base, size)
                table[2 * k * rank + k + number] = WindowRecord(begin, size)
            if alike:
                places = tuple(base for base, _ in spans)
                self._multicasts.append(Multicast(begin, spans[0][1], places))
        self._windows, self._window_count, self._ranks = self._upload(table), k, None

    def _windows_of(self, rank: int) -> tuple[int, int, int]:
        each = 2 * self._window_count * ctypes.sizeof(WindowRecord)
        return self._windows.data.ptr + rank * each, self._window_count, 1

    def launch_all(self, calls: Calls, request: LaunchRequest) -> None:
        """Runs several calls, of inputs and outputs as `launch` has them, all of which are queued
        before the first begins. Raises as `launch`."""
        unit = self.unit_of(request)
        self._register(calls)
        kernel, table = (
            self._kernel(unit, request.variant(self.collective)),
            self._table(unit, request),
        )
        tables = [self._locals(addresses_of(i), addresses_of(o), request.scalars) for i, o in calls]
        params = [self._params(unit, table, local, request).tobytes() for local in tables]
        self._run_all(unit, kernel, params)
        self._check_fault(request)


def _page_of(array: Any | None) -> tuple[int, int]:
    """Returns the beginning and the bytes of a window with an array: memory is mapped by pages."""
    if array is None:
        return 0, 0
    past = int(array.data.ptr) % ALIGNMENT
    return int(array.data.ptr) - past, past + int(array.nbytes)


def _of_rank(params: bytes, rank: int) -> bytes:
    """Makes the parameters of one rank's launch of those of all ranks."""
    own = Params.from_buffer_copy(params)
    own.first_rank = rank
    own.local += rank * ctypes.sizeof(LocalRecord)
    return bytes(own)
