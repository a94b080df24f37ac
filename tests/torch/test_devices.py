"""hccc.torch: tensors of a device, by the path of CUDA's, on the stand-in for a GPU."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
from pathlib import Path
from zlib import crc32

import pytest

from tests.communicator import cuda
from tests.communicator.test_hosts import HOSTS
from tests.torch.job import needs_torch, outputs, run
from tests.torch.libraries import environment
from tests.vendor.conftest import stand_in

__all__ = ["stand_in"]  # a fixture


def _built_for_cuda() -> bool:
    """Tells whether PyTorch here has code for CUDA, without importing it."""
    found = importlib.util.find_spec("torch")
    place = Path((found and found.origin) or "").parent / "lib" / "libtorch_cuda.so"
    return place.exists()


pytestmark = [
    pytest.mark.slow,
    needs_torch,
    pytest.mark.skipif(not cuda.have_compiler(), reason="no g++"),
    pytest.mark.skipif(
        _built_for_cuda(), reason="PyTorch's runtime of CUDA has the names of the stand-in's"
    ),
]
CASES = (
    *("streams", "recorded", "collectives", "more_collectives", "uneven", "messages"),
    *("futures", "coalesced", "barrier", "both", "registered", "groups", "ddp", "functional"),
    "by_jobs",
)


def _environment(n: int, place: Path) -> dict[str, str]:
    """Writes kernels for the stand-in, and returns the variables that have ranks use it."""
    runtime = cuda.working_runtime()
    # It stays where it is, for what it compiles is kept by its path, which is of tree and runtime.
    kind = crc32(f"{__file__} {runtime.name}".encode())
    compiler = runtime.parent / f"nvcc-{kind:08x}"
    if not compiler.exists():
        cuda.compiler(compiler, runtime)
    gpu = {"NVCC": str(compiler), "HCCC_GPU_ARCH": "sm_standin", "HCCC_PLATFORM": "cpu"}
    return cuda.environment(runtime, **environment(n, place, gathers=True)) | gpu


@pytest.mark.parametrize("n", [2])
def test_tensors_of_a_device(n: int, tmp_path: Path) -> None:
    run(n, "devices", CASES, _environment(n, tmp_path))


@pytest.mark.parametrize("apart", ["a nccl, a nccl, b own", "a own, a own, b own"])
def test_devices_of_several_hosts_have_jobs(apart: str, stand_in: str, tmp_path: Path) -> None:
    """Groups make them by themselves, over NCCL and over hccc's own kernels."""
    variables = {**_environment(3, tmp_path), **HOSTS, "HCCC_TEST_APART": apart}
    cases = (
        *("collectives", "uneven", "messages", "coalesced", "both", "ddp", "functional"),
        "several_vendors",
    )
    libraries = {"HCCC_LIBRARIES": "", "HCCC_STANDARD": "1", "HCCC_VENDOR_LIBRARY": stand_in}
    run(3, "devices", cases, {**variables, **libraries})


@pytest.mark.parametrize("apart", ["", "a own, b own"])
def test_a_killed_rank_is_named(apart: str, tmp_path: Path) -> None:
    words = ["-m", "tests.torch.job", "devices", "killed"]
    job = {**HOSTS, "HCCC_TEST_APART": apart, "HCCC_LIBRARIES": "", "HCCC_STANDARD": "1"}
    found = outputs(2, words, _environment(2, tmp_path) | (job if apart else {}))
    assert [code for code, _ in found] == [0, -signal.SIGKILL], found
    assert "ok killed" in found[0][1]


def _cuda_headers() -> Path | None:
    """Finds the headers of CUDA's toolkit."""
    nvcc = Path(shutil.which("nvcc") or "nvcc").resolve()
    homes = [nvcc.parent.parent, Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))]
    return next((h / "include" for h in homes if (h / "include/cuda_runtime.h").exists()), None)


@pytest.mark.skipif(_cuda_headers() is None, reason="no headers of CUDA's toolkit")
def test_cudas_devices_have_what_is_called(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("torch")
    assert spec and spec.origin
    generated = tmp_path / "c10" / "cuda" / "impl" / "cuda_cmake_macros.h"
    generated.parent.mkdir(parents=True)
    generated.touch()  # which a wheel for CPUs has not
    folders = [Path(spec.origin).parent / "include", _cuda_headers(), tmp_path]
    words = [word for one in folders for word in ("-isystem", str(one))]
    source = str(Path(__file__).with_name("cuda_guard.cpp"))
    command = ["g++", "-std=c++20", "-fsyntax-only", *words, source]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
