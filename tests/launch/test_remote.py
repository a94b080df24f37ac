"""`hccc run --hosts`: processes started on hosts, files sent there, and hosts that fail.

A script stands for the remote shell. In quick tests its hosts are this one, in slow ones network
namespaces.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from socket import AF_INET
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

import benchmarks.namespaces as namespaces
from hccc.api import functions as api
from hccc.base.diagnostics import UserError
from hccc.driver.options import Options
from hccc.ir import job_json
from hccc.ir.collective import OpType
from hccc.ir.job import vendor_clusters
from hccc.launch.addresses import address_of
from hccc.launch.host import unpack
from hccc.launch.remote import pack, variables
from hccc.runtime.transport.ucx_transport import available
from hccc.synth.builtin.hetccl import hetccl
from tests.cli.commandline import COMMAND, Hccc, environment, hccc
from tests.emit import plans
from tests.marks import slow

__all__ = ["hccc"]
pytestmark = pytest.mark.usefixtures("remote_shell")
SHORT = ["-b", "4K", "-e", "4K", "-n", "2", "-w", "1"]


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes an AllReduce of four ranks that share memory."""
    compiled = api.compile(plans.mesh_allreduce(4), Options(tune="off"))
    place = tmp_path_factory.mktemp("mesh") / "kernels"
    api.write(compiled, place, targets=["cpu"])
    return place


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes an AllReduce over two nodes of two ranks."""
    compiled = api.compile(plans.hierarchical_mesh(2, 2, channels=2), Options(tune="off"))
    place = tmp_path_factory.mktemp("nodes") / "kernels"
    api.write(compiled, place, targets=["cpu"])
    return place


@pytest.mark.slow
def test_hosts_that_share_no_memory(
    hccc: Hccc, nodes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A greeting of a host's shell is passed over."""
    usable, why = available()
    if not usable:
        pytest.skip(why)
    monkeypatch.setenv("UCX_TLS", "tcp,self")
    monkeypatch.setenv("HCCC_NETWORK", "lo")
    code, stdout, stderr = hccc("run", nodes, "--hosts", "node0,chatty", "--procs", "2", *SHORT)
    assert code == 0 and "error" not in stderr
    assert "on cpu, 2 processes on 2 hosts" in stdout and "Out of bounds values : 0 OK" in stdout


@pytest.mark.slow
def test_hosts_that_share_memory(hccc: Hccc, mesh: Path, cache: Path) -> None:
    """Two names of one host. The second time nothing is built."""
    before = set(cache.rglob("*.so"))
    code, stdout, stderr = hccc("run", mesh, "--hosts", "a:3,b:1", *SHORT, "--json")
    assert (code, stderr) == (0, "")
    assert json.loads(stdout)["out_of_bounds"] == {"count": 0, "okay": True}
    built = {path: path.stat().st_mtime_ns for path in cache.rglob("*.so")}
    assert built.keys() > before
    assert hccc("run", mesh, "--hosts", "a,b", "--procs", "4", *SHORT)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.so")} == built
    code, _, stderr = hccc("run", mesh, "--hosts", "node0:2,node1:2", *SHORT)
    assert code == 1 and "host node" in stderr and "on different hosts" in stderr


@pytest.mark.parametrize(
    "host, said",
    [
        ("down", ["host down: hccc did not start there", "No route to host", "rsh down true"]),
        ("bare", ["host bare: hccc did not start there", "/no/python", "--remote-python"]),
        ("old", ["host old has hccc 0.0.1", "install the same there"]),
        slow("garbage", ["host garbage: hccc did not start there", "what hccc does not know"]),
    ],
)
def test_hosts_where_nothing_starts(hccc: Hccc, mesh: Path, host: str, said: list[str]) -> None:
    """One error that names the host, and nothing is left anywhere."""
    hosts = f"a:2,{host}:2" if host == "old" else host
    code, _, stderr = hccc("run", mesh, "--hosts", hosts, *SHORT)
    assert code == 1 and stderr.count("error[") == 1
    assert all(words in stderr for words in said), stderr
    assert not left_running()


