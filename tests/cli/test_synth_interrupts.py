"""Ctrl-C in `hccc synth` keeps the best simulated program; before that it ends the command."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hccc.base.interruptible import LateError, Stopped, anytime
from tests.cli.commandline import Hccc, environment
from tests.marks import slow
from tests.synth.greedy.chunked_clusters import SMALL

# In place of `where`, from its call `after` on: native code that takes a day, as solvers run it.
LONG = """
import hashlib, importlib, sys
from hccc.base.interruptible import interruptible
where, name, after = sys.argv.pop(1).split(":")
holder = importlib.import_module("hccc." + where)
real, calls = getattr(holder, name), []
def long(*args, **kwargs):
    calls.append(0)
    if len(calls) <= int(after):
        return real(*args, **kwargs)
    print("here", file=sys.stderr, flush=True)
    interruptible(hashlib.pbkdf2_hmac)("sha256", b"", b"", (1 << 31) - 1)
setattr(holder, name, long)
from hccc.cli.main import main
main()
"""
SAYS = "interrupted: the best of what was weighed so far"


def interrupted(where: str, cluster: Path, *argv: str | Path) -> tuple[int, str, str]:
    """Interrupts `hccc synth` once it is at `where`: returns its exit code, stdout and stderr."""
    given = ["synth", cluster, "--collective", "allgather", *argv]
    with subprocess.Popen(
        [sys.executable, "-c", LONG, where, *map(str, given)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as running:
        assert running.stderr is not None
        assert running.stderr.readline() == "here\n"
        time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
        return running.returncode, out, err


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "small.cluster"
    path.write_text(SMALL)
    return path


@pytest.mark.slow
def test_the_best_so_far_goes_to_stdout(cluster: Path) -> None:
    code, out, err = interrupted("synth.synthesize:_simulated:1", cluster, "-b", "1M")
    assert code == 0 and "def ResCCLAlgo(" in out
    assert err.splitlines()[0] == SAYS and err.count("interrupted: ") == 1
    assert "interrupted before it was simulated" in err and "chosen" in err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x.rccl", slow("kernels")])
def test_the_best_so_far_is_written(cluster: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    code, said, err = interrupted(
        "synth.synthesize:_simulated:2", cluster, "-b", "1M", "-o", out, "--json"
    )
    facts = json.loads(said)
    assert (code, err.strip()) == (0, SAYS) and out.exists()
    assert facts["interrupted"] and sum(w["time"] is not None for w in facts["weighed"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["programs/*.rccl", slow("kernels")])
def test_the_best_so_far_of_several_sizes(cluster: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    code, said, err = interrupted(
        "synth.synthesize:_simulated:1", cluster, "--sizes", "1K..1M", "-o", out, "--json"
    )
    facts = json.loads(said)
    assert (code, err.strip()) == (0, SAYS) and facts["interrupted"]
    written = sorted(tmp_path.rglob("*.rccl"))
    if out.name == "*.rccl":
        assert [p.name for p in written] == [p["file"] for p in facts["programs"]]
    assert all(size["method"] == facts["programs"][0]["method"] for size in facts["sizes"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "argv"),
    [
        ("synth.synthesize:_simulated:0", ["-b", "1M"]),
        slow("synth.candidates:greedy_programs:0", ["-b", "1M"]),
        slow("synth.synthesize:_simulated:0", ["--sizes", "1K..1M"]),
    ],
)
def test_before_that_nothing_is_written(
    cluster: Path, tmp_path: Path, where: str, argv: list[str]
) -> None:
    before = sorted(tmp_path.rglob("*"))
    code, out, err = interrupted(where, cluster, *argv, "-o", tmp_path / "kernels")
    assert (code, out, err.strip()) == (130, "", "")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_a_solver_gives_what_it_has(cluster: Path) -> None:
    code, out, err = interrupted(
        "synth.cegis.search:solve:0", cluster, "--method", "cegis", "-b", "1M"
    )
    assert code == 0 and "def ResCCLAlgo(" in out and err.splitlines()[0] == SAYS


@pytest.mark.slow
def test_seconds(hccc: Hccc, cluster: Path, tmp_path: Path) -> None:
    argv = ["synth", cluster, "--collective", "allgather", "-o", tmp_path / "a.rccl"]
    code, out, err = hccc(*argv, "-b", "1M", "--seconds", "0")
    assert code == 0 and "not simulated: the time was over" in out
    assert err == "after 0 s: the best of what was weighed so far; --seconds 6 weighs more\n"
    assert "def ResCCLAlgo(" in (tmp_path / "a.rccl").read_text()
    code, out, err = hccc(*argv, "-b", "1M", "--overwrite", "--json", "--seconds", "600")
    assert (code, err, json.loads(out)["late"]) == (0, "", False)
    sizes = ["-o", tmp_path / "made" / "*.rccl", "--sizes", "1K..1M", "--seconds", "0"]
    code, out, err = hccc(*argv[:-2], *sizes)
    assert code == 0 and err.startswith("after 0 s: ") and list((tmp_path / "made").iterdir())


def test_what_was_found_by_then() -> None:
    def finds(found: list[int]) -> None:
        found.append(1)
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.5)
        found.append(2)

    assert anytime(finds, bool) == ([1], Stopped.INTERRUPTED)
    with pytest.raises(KeyboardInterrupt):
        anytime(finds, lambda found: len(found) > 1)

    def ends(found: list[int]) -> None:
        found.append(3)

    assert anytime(ends, bool) == ([3], None)


def test_what_was_found_when_the_time_was_over() -> None:
    """Even within one result, which never comes; and never before there is enough."""
    never = threading.Event()

    def finds(found: list[int]) -> None:
        found.append(1)
        never.wait(60)
        found.append(2)

    begin = time.monotonic()
    assert anytime(finds, bool, begin) == ([1], Stopped.LATE)
    assert time.monotonic() - begin < 50
    never.set()
    assert anytime(finds, lambda found: len(found) > 1, begin) == ([1, 2], None)

    def says(found: list[int]) -> None:
        found.append(1)
        raise LateError

    assert anytime(says, bool, begin) == ([1], Stopped.LATE)
