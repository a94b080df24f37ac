"""Ranks that go, are slow or never come: all others learn of it, by name, in time."""

from __future__ import annotations

import os
import select
import signal
import struct
import subprocess
import sys
import time
from random import Random

import pytest

from hccc.runtime.bootstrap.rendezvous import Bootstrap, Reason, RendezvousError, unique_id
from tests.bootstrap.handshake import welcomed
from tests.bootstrap.ranks import Job, RankContext, RankProcess, departure_within, run
from tests.marks import LONG


def _killed(me: RankContext) -> tuple[tuple[int, bool] | None, int | None, Reason]:
    with me.open() as b:
        me.say("met")
        me.wait()
        departure = departure_within(b, 1)
        with pytest.raises(RendezvousError) as error:
            b.barrier(5)
        return departure, error.value.rank, error.value.reason


@pytest.mark.parametrize("n, victim", [(2, 0), (2, 1), (5, 0), (5, 3)])
def test_a_killed_rank_is_told_within_a_second(n: int, victim: int) -> None:
    with Job(_killed, n) as job:
        job.said()
        job.ranks[victim].kill()
        others = [rank for r, rank in job.ranks.items() if r != victim]
        for rank in others:
            rank.go()
        for rank in others:
            assert rank.result() == ((victim, False), victim, Reason.LOST)


def _waits(me: RankContext) -> tuple[int | None, Reason, str]:
    with me.open() as b:
        me.say("met")
        if me.rank == 1:
            me.wait()
        with pytest.raises(RendezvousError) as error:
            b.barrier(0)
        return error.value.rank, error.value.reason, str(error.value)


def test_a_killed_rank_ends_calls_without_a_deadline() -> None:
    with Job(_waits, 4) as job:
        job.said()
        time.sleep(0.05)  # the others are in the call
        job.ranks[1].kill()
        for r in (0, 2, 3):
            rank, reason, message = job.ranks[r].result()
            assert (rank, reason) == (1, Reason.LOST)
            assert "rank 1 has gone without a word" in message


def _leaves(me: RankContext, leaver: int) -> tuple[int, bool] | None:
    b = me.open()
    b.barrier()
    if me.rank == leaver:
        b.close()
        return None
    with b:
        return departure_within(b, 5)


@pytest.mark.parametrize("leaver", [0, 2])
def test_an_orderly_close_is_told_as_such(leaver: int) -> None:
    got = run(_leaves, 4, leaver)
    assert got == [None if r == leaver else (leaver, True) for r in range(4)]


def _all_leave(me: RankContext) -> list[tuple[int, bool]]:
    b = me.open()
    b.barrier()
    b.close()
    return []


def test_the_last_call_ends_well_where_others_leave_right_after_it() -> None:
    for _ in range(10):
        assert run(_all_leave, 4) == [[]] * 4


def _late(me: RankContext) -> tuple[tuple[int | None, Reason, str] | None, list[bytes]]:
    with me.open() as b:
        failure = None
        if me.rank in (1, 3):
            me.wait()
            b.barrier()
        else:
            with pytest.raises(RendezvousError) as error:
                b.barrier(0.2)
            failure = error.value.rank, error.value.reason, str(error.value)
            me.say(failure)
        return failure, b.gather(bytes([me.rank]))


def test_the_late_are_named_and_the_job_goes_on() -> None:
    with Job(_late, 4) as job:
        for r in (0, 2):
            rank, reason, message = job.ranks[r].said()
            assert (rank, reason) == (1, Reason.TIMEOUT)
            assert "ranks 1 and 3 of 4 did not call barrier in time" in message
        job.ranks[1].go()
        job.ranks[3].go()
        assert [gathered for _, gathered in job.results()] == [[b"\0", b"\1", b"\2", b"\3"]] * 4


def _stopped(me: RankContext) -> tuple[int | None, Reason]:
    with me.open() as b:
        me.say("met")
        me.wait()
        with pytest.raises(RendezvousError) as error:
            b.barrier(0.3)
        return error.value.rank, error.value.reason


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_stopped_rank_is_named_at_the_deadline(victim: int) -> None:
    with Job(_stopped, 3) as job:
        job.said()
        pid = job.ranks[victim].process.pid
        assert pid
        os.kill(pid, signal.SIGSTOP)
        for r in {0, 1, 2} - {victim}:
            job.ranks[r].go()
        for r in {0, 1, 2} - {victim}:
            assert job.ranks[r].result() == (victim, Reason.TIMEOUT)


def _opens(me: RankContext, timeout: float) -> tuple[int | None, Reason, str]:
    with pytest.raises(RendezvousError) as error:
        me.open(timeout)
    return error.value.rank, error.value.reason, str(error.value)


def test_those_that_did_not_come_are_named() -> None:
    with Job(_opens, 6, 0.3, ranks=range(2, 4)) as job:
        got = job.results()
    assert {reason for _, reason, _ in got} <= {Reason.TIMEOUT, Reason.LOST}
    rank, _, message = next(one for one in got if one[1] is Reason.TIMEOUT)
    assert rank == 0
    assert "ranks 0, 1, 4 and 5 of 6 did not come" in message


def test_the_root_says_so_at_its_own_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCCC_TIMEOUT", "0.3")
    with Job(_opens, 3, 10, ranks=range(1, 3)) as job:
        for rank, reason, message in job.results():
            assert (rank, reason) == (0, Reason.TIMEOUT)
            assert "rank 0 of 3 did not come" in message


