"""library: the rendezvous, built when it is first used, called through ctypes.

Timeouts are in seconds, 0 for none, and None for that of HCCC_TIMEOUT. Everything that fails raises
`RendezvousError`, a UserError E480 that says which rank it is about.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from hccc.base.building.build import Piece, build_plain
from hccc.base.diagnostics import Problem, UserError

BOOTSTRAP = Piece(Path(__file__).parent / "bootstrap.cpp")
LINK = ("-Wl,-z,nodelete",)  # threads run its code
ID_BYTES = 128
MOST_MESSAGE = 256
_MESSAGE_BYTES = 256
_ADDRESS_BYTES = 512


class Reason(IntEnum):
    """Why a call failed; the values of the C interface."""

    TIMEOUT = 1
    LOST = 2
    REFUSED = 3
    BAD_ARGUMENT = 4
    SYSTEM = 5


class RendezvousError(UserError):
    """A call failed: why, and the rank that it is about (None: none)."""

    def __init__(self, reason: Reason, rank: int | None, message: str) -> None:
        super().__init__(Problem("E480", message))
        self.reason = reason
        self.rank = rank


class _Id(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * ID_BYTES),)


class _Error(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("message", ctypes.c_char * _MESSAGE_BYTES),
    )


_HANDLE, _INT, _SIZE, _TIME = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_double
_INTS = ctypes.POINTER(ctypes.c_int)
_ERROR = ctypes.POINTER(_Error)
_CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "unique_id": (_INT, (ctypes.POINTER(_Id), _ERROR)),
    "environment": (_INT, (_INTS, _INTS, _INTS, ctypes.c_char_p, _SIZE, _ERROR)),
    "id_from_environment": (_INT, (ctypes.POINTER(_Id), _INT, _ERROR)),
    "open": (
        _INT,
        (ctypes.POINTER(_HANDLE), ctypes.POINTER(_Id), _INT, _INT, _TIME, _ERROR),
    ),
    "allgatherv": (
        _INT,
        (
            _HANDLE,
            ctypes.c_char_p,
            _SIZE,
            ctypes.POINTER(ctypes.c_void_p),
            ctypes.POINTER(_SIZE),
            _TIME,
            _ERROR,
        ),
    ),
    "allgather": (_INT, (_HANDLE, ctypes.c_void_p, _SIZE, _TIME, _ERROR)),
    "barrier": (_INT, (_HANDLE, _TIME, _ERROR)),
    "host": (_INT, (_HANDLE, _INT)),
    "pid": (_INT, (_HANDLE, _INT)),
    "share": (_INT, (_HANDLE, _INTS, _INT, _INTS, _TIME, _ERROR)),
    "poll_fd": (_INT, (_HANDLE,)),
    "next_departure": (_INT, (_HANDLE, _INTS, _INTS)),
    "notify": (None, (_HANDLE, ctypes.c_char_p, _SIZE)),
    "next_message": (_INT, (_HANDLE, _INTS, ctypes.c_char_p, ctypes.POINTER(_SIZE))),
    "close": (None, (_HANDLE,)),
    "hmac": (None, (ctypes.c_char_p, _SIZE, ctypes.c_char_p, _SIZE, ctypes.c_char_p)),
}


@cache
def library() -> Any:
    """The rendezvous of this process. Raises UserError E412 to E414 when it cannot be built."""
    handle = ctypes.CDLL(str(build_plain([BOOTSTRAP], LINK)))
    for name, (result, arguments) in _CALLS.items():
        function = getattr(handle, f"hccc_bootstrap_{name}")
        function.restype = result
        function.argtypes = arguments
    return handle


@cache
def _free() -> Any:
    """The C library's, for what `allgatherv` allocates."""
    free = ctypes.CDLL(None).free
    free.argtypes = (ctypes.c_void_p,)
    free.restype = None
    return free


def _call(name: str, *arguments: Any) -> str:
    """Calls what may fail; the message of its success. Raises RendezvousError."""
    error = _Error()
    code = getattr(library(), f"hccc_bootstrap_{name}")(*arguments, ctypes.byref(error))
    message: str = error.message.decode("utf-8", "replace")
    if code:
        raise RendezvousError(Reason(code), error.rank if error.rank >= 0 else None, message)
    return message


def _seconds(timeout: float | None) -> float:
    return -1.0 if timeout is None else timeout


def _id(data: bytes) -> _Id:
    """The id of a job as the C interface takes it."""
    return _Id.from_buffer_copy(data[:ID_BYTES].ljust(ID_BYTES, b"\0"))


def unique_id() -> bytes:
    """A new job, whose root runs in this process until all ranks have met; a secret."""
    made = _Id()
    _call("unique_id", ctypes.byref(made))
    return bytes(made)


def id_from_environment(rank: int) -> bytes:
    """The job that the environment names; rank 0 starts its root. Every rank calls it as often."""
    made = _Id()
    _call("id_from_environment", ctypes.byref(made), rank)
    return bytes(made)


@dataclass(frozen=True, slots=True)
class Environment:
    """Who a process is by its launcher's variables. local_rank: None where nothing says; address:
    of the root, empty where all are on this host; taken: in words, which variables were read."""

    rank: int
    n_ranks: int
    local_rank: int | None
    address: str
    taken: str


