"""Streams that take nothing: full, closed, or without a reader."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import click
import pytest

from hccc.cli import sim as cli_sim
from tests.cli.commandline import COMMAND, Hccc, environment

RING = Path(__file__).parents[2] / "examples" / "ring_allreduce.rccl"
FULL = Path("/dev/full")

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")


def redirected(argv: str, streams: str, **more: str) -> tuple[int, str]:
    """Runs hccc in a shell with `streams` redirected: exit code, and stderr."""
    line = f"exec {shlex.join(COMMAND)} {argv} {streams}"
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, timeout=120, env=environment(**more)
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("unbuffered", ["", pytest.param("1", marks=pytest.mark.slow)])
@pytest.mark.parametrize("argv", [f"check --json {RING}", f"{RING} --emit=plan", "--help"])
def test_a_full_stdout_is_one_error(argv: str, unbuffered: str) -> None:
    code, stderr = redirected(argv, "> /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert code == 1
    assert stderr.splitlines()[0].endswith("No space left on device")
    assert stderr.startswith("error[E440]: ") and stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("argv", [f"check {RING}", "check --json nothing.rccl", "--version"])
def test_a_closed_stdout_is_one_error(argv: str) -> None:
    """Nothing is written into a file that got the number of stdout, either."""
    code, stderr = redirected(argv, "<&- >&-")
    assert code == 1
    assert stderr.startswith("error[E4") and stderr.count("\n") == 1


@pytest.mark.parametrize(
    "streams",
    ["2>&-", *(pytest.param(s, marks=pytest.mark.slow) for s in ("2> /dev/full", ">&- 2>&-"))],
)
def test_an_error_that_cannot_be_told_is_still_one(streams: str) -> None:
    assert redirected("check --json nothing", streams) == (1, "")


@pytest.mark.parametrize("streams", [pytest.param("2> /dev/full", marks=pytest.mark.slow), "2>&-"])
def test_stderr_is_not_needed(streams: str) -> None:
    assert redirected(f"check {RING}", streams) == (0, "")


def test_the_end_of_a_file_is_no_interrupt(hccc: Hccc, monkeypatch: pytest.MonkeyPatch) -> None:
    """click takes EOFError for Ctrl-D at a prompt; there are none here."""

    def broken(*_: object, **__: object) -> None:
        raise EOFError("Ran out of input")

    assert isinstance(cli_sim.sim, click.Command)
    monkeypatch.setattr(cli_sim.sim, "callback", broken)
    code, _, stderr = hccc("sim", RING)
    assert code == 70 and "Ran out of input" in stderr


@pytest.mark.slow
def test_results_are_not_written_into_files_of_others(tmp_path: Path) -> None:
    """With stdout closed, the first file opened would get its number."""
    page = tmp_path / "page.svg"
    code, _ = redirected(f"show {RING} -o {page}", "<&- >&- 2>&-")
    assert code == 1
    text = page.read_text()
    assert text.startswith("<?xml") and text.endswith("</svg>\n")
    assert os.listdir(tmp_path) == ["page.svg"]
