"""What a command says of what it is doing, where stderr is no terminal."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hccc.base.progress import note, tell
from hccc.cli import progress
from tests.cli.commandline import COMMAND, environment

EXAMPLES = Path(__file__).parents[2] / "examples"


class Told:
    """Lines, by a clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now, self.said = 0.0, list[str]()
        self.lines = progress.Lines("Starting", self.said.append, lambda: self.now)

    def at(self, now: float) -> list[str]:
        """Returns all that was said until a time."""
        self.now = now
        self.lines.look()
        return self.said


def test_a_phase_is_told_once_it_has_lasted() -> None:
    told = Told()
    told.at(0.5)
    told.lines.phase("Scheduling")
    assert told.at(1.9) == []
    assert told.at(2.6) == told.at(4) == ["Scheduling …"]
    told.lines.phase("Lowering")
    assert told.at(5.9) == ["Scheduling …"]
    assert told.at(6.1) == ["Scheduling …", "Lowering …"]


def test_short_phases_are_told_now_and_then() -> None:
    told = Told()
    for k in range(300):
        told.lines.phase(f"Simulating {k}")
        told.at(k / 10)
    assert told.said == ["Simulating 20 …", "Simulating 120 …", "Simulating 220 …"]


def test_what_is_done_once_is_told_as_such() -> None:
    told = Told()
    told.lines.phase("Scheduling")
    told.lines.note("Compiling loops, once")
    assert told.at(2.5) == ["Scheduling … (compiling loops, once)"]
    told.lines.phase("Tuning")
    assert told.at(4.6)[1:] == ["Tuning …"]
    told.lines.note("Building engine.cpp, once")
    told.lines.note("Building engine.cpp, once")
    assert told.at(6.7)[2:] == ["Tuning … (building engine.cpp, once)"]


def test_lines_go_to_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    err = io.StringIO()  # capsys may lose what another thread prints while it is read
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setenv(progress.OFF, "")
    for name in ("PATIENCE", "LOOK"):
        monkeypatch.setattr(progress, name, 0.0)
    until = time.monotonic() + 60
    with progress.progress():
        tell("Scheduling")
        note("Compiling loops, once")
        while "once)\n" not in err.getvalue():
            assert time.monotonic() < until, err.getvalue()
    assert "hccc: Scheduling … (compiling loops, once)\n" in err.getvalue()
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_compiling_loops_says_so(tmp_path: Path) -> None:
    """With empty caches, however fast the machine is."""
    program = COMMAND[2].replace(
        "from", "from hccc.cli import progress\nprogress.PATIENCE = progress.LOOK = 0.01\nfrom"
    )
    run = subprocess.Popen(
        [*COMMAND[:2], program, "check", EXAMPLES / "sendrecv.rccl"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(HCCC_PROGRESS="", HCCC_LOOPS="compiled", NUMBA_CACHE_DIR=str(tmp_path)),
    )
    with run:
        assert run.stderr
        said = next((line for line in run.stderr if "compiling" in line), "")
        run.kill()  # compiling the rest would take long
    assert said.endswith(" … (compiling loops, once)\n")
