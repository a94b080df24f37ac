"""library: the transport between hosts, built when it is first used, called through ctypes."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from hccc.base.building.build import Piece, build_plain
from hccc.base.diagnostics import UserError, fail

HERE = Path(__file__).resolve().parent
TRANSPORT = Piece(HERE / "transport.cpp", include=(HERE.parent / "include",))
MESSAGE_BYTES = 1024
MEMORIES = ("host", "cuda", "hip")  # by number
NO_UCX = 1  # HCCC_TRANSPORT_NO_UCX
FAILED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
BEGIN = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_void_p),
)
DONE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
PIN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
FLUSH = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
UNPIN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class Error(ctypes.Structure):
    """hccc_transport_error."""

    _fields_ = (
        ("code", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("message", ctypes.c_char * 256),
    )


class Copier(ctypes.Structure):
    """hccc_transport_copier: how memory of a device is copied."""

    _fields_ = (
        ("context", ctypes.c_void_p),
        ("begin", BEGIN),
        ("done", DONE),
        ("pin", PIN),
        ("unpin", UNPIN),
        ("flush", FLUSH),
    )


class Options(ctypes.Structure):
    """hccc_transport_options."""

    _fields_ = (
        ("size", ctypes.c_uint),
        ("rank", ctypes.c_int),
        ("n_ranks", ctypes.c_int),
        ("slice_bytes", ctypes.c_longlong),
        ("pool_bytes", ctypes.c_longlong),
        ("timeout_s", ctypes.c_double),
        ("network", ctypes.c_char_p),
        ("failed", FAILED),
        ("log", LOG),
        ("context", ctypes.c_void_p),
        ("copier", ctypes.POINTER(Copier)),
        ("force_staging", ctypes.c_int),
        ("reserved", ctypes.c_int),
    )


class Counters(ctypes.Structure):
    """hccc_transport_counters_t."""

    _fields_ = (
        ("size", ctypes.c_uint),
        ("reserved", ctypes.c_uint),
        ("sent_transfers", ctypes.c_ulonglong),
        ("sent_slices", ctypes.c_ulonglong),
        ("sent_bytes", ctypes.c_ulonglong),
        ("received_transfers", ctypes.c_ulonglong),
        ("received_slices", ctypes.c_ulonglong),
        ("received_bytes", ctypes.c_ulonglong),
        ("staged_out_bytes", ctypes.c_ulonglong),
        ("staged_in_bytes", ctypes.c_ulonglong),
        ("stalls", ctypes.c_ulonglong),
        ("sleeps", ctypes.c_ulonglong),
    )


_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "available": (ctypes.c_char_p, ctypes.c_size_t),
    "open": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
    "window": (
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_longlong,
        ctypes.c_int,
        ctypes.c_void_p,
    ),
    "blob": (ctypes.c_void_p,) * 4,
    "connect": (
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_void_p,
    ),
    "start": (ctypes.c_void_p,) * 3,
    "ready": (ctypes.c_void_p, ctypes.c_double, ctypes.c_void_p),
    "wake": (ctypes.c_void_p,),
    "stop": (ctypes.c_void_p,),
    "close": (ctypes.c_void_p,),
    "counters": (ctypes.c_void_p, ctypes.c_void_p),
}


def find_packaged() -> Path | None:
    """The libucp of the package libucx-cu12 or its like, where one is installed beside hccc."""
    try:
        spec = find_spec("libucx")
    except (ImportError, ValueError):
        return None
    for place in (spec and spec.submodule_search_locations) or ():
        path = Path(place) / "lib" / "libucp.so.0"
        if path.is_file():
            return path
    return None


@cache
def library() -> Any:
    """The transport. Raises UserError E412 to E414 when it cannot be built.

    Which UCX it finds: the one that HCCC_UCX_LIBRARY names, else one that is loaded, else a
    package's, else the system's.
    """
    found = ctypes.CDLL(str(build_plain([TRANSPORT], ("-ldl",))))
    for name, arguments in _SIGNATURES.items():
        function = getattr(found, f"hccc_transport_{name}")
        function.argtypes = arguments
        function.restype = None if name in ("wake", "close") else ctypes.c_int
    packaged = find_packaged()
    if packaged and not os.environ.get("HCCC_UCX_LIBRARY"):
        os.environ["HCCC_UCX_LIBRARY"] = str(packaged)
        _look(found)
        del os.environ["HCCC_UCX_LIBRARY"]
    return found


def _look(found: Any) -> tuple[bool, str]:
    text = ctypes.create_string_buffer(MESSAGE_BYTES)
    usable = bool(found.hccc_transport_available(text, MESSAGE_BYTES))
    return usable, text.value.decode("utf-8", "replace")


def available() -> tuple[bool, str]:
    """Whether there is a UCX that can be used, and which, or why not."""
    return _look(library())


class Transport:
    """The transport of one rank: see include/hccc_transport.h.

    failed: called by the progress thread with a rank and why it is lost.
    Methods raise UserError E485 when there is no UCX, E486 for anything else.
    """

    def __init__(
        self,
        rank: int,
        n_ranks: int,
        *,
        slice_bytes: int = 0,
        pool_bytes: int = 0,
        timeout_s: float = 0.0,
        network: str | None = None,
        failed: Callable[[int, str], None] | None = None,
        log: Callable[[str], None] | None = None,
        copier: Copier | None = None,
        force_staging: bool = False,
    ) -> None:
        self._library = library()
        self._handle = ctypes.c_void_p()
        self._failed = FAILED(lambda _, r, text: failed(r, text.decode()) if failed else None)
        self._log = LOG(lambda _, text: log(text.decode()) if log else None)
        self._copier = copier
        options = Options(
            size=ctypes.sizeof(Options),
            rank=rank,
            n_ranks=n_ranks,
            slice_bytes=slice_bytes,
            pool_bytes=pool_bytes,
            timeout_s=timeout_s,
            network=network.encode() if network is not None else None,
            failed=self._failed,
            log=self._log,
            force_staging=force_staging,
        )
        if copier is not None:
            options.copier = ctypes.pointer(copier)
        self._call("open", ctypes.byref(self._handle), ctypes.byref(options))

    def _call(self, name: str, *arguments: Any) -> None:
        error = Error()
        if getattr(self._library, f"hccc_transport_{name}")(*arguments, ctypes.byref(error)):
            raise _failure(error)

    def window(self, number: int, address: int, size: int, memory: str = "host") -> None:
        """Registers `size` bytes at `address`."""
        self._call("window", self._handle, number, address, size, MEMORIES.index(memory))

    def blob(self) -> bytes:
        """What peers must have to connect."""
        data, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._call("blob", self._handle, ctypes.byref(data), ctypes.byref(size))
        return ctypes.string_at(data, size.value)

    def connect(self, peer: int, blob: bytes) -> None:
        """Makes a peer known."""
        self._call("connect", self._handle, peer, blob, len(blob))

    def start(self, ring: int | None) -> None:
        """Starts the thread; ring: the address of an hccc_proxy_ring, None to receive only."""
        self._call("start", self._handle, ring)

    def ready(self, timeout_s: float = 0.0) -> None:
        """Waits until every connected peer has started and can be reached. 0: for ever."""
        self._call("ready", self._handle, timeout_s)

    def wake(self) -> None:
        """Something was submitted."""
        self._library.hccc_transport_wake(self._handle)

    def counters(self) -> dict[str, int]:
        """How much was sent and received."""
        counters = Counters(size=ctypes.sizeof(Counters))
        self._library.hccc_transport_counters(self._handle, ctypes.byref(counters))
        names = [name for name, *_ in Counters._fields_[2:]]
        return {name: getattr(counters, name) for name in names}

    def stop(self) -> None:
        """Ends the thread; what was taken is brought to its end."""
        self._library.hccc_transport_stop(self._handle)

    def close(self) -> None:
        """Ends it all; twice is fine."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        self._library.hccc_transport_close(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _failure(error: Error) -> UserError:
    text = error.message.decode("utf-8", "replace")
    if error.code == NO_UCX:
        return fail("E485", text)
    return fail("E486", f"the network transport: {text}")