def test_a_rank_that_goes_before_all_have_met() -> None:
    with Job(_opens, 3, 10, ranks=range(2)) as job:
        time.sleep(0.2)
        job.ranks[1].kill()
        rank, reason, message = job.ranks[0].result()
        assert (rank, reason) == (1, Reason.LOST)
        assert "rank 1 went before all ranks had met" in message


def _meets(me: RankContext) -> list[bytes]:
    with me.open(5) as b:
        return b.gather(b"%d" % me.rank)


def test_a_root_waits_for_the_first_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long: no rank can be told yet, and ranks may still be compiling."""
    monkeypatch.setenv("HCCC_TIMEOUT", "0.05")
    id = unique_id()
    time.sleep(0.3)
    with Job(_meets, 1, id=id) as job:
        assert job.results() == [[b"0"]]


def test_those_that_come_too_late_learn_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCCC_TIMEOUT", "0.2")
    with Job(_opens, 4, 10, ranks=range(1, 3)) as job:
        assert all("did not come" in message for _, _, message in job.results())
        with pytest.raises(RendezvousError, match="ranks 0 and 3 of 4 did not come") as error:
            Bootstrap(job.id, 4, 3, 10)
    assert error.value.reason is Reason.TIMEOUT


@pytest.mark.slow
def test_a_rank_that_was_stopped_before_it_joined_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rank is welcomed and then silent: at the deadline, not before, it is named with the ranks
    that did not come."""
    monkeypatch.setenv("HCCC_TIMEOUT", "1")
    with Job(_opens, 5, 10, ranks=range(3)) as job, welcomed(job.id, 4, 5):
        began = time.monotonic()
        for _, reason, message in job.results():
            assert reason is Reason.TIMEOUT, message
            assert "ranks 3 and 4 of 5 did not come" in message
        assert time.monotonic() - began > 0.5


@pytest.mark.slow
def test_what_failed_reaches_a_rank_that_is_still_talking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The root reads all before it closes: unread bytes would discard its last message."""
    monkeypatch.setenv("HCCC_TIMEOUT", "0.3")
    with welcomed(unique_id(), 0, 2) as connection:
        query = struct.pack("<IIQQ", 5, 0, 0, 0)
        got = b""
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            connection.sendall(query)
            readable = select.select([connection], [], [], 0)[0]
            got += connection.recv(65536) if readable else b""
        assert b"did not come" in got


def _root_that_has_ended() -> RendezvousError:
    """Returns the error of joining a root whose process has ended."""
    code = "from hccc.runtime.bootstrap.rendezvous import unique_id; print(unique_id().hex())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    with pytest.raises(RendezvousError) as error:
        Bootstrap(bytes.fromhex(done.stdout), 2, 1, 60)
    return error.value


@pytest.mark.slow
def test_the_roots_process_has_ended() -> None:
    """A connection that is refused where a root once was is no reason to wait."""
    errors = (_root_that_has_ended() for _ in range(5))
    # The system may have given its port to a root of another test.
    error = next(one for one in errors if "has another secret" not in str(one))
    assert "is not there: its process has ended" in str(error)
    assert error.reason is Reason.LOST


def _tells(me: RankContext) -> list[tuple[int, bytes]]:
    with me.open() as b:
        b.barrier()
        b.notify(b"abort: rank %d" % me.rank)
        b.notify(bytes(range(256)))
        received: list[tuple[int, bytes]] = []
        while len(received) < 2 * (me.n_ranks - 1):
            select.select([b], [], [], 5)
            if found := b.message():
                received.append(found)
        assert b.message() is None and b.departure() is None
        b.barrier()
        return received


def test_messages_reach_all_others_in_order() -> None:
    for rank, received in enumerate(run(_tells, 3)):
        for other in {0, 1, 2} - {rank}:
            said = [message for r, message in received if r == other]
            assert said == [b"abort: rank %d" % other, bytes(range(256))]


def _quiet(me: RankContext) -> bool:
    with me.open() as b:
        b.barrier()
        quiet = not select.select([b], [], [], 0.05)[0]
        me.say("looked")
        me.wait()  # leaving is something that happens
        return quiet


def test_the_watch_is_quiet_while_nothing_happens() -> None:
    with Job(_quiet, 2) as job:
        job.said()
        for rank in job.ranks.values():
            rank.go()
        assert job.results() == [True, True]


def _any_time(me: RankContext) -> tuple[int | None, Reason, str]:
    try:
        b = me.open(3)
        while True:
            b.barrier(3)
    except RendezvousError as error:
        return error.rank, error.reason, str(error)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4 * LONG))
def test_ranks_are_killed_at_any_moment(seed: int) -> None:
    """All others are told which rank, from the rendezvous itself on."""
    random = Random(seed)
    for _ in range(15):
        n = random.randint(2, 6)
        victim = random.randrange(n)
        with Job(_any_time, n) as job:
            time.sleep(random.random() * 0.02)
            job.ranks[victim].kill()
            others: list[RankProcess] = [rank for r, rank in job.ranks.items() if r != victim]
            for rank in others:
                named, reason, message = rank.result()
                assert named == victim, (n, victim, message)
                assert reason in (Reason.LOST, Reason.TIMEOUT)
