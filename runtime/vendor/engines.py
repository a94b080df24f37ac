"""engines: vendors' libraries of collectives through their table (docs/vendors.md).

engine = load("mpich")                                     # or "nccl", "oneccl", "own"
comm = engine.join(id, n_ranks, rank, timeout=60)          # id: of engine.unique_id(), at one rank
comm.all_reduce(x)
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Any, Self

from hccc.runtime.c_library import text_of
from hccc.runtime.communicator.buffers import (
    buffer_on,
    number_of_dtype,
    number_of_type,
    reduction_of,
)
from hccc.runtime.communicator.collectives import Collectives
from hccc.runtime.communicator.errors import CommunicatorError, Result
from hccc.runtime.communicator.rank import handle_of
from hccc.runtime.communicator.runtime_library import library
from hccc.runtime.device.arrays import ArrayBuffer
from hccc.runtime.device.stream import Stream
from hccc.runtime.vendor.files import library_file

ID_BYTES = 128


class Flag(IntFlag):
    """HCCC_VENDOR_STREAM and so on, of the table's `flags`."""

    STREAM = 1
    STOPS = 2
    ONE_WORLD = 4


class VendorCall(IntEnum):
    """HCCC_VENDOR_ALL_REDUCE and so on: the calls that `can` asks about."""

    ALL_REDUCE = 0
    BROADCAST = 1
    REDUCE = 2
    ALL_GATHER = 3
    REDUCE_SCATTER = 4
    ALL_TO_ALL = 5
    GATHER = 6
    SCATTER = 7
    SEND = 8


_P, _INT, _SIZE, _TEXT = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_char_p
_PLAIN = (_P, _P, _SIZE, _INT, _P, _P)
_ONE_MORE = (_P, _P, _SIZE, _INT, _INT, _P, _P)  # a reduction or a root
_MESSAGE = (_P, _SIZE, _INT, _INT, _P, _P)
# The functions of hccc_vendor, in the order of hccc_vendor.h.
_FUNCTIONS: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
    ("can", _INT, (_INT, _INT, _INT)),
    ("last_error", _TEXT, ()),
    ("unique_id", _INT, (_P,)),
    ("init_rank", _INT, (_P, _INT, _P, _INT, ctypes.c_double)),
    ("split", _INT, (_P, _INT, _INT, _P)),
    ("count", _INT, (_P, _P)),
    ("user_rank", _INT, (_P, _P)),
    ("set_timeout", _INT, (_P, ctypes.c_double)),
    ("destroy", _INT, (_P,)),
    ("abort", _INT, (_P,)),
    ("async_error", _INT, (_P, _P)),
    ("wait", _INT, (_P, _P)),
    ("all_reduce", _INT, _ONE_MORE),
    ("broadcast", _INT, _ONE_MORE),
    ("reduce", _INT, (_P, _P, _SIZE, _INT, _INT, _INT, _P, _P)),
    ("all_gather", _INT, _PLAIN),
    ("reduce_scatter", _INT, _ONE_MORE),
    ("send", _INT, _MESSAGE),
    ("recv", _INT, _MESSAGE),
    ("group_start", _INT, ()),
    ("group_end", _INT, ()),
    ("all_to_all", _INT, _PLAIN),
    ("gather", _INT, _ONE_MORE),
    ("scatter", _INT, _ONE_MORE),
)

_FUNCTION_OF = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "AllToAll": "all_to_all",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "Gather": "gather",
    "Scatter": "scatter",
    "Send": "send",
    "Recv": "recv",
}


class _VendorTable(ctypes.Structure):
    """hccc_vendor."""

    _fields_ = (
        ("abi", _INT),
        ("engine", _TEXT),
        ("name", _TEXT),
        ("library", _TEXT),
        ("id_bytes", _SIZE),
        ("flags", ctypes.c_uint),
        *((name, ctypes.CFUNCTYPE(result, *words)) for name, result, words in _FUNCTIONS),
    )


def load(vendor: str, file: Path | str | None = None) -> VendorEngine:
    """Loads a vendor's library, of `library_file`; a process loads one.

    Raises CommunicatorError where there is none, or another library than its name says.
    """
    named = library_file(vendor, file)
    table = ctypes.POINTER(_VendorTable)()
    path = os.fsencode(named) if named else None
    result = library().call("_vendor_load", vendor.encode(), path, ctypes.byref(table))
    if result:
        raise CommunicatorError(Result(result), text_of(library().call("_vendor_error")))
    return VendorEngine(table.contents)