@pytest.mark.slow
def test_a_host_without_a_compiler(
    hccc: Hccc, mesh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "/no/compiler")
    code, _, stderr = hccc("run", mesh, "--hosts", "b:4", *SHORT)
    assert code == 1 and "error[E412]: host b: no C++ compiler found" in stderr


def test_no_remote_shell(hccc: Hccc, mesh: Path) -> None:
    code, _, stderr = hccc("run", mesh, "--hosts", "a", "--rsh", "/no/ssh", *SHORT)
    assert code == 1 and "/no/ssh cannot be run" in stderr
    code, _, stderr = hccc("run", mesh, "--hosts", "a", "--network", "1GB/s", *SHORT)
    assert code == 1 and "--hosts" in stderr


def test_what_is_sent(mesh: Path, cache: Path) -> None:
    """Sources, and no library that was built of them; only into the cache."""
    mesh = shutil.copytree(mesh, cache / "mesh")
    (mesh / "build").mkdir(exist_ok=True)
    (mesh / "build" / "x.h").write_text("")
    sent = pack(mesh)
    place = unpack(sent)
    assert cache in place.parents and place == unpack(sent)
    assert (place / "plan.json").read_text() == (mesh / "plan.json").read_text()
    assert (place / "hccc" / "layout.h").is_file() and not (place / "build" / "x.h").exists()
    (place / "plan.json").write_text("damaged")
    assert (unpack(sent) / "plan.json").read_text() == (mesh / "plan.json").read_text()
    for name in ("/etc/x", "../x", "a/../../x", ".ssh/x"):
        evil = base64.b64encode(zlib.compress(json.dumps({name: ""}).encode())).decode()
        with pytest.raises(UserError, match="is no name of a source"):
            unpack(evil)


def test_old_kernels_are_forgotten(mesh: Path, cache: Path) -> None:
    old = cache / "hccc" / "kernels" / "old"
    old.mkdir(parents=True)
    os.utime(old, (0, 0))
    assert unpack(pack(mesh)).is_dir() and not old.exists()


