"""Connections that are none of the job's: they never hinder it, and are never let in."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import socket
import struct
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hccc.runtime.bootstrap.rendezvous import (
    Bootstrap,
    Reason,
    RendezvousError,
    unique_id,
)
from tests.bootstrap import handshake
from tests.bootstrap.handshake import CLIENT, SERVER, VERSION
from tests.bootstrap.ranks import Job, RankContext, run


def _meets(me: RankContext, timeout: float) -> list[bytes]:
    with me.open(timeout) as b:
        return b.gather(bytes([me.rank]))


def _meets_now(id: bytes) -> None:
    """Checks that two ranks meet sooner than a stranger's 5 s are over."""
    assert run(_meets, 2, 4.0, id=id) == [[b"\0", b"\1"]] * 2


def test_the_handshake_is_what_the_page_says() -> None:
    """A client written from docs/rendezvous.md is let in, and told of the root's proof."""
    id = unique_id()
    with handshake.connected(id) as connection:
        hello = handshake.hello(n_ranks=1, nonce=bytes(range(32)))
        connection.sendall(hello)
        server = handshake.receive(connection, 80)
        assert server[:8] == SERVER and struct.unpack("<I", server[8:12]) == (VERSION,)
        hellos = hello + server[:48]
        assert server[48:] == handshake.proof(id, "server", hellos)
        connection.sendall(handshake.proof(id, "client", hellos))
        kind, aux, seq, length = struct.unpack("<IIQQ", handshake.receive(connection, 24))
        assert (kind, aux, seq, length) == (1, 0, 0, 0)


_JUNK = st.one_of(
    st.binary(max_size=400),
    st.binary(max_size=100).map(lambda tail: CLIENT + tail),
    st.builds(
        lambda hello, tail: hello + tail,
        st.builds(
            handshake.hello,
            version=st.sampled_from([0, 1, 1, 1, 2, 2**32 - 1]),
            purpose=st.sampled_from([0, 1, 1, 1, 2, 3, 77]),
            rank=st.integers(-(2**31), 2**31 - 1),
            n_ranks=st.integers(-(2**31), 2**31 - 1),
            nonce=st.binary(min_size=32, max_size=32),
        ),
        st.binary(max_size=300),
    ),
    st.sampled_from(
        [
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"SSH-2.0-x\r\n",
            b"\x16\x03\x01\x02\0",
            b"\0" * 4096,
            b"\xff" * 65536,
        ]
    ),
)


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(junk=st.lists(_JUNK, min_size=1, max_size=30), before=st.booleans())
def test_junk_does_not_hinder_a_job(junk: list[bytes], before: bool) -> None:
    id = unique_id()
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(handshake.connected(id)) for _ in junk]

        def send() -> None:
            for connection, data in zip(connections, junk, strict=True):
                with contextlib.suppress(OSError):
                    connection.sendall(data)

        if before:
            send()
            _meets_now(id)
        else:
            with Job(_meets, 2, 4.0, id=id) as job:
                send()
                assert job.results() == [[b"\0", b"\1"]] * 2


def test_closed_half_open_and_slow_connections_do_not_hinder_a_job() -> None:
    id = unique_id()
    stop = threading.Event()

    def trickle(connection: socket.socket) -> None:
        for byte in handshake.hello():
            with contextlib.suppress(OSError):
                connection.sendall(bytes([byte]))
            if stop.wait(0.02):
                return

    with contextlib.ExitStack() as stack:
        for _ in range(50):
            with handshake.connected(id):
                pass  # a port scan
            stack.enter_context(handshake.connected(id)).shutdown(socket.SHUT_WR)
            stack.enter_context(handshake.connected(id))
        connections = [stack.enter_context(handshake.connected(id)) for _ in range(10)]
        slow = [threading.Thread(target=trickle, args=(one,)) for one in connections]
        for thread in slow:
            thread.start()
        _meets_now(id)
        stop.set()
        for thread in slow:
            thread.join()


def _flood(id: bytes, stop: threading.Event) -> None:
    """Opens connections without end, and says nothing."""
    held: list[socket.socket] = []
    while not stop.is_set():
        with contextlib.suppress(OSError):
            held.append(socket.create_connection(handshake.address(id), timeout=0.1))
        if len(held) > 500:
            held.pop(0).close()
    for connection in held:
        connection.close()


@pytest.mark.slow
def test_more_connections_than_are_held_at_once() -> None:
    id = unique_id()
    stop = threading.Event()
    flood = threading.Thread(target=_flood, args=(id, stop))
    flood.start()
    try:
        time.sleep(0.3)
        _meets_now(id)
    finally:
        stop.set()
        flood.join()


