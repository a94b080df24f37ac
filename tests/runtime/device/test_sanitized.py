"""The CPU's implementation under sanitizers: no data race, no wrong access, no leak."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hccc.runtime.device.device_layer import DEVICE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("g++"), reason="no g++"),
]
HERE = Path(__file__).parent


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_many_threads_at_once(sanitizer: str, tmp_path: Path) -> None:
    made = tmp_path / "stress"
    command: list[str | Path] = [
        "g++",
        "-std=c++17",
        "-O0",
        "-g1",
        "-pthread",
        f"-fsanitize={sanitizer}",
        "-fno-sanitize-recover=all",
        f"-I{DEVICE.source.parent}",
        HERE / "stress.cpp",
        "-o",
        made,
    ]
    subprocess.run(command, check=True, timeout=300)
    # What the vendors' libraries do is not asked; address space must not be laid out at random for
    # older thread sanitizers.
    nowhere = {"HCCC_CUDA_LIBRARY": "/nowhere", "HCCC_HIP_LIBRARY": "/nowhere"}
    run = ["setarch", "-R", str(made)] if shutil.which("setarch") else [str(made)]
    done = subprocess.run(
        run, env=os.environ | nowhere, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[:4000]
    assert "WARNING" not in done.stderr and "ERROR" not in done.stderr
