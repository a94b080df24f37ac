"""What a command says of what it is doing, where stderr is no terminal."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from hccc.base.progress import once, tell
from hccc.cli import progress
from tests.cli.commandline import COMMAND, environment

EXAMPLES = Path(__file__).parents[2] / "examples"


class Told:
    """Lines, by a clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now, self.said = 0.0, list[str]()
        self.work = progress.Activity("Starting", lambda: self.now)
        self.lines = progress.Lines(self.work, self.said.append)

    def at(self, now: float) -> list[str]:
        """Returns all that was said until a time."""
        self.now = now
        self.lines.look()
        return self.said


def test_a_phase_is_told_once_it_has_lasted_and_then_now_and_then() -> None:
    told = Told()
    told.at(0.5)
    told.work.phase("Scheduling")
    assert told.at(1.9) == []
    assert told.at(2.6) == told.at(4) == ["Scheduling … 3 s"]
    told.work.phase("Lowering")
    assert told.at(5.9) == ["Scheduling … 3 s"]
    assert told.at(6.1)[1:] == told.at(11)[1:] == ["Lowering … 6 s"]
    told.work.phase("Lowering")
    assert told.at(11.2)[2:] == ["Lowering … 11 s"]


def test_lines_of_long_work_become_rare() -> None:
    told = Told()
    for now in range(4000):
        told.at(now)
    seconds = [int(line.split(" … ")[1].removesuffix(" s")) for line in told.said]
    gaps = [later - one for one, later in pairwise(seconds)]
    assert gaps == sorted(gaps) and gaps[0] == progress.EVERY and gaps[-1] == progress.RARELY


def test_short_phases_are_told_now_and_then() -> None:
    told = Told()
    for k in range(150):
        told.work.phase(f"Simulating {k}")
        told.at(k / 10)
    assert told.said == [f"Simulating {k} … {k / 10:.0f} s" for k in (20, 70, 120)]


def test_how_far_a_phase_is_ends_with_it() -> None:
    told = Told()
    told.work.phase("Tuning")
    told.work.far(3, 1200)
    told.work.phase("Tuning")  # it goes on
    assert told.at(2)[-1] == "Tuning … 3 of 1,200, 2 s"
    told.work.phase("Proof")
    assert told.at(7)[-1] == "Proof … 7 s"


def test_what_is_done_once_is_told_as_such_while_it_is_done() -> None:
    told = Told()
    told.work.phase("Scheduling")
    told.work.begin_once("Compiling loops")
    told.work.begin_once("Compiling loops")  # a loop that it calls
    told.at(1)
    told.work.end_once("Compiling loops")
    assert told.at(2.5) == ["Scheduling (compiling loops, once) … 2 s"]
    told.work.end_once("Compiling loops")
    told.work.phase("Tuning")
    assert told.at(4.6)[1:] == ["Tuning … 5 s"]
    told.work.begin_once("Building engine.cpp")
    assert told.at(6.7)[2:] == ["Tuning (building engine.cpp, once) … 7 s"]


def test_what_is_done_once_and_is_soon_done_is_not_told() -> None:
    told = Told()
    for k in range(10):
        told.at(k)
        told.work.begin_once("Compiling loops")
        told.now += 0.1
        told.work.end_once("Compiling loops")
    told.work.begin_once("Compiling loops")
    told.at(10)
    assert told.said and not any("once" in line for line in told.said)


def test_no_line_comes_soon_after_a_part_of_the_result() -> None:
    told = Told()
    told.work.phase("Running")
    told.now = 1.5
    told.lines.spoken()
    assert told.at(3.4) == [] and told.at(3.6) == ["Running … 4 s"]


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
        with once("Compiling loops"):
            while "once) … " not in err.getvalue():
                assert time.monotonic() < until, err.getvalue()
        progress.say("a row")
    assert "hccc: Scheduling (compiling loops, once) … " in err.getvalue()
    assert capsys.readouterr().out == "a row\n"


@pytest.mark.slow
def test_a_terminal_shows_one_line_and_results_go_to_stdout(tmp_path: Path) -> None:
    """On a terminal that is stderr alone: nothing of the result gets there."""
    program = """
import sys, time
from hccc.base.progress import far, tell
from hccc.cli import progress
progress.SOON = progress.LOOK = 0.05
with progress.progress():
    tell("Tuning [a]")
    far(3, 12)
    time.sleep(0.5)
    progress.say("a row")
    tell("Proof")
    time.sleep(0.5)
"""
    shown, terminal = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
        env=environment(HCCC_PROGRESS="", TERM="xterm"),
    ) as run:
        os.close(terminal)
        text = b""
        with suppress(OSError):  # Linux: the other end is closed
            while part := os.read(shown, 1 << 16):
                text += part
        assert run.stdout and run.stdout.read() == "a row\n"
    os.close(shown)
    said = text.decode()
    assert "Tuning [a] … 3 of 12, " in said and "Proof … " in said
    assert "━" in said and "a row" not in said
    assert run.returncode == 0 and "\x1b[2K" in said[said.rindex("Proof") :]  # it is taken away


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
    assert re.search(r"\w \(compiling loops, once\) … .*\d s\n", said)
