"""The command line in this process, and in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hccc.cli import execute as command
from hccc.cli import main as cli

ROOT = Path(__file__).parents[2]
Hccc = Callable[..., tuple[int, str, str]]
COMMAND = [sys.executable, "-c", "from hccc.cli.main import main; main()"]


def environment(**more: str) -> dict[str, str]:
    """Returns an environment in which COMMAND finds hccc, installed or not."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), **more}


def process(*argv: object, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs hccc in a process of its own; `more` goes into its environment."""
    return subprocess.run(
        [*COMMAND, *map(str, argv)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(**more),
    )


@pytest.fixture
def hccc(capfd: pytest.CaptureFixture[str]) -> Hccc:
    """Runs a command line in this process: (exit code, stdout, stderr)."""

    def run(*argv: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = command.execute(cli.cli, [str(a) for a in argv])
        out, err = capfd.readouterr()
        return code, out, err

    return run
