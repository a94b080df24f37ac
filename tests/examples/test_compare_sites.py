"""`examples/python/compare_sites.py`, as its docstring says to call it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.commandline import ROOT, environment

SCRIPT = ROOT / "examples" / "python" / "compare_sites.py"


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *argv]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=environment(), cwd=ROOT
    )


@pytest.mark.slow
def test_a_line_for_each_cluster() -> None:
    done = _run("examples/ring_allreduce.rccl", "mi300x", "resccl-topo4")
    assert done.returncode == 0
    fits, other = done.stdout.splitlines()
    assert fits.startswith("mi300x ") and other.startswith("resccl-topo4 ") and "E130" in other


def test_without_arguments_it_says_how_it_is_called() -> None:
    done = _run()
    assert done.returncode == 2
    assert done.stderr.startswith("usage: compare_sites.py") and "Traceback" not in done.stderr
