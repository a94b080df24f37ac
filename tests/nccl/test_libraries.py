"""Libraries of HCCC_LIBRARIES: files, folders of built ones, and one for a GPU."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hccc.ir.collective import OpType
from hccc.ir.job import vendor_clusters
from hccc.ir.job_table import dumps
from hccc.runtime.communicator.kernels import built
from hccc.synth.builtin.hetccl import hetccl
from tests.communicator import cuda
from tests.emit import plans
from tests.nccl.ranks import RANKS, run

pytestmark = pytest.mark.slow
RIGHT = [[3] * 4] * RANKS


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds an AllReduce of the ranks."""
    place = tmp_path_factory.mktemp("kernels") / "sums"
    plan = plans.compiled(plans.mesh_allreduce(RANKS))
    return built(plans.written(plan, place), ["float32"], ["sum"])


def test_files_and_folders(library: Path, tmp_path: Path) -> None:
    for name in ("file.so", "folder/any.so", "emitted/build/any.so"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, tmp_path / name)
    for named in (tmp_path / "file.so", tmp_path / "folder", tmp_path / "emitted"):
        found, _ = run("sums", HCCC_LIBRARIES=f":{named}:", HCCC_STANDARD="0")
        assert found == {"found": RIGHT, "errors": []}


def test_one_for_other_numbers_of_ranks_is_left_out(library: Path, tmp_path: Path) -> None:
    other = plans.written(plans.compiled(plans.mesh_allreduce(RANKS + 1)), tmp_path / "other")
    names = f"{built(other, ['float32'], ['sum'])}:{library}"
    found, log = run("sums", HCCC_LIBRARIES=names, HCCC_STANDARD="0", HCCC_DEBUG="INFO")
    assert found == {"found": RIGHT, "errors": []}
    assert f"left out, as it is for {RANKS + 1} ranks of cpu: " in log


def test_a_job(tmp_path: Path) -> None:
    """Its vendor clusters have one rank each; one of other numbers of ranks is left out."""
    for n in (RANKS, RANKS + 1):
        alone = vendor_clusters([("any", [rank], [rank], [1]) for rank in range(n)])
        table = dumps(hetccl(alone, OpType.ALLREDUCE))
        (tmp_path / f"{n}.table").write_text(table)
    found, log = run("sums", HCCC_LIBRARIES=str(tmp_path), HCCC_STANDARD="0", HCCC_DEBUG="INFO")
    assert found == {"found": RIGHT, "errors": []}
    assert "the job hetccl_allreduce" in log
    assert f"left out, as it is a job of {RANKS + 1} ranks: " in log


def test_what_cannot_be_loaded_is_said(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")
    for named, why in [
        (tmp_path / "text.so", "text.so: "),
        (tmp_path / "nothing", "nothing: cannot open"),
        (tmp_path.parent, "has no shared library or table, nor has its build/"),
    ]:
        found, _ = run("sums", HCCC_LIBRARIES=str(named))
        assert found["found"] is None and why in found["errors"][0][1], found


@pytest.fixture(scope="session")
def runtime() -> Path:
    """Builds a CUDA runtime that works on the CPU."""
    return cuda.working_runtime()


def test_one_for_a_gpu(runtime: Path, vendor: str, tmp_path: Path) -> None:
    """Its calls run on the device, others by the vendor's library."""
    plan = plans.compiled(plans.mesh_allreduce(RANKS))
    file = cuda.library(plan, tmp_path / "kernels", runtime)
    of_job = {"HCCC_LIBRARIES": str(file), "HCCC_NCCL_FALLBACK": vendor, "HCCC_DEBUG": "INFO"}
    found, log = run("device", **cuda.environment(runtime, **of_job))
    assert found["found"] == RIGHT and found["errors"] == []
    assert found["broadcast"][:3] == [21900.0, 1, 100]
    assert found["received"][:3] == [21900.0, 2, 200]
    assert "Recv of int32: by the vendor's library, as memory is a device's" in log
    assert "Allreduce of int32, sum: by hccc" in log
    assert "Broadcast of int32: by the vendor's library, as no library of kernels does it" in log
