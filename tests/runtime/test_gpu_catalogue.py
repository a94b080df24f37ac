"""Catalogues for GPUs: the C entry's launches, and the communicator's. No GPU: the CUDA runtime is
programs/fake_cuda.h, CuPy a few lines here."""

from __future__ import annotations

import ctypes
import subprocess
from ctypes import POINTER, addressof, byref
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hccc.base.diagnostics import UserError
from hccc.emit.targets import CUDA
from hccc.runtime import cuda
from hccc.runtime.abi import (
    CallRecord,
    CommRecord,
    FaultRecord,
    LocalRecord,
    Params,
    RankRecord,
    all_memory,
)
from hccc.runtime.cpu import aligned_zeros
from hccc.runtime.cuda import CudaCatalogueLauncher, CudaDevice, find_device
from hccc.runtime.picks import Picks, picks_of
from hccc.runtime.request import LaunchRequest
from tests.emit import catalogues
from tests.emit.catalogues import BORDER, FIRST
from tests.runtime.handwritten import PROGRAMS
from tests.runtime.test_gpu_launch import Record

BOTH = catalogues.both()
PICKS = picks_of(BOTH)
COUNTS = [b // 4 + off for b in (FIRST, BORDER, 4 * BORDER) for off in (-1, 0)]
BYTES = np.dtype(np.uint8)
GLOBALS = ("record", "units", "per_unit", "cooperative", "no_device", "refuses")


def expected(picks: Picks, request: LaunchRequest) -> dict[str, Any]:
    """Returns the parameters that a launch must get."""
    plan, shape = picks.range_of(request).plan, picks.shape_of(request)
    sizes = shape.sizes(request.count, request.itemsize, request.micro_batch)
    return {
        "flags_at": picks.flags_at(plan),
        "count": request.count,
        "part": sizes.part,
        "micro": sizes.micro,
        "batches": sizes.batches,
        "in_place": request.in_place,
        "window": picks.window_of(request) or sizes.batches,
    }


def given(params: Params) -> dict[str, Any]:
    """Returns the parameters that a launch got."""
    names = ("flags_at", "count", "part", "micro", "batches", "in_place", "window")
    return {name: getattr(params, name) for name in names}


def built(place: Path) -> ctypes.CDLL:
    """Builds both plans' CUDA sources and their dispatcher as a library for the CPU."""
    catalogues.written(BOTH, place, (CUDA,))
    header = place / "hccc" / "gpu_launch.h"
    fake = (PROGRAMS / "fake_cuda.h").read_text()
    header.write_text(f"{fake}\n{header.read_text()}")
    flags = ["g++", "-std=c++17", "-O0", "-fPIC", "-pthread", "-Wall", "-I."]
    sources = [("both_1.cu", "_1"), ("both_2.cu", "_2"), ("both_cuda_dispatch.cpp", "")]
    for name, own in sources:
        renamed = [f"-Dfake_{word}=fake_{word}{own}" for word in GLOBALS if own]
        chosen = ["-DHCCC_DTYPE=int32", "-DHCCC_OP=sum", "-DHCCC_BUILT(E)=E(int32, sum)"]
        device = ["-x", "c++", "-D__device__="]
        run([*flags, *renamed, *chosen, *device, "-c", name, "-o", f"{name}.o"], place)
    run([*flags, "-shared", *(f"{name}.o" for name, _ in sources), "-o", "library.so"], place)
    return ctypes.CDLL(str(place / "library.so"))


def run(command: list[str], place: Path) -> None:
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_c_entry_launches_the_plan_of_the_size(tmp_path: Path) -> None:
    library = built(tmp_path / "k")
    entry = library.both_cuda
    entry.argtypes = [
        POINTER(CommRecord),
        POINTER(CallRecord),
        *[ctypes.c_char_p] * 2,
        ctypes.c_void_p,
    ]
    flags = [aligned_zeros(PICKS.flag_bytes) for _ in range(4)]
    fault, window = FaultRecord(), all_memory()
    at = addressof(window)
    ranks = (RankRecord * 4)(*[RankRecord(f.ctypes.data, None, at, 1, 0) for f in flags])
    comm = CommRecord.of(4, addressof(ranks), addressof(fault))
    for turn in range(3):
        for in_place in (False, True):
            for count in COUNTS:
                inputs = [np.arange(count, dtype=np.int32) * (r + turn) for r in range(4)]
                outputs = inputs if in_place else [np.zeros_like(i) for i in inputs]
                wanted = np.sum(inputs, axis=0, dtype=np.int32)
                memory = zip(inputs, outputs, strict=True)
                local = (LocalRecord * 4)(
                    *[LocalRecord(i.ctypes.data, o.ctypes.data, None) for i, o in memory]
                )
                call = CallRecord.of(
                    count=count, timeout_s=20, in_place=in_place, n_local=4, local=addressof(local)
                )
                assert entry(byref(comm), byref(call), b"int32", b"sum", 0x1230) == 0
                assert all(np.array_equal(output, wanted) for output in outputs)
                request = LaunchRequest(count, "int32", in_place=in_place)
                plan = PICKS.range_of(request).plan
                record = Record.in_dll(library, f"fake_record_{plan + 1}")
                assert given(record.params) == expected(PICKS, request)
                assert (record.stream, record.block[0]) == (0x1230, 32 * BOTH.plans[plan].warps)
    launches = [Record.in_dll(library, f"fake_record_{k}").launches for k in (1, 2)]
    assert sum(launches) == 3 * 2 * len(COUNTS) and min(launches) > 0


@dataclass
class FakeMemory:
    """An array of a device."""

    size: int
    dtype: Any = BYTES

    def __post_init__(self) -> None:
        self.data = SimpleNamespace(ptr=id(self) << 8)
        self.nbytes = self.size * self.dtype.itemsize
        self.flags = SimpleNamespace(c_contiguous=True)

    def fill(self, _: int) -> None:
        """Ignores the value."""


class FakeEvent:
    """A stream's event, which records nothing."""

    def record(self) -> None:
        """Records nothing."""

    synchronize = record


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, tuple[int, ...], int, Params]]:
    """Returns (source, grid, threads, argument) of every launch of a CuPy that only records."""
    found: list[tuple[Path, tuple[int, ...], int, Params]] = []
    driver = SimpleNamespace(occupancyMaxActiveBlocksPerMultiprocessor=lambda *_: 8)
    cupy = SimpleNamespace(
        zeros=lambda size, _: FakeMemory(size),
        asarray=lambda array: FakeMemory(array.size),
        asnumpy=lambda memory: np.zeros(memory.size, np.uint8),
        cuda=SimpleNamespace(driver=driver, Event=FakeEvent, get_elapsed_time=lambda *_: 1.0),
    )
    monkeypatch.setattr(cuda, "find_device", lambda: CudaDevice(cupy, False, "sm_90", 132, True))

    def load(self: CudaCatalogueLauncher, source: Path, variant: object) -> Any:
        def launch(grid: Any, block: Any, arguments: Any, **_: object) -> None:
            params = Params.from_buffer_copy(arguments[0].tobytes())
            found.append((source, grid, block[0], params))

        launch.ptr = 1  # type: ignore[attr-defined]
        return SimpleNamespace(kernel=launch)

    monkeypatch.setattr(CudaCatalogueLauncher, "_load", load)
    return found


