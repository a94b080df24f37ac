"""Descriptors of the ranks of a host."""

from __future__ import annotations

import fcntl
import os
import resource
import time

import pytest

from hccc.runtime.bootstrap.rendezvous import Reason, RendezvousError
from tests.bootstrap.client import close_all
from tests.bootstrap.ranks import Job, RankContext, run


def _file(text: bytes) -> int:
    fd = os.memfd_create("shared")
    os.write(fd, text)
    return fd


def _shares(
    me: RankContext, n_own: int, missing: list[tuple[int, int]]
) -> list[list[bytes | None]]:
    with me.open() as b:
        own = [
            -1 if (me.rank, i) in missing else _file(b"%d of %d" % (i, me.rank))
            for i in range(n_own)
        ]
        before = set(os.listdir("/proc/self/fd"))
        got = b.share(own)
        assert not {fd for of in got for fd in of if fd >= 0} & set(own)
        for fd in (fd for of in got for fd in of if fd >= 0):
            assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        texts = [[os.pread(fd, 99, 0) if fd >= 0 else None for fd in of] for of in got]
        close_all(got)
        assert set(os.listdir("/proc/self/fd")) == before
        b.barrier()
        return texts


@pytest.mark.parametrize("n, n_own", [(1, 2), (2, 1), (4, 3), (6, 0), (2, 64)])
def test_all_ranks_of_a_host_have_all_descriptors(n: int, n_own: int) -> None:
    wanted = [[b"%d of %d" % (i, r) for i in range(n_own)] for r in range(n)]
    assert run(_shares, n, n_own, []) == [wanted] * n


def test_some_ranks_have_none() -> None:
    wanted = [[b"0 of 0", None], [None, None], [None, b"1 of 2"]]
    assert run(_shares, 3, 2, [(0, 1), (1, 0), (1, 1), (2, 0)]) == [wanted] * 3


def test_other_hosts_are_left_out() -> None:
    hosts = "abab"
    got = run(_shares, 4, 1, [], of_rank=lambda r: {"HCCC_HOST_ID": hosts[r]})
    for rank, texts in enumerate(got):
        assert texts == [[b"0 of %d" % r] if hosts[r] == hosts[rank] else [None] for r in range(4)]


def _shared_memory(me: RankContext) -> bytes:
    with me.open() as b:
        got = b.share([_file(bytes(me.n_ranks))])
        for [fd] in got:
            os.pwrite(fd, bytes([me.rank + 1]), me.rank)
        b.barrier()
        return os.pread(got[(me.rank + 1) % me.n_ranks][0], 99, 0)


def test_they_are_of_the_same_file() -> None:
    assert run(_shared_memory, 3) == [b"\1\2\3"] * 3


def _fails(me: RankContext, kind: str) -> tuple[int | None, Reason, str, bool]:
    with me.open() as b:
        fd = _file(b"x")
        own = [fd]
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        if kind == "counts" and me.rank == 1:
            own = [fd, fd]
        if kind == "closed" and me.rank == 1:
            own = [9999]
        if kind == "limit" and me.rank == 2:
            _leave_room_for(3)  # its own, a connection, one of the others
        before = set(os.listdir("/proc/self/fd"))
        with pytest.raises(RendezvousError) as error:
            b.share(own, 10)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        same = set(os.listdir("/proc/self/fd")) == before
        me.say("failed")
        me.wait()
        return error.value.rank, error.value.reason, str(error.value), same


def _leave_room_for(n: int) -> None:
    """Limits this process to n more descriptors."""
    highest = max(int(fd) for fd in os.listdir("/proc/self/fd"))
    while os.dup(0) < highest:
        pass
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + n, hard))


@pytest.mark.parametrize(
    "kind, ranks, reason, said",
    [
        ("counts", [1], Reason.REFUSED, "rank 1 shares another number of descriptors"),
        ("closed", [1], Reason.SYSTEM, "rank 1: cannot duplicate a descriptor: Bad file"),
        # Those of the rank that is the second to connect.
        ("limit", [0, 1], Reason.SYSTEM, "rank 2: the descriptors of rank {} did not arrive: this"),
    ],
)
def test_what_fails_at_one_rank_fails_at_all(
    kind: str, ranks: list[int], reason: Reason, said: str
) -> None:
    with Job(_fails, 3, kind) as job:
        job.said()
        for one in job.ranks.values():
            one.go()
        results = job.results()
        assert len({named for named, *_ in results}) == 1
        for named, why, message, same in results:
            assert named in ranks and why == reason and said.format(named) in message and same


def _killed(me: RankContext) -> tuple[int | None, Reason] | None:
    with me.open() as b:
        me.say("met")
        if me.rank == 1:
            time.sleep(60)
        with pytest.raises(RendezvousError) as error:
            b.share([_file(b"x")])
        return error.value.rank, error.value.reason


def test_a_rank_is_killed() -> None:
    with Job(_killed, 3) as job:
        job.said()
        job.ranks[1].kill()
        assert [job.ranks[r].result() for r in (0, 2)] == [(1, Reason.LOST)] * 2
