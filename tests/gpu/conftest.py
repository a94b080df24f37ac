"""Tests of clients on a GPU of NVIDIA's, which ranks share, by its multi-process service if that
starts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

PRESENT = Path("/dev/nvidiactl").exists() and shutil.which("nvcc") is not None
SERVICE = "nvidia-cuda-mps-control"


@pytest.fixture(scope="session")
def shared_gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """Yields the variables with which processes run on the GPU at the same time, none where the
    service does not start: then they take turns."""
    if not PRESENT:
        pytest.skip("no GPU of NVIDIA's, or no nvcc")
    place = tmp_path_factory.mktemp("mps")
    own = {"CUDA_MPS_PIPE_DIRECTORY": str(place), "CUDA_MPS_LOG_DIRECTORY": str(place)}
    variables = {**os.environ, **own}
    found = shutil.which(SERVICE) is not None
    works = found and subprocess.run([SERVICE, "-d"], env=variables).returncode == 0
    print(f"multi-process service: {'started' if works else 'not there'}")
    yield own if works else {}
    if works:
        subprocess.run([SERVICE], input="quit\n", text=True, env=variables, timeout=30)
