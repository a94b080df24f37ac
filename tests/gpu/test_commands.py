"""Commands on a GPU, as a user gives them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.torch.job import ROOT

pytestmark = pytest.mark.slow


def hccc(*words: str, **variables: str) -> str:
    """Runs a command; returns what it printed. Raises AssertionError where it fails."""
    searched = os.pathsep.join([str(ROOT / "src"), *sys.path])
    ran = subprocess.run(
        [sys.executable, "-m", "hccc", *words],
        env={**os.environ, **variables, "PYTHONPATH": searched},
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    print(ran.stdout)
    return ran.stdout


def test_run(shared_gpu: Mapping[str, str]) -> None:
    words = ["--device", "cuda", "-b", "8", "-e", "1M", "-f", "64", "-n", "5"]
    hccc("run", "examples/ring_allreduce.rccl", *words, "-d", "float32,bfloat16")
    hccc("run", "examples/direct_allreduce.rccl", *words, "-o", "max")


def test_job(shared_gpu: Mapping[str, str]) -> None:
    """Ranks of a communicator, as `hccc launch` starts them: a program that a user writes."""
    printed = hccc("launch", "-n", "2", "-m", "tests.gpu.rank", **shared_gpu, HCCC_PLATFORM="cuda")
    assert printed.count("right") == 2
