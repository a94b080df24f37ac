"""Calls in streams, graphs and groups under sanitizers: no data race, no wrong access, no leak."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hccc.runtime.communicator.kernels import built
from hccc.runtime.communicator.runtime_library import COMMUNICATOR, PIECES
from tests.communicator.conftest import Uneven

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("g++"), reason="no g++"),
]
ROOMS = ("communicator", "device", "vendor")
HERE, RUNTIME = Path(__file__).parent, COMMUNICATOR.source.parent.parent


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_many_threads_at_once(sums: Path, uneven: Uneven, sanitizer: str, tmp_path: Path) -> None:
    made = tmp_path / "stress"
    rooms = ("include", *(f"{room}{part}" for room in ROOMS for part in ("", "/include")))
    includes = [f"-I{RUNTIME / room}" for room in rooms]
    sources = [HERE / "stress.cpp", *(piece.source for piece in PIECES)]
    command: list[str | Path] = [
        "g++",
        "-std=c++17",
        "-O0",  # a third of the compiler's time, and nothing is optimised away
        "-g1",
        "-pthread",
        f"-fsanitize={sanitizer}",
        "-fno-sanitize-recover=all",
        "-w",
        *includes,
        *sources,
        "-o",
        made,
        "-ldl",
    ]
    subprocess.run(command, check=True, timeout=500)
    kernels, blocks = (
        built(place, ["float32", "int32"], ["sum", "max"]) for place in (sums, uneven("all_to_all"))
    )
    run = ["setarch", "-R"] if shutil.which("setarch") else []
    variables = {"HCCC_HEAP_BYTES": str(64 << 20), "HCCC_TIMEOUT": "60"}
    variables["ASAN_OPTIONS"] = "detect_stack_use_after_return=1"
    done = subprocess.run(
        [*run, str(made), str(kernels), "10", str(blocks)],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[:4000]
    assert "WARNING" not in done.stderr and "ERROR" not in done.stderr