def environment() -> Environment:
    """What the launcher says. Raises RendezvousError where it is nothing, or not enough."""
    rank, n_ranks, local = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    address = ctypes.create_string_buffer(_ADDRESS_BYTES)
    by = ctypes.byref
    taken = _call("environment", by(rank), by(n_ranks), by(local), address, _ADDRESS_BYTES)
    known = local.value if local.value >= 0 else None
    return Environment(rank.value, n_ranks.value, known, address.value.decode(), taken)


def hmac(key: bytes, data: bytes) -> bytes:
    """HMAC-SHA-256 as the handshake computes it."""
    made = ctypes.create_string_buffer(32)
    library().hccc_bootstrap_hmac(key, len(key), data, len(data), made)
    return made.raw


class Bootstrap:
    """One rank of a job that has met. Collective: the constructor, `gather`, `barrier`, `share`."""

    def __init__(self, id: bytes, n_ranks: int, rank: int, timeout: float | None = None) -> None:
        self._handle: ctypes.c_void_p | None = None
        handle = ctypes.c_void_p()
        given = _id(id)
        _call("open", ctypes.byref(handle), ctypes.byref(given), n_ranks, rank, _seconds(timeout))
        self._handle = handle
        self.n_ranks = n_ranks
        self.rank = rank

    def gather(self, own: bytes, timeout: float | None = None) -> list[bytes]:
        """What every rank gave, in order of ranks; they may differ in length."""
        all_, sizes = ctypes.c_void_p(), (ctypes.c_size_t * self.n_ranks)()
        by = ctypes.byref(all_)
        _call("allgatherv", self._handle, own, len(own), by, sizes, _seconds(timeout))
        data = ctypes.string_at(all_.value or 0, sum(sizes))
        _free()(all_)
        ends = [sum(sizes[: i + 1]) for i in range(self.n_ranks)]
        return [data[end - size : end] for end, size in zip(ends, sizes, strict=True)]

    def gather_equal(self, own: bytes, timeout: float | None = None) -> list[bytes]:
        """As `gather`, of as many bytes at every rank."""
        n = len(own)
        data = ctypes.create_string_buffer(n * self.n_ranks)
        ctypes.memmove(ctypes.addressof(data) + n * self.rank, own, n)
        _call("allgather", self._handle, data, n, _seconds(timeout))
        return [data.raw[n * i : n * (i + 1)] for i in range(self.n_ranks)]

    def barrier(self, timeout: float | None = None) -> None:
        """Returns when all ranks have called it."""
        _call("barrier", self._handle, _seconds(timeout))

    def host(self, rank: int) -> int:
        """The number of the host that a rank is on."""
        return int(library().hccc_bootstrap_host(self._handle, rank))

    def pid(self, rank: int) -> int:
        """The process that a rank is in, as its host numbers it."""
        return int(library().hccc_bootstrap_pid(self._handle, rank))

    def share(self, own: Sequence[int], timeout: float | None = None) -> list[list[int]]:
        """Every rank's descriptors, as this process's own: the caller closes them. -1 for ranks of
        other hosts. All ranks give as many; -1: none."""
        n = len(own)
        given, got = (ctypes.c_int * n)(*own), (ctypes.c_int * (n * self.n_ranks))()
        _call("share", self._handle, given, n, got, _seconds(timeout))
        return [list(got[n * i : n * (i + 1)]) for i in range(self.n_ranks)]

    def fileno(self) -> int:
        """Returns a descriptor that is readable when `departure` or `message` may have something."""
        return int(library().hccc_bootstrap_poll_fd(self._handle))

    def departure(self) -> tuple[int, bool] | None:
        """Returns a rank that has gone, once, and whether it closed before; None: none."""
        rank, orderly = ctypes.c_int(), ctypes.c_int()
        by = ctypes.byref
        if not library().hccc_bootstrap_next_departure(self._handle, by(rank), by(orderly)):
            return None
        return rank.value, bool(orderly.value)

    def notify(self, message: bytes) -> None:
        """Sends a message of up to MOST_MESSAGE bytes to all other ranks."""
        library().hccc_bootstrap_notify(self._handle, message, len(message))

    def message(self) -> tuple[int, bytes] | None:
        """Returns the next message of another rank; None: none."""
        rank, n = ctypes.c_int(), ctypes.c_size_t()
        data = ctypes.create_string_buffer(MOST_MESSAGE)
        by = ctypes.byref
        if not library().hccc_bootstrap_next_message(self._handle, by(rank), data, by(n)):
            return None
        return rank.value, data.raw[: n.value]

    def close(self) -> None:
        """Says goodbye and frees everything; the second time nothing."""
        handle, self._handle = self._handle, None
        if handle:
            library().hccc_bootstrap_close(handle)

    def __enter__(self) -> Bootstrap:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def close_all(descriptors: Sequence[Sequence[int]]) -> None:
    """Closes what `Bootstrap.share` gave."""
    for fd in (fd for of_rank in descriptors for fd in of_rank if fd >= 0):
        os.close(fd)
