"""Jobs found by the variables that launchers set."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from hccc.runtime.bootstrap.rendezvous import (
    Environment,
    Reason,
    RendezvousError,
    environment,
    id_from_environment,
    library,
)
from tests.bootstrap.ranks import Job, RankContext, run

PREFIXES = ("HCCC_", "OMPI_", "PMI_", "PMIX_", "SLURM_", "MPI_", "TORCHELASTIC_")
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
HCCC = {"HCCC_RANK": "1", "HCCC_NRANKS": "3"}
TORCH = {
    "RANK": "5",
    "WORLD_SIZE": "16",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29500",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}
PMI = {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
SLURM = {
    "SLURM_PROCID": "7",
    "SLURM_NTASKS": "8",
    "SLURM_LOCALID": "3",
    "SLURM_NNODES": "2",
    "SLURM_JOB_NODELIST": "gpu[017-018]",
    "SLURM_JOB_ID": "100",
    "SLURM_STEP_ID": "2",
}


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name != "HCCC_CXXFLAGS" and (name in NAMES or name.startswith(PREFIXES)):
            monkeypatch.delenv(name)


def _set(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    "variables, rank, n_ranks, local_rank, address, taken",
    [
        (HCCC, 1, 3, None, "", "HCCC_RANK: rank 1 of 3"),
        (HCCC | {"HCCC_ROOT": "h:1"}, 1, 3, None, "h:1", "root at h:1"),
        (HCCC | {"HCCC_LOCAL_RANK": "0"}, 1, 3, 0, "", "HCCC_NRANKS"),
        (HCCC | TORCH, 1, 3, None, "node1:29501", "HCCC_RANK"),
        (TORCH, 5, 16, 1, "node1:29501", "torchrun: rank 5 of 16 (RANK, WORLD_SIZE)"),
        (TORCH | {"HCCC_ROOT_PORT": "7"}, 5, 16, 1, "node1:7", "torchrun"),
        (TORCH | {"HCCC_ROOT": "[fe::1]:70"}, 5, 16, 1, "[fe::1]:70", "torchrun"),
        (TORCH | {"MASTER_ADDR": "fe::1"}, 5, 16, 1, "[fe::1]:29501", "torchrun"),
        (TORCH | SLURM, 5, 16, 1, "node1:29501", "torchrun"),
        (OPEN_MPI, 2, 4, 2, "", "Open MPI: rank 2 of 4 (OMPI_COMM_WORLD_RANK"),
        (OPEN_MPI | SLURM, 2, 4, 2, "", "Open MPI"),
        (PMI, 0, 2, 0, "", "PMI: rank 0 of 2 (PMI_RANK, PMI_SIZE), on one host"),
        (
            PMI | SLURM | {"MPI_LOCALRANKID": "", "MPI_LOCALNRANKS": ""},
            0,
            2,
            3,
            "gpu017:21602",
            "PMI",
        ),
        (SLURM | {"SLURM_STEP_ID": "4294967291"}, 7, 8, 3, "gpu017:28891", "Slurm"),
        (SLURM, 7, 8, 3, "gpu017:21602", "Slurm: rank 7 of 8 (SLURM_PROCID, SLURM_NTASKS)"),
        (SLURM | {"SLURM_STEP_NUM_TASKS": "9"}, 7, 9, 3, "gpu017:21602", "SLURM_STEP_NUM_TASKS"),
        (SLURM | {"SLURM_NNODES": "1"}, 7, 8, 3, "", "on one host"),
        (SLURM | {"HCCC_ROOT_PORT": "99"}, 7, 8, 3, "gpu017:99", "Slurm"),
    ],
)
def test_what_launchers_say(
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    rank: int,
    n_ranks: int,
    local_rank: int | None,
    address: str,
    taken: str,
) -> None:
    _set(monkeypatch, variables)
    found = environment()
    assert found == Environment(rank, n_ranks, local_rank, address, found.taken)
    assert taken in found.taken


@pytest.mark.parametrize(
    "nodes, first",
    [
        ("a", "a"),
        ("a,b", "a"),
        ("gpu[3-9]", "gpu3"),
        ("gpu[003,7],x", "gpu003"),
        ("r[1-2]n[05-09]-x,y", "r1n05-x"),
        ("[a-b]c", "ac"),
        ("login[1", "login1"),
    ],
)
def test_the_first_of_slurms_nodes(monkeypatch: pytest.MonkeyPatch, nodes: str, first: str) -> None:
    _set(monkeypatch, SLURM | {"SLURM_JOB_NODELIST": nodes, "HCCC_ROOT_PORT": "1"})
    assert environment().address == f"{first}:1"


@pytest.mark.parametrize(
    "variables, said",
    [
        ({}, "no launcher says which rank this is"),
        ({"HCCC_RANK": "0"}, "HCCC_RANK is set, but HCCC_NRANKS is not"),
        ({"HCCC_RANK": "0", "HCCC_NRANKS": ""}, "HCCC_NRANKS is not"),
        (HCCC | {"HCCC_RANK": "3"}, "HCCC_RANK is `3`: it must be a number from 0 to 2"),
        (HCCC | {"HCCC_RANK": "-1"}, "HCCC_RANK is `-1`"),
        (HCCC | {"HCCC_RANK": "1x"}, "HCCC_RANK is `1x`"),
        (HCCC | {"HCCC_NRANKS": "9" * 60}, "HCCC_NRANKS is `9999"),
        (HCCC | {"HCCC_NRANKS": "65537"}, "from 1 to 65536"),
        (HCCC | {"HCCC_ROOT": "host"}, "the root is at `host`: it must be host:port"),
        (HCCC | {"HCCC_ROOT": "host:0"}, "host:port"),
        (HCCC | {"HCCC_ROOT": "::1:80"}, "host:port"),
        (HCCC | {"HCCC_ROOT": ":80"}, "host:port"),
        (TORCH | {"WORLD_SIZE": None}, "RANK is set, but WORLD_SIZE is not"),
        (TORCH | {"MASTER_PORT": "65535"}, "MASTER_PORT is `65535`"),
        (TORCH | {"MASTER_PORT": None}, "neither MASTER_PORT nor HCCC_ROOT_PORT"),
        (
            OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
            "Open MPI says that this is rank 2 of 4, "
            "but not where rank 0 is: set HCCC_ROOT=host:port",
        ),
        (PMI | {"MPI_LOCALNRANKS": "1"}, "but not where rank 0 is"),
    ],
)
def test_what_is_missing_or_wrong_is_said(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str | None], said: str
) -> None:
    _set(monkeypatch, variables)
    with pytest.raises(RendezvousError) as error:
        environment()
    assert error.value.reason is Reason.BAD_ARGUMENT and said in str(error.value)


def _finds(me: RankContext, times: int = 1) -> list[list[bytes]]:
    got = []
    for _ in range(times):
        me.id = id_from_environment(me.rank)
        with me.open(10) as b:
            got.append(b.gather(bytes([me.rank])))
    return got


def _as_torchrun(rank: int, n: int, **more: str) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(n),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(n),
        **more,
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes an empty XDG_RUNTIME_DIR."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("n", [1, 4])
def test_ranks_of_one_host_find_each_other_by_a_file(runtime: Path, n: int) -> None:
    """Twice: each meeting is another job. Nothing is left."""
    environment = {"HCCC_NRANKS": str(n)}
    got = run(_finds, n, 2, of_rank=lambda r: environment | {"HCCC_RANK": str(r)}, id=b"")
    assert got == [[[bytes([r]) for r in range(n)]] * 2] * n
    assert [p.name for p in runtime.rglob("*")] == ["hccc"]
    assert (runtime / "hccc").stat().st_mode & 0o777 == 0o700


def test_torchrun_on_one_host(runtime: Path) -> None:
    more = {"MASTER_ADDR": "nowhere.invalid", "MASTER_PORT": "29500"}
    got = run(_finds, 2, of_rank=lambda r: _as_torchrun(r, 2, **more), id=b"")
    assert got == [[[b"\0", b"\1"]]] * 2


@pytest.mark.parametrize("root", ["127.0.0.1", "localhost"])
def test_ranks_with_a_secret_meet_at_the_address(runtime: Path, root: str) -> None:
    said = {
        "HCCC_NRANKS": "3",
        "HCCC_SECRET": "correct horse battery",
        "HCCC_ROOT": f"{root}:{_free_port()}",
    }
    got = run(_finds, 3, 3, of_rank=lambda r: said | {"HCCC_RANK": str(r)}, id=b"")
    assert got == [[[b"\0", b"\1", b"\2"]] * 3] * 3
    assert not list(runtime.rglob("*"))


def _fails(me: RankContext) -> tuple[Reason, str]:
    with pytest.raises(RendezvousError) as error:
        _finds(me)
    return error.value.reason, str(error.value)


def test_ranks_with_different_secrets(runtime: Path) -> None:
    said = {"HCCC_NRANKS": "2", "HCCC_ROOT": f"127.0.0.1:{_free_port()}"}
    of_rank = {
        r: said | {"HCCC_RANK": str(r), "HCCC_SECRET": f"secret of rank {r} is this"}
        for r in range(2)
    }
    with Job(
        _fails, 2, of_rank=of_rank.__getitem__, id=b"", environment={"HCCC_TIMEOUT": "1"}
    ) as job:
        assert job.ranks[1].result() == (
            Reason.REFUSED,
            f"error[E480]: the hccc at rank 0's root at {said['HCCC_ROOT']} has another secret",
        )


def test_the_secrets_file(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = runtime / "secret"
    file.write_text("a secret of enough letters\n")
    file.chmod(0o600)
    _set(monkeypatch, {"HCCC_RANK": "0", "HCCC_NRANKS": "1"})
    monkeypatch.setenv("HCCC_ROOT", f"127.0.0.1:{_free_port()}")
    monkeypatch.setenv("HCCC_SECRET_FILE", str(file))
    by_file = id_from_environment(0)
    monkeypatch.setenv("HCCC_SECRET", "a secret of enough letters")
    assert id_from_environment(0) == by_file
    monkeypatch.delenv("HCCC_SECRET")
    for mode in (0o640, 0o604, 0o660):
        file.chmod(mode)
        with pytest.raises(RendezvousError, match="can be read by others"):
            id_from_environment(0)
    file.chmod(0o600)
    for text in ("short", "x" * 5000, ""):
        file.write_text(text)
        with pytest.raises(RendezvousError, match="characters: it must have 16 to 4096"):
            id_from_environment(0)
    file.unlink()
    with pytest.raises(RendezvousError, match=r"cannot read HCCC_SECRET_FILE .*: No such file"):
        id_from_environment(0)
    monkeypatch.setenv("HCCC_SECRET_FILE", "/dev/zero")
    with pytest.raises(RendezvousError, match="HCCC_SECRET_FILE"):
        id_from_environment(0)


@pytest.mark.parametrize(
    "variables, said",
    [
        (TORCH | {"RANK": "0"}, "they need a secret in common, HCCC_SECRET or HCCC_SECRET_FILE"),
        (
            TORCH | {"RANK": "0", "HCCC_SECRET": "x" * 16, "MASTER_ADDR": "nowhere.invalid"},
            "no address of `nowhere.invalid`",
        ),
        (
            TORCH | {"RANK": "0", "HCCC_SECRET": "x" * 16, "MASTER_ADDR": "203.0.113.9"},
            "203.0.113.9 is not an address of rank 0's host: set HCCC_BIND",
        ),
        (
            HCCC
            | {
                "HCCC_RANK": "0",
                "HCCC_SECRET": "x" * 16,
                "HCCC_ROOT": "127.0.0.1:9999",
                "HCCC_SOCKET_IFNAME": "none",
            },
            "no interface with an address",
        ),
        (
            HCCC
            | {
                "HCCC_RANK": "0",
                "HCCC_SECRET": "x" * 16,
                "HCCC_ROOT": "127.0.0.1:9999",
                "HCCC_TIMEOUT": "soon",
            },
            "HCCC_TIMEOUT is `soon`: it must be seconds",
        ),
        (
            HCCC | {"HCCC_SECRET": "hunter2", "HCCC_ROOT": "127.0.0.1:9999"},
            "HCCC_SECRET has 7 characters",
        ),
    ],
)
def test_jobs_that_cannot_be_found(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str
) -> None:
    _set(monkeypatch, {"HCCC_TIMEOUT": "1"} | variables)
    with pytest.raises(RendezvousError) as error:
        id_from_environment(0)
    assert said in str(error.value) and "hunter2" not in str(error.value)


def test_a_rank_waits_for_rank_0s_file(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, HCCC | {"HCCC_TIMEOUT": "0.2"})
    with pytest.raises(RendezvousError, match="rank 0 did not come: it has not made") as error:
        id_from_environment(1)
    assert (error.value.rank, error.value.reason) == (0, Reason.TIMEOUT)


def test_a_file_that_a_dead_process_left(runtime: Path) -> None:
    """A job that died before its ranks met does not mislead the next of the same name."""
    said = {"HCCC_NRANKS": "2", "HCCC_JOB": "the same"}

    def of_rank(rank: int) -> dict[str, str]:
        return said | {"HCCC_RANK": str(rank)}

    with Job(_finds, 2, of_rank=of_rank, id=b"", ranks=range(1)) as job:
        while not list((runtime / "hccc").glob("*.id")):
            pass
        job.ranks[0].kill()
    (left,) = (runtime / "hccc").glob("*.id")
    with Job(_finds, 2, of_rank=of_rank, id=b"", ranks=range(1, 2)) as late:
        assert run(_finds, 2, of_rank=of_rank, id=b"", ranks=range(1)) == [[[b"\0", b"\1"]]]
        assert late.results() == [[[b"\0", b"\1"]]]
    assert not left.exists()


def _comes_late(me: RankContext) -> tuple[Reason, int | None, str, float]:
    me.wait()
    began = time.monotonic()
    with pytest.raises(RendezvousError) as error:
        _finds(me)
    seconds = time.monotonic() - began
    return error.value.reason, error.value.rank, str(error.value), seconds


def test_a_rank_that_comes_after_rank_0_was_killed(runtime: Path) -> None:
    """It was started before that, so that no other rank 0 is to come."""
    said = {"HCCC_NRANKS": "3", "HCCC_JOB": "the same", "HCCC_TIMEOUT": "10"}

    def of_rank(rank: int) -> dict[str, str]:
        return said | {"HCCC_RANK": str(rank)}

    with Job(_comes_late, 3, of_rank=of_rank, id=b"", ranks=range(2, 3)) as late:
        time.sleep(0.1)
        with Job(_finds, 3, of_rank=of_rank, id=b"", ranks=range(1)) as job:
            while not list((runtime / "hccc").glob("*.id")):
                pass
            job.ranks[0].kill()
        late.ranks[2].go()
        reason, rank, message, seconds = late.ranks[2].result()
    assert (reason, rank) == (Reason.LOST, 0) and seconds < 3
    assert "rank 0 is gone: process" in message and "has ended" in message


def test_files_of_killed_roots_do_not_stay(runtime: Path) -> None:
    """Rank 0 of a later job removes them; not those of a moment ago, which ranks may look for."""
    said = {"HCCC_NRANKS": "2", "HCCC_RANK": "0"}
    left: list[Path] = []
    for name in ("one", "other"):
        with Job(_finds, 2, environment=said | {"HCCC_JOB": name}, id=b"", ranks=range(1)) as job:
            while not (found := set((runtime / "hccc").glob("*.id")) - set(left)):
                pass
            job.ranks[0].kill()
        left += found
    long_ago = time.time() - 100
    os.utime(left[0], (long_ago, long_ago))
    run(_finds, 1, environment=said | {"HCCC_NRANKS": "1"}, id=b"")
    assert not left[0].exists() and left[1].exists()


@pytest.mark.slow
def test_what_failed_is_told_although_rank_0_ends(runtime: Path) -> None:
    """The root is a thread of rank 0's process, which ends as soon as it knows."""
    said = {"HCCC_NRANKS": "4", "HCCC_JOB": "x"}
    with Job(
        _comes_late, 4, of_rank=lambda r: said | {"HCCC_RANK": str(r)}, id=b"", ranks=range(3)
    ) as job:
        for rank in job.ranks.values():
            rank.go()
        time.sleep(0.5)
        job.ranks[2].kill()
        for r in (0, 1):
            reason, rank, message, seconds = job.ranks[r].result()
            assert (reason, rank) == (Reason.LOST, 2), message
            assert "rank 2 went before all ranks had met" in message and seconds < 3


