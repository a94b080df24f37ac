"""runtime_library: the library of communicators, built at its first use, called through ctypes."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from hccc.base.building.build import Piece, build_pieces
from hccc.runtime.bootstrap.rendezvous import BOOTSTRAP
from hccc.runtime.c_library import CLibrary, Signature, text_of
from hccc.runtime.device.device_layer import DEVICE
from hccc.runtime.transport.ucx_transport import TRANSPORT

ROOMS = Path(__file__).parents[1]
COMMUNICATOR = Piece(
    Path(__file__).parent / "hcccruntime.cpp",
    include=(ROOMS / "include", ROOMS / "communicator" / "include"),
    reads=tuple(ROOMS / room for room in ("bootstrap", "device", "transport", "vendor/include")),
    digests=(("HCCC_HEADERS", ROOMS / "include"),),
)
VENDOR = Piece(
    ROOMS / "vendor" / "hcccvendor.cpp",
    include=tuple(ROOMS / room / "include" for room in ("", "communicator", "device")),
    reads=tuple(ROOMS / room for room in ("bootstrap", "communicator", "device")),
)
JOB = Piece(
    ROOMS / "job" / "hcccjob.cpp",
    include=tuple(ROOMS / room / "include" for room in ("", "communicator", "vendor")),
    reads=tuple(ROOMS / room for room in ("bootstrap", "communicator", "device", "vendor")),
    flags=("-O3", "-fvisibility=hidden"),
)
PIECES = (COMMUNICATOR, DEVICE, BOOTSTRAP, TRANSPORT, VENDOR, JOB)  # the longest compilation first
# nodelete: threads run the library's code until communicators are destroyed.
LINK = ("-Wl,-z,nodelete", "-ldl")


# What runs `hccc` of this package: where it was imported from is on nobody's path, perhaps.
_MAIN = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).parents[3])!r}); "
    "from hccc.cli.main import main; main()"
)


def command() -> list[str]:
    """Returns the words that run `hccc` of this package."""
    return [sys.executable, "-c", _MAIN]


class UniqueId(ctypes.Structure):
    """hcccUniqueId."""

    _fields_ = (("internal", ctypes.c_char * 128),)


_P, _INT, _SIZE, _TEXT = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_char_p
_SEND = (_P, _P, _SIZE, _INT)  # send, receive, count, type
_PARAMETERS: dict[str, tuple[Any, ...]] = {
    "GetVersion": (_P,),
    "GetUniqueId": (_P,),
    "CommInitRank": (_P, _INT, UniqueId, _INT),
    "CommInitEnvironment": (_P,),
    "CommLoad": (_P, ctypes.c_char_p),
    "RedOpNamed": (_P, ctypes.c_char_p),
    "RedOpCreatePreMulSum": (_P, _P, _INT, _INT, _P),
    "RedOpDestroy": (_INT, _P),
    "CommCan": (_P, ctypes.c_char_p, _INT, _INT, _INT, _P),
    "SetCommand": (_P,),
    "CommInitAll": (_P, _INT, _P),
    "CommSplit": (_P, _INT, _INT, _P, _P),
    "CommCount": (_P, _P),
    "CommUserRank": (_P, _P),
    "CommGetAsyncError": (_P, _P),
    "CommSetTimeout": (_P, ctypes.c_double),
    "CommSetCut": (_P, ctypes.c_longlong, _INT),
    "CommCuDevice": (_P, _P),
    "CommPlatform": (_P, _P),
    "CommHosts": (_P, _P, _P),
    "CommGatherBytes": (_P, _P, _SIZE),
    "CommQuery": (_P, _P, _P),
    "CommRegister": (_P, _P, _SIZE, _P),
    "CommDeregister": (_P, _P),
    "CommFinalize": (_P,),
    "CommDestroy": (_P,),
    "CommAbort": (_P,),
    "GroupStart": (),
    "GroupEnd": (),
    "GroupCancel": (),
    "GroupNotify": (_P, _P),
    "SetDeviceLayer": (_P,),
    "SetMemory": (ctypes.c_char_p, _INT),
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
    "AllGatherv": (_P, _SIZE, _P, _P, _P, _INT, _P, _P),
    "ReduceScatterv": (_P, _P, _P, _P, _INT, _INT, _P, _P),
    "Gatherv": (_P, _SIZE, _P, _P, _P, _INT, _INT, _P, _P),
    "Scatterv": (_P, _P, _P, _P, _SIZE, _INT, _INT, _P, _P),
    "AllToAllv": (_P, _P, _P, _P, _P, _P, _INT, _P, _P),
    "SendTagged": (_P, _SIZE, _INT, _INT, _INT, _P, _P),
    "RecvTagged": (_P, _SIZE, _INT, _INT, _INT, _P, _P, _P),
    "Send": (_P, _SIZE, _INT, _INT, _P, _P),
    "Recv": (_P, _SIZE, _INT, _INT, _P, _P),
    "Run": (ctypes.c_char_p, *_SEND, _INT, _P, _P),
    "_vendor_load": (_TEXT, _TEXT, _P),
}


# Of hccc_job.h.
_JOBS: dict[str, Signature] = {
    "_job_make": (_INT, (_P, _P, _P)),
    "_job_use": (_INT, (_P, _P)),
    "_job_run": (_INT, (_P, *_SEND, _INT, ctypes.c_double, _P)),
    "_job_batches": (_INT, (_P, _SIZE, _SIZE)),
    "_job_trials_left": (_INT, (_P, _SIZE, _SIZE)),
    "_job_schedule_make": (_INT, (_P, _P)),
    "_job_schedule_free": (None, (_P,)),
    "_job_error": (_TEXT, (_P,)),
    "_job_sent": (ctypes.c_ulonglong, (_P,)),
    "_job_end": (None, (_P,)),
}


class RuntimeLibrary(CLibrary):
    """The functions of `hccc_runtime.h` without the prefix `hccc`; each returns a result."""

    def __init__(self, path: Path) -> None:
        results = {name: (_INT, parameters) for name, parameters in _PARAMETERS.items()}
        texts = {
            "GetErrorString": (_TEXT, (_INT,)),
            "GetLastError": (_TEXT, (_P,)),
            "_vendor_error": (_TEXT, ()),
        }
        super().__init__(path, "hccc", results | _JOBS | texts)

    def meaning(self, result: int) -> str:
        """Returns the text of a result."""
        return text_of(self.call("GetErrorString", result))

    def last_error(self, communicator: int | None = None) -> str:
        """Returns the error of a communicator, or of this thread's last call that failed."""
        return text_of(self.call("GetLastError", communicator))


@cache
def build() -> Path:
    """Builds the runtime library and returns its file. Raises UserError E412 to E414.

    Call this before starting ranks: it can take minutes, and ranks must meet before a deadline.
    """
    return build_pieces(PIECES, LINK)


@cache
def library() -> RuntimeLibrary:
    """Loads the runtime library of this process, once. Raises UserError E412 to E414."""
    made = RuntimeLibrary(build())
    words = [os.fsencode(word) for word in command()]
    made.call("SetCommand", (ctypes.c_char_p * 4)(*words, None))
    return made
