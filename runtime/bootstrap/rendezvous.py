"""rendezvous: the library of the rendezvous, built at its first use, called through ctypes.

Timeouts are in seconds, 0 for none, and None for that of HCCC_TIMEOUT. Failures raise
`RendezvousError`, a UserError E480 that names the rank which caused them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hccc.base.building.build import Piece, build_pieces
from hccc.base.diagnostics import Problem, UserError
from hccc.runtime.c_library import CLibrary, Signature, text_of

BOOTSTRAP = Piece(Path(__file__).parent / "bootstrap.cpp")
LINK = ("-Wl,-z,nodelete",)  # threads run its code
ID_BYTES = 128
_MESSAGE_BYTES = 256
_ADDRESS_BYTES = 512


class Reason(IntEnum):
    """The reason of a failure; the values of the C interface."""

    TIMEOUT = 1
    LOST = 2
    REFUSED = 3
    BAD_ARGUMENT = 4
    SYSTEM = 5


class RendezvousError(UserError):
    """A call failed: why, and the rank that caused it (None: none)."""

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
_TEXT, _INTS, _SIZES = ctypes.c_char_p, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(_SIZE)
_ID, _ERROR = ctypes.POINTER(_Id), ctypes.POINTER(_Error)
_SIGNATURES: dict[str, Signature] = {
    "unique_id": (_INT, (_ID, _ERROR)),
    "environment": (_INT, (_INTS, _INTS, _INTS, _TEXT, _SIZE, _ERROR)),
    "id_from_environment": (_INT, (_ID, _INT, _ERROR)),
    "open": (_INT, (ctypes.POINTER(_HANDLE), _ID, _INT, _INT, _TIME, _ERROR)),
    "allgather": (_INT, (_HANDLE, _HANDLE, _SIZE, _TIME, _ERROR)),
    "allgatherv": (
        _INT,
        (_HANDLE, _TEXT, _SIZE, ctypes.POINTER(ctypes.c_void_p), _SIZES, _TIME, _ERROR),
    ),
    "barrier": (_INT, (_HANDLE, _TIME, _ERROR)),
    "host": (_INT, (_HANDLE, _INT)),
    "pid": (_INT, (_HANDLE, _INT)),
    "share": (_INT, (_HANDLE, _INTS, _INT, _INTS, _TIME, _ERROR)),
    "poll_fd": (_INT, (_HANDLE,)),
    "next_departure": (_INT, (_HANDLE, _INTS, _INTS)),
    "notify": (None, (_HANDLE, _TEXT, _SIZE)),
    "next_message": (_INT, (_HANDLE, _INTS, _TEXT, _SIZES)),
    "close": (None, (_HANDLE,)),
    "hmac": (None, (_TEXT, _SIZE, _TEXT, _SIZE, _TEXT)),
}


@cache
def library() -> CLibrary:
    """Loads the rendezvous of this process, once. Raises UserError E412 to E414."""
    return CLibrary(build_pieces([BOOTSTRAP], LINK), "hccc_bootstrap_", _SIGNATURES)


@cache
def _free() -> Any:
    """Returns the C library's `free`, for memory of `allgatherv`."""
    free = ctypes.CDLL(None).free
    free.argtypes = (ctypes.c_void_p,)
    free.restype = None
    return free


def call(name: str, *arguments: Any) -> str:
    """Calls a function that can fail, and returns its message of success. Raises
    RendezvousError."""
    error = _Error()
    code = library().call(name, *arguments, ctypes.byref(error))
    message = text_of(error.message)
    if code:
        raise RendezvousError(Reason(code), error.rank if error.rank >= 0 else None, message)
    return message


def seconds_of(timeout: float | None) -> float:
    """Converts a timeout to that of the C interface."""
    return -1.0 if timeout is None else timeout


def _id(data: bytes) -> _Id:
    """Converts an id for the C interface."""
    return _Id.from_buffer_copy(data[:ID_BYTES].ljust(ID_BYTES, b"\0"))


def unique_id() -> bytes:
    """Makes a job and returns its id, a secret. Its root runs here until all ranks have met."""
    made = _Id()
    call("unique_id", ctypes.byref(made))
    return bytes(made)


def id_from_environment(rank: int) -> bytes:
    """Returns the job that the environment names; rank 0 starts its root. Every rank calls it
    equally often."""
    made = _Id()
    call("id_from_environment", ctypes.byref(made), rank)
    return bytes(made)


@dataclass(frozen=True, slots=True)
class Environment:
    """A process's rank by its launcher's variables. local_rank: None where it is not set; address:
    of the root, empty where all ranks are on this host; taken: in words, the variables that were
    read."""

    rank: int
    n_ranks: int
    local_rank: int | None
    address: str
    taken: str


def environment() -> Environment:
    """Reads the launcher's variables. Raises RendezvousError where some are missing."""
    rank, n_ranks, local = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    address = ctypes.create_string_buffer(_ADDRESS_BYTES)
    by = ctypes.byref
    taken = call("environment", by(rank), by(n_ranks), by(local), address, _ADDRESS_BYTES)
    known = local.value if local.value >= 0 else None
    return Environment(rank.value, n_ranks.value, known, address.value.decode(), taken)


class Bootstrap:
    """One rank of a job that has met. Collective: the constructor, `gather` and `share`."""

    def __init__(self, id: bytes, n_ranks: int, rank: int, timeout: float | None = None) -> None:
        self._handle: ctypes.c_void_p | None = None
        handle = ctypes.c_void_p()
        given = _id(id)
        call("open", ctypes.byref(handle), ctypes.byref(given), n_ranks, rank, seconds_of(timeout))
        self._handle = handle
        self.n_ranks = n_ranks
        self.rank = rank

    def gather(self, own: bytes, timeout: float | None = None) -> list[bytes]:
        """Gathers bytes of every rank, of any lengths, in order of ranks."""
        all_, sizes = ctypes.c_void_p(), (ctypes.c_size_t * self.n_ranks)()
        by = ctypes.byref(all_)
        call("allgatherv", self._handle, own, len(own), by, sizes, seconds_of(timeout))
        data = ctypes.string_at(all_.value or 0, sum(sizes))
        _free()(all_)
        ends = [sum(sizes[: i + 1]) for i in range(self.n_ranks)]
        return [data[end - size : end] for end, size in zip(ends, sizes, strict=True)]

    def host(self, rank: int) -> int:
        """Returns the number of the host that a rank is on."""
        return int(library().call("host", self._handle, rank))

    def pid(self, rank: int) -> int:
        """Returns the process that a rank is in, by its number on its host."""
        return int(library().call("pid", self._handle, rank))

    def share(self, own: Sequence[int], timeout: float | None = None) -> list[list[int]]:
        """Shares descriptors with all ranks of this host, as many at every rank; -1: none. Returns
        every rank's, which the caller closes; -1 for ranks of other hosts."""
        n = len(own)
        given, got = (ctypes.c_int * n)(*own), (ctypes.c_int * (n * self.n_ranks))()
        call("share", self._handle, given, n, got, seconds_of(timeout))
        return [list(got[n * i : n * (i + 1)]) for i in range(self.n_ranks)]

    def close(self) -> None:
        """Leaves the job and frees everything; the second time nothing."""
        handle, self._handle = self._handle, None
        if handle:
            library().call("close", handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
