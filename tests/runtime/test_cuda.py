"""The GPU launcher as far as a machine without a GPU can tell: errors, commands, the kernel's
argument, and that everything fits. With CuPy and a GPU: the same results as the CPU's."""

from __future__ import annotations

import ctypes
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hccc.base.diagnostics import UserError
from hccc.runtime.abi import Params
from hccc.runtime.cuda import (
    CudaDevice,
    CudaLauncher,
    _check_grid,
    _structured,
    build_binary,
    compile_command,
    find_device,
)
from hccc.runtime.layout import LayoutShape
from hccc.runtime.request import LaunchRequest
from tests.runtime.handwritten import ALLREDUCE, INCLUDE, MESH, PROGRAMS, RING, pattern


def device(**changes: Any) -> CudaDevice:
    """Makes an H200 with the properties that the launcher asks for."""
    driver = SimpleNamespace(occupancyMaxActiveBlocksPerMultiprocessor=lambda *_: 2)
    cupy = SimpleNamespace(cuda=SimpleNamespace(driver=driver))
    values: dict[str, Any] = {
        "hip": False,
        "arch": "sm_90",
        "units": 132,
        "cooperative": True,
    } | changes
    return CudaDevice(cupy=cupy, **values)


def test_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(UserError, match=r"E456(.|\n)*pip install"):
        find_device()


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoDriver(RuntimeError):
        pass

    def count() -> int:
        raise NoDriver("cudaErrorInsufficientDriver")

    runtime = SimpleNamespace(getDeviceCount=count, CUDARuntimeError=NoDriver)
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    with pytest.raises(UserError, match=r"E457(.|\n)*InsufficientDriver"):
        find_device()
    runtime.getDeviceCount = lambda: 0
    with pytest.raises(UserError, match="E457"):
        find_device()


def test_the_grid_must_fit() -> None:
    kernel = SimpleNamespace(kernel=SimpleNamespace(ptr=1))
    _check_grid(device(), kernel, 264, 512)
    with pytest.raises(UserError, match=r"E432(.|\n)*265 thread blocks(.|\n)*holds 264"):
        _check_grid(device(), kernel, 265, 512)
    with pytest.raises(UserError, match=r"E432(.|\n)*cooperative"):
        _check_grid(device(cooperative=False), kernel, 1, 512)


def test_the_argument_is_one_structure() -> None:
    assert _structured(Params).itemsize == ctypes.sizeof(Params)


@pytest.mark.slow
def test_a_binary_is_built_once(tmp_path: Path) -> None:
    if not shutil.which("nvcc"):
        pytest.skip("no nvcc")
    source = tmp_path / "mesh.cu"
    source.write_text('#include "mesh.inc"\nHCCC_KERNEL\n')
    searched = [tmp_path, PROGRAMS, INCLUDE]
    command = compile_command(device(), source, [f"-I{path}" for path in searched])
    assert command is not None
    first = build_binary(source, command, searched)
    assert first.read_bytes().startswith(b"\x7fELF")
    made = first.stat().st_mtime_ns
    assert build_binary(source, command, searched).stat().st_mtime_ns == made


@pytest.fixture
def cupy() -> Any:
    """Returns CuPy with a GPU, or skips."""
    try:
        return find_device().cupy
    except UserError as error:
        pytest.skip(error.problem.message)


@pytest.mark.parametrize("name, shape, warps", [("ring", RING, 16), ("mesh", MESH, 8)])
def test_on_a_gpu(cupy: Any, tmp_path: Path, name: str, shape: LayoutShape, warps: int) -> None:
    source = tmp_path / f"{name}.cu"
    source.write_text(f'#include "{name}.inc"\nHCCC_KERNEL\n')
    group = CudaLauncher(source, shape, ALLREDUCE, warps, include=[PROGRAMS, INCLUDE])
    for count in (0, 1, 1000, 100003):
        for window in (1, 0):
            values = [pattern(r, count, np.int32) for r in range(4)]
            inputs = [cupy.asarray(v) for v in values]
            outputs = [cupy.zeros(count, np.int32) for _ in range(4)]
            request = LaunchRequest(count, "int32", window=window, micro_batch=4096, timeout=5)
            group.launch(inputs, outputs, request)
            for output in outputs:
                assert (cupy.asnumpy(output) == np.add.reduce(values, dtype=np.int32)).all()
