"""library: the runtime library, built when it is first used, called through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from hccc.base.building.build import Piece, build_plain
from hccc.runtime.bootstrap.library import BOOTSTRAP
from hccc.runtime.device.library import DEVICE
from hccc.runtime.transport.library import TRANSPORT

ROOMS = Path(__file__).parents[1]
COMMUNICATOR = Piece(
    Path(__file__).parent / "hcccruntime.cpp",
    include=(ROOMS / "include",),
    reads=tuple(ROOMS / room for room in ("bootstrap", "device", "transport")),
)
PIECES = (COMMUNICATOR, DEVICE, BOOTSTRAP, TRANSPORT)  # what takes longest first
# nodelete: its threads run its code until communicators are destroyed.
LINK = ("-Wl,-z,nodelete", "-ldl")


class UniqueId(ctypes.Structure):
    """hcccUniqueId."""

    _fields_ = (("internal", ctypes.c_char * 128),)


_P, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_SEND = (_P, _P, _SIZE, _INT)  # send, receive, count, type
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "GetVersion": (_P,),
    "GetUniqueId": (_P,),
    "CommInitRank": (_P, _INT, UniqueId, _INT),
    "CommInitEnvironment": (_P,),
    "CommLoad": (_P, ctypes.c_char_p),
    "CommInitAll": (_P, _INT, _P),
    "CommSplit": (_P, _INT, _INT, _P, _P),
    "CommCount": (_P, _P),
    "CommUserRank": (_P, _P),
    "CommGetAsyncError": (_P, _P),
    "CommSetTimeout": (_P, ctypes.c_double),
    "CommSetCut": (_P, ctypes.c_longlong, _INT),
    "CommCuDevice": (_P, _P),
    "CommPlatform": (_P, _P),
    "CommQuery": (_P, _P, _P),
    "CommRegister": (_P, _P, _SIZE, _P),
    "CommDeregister": (_P, _P),
    "CommFinalize": (_P,),
    "CommDestroy": (_P,),
    "CommAbort": (_P,),
    "GroupStart": (),
    "GroupEnd": (),
    "GroupCancel": (),
    "SetDeviceLayer": (_P,),
    "MemAlloc": (_P, _SIZE),
    "MemFree": (_P,),
    "AllReduce": (*_SEND, _INT, _P, _P),
    "AllGather": (*_SEND, _P, _P),
    "ReduceScatter": (*_SEND, _INT, _P, _P),
    "Broadcast": (*_SEND, _INT, _P, _P),
    "Reduce": (*_SEND, _INT, _INT, _P, _P),
    "Gather": (*_SEND, _INT, _P, _P),
    "Scatter": (*_SEND, _INT, _P, _P),
    "AllToAll": (*_SEND, _P, _P),
    "Run": (ctypes.c_char_p, *_SEND, _INT, _P, _P),
}


class Library:
    """Its functions by name, without the prefix `hccc`; each returns an hcccResult_t."""

    def __init__(self, path: Path) -> None:
        self._handle = ctypes.CDLL(str(path))
        self._functions = {name: self._function(name, types) for name, types in _SIGNATURES.items()}
        self._error_string = self._text("GetErrorString", _INT)
        self._last_error = self._text("GetLastError", _P)

    def _function(self, name: str, types: tuple[Any, ...]) -> Callable[..., int]:
        found: Any = getattr(self._handle, f"hccc{name}")
        found.restype, found.argtypes = _INT, list(types)
        return found  # type: ignore[no-any-return]

    def _text(self, name: str, argument: Any) -> Callable[[int | None], bytes]:
        found: Any = getattr(self._handle, f"hccc{name}")
        found.restype, found.argtypes = ctypes.c_char_p, [argument]
        return found  # type: ignore[no-any-return]

    def function(self, name: str) -> Callable[..., int]:
        """The function itself."""
        return self._functions[name]

    def call(self, name: str, *arguments: Any) -> int:
        """What the function returns."""
        return self._functions[name](*arguments)

    def meaning(self, result: int) -> str:
        """What a result means."""
        return self._error_string(result).decode("utf-8", "replace")

    def last_error(self) -> str:
        """What this thread's last call that failed said."""
        return self._last_error(None).decode("utf-8", "replace")


@cache
def build() -> Path:
    """The runtime library's file, built where it is not yet. Raises UserError E412 to E414.

    Who starts ranks calls it first: they have a deadline by which they must have met.
    """
    return build_plain(PIECES, LINK)


@cache
def library() -> Library:
    """The runtime library of this process. Raises UserError E412 to E414 where it is not built."""
    return Library(build())
