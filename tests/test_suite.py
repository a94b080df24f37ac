"""The suites: parts of the slow one are all of it."""

from __future__ import annotations

import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def collected(*options: str) -> tuple[int, list[str]]:
    """Lists the slow tests of a folder, and the exit code."""
    words = ["-m", "pytest", "tests/passes", "--collect-only", "-o", "addopts=-q", "-m", "slow"]
    ran = subprocess.run(
        [sys.executable, *words, *options], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    return ran.returncode, [line for line in ran.stdout.splitlines() if "::" in line]


@pytest.mark.slow
def test_parts_are_the_whole_suite() -> None:
    _, whole = collected()
    parts = [collected("--part", f"{k}/3")[1] for k in range(3)]
    assert len(whole) > 2
    assert sorted(chain(*parts)) == sorted(whole)
    assert max(map(len, parts)) <= min(map(len, parts)) + 1
    assert collected("--part", "3/3")[0] == 4  # pytest's code of a wrong command line