def test_a_process_with_few_descriptors() -> None:
    """Strangers get no more descriptors than are left, and give them up for the job's ranks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    id = unique_id()
    open_now = len(os.listdir("/proc/self/fd"))
    connections = [socket.create_connection(handshake.address(id)) for _ in range(60)]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 130, hard))
        _meets_now(id)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for connection in connections:
            connection.close()


@pytest.mark.slow
def test_what_says_nothing_is_dropped() -> None:
    id = unique_id()
    with handshake.connected(id) as connection:
        begin = time.monotonic()
        assert handshake.receive(connection, 1) == b""
        assert 4 < time.monotonic() - begin < 9


def _with_secret(id: bytes, secret: bytes) -> bytes:
    """Returns the id with another secret."""
    said = id[:30] + secret
    return said + hashlib.sha256(said).digest()[:8] + id[70:]


def test_another_secret() -> None:
    id = unique_id()
    other = _with_secret(id, b"s" * 32)
    with pytest.raises(RendezvousError, match="has another secret") as error:
        Bootstrap(other, 2, 0, 5)
    assert error.value.reason is Reason.REFUSED
    with handshake.connected(id) as connection:  # nor is a wrong proof taken
        connection.sendall(handshake.hello())
        handshake.receive(connection, 80)
        connection.sendall(bytes(32))
        assert handshake.receive(connection, 1) == b""
    _meets_now(id)


def test_a_proof_is_good_for_one_connection() -> None:
    """A proof overheard in one handshake opens no other."""
    id = unique_id()
    hello = handshake.hello(nonce=bytes(32))
    with handshake.connected(id) as first, handshake.connected(id) as second:
        first.sendall(hello)
        proof = handshake.proof(id, "client", hello + handshake.receive(first, 80)[:48])
        second.sendall(hello)
        handshake.receive(second, 80)
        second.sendall(proof)
        assert handshake.receive(second, 1) == b""


def test_the_roots_own_proof_is_no_clients() -> None:
    id = unique_id()
    with handshake.connected(id) as connection:
        connection.sendall(handshake.hello())
        connection.sendall(handshake.receive(connection, 80)[48:])
        assert handshake.receive(connection, 1) == b""


def test_a_secret_that_is_not_on_the_wire() -> None:
    """Nothing that a rank and a root say to each other has the secret, or eight bytes of it."""
    id = unique_id()
    heard: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))
    said = id[:24] + socket.inet_aton("127.0.0.1") + struct.pack("<H", listener.getsockname()[1])
    through = _with_secret(said + id[30:], id[30:62])

    def relay(source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(65536):
            heard.append(data)
            target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    with Job(_meets, 1, 10.0, id=through) as job:
        source, _ = listener.accept()
        with source, handshake.connected(id) as target:
            back = threading.Thread(target=relay, args=(target, source))
            back.start()
            relay(source, target)
            back.join()
        assert job.results() == [[b"\0"]]
    listener.close()
    wire = b"".join(heard)
    assert len(wire) > 72 + 80 + 32
    assert not any(id[at : at + 8] in wire for at in range(30, 55))


def test_another_version() -> None:
    id = unique_id()
    with handshake.connected(id) as connection:
        connection.sendall(handshake.hello(version=7)[:12])
        answer = handshake.receive(connection, 200)
    assert answer[:12] == SERVER + struct.pack("<I", VERSION) and answer[48:] == bytes(32)
    _meets_now(id)


@pytest.mark.parametrize(
    "answer, said",
    [
        (SERVER + struct.pack("<I", 9) + bytes(68), "speaks version 9 of the protocol, this one 1"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not of hccc"),
        (SERVER + struct.pack("<I", VERSION) + bytes(68), "has another secret"),
    ],
)
def test_something_else_answers(answer: bytes, said: str) -> None:
    id = unique_id()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = struct.pack("<H", listener.getsockname()[1])
        elsewhere = _with_secret(id[:28] + port + id[30:], id[30:62])

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1)
                connection.sendall(answer)
                connection.recv(1000)

        server = threading.Thread(target=serve)
        server.start()
        with pytest.raises(RendezvousError, match=said) as error:
            Bootstrap(elsewhere, 2, 1, 5)
        server.join()
    assert error.value.reason is Reason.REFUSED


def test_who_was_turned_away_is_told_with_who_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCCC_TIMEOUT", "0.5")
    id = unique_id()
    with Job(_opens, 2, id=id, ranks=range(1)) as job:
        with handshake.connected(id) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n")
            handshake.receive(connection, 1)
        with pytest.raises(RendezvousError, match="another secret"):
            Bootstrap(_with_secret(id, b"s" * 32), 2, 1, 5)
        [(rank, reason, message)] = job.results()
    assert (rank, reason) == (1, Reason.TIMEOUT)
    assert (
        "rank 1 of 2 did not come; 2 connections were dropped, the last from 127.0.0.1:" in message
    )
    assert "it has another secret" in message


def _opens(me: RankContext) -> tuple[int | None, Reason, str] | list[bytes]:
    try:
        return _meets(me, 10)
    except RendezvousError as error:
        return error.rank, error.reason, str(error)


def test_a_rank_that_is_taken() -> None:
    id = unique_id()
    with Job(_opens, 2, id=id, ranks=range(1, 2)) as job:
        time.sleep(0.2)
        with pytest.raises(RendezvousError, match="rank 1 is taken") as error:
            Bootstrap(id, 2, 1, 5)
        assert (error.value.rank, error.value.reason) == (1, Reason.REFUSED)
        with pytest.raises(RendezvousError, match="says that there are 3 ranks") as error:
            Bootstrap(id, 3, 2, 5)
        assert (error.value.rank, error.value.reason) == (2, Reason.REFUSED)
        with Job(_opens, 2, id=id, ranks=range(1)) as first:
            assert first.results() + job.results() == [[b"\0", b"\1"]] * 2