def test_another_job_of_the_same_name(runtime: Path) -> None:
    said = {"HCCC_NRANKS": "2", "HCCC_RANK": "0", "HCCC_JOB": "the same"}
    with Job(_finds, 2, environment=said, id=b"", ranks=range(1)):
        while not list((runtime / "hccc").glob("*.id")):
            pass
        [(reason, message)] = run(_fails, 2, environment=said, id=b"", ranks=range(1))
    assert reason is Reason.BAD_ARGUMENT and "another job has the same name" in message


def test_a_directory_that_others_can_read_is_not_used(runtime: Path) -> None:
    (runtime / "hccc").mkdir(mode=0o755)
    (runtime / "hccc").chmod(0o755)
    said = {"HCCC_NRANKS": "1", "HCCC_RANK": "0"}
    [(reason, message)] = run(_fails, 1, environment=said, id=b"")
    assert reason is Reason.SYSTEM and "no directory that only this user can read" in message


_BOUND = """
import sys
from hccc.runtime.bootstrap.rendezvous import unique_id
sys.stdout.buffer.write(unique_id()[24:30])
"""


def _bound(**variables: str) -> tuple[str, int]:
    """Returns the root's address in a process with these variables."""
    library()
    done = subprocess.run(
        [sys.executable, "-c", _BOUND], env=os.environ | variables, capture_output=True, check=True
    )
    return socket.inet_ntoa(done.stdout[:4]), struct.unpack("<H", done.stdout[4:])[0]


def test_a_root_is_at_a_loopback_address_unless_told_otherwise() -> None:
    assert _bound()[0] == "127.0.0.1"
    assert _bound(HCCC_BIND="127.0.0.7")[0] == "127.0.0.7"
    for names in ("lo", "=lo", "zz,lo", "^zz9", "l"):
        assert _bound(HCCC_SOCKET_IFNAME=names)[0] != "0.0.0.0"
    assert _bound(HCCC_SOCKET_IFNAME="=lo")[0] == "127.0.0.1"
    assert _bound(HCCC_BIND="0.0.0.0")[0] != "0.0.0.0"
