"""The parsers answer any input: a short run of the fuzzer, and its earlier findings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hccc
from tests.marks import LONG

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CRASHERS = sorted((HERE / "crashers").iterdir())


def fuzzer(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `python -m tests.fuzz.parsers`."""
    environment = os.environ | {
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(next(iter(hccc.__path__))).parent),
    }
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz.parsers", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rccl", "xml"])
def test_no_input_crashes_a_parser(kind: str, tmp_path: Path) -> None:
    done = fuzzer("--kind", kind, "--seed", "5", "--inputs", "1500", "--save", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.match(rf"{kind}: 1500 inputs, 0 crashes; ", done.stdout)
    said = dict(re.findall(r"(\w+) (\d+)(?:,|$)", done.stdout.split(";")[1]))
    assert int(said["accepted"]) >= 10  # the grammar does make right inputs
    assert len(said) >= 9


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rccl", "xml"])
def test_a_while_of_fuzzing(kind: str, tmp_path: Path) -> None:
    done = fuzzer(
        "--kind", kind, "--seed", "77", "--seconds", str(8 * LONG), "--save", str(tmp_path)
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_what_once_crashed_is_answered() -> None:
    assert CRASHERS
    done = fuzzer("--replay", *map(str, CRASHERS))
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(": ") == len(CRASHERS)


@pytest.mark.slow
def test_the_fuzzer_sees_crashes(tmp_path: Path) -> None:
    """A parser that raises, one that never answers, and one that dies, are all found."""
    script = """
import os, sys
from tests.fuzz import parsers

def read(kind, data):
    reads.append(data)
    if len(reads) == 3:
        raise KeyError
    while len(reads) == 5:
        pass
    if len(reads) == 7:
        os._exit(3)
    return "accepted"

reads = []
parsers.read, parsers.SECONDS = read, 0.2
_, _, crashes = parsers.fuzz("xml", 1, 60, 10)
print(sorted({crash.what.split(" in ")[0] for crash in crashes}))
"""
    environment = os.environ | {"PYTHONPATH": str(Path(next(iter(hccc.__path__))).parent)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout.strip() == "['crash KeyError', 'crash Slow', 'ended the worker']"
