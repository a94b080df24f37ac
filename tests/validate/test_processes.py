"""Commands end when they must, with the processes they started."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from threading import Timer

import pytest

from hccc.validate.processes import CANNOT_START, KILLED, LimitedProcesses

SLEEPS = [sys.executable, "-c", "import subprocess; subprocess.run(['sleep', '60'])"]


def test_a_command_that_ends(tmp_path: Path) -> None:
    script = "import os, sys; open('here', 'w'); sys.exit(str(sorted(os.environ)))"
    code, errors = LimitedProcesses().run([sys.executable, "-Sc", script], tmp_path, 60)
    assert code == 1 and "'TMPDIR'" in errors and "HOME" not in errors
    assert (tmp_path / "here").exists()
    died = [sys.executable, "-c", "import os; os.abort()"]
    assert LimitedProcesses().run(died, tmp_path, 60)[0] == -signal.SIGABRT


def test_a_command_that_cannot_start(tmp_path: Path) -> None:
    (tmp_path / "text").touch()
    code, errors = LimitedProcesses().run([str(tmp_path / "text")], tmp_path, 60)
    assert code == CANNOT_START and "Permission denied" in errors


def test_time_runs_out(tmp_path: Path) -> None:
    begin = time.monotonic()
    assert LimitedProcesses().run(SLEEPS, tmp_path, 0.5) == (KILLED, "")
    assert time.monotonic() - begin < 30


def test_end_kills_what_runs_and_lets_nothing_start(tmp_path: Path) -> None:
    processes = LimitedProcesses()
    Timer(0.5, processes.end).start()
    begin = time.monotonic()
    assert processes.run(SLEEPS, tmp_path, 60)[0] == KILLED
    assert time.monotonic() - begin < 30 and not processes.running
    assert processes.run(["touch", "here"], tmp_path, 60) == (KILLED, "")
    assert not (tmp_path / "here").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process")
def test_memory_is_bounded(tmp_path: Path) -> None:
    script = "import time; time.sleep(0.2); bytearray(1 << 31)"
    code, errors = LimitedProcesses().run([sys.executable, "-Sc", script], tmp_path, 60, 1 << 30)
    assert code == 1 and "MemoryError" in errors