def test_variables_that_hosts_get(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither variables that identify a process nor secrets are sent."""
    for name in ("HCCC_DEBUG", "UCX_TLS", "HCCC_SECRET", "HCCC_HOST_ID", "HCCC_RANK", "AWS_KEY"):
        monkeypatch.setenv(name, "x")
    assert {"HCCC_DEBUG", "UCX_TLS"} <= set(variables())
    assert not {"HCCC_SECRET", "HCCC_HOST_ID", "HCCC_RANK", "HCCC_RSH", "AWS_KEY"} & set(
        variables()
    )


def test_the_address_that_hosts_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loopback address, or one of another machine, is none; ssh's comes before an interface's."""
    all_ = [one for of in psutil.net_if_addrs().values() for one in of if one.family == AF_INET]
    here = next((one.address for one in all_ if not one.address.startswith("127.")), None)
    monkeypatch.setattr(psutil, "net_if_addrs", dict)
    monkeypatch.setenv("SSH_CONNECTION", "203.0.113.5 5000 203.0.113.9 22")
    assert address_of("localhost") is None and address_of("no.such.name.invalid") is None
    monkeypatch.setenv("SSH_CONNECTION", f"203.0.113.5 5000 {here} 22")
    assert address_of("localhost") == here


@pytest.mark.slow
@pytest.mark.usefixtures("network")
@pytest.mark.parametrize(
    "n, each, dtypes, ops",
    [(2, 2, "float,int8", "sum,max"), (2, 4, "int8", "max"), (4, 2, "float", "sum")],
)
def test_hosts_in_namespaces(
    hccc: Hccc,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    n: int,
    each: int,
    dtypes: str,
    ops: str,
) -> None:
    """Every rank a process of its own, the root at an address that the others find."""
    compiled = api.compile(plans.hierarchical_mesh(n, each, channels=2), Options(tune="off"))
    api.write(compiled, tmp_path / "kernels", targets=["cpu"])
    monkeypatch.setenv("HCCC_NETWORK", namespaces.DEVICE)
    with namespaces.hosts(n, "10gbit") as found:
        file = tmp_path / "hosts"
        file.write_text("".join(f"{one.namespace} slots={each}\n" for one in found))
        sizes = ["-b", "0", "-e", "1M", "-i", "512K", "-d", dtypes, "-o", ops]
        code, stdout, stderr = hccc(
            "run", tmp_path / "kernels", "--hosts", file, *sizes, "-n", "2", "--json"
        )
    assert (code, stderr) == (0, "")
    report = json.loads(stdout)
    assert report["out_of_bounds"] == {"count": 0, "okay": True}
    assert len(report["results"]) == 3 * len(dtypes.split(",")) * len(ops.split(","))
    assert not left_running()


@pytest.mark.slow
@pytest.mark.usefixtures("network")
def test_blocks_of_lengths_of_their_own_between_namespaces(
    hccc: Hccc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = plans.alltoall(4)
    c = replace(program.collective, uneven=True)
    program = replace(program, name="blocks", collective=c, gpus_per_node=2)
    api.write(api.compile(program, Options(tune="off")), tmp_path / "kernels", targets=["cpu"])
    monkeypatch.setenv("HCCC_NETWORK", namespaces.DEVICE)
    with namespaces.hosts(2, "10gbit") as found:
        hosts = ",".join(f"{one.namespace}:2" for one in found)
        sizes = ["-b", "0", "-e", "70000", "-i", "70000", "-n", "2", "-w", "1"]
        code, stdout, stderr = hccc(
            "run", tmp_path / "kernels", "--hosts", hosts, "--skew", "zipf", *sizes
        )
    assert (code, stderr) == (0, "")
    assert "Out of bounds values : 0 OK" in stdout
    assert not left_running()


@pytest.mark.slow
@pytest.mark.usefixtures("network")
@pytest.mark.parametrize("op", [OpType.ALLREDUCE, OpType.ALLTOALL], ids=str)
def test_a_job_over_three_hosts(
    op: OpType, hccc: Hccc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vendor clusters of unlike sizes, one of them of a single rank, in and out of place."""
    monkeypatch.setenv("HCCC_NETWORK", namespaces.DEVICE)
    monkeypatch.setenv("HCCC_PROGRESS", "off")
    v = vendor_clusters(
        [("own", [0, 1, 2], [0, 2], [1, 1]), ("own", [3], [3], [1]), ("own", [4, 5], [5], [1])]
    )
    job = tmp_path / "job.json"
    job.write_text(job_json.dumps(hetccl(v, op)))
    with namespaces.hosts(3, "1gbit") as found:
        hosts = ",".join(f"{at.namespace}:{n}" for at, n in zip(found, (3, 1, 2), strict=True))
        words = [
            "--hosts",
            hosts,
            "--vendors",
            "own:3,own:1,own:2",
            "-b",
            "999",
            "-e",
            "1M",
            "-f",
            "1000",
        ]
        code, stdout, stderr = hccc("run", job, *words, "-n", "2", "-w", "1", "--json")
    assert (code, stderr) == (0, "")
    report = json.loads(stdout)
    assert report["out_of_bounds"] == {"count": 0, "okay": True} and len(report["results"]) == 2
    assert not left_running()


DIFFERS = """
import sys
from pathlib import Path
from hccc.runtime.communicator import Communicator, CommunicatorError
with Communicator.from_environment() as comm:
    comm.load(Path(sys.argv[1]), ["float32"])
    x = comm.empty(70_001)
    for turn in range(4):
        try:
            comm.all_reduce(x[:100] if comm.rank == turn else x)
        except CommunicatorError as error:
            print(turn, error.text)
        x[:] = comm.rank
        comm.all_reduce(x)
        assert (x == 6).all()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("network")
def test_a_call_that_differs_in_namespaces(
    hccc: Hccc, nodes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rank gets the same error, and the right call behind it works."""
    script = tmp_path / "job.py"
    script.write_text(DIFFERS)
    monkeypatch.setenv("HCCC_NETWORK", namespaces.DEVICE)
    monkeypatch.setenv("HCCC_TIMEOUT", "20")
    with namespaces.hosts(2, "10gbit") as found:
        hosts = ",".join(f"{one.namespace}:2" for one in found)
        code, stdout, stderr = hccc("launch", "--hosts", hosts, script, nodes)
    assert code == 0, stderr
    lines = stdout.splitlines()
    assert len(lines) == 16 and len(set(lines)) == 4, stdout
    assert all("of 100 float32" in line and "of 70001 float32" in line for line in lines)


@pytest.mark.slow
@pytest.mark.usefixtures("network")
@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGSTOP], ids=lambda kind: kind.name)
@pytest.mark.parametrize("victim", ["worker", "host"])
def test_a_host_that_fails(
    nodes: Path, monkeypatch: pytest.MonkeyPatch, victim: str, kind: signal.Signals
) -> None:
    """A rank or its relay dies or stops: an error that names the host."""
    monkeypatch.setenv("HCCC_NETWORK", namespaces.DEVICE)
    with namespaces.hosts(2, "10gbit") as found, endless(nodes, found) as run:
        named = f"hccc.launch.{victim}"
        chosen = [p for p in run.started() if named in " ".join(p.cmdline())]
        chosen[-1].send_signal(kind)
        stderr = run.process.communicate(timeout=60)[1]
        assert run.process.returncode == 1 and stderr.count("error[") == 1
        assert "host hccc-" in stderr, stderr
        run.nothing_is_left()


@pytest.mark.slow
def test_a_rank_of_this_host_is_stopped(mesh: Path) -> None:
    """The deadline is HCCC_TIMEOUT, and the process that cannot hear is killed."""
    with endless(mesh, []) as run:
        run.started()[1].send_signal(signal.SIGSTOP)
        since = time.monotonic()
        stderr = run.process.communicate(timeout=60)[1]
        assert run.process.returncode == 1 and stderr.count("error[") == 1
        assert "rank 1 stands still" in stderr or "rank 1 has not been heard of" in stderr, stderr
        assert time.monotonic() - since < 25  # the deadline without HCCC_TIMEOUT is 30 s
        run.nothing_is_left()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGINT], ids=lambda kind: kind.name)
def test_who_launched_them_goes(mesh: Path, kind: signal.Signals) -> None:
    with endless(mesh, ["a", "b"]) as run:
        run.process.send_signal(kind)
        run.process.communicate(timeout=60)
        run.nothing_is_left()


class Run:
    """A running `hccc run`, in the middle of its launches."""

    def __init__(self, place: Path, *words: str) -> None:
        sizes = ["-b", "4K", "-e", "64M", "-n", "3000"]
        self.process = subprocess.Popen(
            [*COMMAND, "run", str(place), *words, *sizes],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(HCCC_TIMEOUT="3"),
        )
        assert self.process.stdout
        for line in self.process.stdout:
            if not line.startswith("#"):
                break  # a row: they run
        self._started = self.started()

    def started(self) -> list[psutil.Process]:
        """Lists the processes of hosts and ranks, oldest first."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        return sorted(filter(is_of_run, below), key=lambda process: process.pid)

    def nothing_is_left(self) -> None:
        """Checks that every started process has ended."""
        _, alive = psutil.wait_procs(self._started, timeout=10)
        assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


@contextmanager
def endless(place: Path, hosts: Sequence[Any]) -> Iterator[Run]:
    names = [getattr(host, "namespace", host) for host in hosts]
    run = Run(place, *(["--hosts", ",".join(names)] if names else ["--procs", "4"]))
    try:
        yield run
    finally:
        run.process.kill()
        run.process.communicate()


def left_running() -> list[psutil.Process]:
    """Lists the processes that a run of this process started and left."""
    started = [p for p in psutil.Process().children(recursive=True) if is_of_run(p)]
    left: list[psutil.Process] = psutil.wait_procs(started, timeout=5)[1]
    return left


def is_of_run(process: psutil.Process) -> bool:
    try:
        return "hccc.launch" in " ".join(process.cmdline())
    except psutil.Error:
        return False
