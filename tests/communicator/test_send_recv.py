"""Sends and receives between two ranks: every length, order, source and mistake."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.runtime.communicator import Communicator, CommunicatorError, Received, group
from hccc.runtime.communicator.communicator import Result
from hccc.runtime.communicator.runtime_library import library as runtime
from hccc.runtime.device.stream import Stream
from hccc.runtime.transport.ucx_transport import available
from tests.communicator.world import Lost, await_marks, in_threads, loaded, mark, run, start
from tests.marks import LONG, slow

# Around the ends of a cell, a slot, what is copied first, a slot of a heap, and what is read whole.
EDGES = (40, 2048, 4 << 10, 64 << 10, 1 << 20)
SIZES = (0, 1, 7, *(edge + by for edge in EDGES for by in (-1, 0, 1)), 600_001, 5_000_003)
# Whether a rank's (send, receive) buffers are memory that the other reaches.
SHARED = ((True, True), (False, False), (True, False), (False, True))
GUARD = 64


def pattern(source: int, target: int, tag: int, bytes: int) -> Any:
    """Returns bytes that differ by both ends, tag and place."""
    start = source * 71 + target * 13 + tag * 29
    return ((np.arange(start, start + bytes) * 2654435761) >> 7).astype(np.uint8)


def placed(c: Communicator, bytes: int, shared: bool) -> Any:
    """Makes an array with a guard behind it."""
    made = c.empty(bytes + GUARD, "uint8") if shared else np.empty(bytes + GUARD, np.uint8)
    made[:] = 205
    return made


def untouched(buffer: Any, bytes: int) -> bool:
    return bool((buffer[bytes:] == 205).all())


def all_sizes(c: Communicator, sizes: tuple[int, ...]) -> bool:
    """Sends to the next rank and receives from the one before, at once, then one after another."""
    n, me = c.n_ranks, c.rank
    to, source = (me + 1) % n, (me - 1) % n
    for turn, bytes in enumerate(sizes):
        for shared_out, shared_in in SHARED:
            out, into = placed(c, bytes, shared_out), placed(c, bytes, shared_in)
            out[:bytes] = pattern(me, to, turn, bytes)
            with group():
                got = c.recv(into[:bytes], source, turn)
                c.send(out[:bytes], to, turn)
            assert (got.source, got.tag, got.count) == (source, turn, bytes)
            assert np.array_equal(into[:bytes], pattern(source, me, turn, bytes)), (turn, bytes)
            assert untouched(into, bytes)
            into[:] = 205
            if me % 2:
                c.send(out[:bytes], to)
            c.recv(into[:bytes], source)
            if not me % 2:
                c.send(out[:bytes], to)
            assert np.array_equal(into[:bytes], pattern(source, me, turn, bytes)), (turn, bytes)
            assert untouched(into, bytes)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("reads", ["1", slow("0")])
def test_every_length_between_processes(reads: str) -> None:
    assert run(2, all_sizes, SIZES, environment={"HCCC_PEER_READS": reads}) == [True] * 2


@pytest.mark.slow
def test_every_length_between_threads() -> None:
    assert in_threads(4, all_sizes, SIZES[:-1]) == [True] * 4


def everywhere(c: Communicator) -> bool:
    """Exchanges messages of several lengths between all ranks, their own too, in one group."""
    n, me = c.n_ranks, c.rank
    for bytes in (8, 2000, 40_000, 300_000):
        out = [placed(c, bytes, bool((me + r) % 2)) for r in range(n)]
        into = [placed(c, bytes, bool(me % 2)) for _ in range(n)]
        with group():
            for r in range(n):
                out[r][:bytes] = pattern(me, r, 0, bytes)
                c.send(out[r][:bytes], r)
            for r in reversed(range(n)):
                c.recv(into[r][:bytes], r)
        for r in range(n):
            assert np.array_equal(into[r][:bytes], pattern(r, me, 0, bytes)), (r, bytes)
            assert untouched(into[r], bytes)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("n", [4, slow(8)])
def test_all_to_all_by_a_group(n: int) -> None:
    assert run(n, everywhere) == [True] * n


def out_of_order(c: Communicator) -> bool:
    """Receives 100 messages of each length in the opposite order of their tags, one by one; then
    from any source with any tag."""
    n, me, tags = c.n_ranks, c.rank, range(100)
    for bytes in (16, 1000, 5000):
        if me:
            with group():
                for tag in tags:
                    c.send(pattern(me, 0, tag, bytes), 0, tag)
        else:
            into = np.zeros(bytes, np.uint8)
            for tag in reversed(tags):
                for source in range(1, n):
                    got = c.recv(into, source, tag)
                    assert (got.source, got.tag, got.count) == (source, tag, bytes)
                    assert np.array_equal(into, pattern(source, 0, tag, bytes))
    if me:
        for tag in tags:
            c.send(pattern(me, 0, tag, 3 * tag), 0, tag)
    else:
        into, seen = np.zeros(1000, np.uint8), {source: 0 for source in range(1, n)}
        for _ in range(len(tags) * (n - 1)):
            got = c.recv(into, None, None)
            assert got.tag == seen[got.source] and got.count == 3 * got.tag
            assert np.array_equal(into[: got.count], pattern(got.source, 0, got.tag, got.count))
            seen[got.source] += 1
        assert set(seen.values()) == {len(tags)}
    return True


@pytest.mark.slow
def test_tags_in_any_order_and_any_source() -> None:
    assert run(3, out_of_order) == [True] * 3


def with_plain_calls(c: Communicator) -> bool:
    """Checks hcccSend and hcccRecv, of every type, and both in streams."""
    me, peer = c.rank, 1 - c.rank
    send, receive = runtime().function("Send"), runtime().function("Recv")
    for type in range(12):
        out, into = pattern(me, peer, type, 800), np.zeros(800, np.uint8)
        for call, at in ((send, out), (receive, into)):
            assert call(at.ctypes.data, 100, type, peer, c.handle, None) == Result.SUCCESS
        bytes = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)[type] * 100
        assert np.array_equal(into[:bytes], pattern(peer, me, type, 800)[:bytes])
        assert not into[bytes:].any()
    stream, got = Stream(), list[Received]()
    out, into = pattern(me, peer, 99, 100_000), np.zeros(100_000, np.uint8)
    for turn in range(5):
        with group():
            c.send(out, peer, turn, stream=stream)
            got.append(c.recv(into, None, None, stream=stream))
    stream.synchronize()
    c.check()
    assert [(one.source, one.tag, one.count) for one in got] == [
        (peer, k, 100_000) for k in range(5)
    ]
    assert np.array_equal(into, pattern(peer, me, 99, 100_000))
    return True


@pytest.mark.slow
def test_plain_calls_of_every_type_and_streams() -> None:
    assert run(2, with_plain_calls) == [True] * 2


def alone(c: Communicator, bytes: int) -> bool:
    """Has a send, and a receive in a thread, wait alone: later messages go on, and end them."""
    n, me = c.n_ranks, c.rank
    to, source = (me + 1) % n, (me - 1) % n
    c.set_timeout(20)
    first, second = Stream(), Stream()
    out, into, back = pattern(me, to, 0, bytes), np.zeros(bytes, np.uint8), np.zeros(8, np.uint8)
    c.send(out, to, stream=first)
    time.sleep(0.05)  # it waits for its receiver, who does the same
    c.recv(into, source, stream=second)
    second.synchronize()
    first.synchronize()
    c.check()
    assert np.array_equal(into, pattern(source, me, 0, bytes))
    waits = threading.Thread(target=c.recv, args=(back, to, 1))
    waits.start()
    time.sleep(0.05)
    into[:] = 0
    with group():
        c.send(out, to)
        c.recv(into, source)
    assert np.array_equal(into, pattern(source, me, 0, bytes))
    assert waits.is_alive()  # the next rank answers only when it is told
    c.send(np.zeros(1, np.uint8), to, 2)
    c.recv(np.zeros(1, np.uint8), source, 2)
    c.send(pattern(me, source, 1, 8), source, 1)
    waits.join()
    assert np.array_equal(back, pattern(to, me, 1, 8))
    return True


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", slow("1024")])  # many: a wait that is long sleeps
def test_a_message_that_waits_keeps_no_later_one(workers: str) -> None:
    assert run(3, alone, 300_000, environment={"HCCC_CPU_WORKERS": workers}) == [True] * 3


def refused(c: Communicator) -> bool:
    """Checks that calls that make no sense cost nothing: the next one works."""
    x, peer = np.zeros(10, np.float32), 1 - c.rank
    plain = runtime().function("Recv")
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: c.send(x, 2), "rank 2 is none of 2"),
        (lambda: c.send(x, -1), "rank -1 is none of 2"),
        (lambda: c.recv(x, 5), "rank 5 is none of 2"),
        (lambda: c.send(x, peer, -1), "tag -1 is negative"),
        (lambda: c.recv(x, peer, -2), "tag -2 is negative"),
        (lambda: c.send(x, c.rank), f"rank {c.rank} sends 10 float32"),
        (lambda: c.recv(x, c.rank), f"rank {c.rank} receives up to 10 float32"),
    ]
    for call, text in calls:
        with pytest.raises(CommunicatorError, match=text):
            call()
    at = x.ctypes.data
    for bad in (
        (at, 1, 77, 0),
        (at, 1 << 62, 7, 0),
        (None, 1, 7, 0),
        (at + 1, 1, 7, 0),
        (at, 1, 7, -1),
    ):
        assert plain(*bad, c.handle, None) == Result.INVALID_ARGUMENT, bad
    with pytest.raises(CommunicatorError, match="in one stream"), group():
        c.send(x, peer)
        c.recv(x, peer, stream=Stream())
    with group():
        c.send(np.full(10, c.rank, np.float32), peer)
        c.recv(x, peer)
    assert (x == peer).all() and c.error is Result.SUCCESS
    return True


def test_calls_that_make_no_sense_cost_nothing() -> None:
    assert run(2, refused) == [True] * 2


class Mistake(NamedTuple):
    """What rank 0 sends and rank 1 wants: elements and types; plain: by hcccRecv."""

    sent: int
    wanted: int
    sent_type: str = "float32"
    wanted_type: str = "float32"
    plain: bool = False


MISTAKES = (
    Mistake(10, 8),
    Mistake(500, 499),
    Mistake(100_000, 99_999),
    Mistake(2, 0),
    Mistake(8, 10, plain=True),
    Mistake(99_999, 100_000, plain=True),
    Mistake(10, 10, "float32", "int32"),
    Mistake(50_000, 50_000, "int32", "float32", plain=True),
)


def mistaken(c: Communicator) -> list[str]:
    """Makes each mistake in a communicator of its own; returns what this rank was told."""
    told = []
    for one in MISTAKES:
        with Communicator.from_environment() as other:
            into = np.full(one.wanted + GUARD, 205, one.wanted_type)
            try:
                if c.rank == 0:
                    other.send(np.zeros(one.sent, one.sent_type), 1)
                    until = time.monotonic() + 10
                    while other.error is Result.SUCCESS and time.monotonic() < until:
                        time.sleep(0.01)
                    other.check()
                elif one.plain:
                    type = ("int32", "float32").index(one.wanted_type) * 5 + 2
                    plain = runtime().function("Recv")
                    assert plain(into.ctypes.data, one.wanted, type, 0, other.handle, None)
                    other.check()
                else:
                    other.recv(into[: one.wanted], 0)
                told.append("nothing")
            except CommunicatorError as error:
                assert error.result is Result.INVALID_USAGE
                told.append(error.text)
            assert (into == 205).all(), one
        c.recv(np.zeros(1), 1 - c.rank) if c.rank else c.send(np.zeros(1), 1)
    return told


def both_told(found: list[list[str]]) -> None:
    for one, *texts in zip(MISTAKES, *found, strict=True):
        for text in texts:
            assert f"rank 0 sends {one.sent} {one.sent_type} with tag 0 to rank 1" in text, text
            most = "" if one.plain else "up to "
            assert f"rank 1 receives {most}{one.wanted} {one.wanted_type}" in text, text


def test_mistakes_are_told_at_both_ends() -> None:
    both_told(run(2, mistaken))


def ends(c: Communicator, how: str) -> Any:
    """Loses rank 1 while rank 0 waits for it, in a send or a receive; rank 2 waits for rank 0."""
    x = np.zeros(100_000, np.float32)
    if c.rank == 1:
        time.sleep(0.3)
        if how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "leave":
            return None
        time.sleep(3.5)
    c.set_timeout(2)
    started = time.monotonic()
    try:
        if c.rank == 0 and how == "leave":
            c.send(x, 1, 5)
        elif c.rank == 0:
            c.recv(x, 1, 5)
        elif c.rank == 2:
            c.recv(x, 0)
        c.check()
    except CommunicatorError as error:
        lost = Lost(error.result, error.text, time.monotonic() - started)
        if how == "late":  # or one would hear that the other has left, not that it is late
            mark(c.rank)
            await_marks([0, 2])
        return lost
    return None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "result", "text"),
    [
        ("die", Result.REMOTE_ERROR, "rank 1 is gone"),
        slow("leave", Result.INVALID_USAGE, "rank 1 has left the communicator; rank 0 sends"),
        slow("late", Result.TIMEOUT, "rank 0 receives up to 100000 float32 with tag 5 from rank 1"),
    ],
)
def test_a_rank_that_does_not_come_is_told(how: str, result: Result, text: str) -> None:
    silent = [1] if how == "die" else []
    found = start(3, ends, how).outcomes(silent=silent)
    for rank in (0, 2):
        lost = found[rank]
        assert isinstance(lost, Lost) and lost.seconds < 4.5, lost
        assert lost.result is result, lost.text
        assert how != "late" or "timed out after 2 s" in lost.text, lost.text
    assert any(text in found[rank].text for rank in (0, 2)), found


def misses(c: Communicator) -> str:
    """Sends with a tag that the other rank does not wait for."""
    c.set_timeout(1)
    with pytest.raises(CommunicatorError) as caught:
        if c.rank == 0:
            c.send(np.ones(100_000, np.float32), 1, 1)
        else:
            c.recv(np.ones(100_000, np.float32), 0, 2)
    return caught.value.text


@pytest.mark.slow
def test_messages_that_do_not_meet_name_both_ends_once() -> None:
    for text in run(2, misses):
        assert text.count("rank 0 sends 100000 float32 with tag 1 to rank 1") == 1, text
        assert text.count("rank 1 receives up to 100000 float32 with tag 2 from rank 0") == 1, text


OfRank = Callable[[int], dict[str, str]]


def on_hosts(rank: int) -> dict[str, str]:
    """Puts ranks 0 and 1 on a host each, all others on the second."""
    return {"UCX_TLS": "tcp,self", "HCCC_NETWORK": "lo", "HCCC_HOST_ID": f"host{min(rank, 1)}"}


def by_ucx(rank: int) -> dict[str, str]:
    """Leaves it to UCX how long messages go, as on networks other than TCP."""
    return {**on_hosts(rank), "UCX_RNDV_THRESH": "8k"}


@pytest.mark.slow
@pytest.mark.skipif(not available()[0], reason="no UCX")
@pytest.mark.parametrize("of_rank", [on_hosts, by_ucx])
class TestHosts:
    """The same between hosts."""

    def test_every_length(self, of_rank: OfRank) -> None:
        assert run(2, all_sizes, SIZES, of_rank=of_rank) == [True] * 2

    def test_all_to_all_by_a_group(self, of_rank: OfRank) -> None:
        assert run(4, everywhere, of_rank=of_rank) == [True] * 4

    def test_tags_in_any_order_and_any_source(self, of_rank: OfRank) -> None:
        assert run(3, out_of_order, of_rank=of_rank) == [True] * 3

    def test_streams_and_types(self, of_rank: OfRank) -> None:
        assert run(2, with_plain_calls, of_rank=of_rank) == [True] * 2

    def test_mistakes(self, of_rank: OfRank) -> None:
        both_told(run(2, mistaken, of_rank=of_rank))

    @pytest.mark.parametrize("how", ["die", "leave", "late"])
    def test_a_rank_that_does_not_come(self, how: str, of_rank: OfRank) -> None:
        silent = [1] if how == "die" else []
        found = start(3, ends, how, of_rank=of_rank).outcomes(silent=silent)
        results = {"die": Result.REMOTE_ERROR, "leave": None, "late": Result.TIMEOUT}
        for rank in (0, 2):
            lost = found[rank]
            assert isinstance(lost, Lost) and lost.seconds < 4.5, lost
            assert lost.result is (results[how] or lost.result), lost.text
        assert any("rank 1" in found[rank].text for rank in (0, 2)), found


class Step(NamedTuple):
    """A step of a random program: messages of one group, or apart, in streams; a collective."""

    messages: tuple[tuple[int, int, int, int], ...]  # source, target, tag, bytes
    collective: bool
    any_source: bool
    shared: bool
    apart: bool


RANKS = 3
_RANK = st.integers(0, RANKS - 1)
_BYTES = st.sampled_from([0, 1, 8, 40, 41, 2048, 2049, 32769, 70_001, 300_000])
_MESSAGES = st.lists(st.tuples(_RANK, _RANK, st.integers(0, 2), _BYTES), max_size=6).map(tuple)
_PROGRAMS = st.lists(st.builds(Step, _MESSAGES, *[st.booleans()] * 4), min_size=5, max_size=20)


def performs(c: Communicator, sums: Path, programs: list[list[Step]]) -> bool:
    """Runs programs of matched sends, receives and collectives, against what must come."""
    me = c.rank
    loaded(c, sums)
    streams = [Stream() for _ in range(3)]
    for program in programs:
        for number, step in enumerate(program):
            if step.apart:
                step = step._replace(messages=tuple(m for m in step.messages if m[0] != m[1]))
            turns = iter(streams[k % 3] if step.apart else None for k in count())
            into = [(m, placed(c, m[3], step.shared)) for m in step.messages if m[1] == me]
            x = np.full(10, me + number, np.float32)
            sent = []  # lives until it is done
            with nullcontext() if step.apart else group():
                if step.collective:
                    c.all_reduce(x)
                for source, target, tag, bytes in step.messages:
                    if source == me:
                        out = placed(c, bytes, not step.shared)
                        out[:bytes] = pattern(me, target, tag + number, bytes)
                        sent.append(out)
                        c.send(out[:bytes], target, tag + 3 * number, next(turns))
                got = []
                for (source, _, tag, bytes), buffer in into:
                    alone = sum(m[1] == me and m[2] == tag for m in step.messages) == 1
                    peer = None if alone and step.any_source else source
                    got.append(c.recv(buffer[:bytes], peer, tag + 3 * number, next(turns)))
            for stream in streams if step.apart else ():
                stream.synchronize()
            if step.collective:
                assert np.array_equal(x, np.full(10, 3 * number + 3))
            for ((source, _, tag, bytes), buffer), one in zip(into, got, strict=True):
                assert (one.source, one.count) == (source, bytes), step
                wanted = pattern(source, me, tag + number, bytes)
                assert np.array_equal(buffer[:bytes], wanted), step
                assert untouched(buffer, bytes)
    return True


@pytest.mark.slow
@settings(max_examples=2 * LONG, deadline=None)
@given(programs=st.lists(_PROGRAMS, min_size=4, max_size=4))
def test_random_programs(sums: Path, programs: list[list[Step]]) -> None:
    assert run(RANKS, performs, sums, programs) == [True] * RANKS


def told(c: Communicator) -> bool:
    """Receives two messages in one group, the second of which is sent when the first is told of."""
    x, go = np.full(5000, 7, np.int32), np.zeros(1, np.int32)
    if c.rank == 0:
        c.send(x, 1)
        c.recv(go, 1, tag=1)
        c.send(x + 1, 1)
        return True
    there = [threading.Event(), threading.Event()]
    tell = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda k: there[k or 0].set())
    got = [np.zeros_like(x), np.zeros_like(x)]

    def receive() -> None:
        with group():
            for k, one in enumerate(got):
                assert not runtime().call("GroupNotify", ctypes.cast(tell, ctypes.c_void_p), k)
                c.recv(one, 0)

    thread = threading.Thread(target=receive)
    thread.start()
    assert there[0].wait(20)
    assert np.array_equal(got[0], x) and not there[1].is_set()
    c.send(go, 0, tag=1)
    thread.join(20)
    assert np.array_equal(got[1], x + 1) and there[1].is_set()
    assert runtime().call("GroupNotify", None, None) == Result.INVALID_USAGE  # no group is open
    return True


def test_messages_of_a_group_are_told_of_one_by_one() -> None:
    assert run(2, told, environment={"HCCC_TIMEOUT": "30"}) == [True] * 2
