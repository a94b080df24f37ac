"""`hccc launch`: what ranks are told, what is done when one fails, hosts, output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

import benchmarks.namespaces as namespaces
from tests.cli.commandline import COMMAND, Hccc, environment, hccc

__all__ = ["hccc"]
TELLS = """
import json, os, sys
names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]
print(json.dumps([{n: os.environ[n] for n in names}, sys.argv[1:], os.getcwd()]))
"""
SUM = """
import sys
import numpy as np
from hccc.runtime.communicator import Communicator
with Communicator.from_environment() as comm:
    x = np.full(3, 2.0**comm.rank, np.float32)
    comm.all_reduce(x)
    print(comm.rank, x.tolist())
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Writes a script that says what it was given."""
    place = tmp_path / "tells.py"
    place.write_text(TELLS)
    return place


def test_ranks_are_told_what_torchrun_tells(hccc: Hccc, script: Path) -> None:
    code, stdout, stderr = hccc("launch", "-n", "3", "--label", script, "--epochs", "2", "-n", "9")
    assert (code, stderr) == (0, "")
    said = dict(line.split("] ", 1) for line in stdout.splitlines())
    assert sorted(said) == ["[0", "[1", "[2"]
    ports = set()
    for rank in range(3):
        variables, words, place = json.loads(said[f"[{rank}"])
        ports.add(variables.pop("MASTER_PORT"))
        assert words == ["--epochs", "2", "-n", "9"] and place == os.getcwd()
        assert variables == {
            "RANK": str(rank),
            "WORLD_SIZE": "3",
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": "3",
            "MASTER_ADDR": "127.0.0.1",
        }
    assert len(ports) == 1


def test_a_module_and_a_command(hccc: Hccc) -> None:
    code, stdout, _ = hccc("launch", "-n", "2", "--label", "-m", "this")
    assert code == 0 and stdout.count("Beautiful is better than ugly.") == 2
    code, stdout, _ = hccc(
        "launch", "-n", "2", "--label", "--", "sh", "-c", "echo $RANK >&$1", "-", "1"
    )
    assert code == 0 and sorted(stdout.splitlines()) == ["[0] 0", "[1] 1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["job.py"], "how many ranks"),
        (["-n", "2", "no.py"], "error[E476]: there is no file no.py"),
        (["-n", "2", "no-such-command"], "error[E476]: there is no command no-such-command"),
        (["-n", "3", "--hosts", "a:2", "job.py"], "error[E474]: --hosts: 3 ranks, and slots for 2"),
        (["-n", "0", "job.py"], "error[E400]"),
        (["-n", "2"], "error[E400]"),
    ],
)
def test_what_cannot_be_started(hccc: Hccc, words: list[str], said: str) -> None:
    code, _, stderr = hccc("launch", *words)
    assert code and said in stderr and "Traceback" not in stderr


def test_a_command_of_the_working_directory_is_not_on_the_path(
    hccc: Hccc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a shell: `./true` would be."""
    own = tmp_path / "true"
    own.write_text("#!/bin/sh\necho own\n")
    own.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert hccc("launch", "-n", "1", "true") == (0, "", "")
    assert hccc("launch", "-n", "1", "./true") == (0, "own\n", "")


@pytest.mark.slow
def test_a_rank_that_fails_ends_the_others(hccc: Hccc) -> None:
    """The others get SIGTERM after a while; those that end by themselves are named too."""
    text = "case $RANK in 1) exit 7;; 2) sleep 0.5; exit 1;; *) sleep 60;; esac"
    started = time.monotonic()
    code, _, stderr = hccc("launch", "-n", "3", "--label", "--", "sh", "-c", text)
    assert code == 1 and time.monotonic() - started < 30
    assert "error[E475]: rank 1 ended with exit code 7" in stderr
    assert "rank 2 failed after it" in stderr and "rank 0 did not end in 5 s: stopped" in stderr


def test_a_rank_that_is_killed_is_named(hccc: Hccc) -> None:
    code, _, stderr = hccc("launch", "-n", "2", "--", "sh", "-c", "[ $RANK = 0 ] || kill -9 $$")
    assert code == 1 and "error[E475]: rank 1 was killed by SIGKILL" in stderr


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_the_launcher_ends(kind: signal.Signals, tmp_path: Path) -> None:
    """Nothing is left, whichever way it ends."""
    place = tmp_path / "sleeps.py"
    place.write_text("import os, time\nos.write(1, b'here\\n')\ntime.sleep(600)\n")
    command = [*COMMAND, "launch", "-n", "2", str(place)]
    launcher = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert launcher.stdout
    for _ in range(2):
        assert launcher.stdout.readline() == b"here\n"
    ranks = psutil.Process(launcher.pid).children(recursive=True)
    assert len(ranks) == 2
    launcher.send_signal(kind)
    assert launcher.wait(20) in (130, -signal.SIGKILL)
    _, alive = psutil.wait_procs(ranks, 10)
    assert not alive