def test_the_communicator_launches_what_the_c_entry_does(
    tmp_path: Path, launched: list[tuple[Path, tuple[int, ...], int, Params]]
) -> None:
    group = CudaCatalogueLauncher(tmp_path, ".cu", BOTH)
    assert group._flags.size == 4 * PICKS.flag_bytes
    for in_place in (False, True):
        for count in COUNTS:
            for window, micro in ((0, 0), (3, 0), (0, 4096)):
                request = LaunchRequest(count, "float32", "sum", in_place, micro, window)
                buffers = [FakeMemory(count, np.dtype(np.float32)) for _ in range(4)]
                outputs = buffers if in_place else [FakeMemory(count, b.dtype) for b in buffers]
                group.launch(buffers, outputs, request)
                plan, shape = PICKS.range_of(request).plan, PICKS.shape_of(request)
                source, grid, threads, params = launched[-1]
                assert source == tmp_path / f"both_{plan + 1}.cu"
                assert grid == (shape.blocks * shape.channels, 4)
                assert threads == 32 * BOTH.plans[plan].warps
                assert given(params) == expected(PICKS, request)


@pytest.mark.slow
def test_on_a_gpu(tmp_path: Path) -> None:
    try:
        cupy = find_device().cupy
    except UserError as error:
        pytest.skip(error.problem.message)
    group = CudaCatalogueLauncher(catalogues.written(BOTH, tmp_path / "k"), ".cu", BOTH)
    for turn in range(3):
        for count in COUNTS:
            values = [np.arange(count, dtype=np.int32) * (r + turn) for r in range(4)]
            inputs = [cupy.asarray(v) for v in values]
            outputs = [cupy.zeros(count, np.int32) for _ in range(4)]
            group.launch(inputs, outputs, LaunchRequest(count, "int32", timeout=5))
            for output in outputs:
                assert (cupy.asnumpy(output) == np.sum(values, axis=0, dtype=np.int32)).all()
