"""Ranks of communicators in the GPU's benchmark, over a runtime of CUDA that works on the CPU."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.gpu import communicators, two_ranks
from tests.communicator import cuda
from tests.communicator.world import alone

pytestmark = pytest.mark.slow
SMALL, SIZES = (8, 65536), (8, 1 << 20)


def all_of(environment: dict[str, str], library: Path) -> list[tuple[str, int, bool]]:
    """Runs the benchmark in a process that knows no other runtime."""
    os.environ.update(environment)
    rows = communicators.all_of("cuda", library, SMALL, SIZES, 3)
    return [(row.ranks, row.size, row.right) for row in rows]


def test_processes_and_threads(tmp_path: Path) -> None:
    runtime = cuda.working_runtime()
    plan = two_ranks.of_two_ranks()
    library = cuda.library(plan, tmp_path / "kernels", runtime)
    found = alone(all_of, cuda.environment(runtime, "vmm descriptor"), library)
    kinds = ("legacy", "descriptor")
    assert found == [
        *[(f"processes, {kind}", size, True) for kind in kinds for size in SMALL],
        ("processes, descriptor, one killed", 0, True),
        *[("threads", size, True) for size in SIZES],
    ]


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
def test_nvcc_builds_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HCCC_GPU_ARCH", raising=False)
    machine = SimpleNamespace(device=SimpleNamespace(hip=False, arch="sm_90"))
    assert two_ranks.built(machine, tmp_path / "kernels").is_file()