def test_input_goes_to_rank_0() -> None:
    ran = subprocess.run(
        [*COMMAND, "launch", "-n", "2", "--label", "cat"],
        env=environment(),
        input=b"for rank 0\n",
        capture_output=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout) == (0, b"[0] for rank 0\n")


@pytest.mark.slow
def test_ranks_meet_here(hccc: Hccc, tmp_path: Path) -> None:
    place = tmp_path / "sum.py"
    place.write_text(SUM)
    code, stdout, stderr = hccc("launch", "-n", "2", place)
    assert code == 0, stderr
    assert sorted(stdout.splitlines()) == [f"{rank} [3.0, 3.0, 3.0]" for rank in range(2)]


@pytest.mark.slow
@pytest.mark.usefixtures("remote_shell")
def test_hosts(hccc: Hccc, script: Path) -> None:
    """Hosts that a remote shell reaches: ranks in order, output and failures with their names."""
    code, stdout, stderr = hccc("launch", "--hosts", "node0:2,node1:1", "--label", script, "x")
    assert (code, stderr) == (0, "")
    said = {line[:3]: json.loads(line[4:]) for line in stdout.splitlines()}
    told = [said[f"[{rank}]"][0] for rank in range(3)]
    local = [(v["LOCAL_RANK"], v["LOCAL_WORLD_SIZE"]) for v in told]
    assert local == [("0", "2"), ("1", "2"), ("0", "1")]
    assert len({(v["MASTER_ADDR"], v["MASTER_PORT"]) for v in told}) == 1
    words = ["sh", "-c", "echo no >&2; exit $RANK"]
    code, _, stderr = hccc("launch", "--hosts", "node0,node1", "--", *words)
    assert code == 1 and "error[E475]: rank 1 on node1 ended with exit code 1" in stderr
    assert stderr.count("no\n") == 2
    code, _, stderr = hccc("launch", "--hosts", "node0,down", "true")
    assert code == 1 and "error[E474]: host down" in stderr and "No route to host" in stderr
    code, _, stderr = hccc("launch", "--hosts", "node0,node1", "no-such-command")
    assert code == 1 and "there is no command no-such-command" in stderr


@pytest.mark.slow
@pytest.mark.usefixtures("remote_shell")
def test_ranks_meet_between_hosts(hccc: Hccc, tmp_path: Path) -> None:
    """Send and receive need no kernels."""
    place = tmp_path / "send.py"
    place.write_text(
        "import numpy as np\n"
        "from hccc.runtime.communicator import Communicator\n"
        "with Communicator.from_environment() as comm:\n"
        "    x = np.full(3, 7 * comm.rank, np.int32)\n"
        "    comm.send(x, 0) if comm.rank else comm.recv(x, 1)\n"
        "    print(comm.rank, x.tolist())\n"
    )
    code, stdout, stderr = hccc("launch", "--hosts", "node0,node1", place)
    assert code == 0, stderr
    assert sorted(stdout.splitlines()) == ["0 [7, 7, 7]", "1 [7, 7, 7]"]


DEALT = """
import numpy as np
from hccc.runtime.communicator import Communicator
with Communicator.from_environment() as comm:
    x, y = np.full(2, comm.rank, np.int32), np.empty(6, np.int32)
    comm.all_gather(x, y)
    print(comm.rank, y.tolist())
"""


@pytest.mark.slow
@pytest.mark.usefixtures("remote_shell", "network")
def test_ranks_that_are_dealt_to_hosts_in_turn(
    hccc: Hccc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standard collective in two namespaces, of two ranks and of one."""
    (tmp_path / "dealt.py").write_text(DEALT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HCCC_NETWORK", namespaces.DEVICE)
    monkeypatch.setenv("HCCC_PROGRESS", "off")
    with namespaces.hosts(2, "10gbit") as (one, other):
        names = ",".join(at.namespace for at in (one, other, one))
        code, stdout, stderr = hccc("launch", "--hosts", names, "--label", "dealt.py")
    assert (code, stderr) == (0, "")
    said = "[0, 0, 1, 1, 2, 2]"
    assert sorted(stdout.splitlines()) == [f"[{r}] {r} {said}" for r in range(3)]