class VendorEngine:
    """A vendor's library."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.engine, self.name = text_of(table.engine), text_of(table.name)
        self.library, self.flags = text_of(table.library), Flag(table.flags)
        self.noted: list[object] | None = None  # buffers of an open group's messages

    def __repr__(self) -> str:
        return f"VendorEngine({self.name!r}, {self.library!r})"

    def can(self, call: VendorCall, dtype: str, op: str = "sum") -> bool:
        """Returns whether a call does a type and a reduction."""
        return bool(self._table.can(call, number_of_dtype(dtype), reduction_of(op)))

    def unique_id(self) -> bytes:
        """Makes the id by which ranks meet, in this process."""
        made = ctypes.create_string_buffer(ID_BYTES)
        self.call("unique_id", made)
        return made.raw

    def join(self, id: bytes, n_ranks: int, rank: int, timeout: float) -> VendorCommunicator:
        """Joins the other ranks. timeout: seconds of this and of every call, 0 without a limit."""
        made = ctypes.c_void_p()
        self.call("init_rank", ctypes.byref(made), n_ranks, id, rank, timeout)
        return VendorCommunicator(self, made)

    @contextmanager
    def group(self) -> Iterator[None]:
        """Has sends and receives go on together, at the end."""
        self.call("group_start")
        self.noted = []
        try:
            yield
        except BaseException:
            self._table.group_end()
            raise
        else:
            self.call("group_end")
        finally:
            self.noted = None

    def call(self, name: str, *words: Any) -> None:
        """Calls a function of the table. Raises CommunicatorError."""
        result = getattr(self._table, name)(*words)
        if result:
            raise CommunicatorError(Result(result), text_of(self._table.last_error()))


class VendorCommunicator(Collectives):
    """One rank of a vendor's communicator: `Communicator`'s calls, and its errors."""

    def __init__(self, engine: VendorEngine, handle: ctypes.c_void_p) -> None:
        self.engine, self.platform = engine, "cpu"
        self._handle: ctypes.c_void_p | None = handle
        self.n_ranks, self.rank = self._ask("count"), self._ask("user_rank")

    def split(self, color: int | None, key: int = 0) -> VendorCommunicator | None:
        """Makes a communicator of the ranks of one color, in the order of keys, then ranks. All
        ranks call it; color None gets none."""
        made, number = ctypes.c_void_p(), -1 if color is None else color
        self.engine.call("split", self._handle, number, key, ctypes.byref(made))
        return VendorCommunicator(self.engine, made) if made else None

    def send(self, buffer: Any, peer: int, stream: Stream | int | None = None) -> None:
        """Sends an array to another rank, which receives as many elements."""
        b = buffer_on(self.platform, "Send", "buffer", buffer)
        words = (b.pointer, b.elements, number_of_type("Send", b, None), peer)
        self._launch("Send", words, b, None, stream)

    def recv(self, buffer: Any, peer: int, stream: Stream | int | None = None) -> None:
        """Receives an array of a rank."""
        b = buffer_on(self.platform, "Recv", "buffer", buffer, writable=True)
        words = (b.pointer, b.elements, number_of_type("Recv", None, b), peer)
        self._launch("Recv", words, None, b, stream)

    @property
    def error(self) -> Result:
        """The error of a communicator that is lost, else SUCCESS."""
        return Result(self._ask("async_error"))

    def set_timeout(self, seconds: float) -> None:
        """Sets how long a call may take, from the next one on; 0: without a limit."""
        self.engine.call("set_timeout", self._handle, seconds)

    def abort(self) -> None:
        """Has running calls return, from any thread, and ends the communicator."""
        self.engine.call("abort", self._handle)

    def destroy(self) -> None:
        """Ends the communicator."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            self.engine.call("destroy", handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def _ask(self, name: str) -> int:
        found = ctypes.c_int()
        self.engine.call(name, self._handle, ctypes.byref(found))
        return found.value

    def _launch(
        self,
        name: str,
        words: tuple[Any, ...],
        s: ArrayBuffer | None,
        r: ArrayBuffer | None,
        stream: Stream | int | None,
    ) -> None:
        queue = None if stream is None else handle_of(stream)
        if self.engine.noted is not None:
            self.engine.noted.append((s, r))
        self.engine.call(_FUNCTION_OF[name], *words, self._handle, queue)
        if queue is not None:  # buffers are kept until it is done
            self.engine.call("wait", self._handle, queue)
