"""The handshake of the rendezvous, by the standard library alone."""

from __future__ import annotations

import contextlib
import hashlib
import hmac as standard_hmac
import socket
import struct
from collections.abc import Iterator

CLIENT, SERVER = b"hcccBS-c", b"hcccBS-s"
VERSION = 1
TO_ROOT = 1


def address(id: bytes) -> tuple[str, int]:
    """Returns the address of a job's root: an IPv4 address, mapped into IPv6's."""
    assert id[12:24] == bytes(10) + b"\xff\xff"
    return socket.inet_ntoa(id[24:28]), struct.unpack("<H", id[28:30])[0]


def hello(
    *,
    magic: bytes = CLIENT,
    version: int = VERSION,
    purpose: int = TO_ROOT,
    rank: int = 0,
    n_ranks: int = 2,
    nonce: bytes = bytes(32),
) -> bytes:
    return magic + struct.pack("<IIii", version, purpose, rank, n_ranks) + bytes(16) + nonce


def proof(id: bytes, who: str, hellos: bytes) -> bytes:
    """Computes the proof of a member of the job by the standard library."""
    said = b"hccc bootstrap " + who.encode() + b"\0" + hellos
    return standard_hmac.new(id[30:62], said, hashlib.sha256).digest()


def receive(connection: socket.socket, n: int) -> bytes:
    """Receives up to n bytes: fewer where the other end closes."""
    got = b""
    with contextlib.suppress(ConnectionError):
        while len(got) < n and (part := connection.recv(n - len(got))):
            got += part
    return got


@contextlib.contextmanager
def connected(id: bytes) -> Iterator[socket.socket]:
    with socket.create_connection(address(id), timeout=10) as connection:
        yield connection


@contextlib.contextmanager
def welcomed(id: bytes, rank: int, n_ranks: int) -> Iterator[socket.socket]:
    """Yields the connection of a rank that proves itself to the root, and then says nothing."""
    with connected(id) as connection:
        own = hello(rank=rank, n_ranks=n_ranks)
        connection.sendall(own)
        server = receive(connection, 80)
        connection.sendall(proof(id, "client", own + server[:48]))
        assert receive(connection, 24)[0] == 1  # welcome
        yield connection
