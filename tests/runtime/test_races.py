"""ThreadSanitizer over the CPU build: silent, unless a wait is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.runtime.handwritten import INCLUDE, PROGRAMS


def run_sanitized(directory: Path, *defines: str) -> subprocess.CompletedProcess[str]:
    """Compiles and runs programs/tsan_main.cpp."""
    compiler = shutil.which("g++")
    if not compiler:
        pytest.skip("no g++")
    program = directory / "program"
    flags = ["-std=c++17", "-O0", "-g1", "-fsanitize=thread", "-pthread", f"-I{INCLUDE}", *defines]
    command = [compiler, *flags, str(PROGRAMS / "tsan_main.cpp"), "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if "cannot find" in built.stderr:
        pytest.skip("no ThreadSanitizer runtime")
    assert built.returncode == 0, built.stderr
    environment = os.environ | {"TSAN_OPTIONS": "exitcode=66"}
    return subprocess.run(
        [str(program)], capture_output=True, text=True, timeout=120, env=environment
    )


def test_a_correct_program_has_no_race(tmp_path: Path) -> None:
    done = run_sanitized(tmp_path)
    assert "FATAL" not in done.stderr, done.stderr  # the sanitizer itself could not start
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "WARNING: ThreadSanitizer" not in done.stderr


@pytest.mark.slow
def test_a_missing_wait_is_a_race(tmp_path: Path) -> None:
    done = run_sanitized(tmp_path, "-DRING_WITHOUT_WAIT")
    assert done.returncode == 66, done.stderr
    assert "data race" in done.stderr
    assert "ring_reduce" in done.stderr or "hccc_reduce" in done.stderr
