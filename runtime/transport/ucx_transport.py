"""ucx_transport: the transport between hosts, built at its first use, called through ctypes."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from hccc.base.building.build import Piece, build_pieces
from hccc.base.diagnostics import UserError, fail
from hccc.runtime.c_library import CLibrary, Signature, text_of

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


class TransportError(ctypes.Structure):
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


class TransportOptions(ctypes.Structure):
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
        ("aborting", ctypes.c_void_p),
    )


class TransportCounters(ctypes.Structure):
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


_P, _INT, _SIZE, _TEXT = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_char_p
_SIGNATURES: dict[str, Signature] = {
    "available": (_INT, (_TEXT, _SIZE)),
    "open": (_INT, (_P, _P, _P)),
    "window": (_INT, (_P, _INT, _P, ctypes.c_longlong, _INT, _P)),
    "tell": (_INT, (_P, _INT, _P)),
    "told": (_INT, (_P, _INT)),
    "blob": (_INT, (_P, _P, _P, _P)),
    "connect": (_INT, (_P, _INT, _TEXT, _SIZE, _P)),
    "start": (_INT, (_P, _P, _P)),
    "ready": (_INT, (_P, ctypes.c_double, _P)),
    "wake": (None, (_P,)),
    "stop": (_INT, (_P,)),
    "close": (None, (_P,)),
    "counters": (_INT, (_P, _P)),
}


def find_packaged() -> Path | None:
    """Finds libucp of an installed Python package, libucx-cu12 or alike."""
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
def library() -> CLibrary:
    """Loads the transport of this process, once. Raises UserError E412 to E414.

    UCX is looked for in this order: $HCCC_UCX_LIBRARY, already loaded, a Python package, the
    system.
    """
    found = CLibrary(build_pieces([TRANSPORT], ("-ldl",)), "hccc_transport_", _SIGNATURES)
    packaged = find_packaged()
    if packaged and not os.environ.get("HCCC_UCX_LIBRARY"):
        os.environ["HCCC_UCX_LIBRARY"] = str(packaged)
        _load_ucx(found)
        del os.environ["HCCC_UCX_LIBRARY"]
    return found


def _load_ucx(found: CLibrary) -> tuple[bool, str]:
    text = ctypes.create_string_buffer(MESSAGE_BYTES)
    usable = bool(found.call("available", text, MESSAGE_BYTES))
    return usable, text_of(text.value)


def available() -> tuple[bool, str]:
    """Returns whether UCX can be used, and its path and version, or why not."""
    return _load_ucx(library())


class UcxTransport:
    """The transport of one rank: see include/hccc_transport.h.

    failed: called by the progress thread with a rank and the reason of its failure.
    Methods raise UserError E485 without UCX, E486 for all other errors.
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
        options = TransportOptions(
            size=ctypes.sizeof(TransportOptions),
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
        error = TransportError()
        if self._library.call(name, *arguments, ctypes.byref(error)):
            raise _failure(error)

    def window(self, number: int, address: int, size: int, memory: str = "host") -> None:
        """Registers `size` bytes at `address`."""
        self._call("window", self._handle, number, address, size, MEMORIES.index(memory))

    def tell(self, number: int) -> None:
        """Tells connected peers of a window that was registered after the blob was made."""
        self._call("tell", self._handle, number)

    def told(self, number: int) -> bool:
        """Tells whether all connected peers know a window that they were told of."""
        return bool(self._library.call("told", self._handle, number))

    def blob(self) -> bytes:
        """Returns the bytes that peers need to connect."""
        data, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._call("blob", self._handle, ctypes.byref(data), ctypes.byref(size))
        return ctypes.string_at(data, size.value)

    def connect(self, peer: int, blob: bytes) -> None:
        """Connects to a peer by its blob."""
        self._call("connect", self._handle, peer, blob, len(blob))

    def start(self, ring: int | None) -> None:
        """Starts the progress thread. ring: the address of an hccc_proxy_ring; None: it only
        receives."""
        self._call("start", self._handle, ring)

    def ready(self, timeout_s: float = 0.0) -> None:
        """Waits until every connected peer has started and can be reached. 0: for ever."""
        self._call("ready", self._handle, timeout_s)

    def wake(self) -> None:
        """Wakes the progress thread, as transfers were submitted."""
        self._library.call("wake", self._handle)

    def counters(self) -> dict[str, int]:
        """Returns how much was sent and received, by name."""
        counters = TransportCounters(size=ctypes.sizeof(TransportCounters))
        self._library.call("counters", self._handle, ctypes.byref(counters))
        names = [name for name, *_ in TransportCounters._fields_[2:]]
        return {name: getattr(counters, name) for name in names}

    def stop(self) -> None:
        """Ends the progress thread, after the transfers that were taken."""
        self._library.call("stop", self._handle)

    def close(self) -> None:
        """Frees everything; the second time nothing."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        self._library.call("close", handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _failure(error: TransportError) -> UserError:
    text = text_of(error.message)
    if error.code == NO_UCX:
        return fail("E485", text)
    return fail("E486", f"the network transport: {text}")
