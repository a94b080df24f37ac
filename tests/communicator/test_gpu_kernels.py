"""Libraries for a GPU that are built when they are loaded."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hccc.base.diagnostics import UserError
from hccc.runtime.communicator import Communicator, CommunicatorError
from hccc.runtime.communicator.communicator import Result
from hccc.runtime.communicator.kernels import built
from tests.communicator import cuda
from tests.communicator.world import run
from tests.emit import plans


def test_directories_without_kernels_for_it(tmp_path: Path) -> None:
    place = cuda.emitted(plans.compiled(plans.mesh_allreduce(2)), tmp_path / "kernels")
    with pytest.raises(UserError, match="has no kernels for HIP"):
        built(place, ["float32"], ["sum"], "hip")
    with pytest.raises(UserError, match="has no kernels for the CPU"):
        built(place, ["float32"], ["sum"])


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = cuda.emitted(plans.compiled(plans.mesh_allreduce(2)), tmp_path / "kernels")
    monkeypatch.setenv("NVCC", "no-such-compiler")
    with pytest.raises(UserError, match="no compiler for CUDA found"):
        built(place, ["float32"], ["sum"], "cuda")


def loads(communicator: Communicator, place: Path) -> str:
    """Loads nvcc's library, whose runtime finds no GPU."""
    assert communicator.platform == "cuda" and communicator.device == 0
    with pytest.raises(CommunicatorError) as said:
        communicator.load(place, ["int32"])
    assert said.value.result is Result.UNHANDLED_DEVICE_ERROR
    communicator.check()
    return said.value.text


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
def test_a_library_that_nvcc_built(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plans.compiled(plans.mesh_allreduce(2))
    place = cuda.emitted(plan, tmp_path / "kernels")
    monkeypatch.setenv("HCCC_GPU_ARCH", "sm_80")
    first = built(place, ["int32", "float32"], ["sum"], "cuda")
    assert built(place, ["int32", "float32"], ["sum"], "cuda") == first
    environment = cuda.environment(runtime, HCCC_GPU_ARCH="sm_80")
    for text in run(2, loads, place, environment=environment):
        assert f"{plan.name}: the device refused to load its kernels" in text
