"""The device layer, built once; each test on every platform that is here."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hccc.runtime.device import device_layer as module
from hccc.runtime.device.device_layer import DeviceLibrary, available, library, use
from tests.conftest import CPU_DEVICES
from tests.runtime.device.harness import Runtime, cpu_kernel, cuda_fill


@pytest.fixture(scope="session")
def layer() -> DeviceLibrary:
    """Returns the library."""
    return library()


@pytest.fixture(params=module.PLATFORMS)
def rt(request: pytest.FixtureRequest, layer: DeviceLibrary) -> Iterator[Runtime]:
    """Yields each platform of this machine."""
    yield from _on(layer, request.param)


@pytest.fixture
def cpu(layer: DeviceLibrary) -> Iterator[Runtime]:
    """Yields the CPU, for tests of it alone."""
    yield from _on(layer, "cpu")


def _on(layer: DeviceLibrary, platform: str) -> Iterator[Runtime]:
    if platform not in available():
        pytest.skip(f"no {platform} here")
    use(platform)
    runtime = Runtime(layer, platform)
    try:
        runtime("SetDevice", 0)
        yield runtime
        if platform == "cpu":  # other tests may have arrays of theirs on a GPU
            for device in reversed(range(CPU_DEVICES)):
                runtime("SetDevice", device)
                runtime("DeviceReset")
        else:
            runtime("DeviceSynchronize")
        layer.try_call("GetLastError")
    finally:
        use(None)


@pytest.fixture(scope="session")
def cuda_library(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """Compiles a CUDA kernel once; None without nvcc."""
    return cuda_fill(tmp_path_factory.mktemp("fill"))


@pytest.fixture
def fill(rt: Runtime, request: pytest.FixtureRequest) -> Any:
    """Returns a kernel of the platform: fill(int *at, int n, int value)."""
    if rt.platform == "cpu":
        return cpu_kernel(_fill, 8, 4, 4)
    if rt.platform == "hip":
        pytest.skip("no kernel for HIP")
    found = request.getfixturevalue("cuda_library")
    if found is None:
        pytest.skip("no nvcc")
    get = ctypes.CDLL(str(found)).fill_kernel
    get.restype = ctypes.c_void_p
    return get()


def _fill(block: Any, arguments: Any) -> int:
    at = ctypes.c_void_p.from_address(arguments[0]).value
    n = ctypes.c_int.from_address(arguments[1]).value
    value = ctypes.c_int.from_address(arguments[2]).value
    (ctypes.c_int * n).from_address(at or 0)[:] = [value] * n
    return 0
