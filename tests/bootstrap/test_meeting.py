"""Ranks meet, gather, and part, as in every job."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from hccc.runtime.bootstrap.rendezvous import Bootstrap, Reason, RendezvousError, unique_id
from tests.bootstrap.ranks import Job, RankContext, run


def _gather(me: RankContext) -> tuple[list[bytes], list[bytes], list[int], list[int]]:
    with me.open() as b:
        unequal = b.gather(b"of %d " % me.rank * me.rank)
        equal = b.gather_equal(bytes([me.rank]) * 1000)
        b.barrier()
        ranks = range(me.n_ranks)
        assert b.pid(me.rank) == os.getpid()
        return unequal, equal, [b.host(r) for r in ranks], [b.pid(r) for r in ranks]


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_every_rank_gets_what_all_gave(n: int) -> None:
    got = run(_gather, n)
    assert all(result == got[0] for result in got)
    unequal, equal, hosts, pids = got[0]
    assert unequal == [b"of %d " % r * r for r in range(n)]
    assert equal == [bytes([r]) * 1000 for r in range(n)]
    assert hosts == [0] * n and len(set(pids)) == n


def _large(me: RankContext, size: int) -> bool:
    with me.open() as b:
        return b.gather(bytes([me.rank]) * size) == [bytes([r]) * size for r in range(me.n_ranks)]


def test_much_data_and_none() -> None:
    assert all(run(_large, 3, 5 << 20))
    assert all(run(_large, 3, 0))


def _too_much(me: RankContext) -> tuple[Reason, int]:
    with me.open() as b:
        with pytest.raises(RendezvousError, match="16777217 bytes") as error:
            b.gather(b"x" * ((16 << 20) + 1))
        b.barrier()
    return error.value.reason, me.rank


def test_more_than_the_limit_is_an_error_before_anything_is_sent() -> None:
    assert run(_too_much, 2) == [(Reason.BAD_ARGUMENT, 0), (Reason.BAD_ARGUMENT, 1)]


def _hosts(me: RankContext) -> list[int]:
    with me.open() as b:
        return [b.host(r) for r in range(me.n_ranks)] + [b.host(-1), b.host(me.n_ranks), b.pid(99)]


def test_hosts_are_numbered_by_their_lowest_rank() -> None:
    got = run(_hosts, 5, of_rank=lambda r: {"HCCC_HOST_ID": "zyxzy"[r]})
    assert got == [[0, 1, 2, 0, 1, -1, -1, -1]] * 5


def _again(me: RankContext, ids: list[bytes]) -> list[bytes]:
    said: list[bytes] = []
    for id in ids:
        me.id = id
        with me.open() as b:
            said += b.gather(bytes([me.rank]))
    return said


def test_one_job_after_the_other() -> None:
    ids = [unique_id() for _ in range(10)]
    assert len(set(ids)) == len(ids)
    assert run(_again, 2, ids, id=ids[0]) == [[b"\0", b"\1"] * 10] * 2


def _left(me: RankContext) -> tuple[set[str], set[str], list[str]]:
    before = set(os.listdir("/proc/self/fd"))
    with me.open() as b:
        b.barrier()
    threads = os.listdir("/proc/self/task")
    return before, set(os.listdir("/proc/self/fd")), threads


def test_nothing_is_left_open() -> None:
    for before, after, threads in run(_left, 3):
        assert before == after
        assert len(threads) == 1


def _roots() -> set[str]:
    """Returns the threads of this process that are roots."""
    found = set[str]()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has just ended
            if (task / "comm").read_text() == "hccc-root\n":
                found.add(task.name)
    return found


def test_the_root_ends_when_all_have_met() -> None:
    before = _roots()
    with Job(_left, 2) as job:
        assert len(_roots() - before) <= 1
        job.results()
    until = time.monotonic() + 5
    while (left := _roots() - before) and time.monotonic() < until:
        time.sleep(0.01)
    assert not left


def _two_calls(me: RankContext) -> tuple[Reason, int | None, str]:
    with me.open() as b:
        with pytest.raises(RendezvousError) as error:
            if me.rank == 1:
                b.barrier()
            else:
                b.gather(b"")
        return error.value.reason, error.value.rank, str(error.value)


def test_ranks_that_make_different_calls_are_all_told() -> None:
    for reason, _, message in run(_two_calls, 3):
        assert reason is Reason.REFUSED
        assert "barrier" in message and "allgatherv" in message


def _two_sizes(me: RankContext) -> tuple[Reason, int | None]:
    with me.open() as b, pytest.raises(RendezvousError) as error:
        b.gather_equal(b"x" * (4 + (me.rank == 2)))
    return error.value.reason, error.value.rank


def test_ranks_that_give_different_sizes_are_all_told() -> None:
    assert run(_two_sizes, 3) == [(Reason.REFUSED, 2)] * 3


@pytest.mark.parametrize("rank, n", [(0, 0), (-1, 2), (2, 2), (0, 1 << 20)])
def test_ranks_that_cannot_be(rank: int, n: int) -> None:
    with pytest.raises(RendezvousError, match="no rank") as error:
        Bootstrap(unique_id(), n, rank)
    assert error.value.reason is Reason.BAD_ARGUMENT


@pytest.mark.parametrize("place", [0, 9, 13, 29, 31, 65])
def test_an_id_that_was_damaged(place: int) -> None:
    id = bytearray(unique_id())
    id[place] ^= 4
    with pytest.raises(RendezvousError, match="id"):
        Bootstrap(bytes(id), 1, 0, 1)


def _child(me: RankContext) -> tuple[bool, str]:
    """Checks that a forked child has no part in the job and keeps none of its connections."""
    with me.open() as b:
        child = os.fork()
        if child == 0:
            ok = b.fileno() == -1 and b.departure() is None
            with pytest.raises(RendezvousError, match="forked"):
                b.barrier()
            b.close()
            os._exit(0 if ok else 1)
        _, status = os.waitpid(child, 0)
        b.barrier()
        return status == 0, "met"


def test_a_child_of_fork() -> None:
    assert run(_child, 2) == [(True, "met")] * 2
