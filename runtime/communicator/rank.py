"""rank: the life of one rank of a communicator: how it is made, asked, and ended."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hccc.base.diagnostics import fail
from hccc.runtime.communicator.errors import CommunicatorError, Result, check
from hccc.runtime.communicator.groups import KeptArrays, at_end, in_group
from hccc.runtime.communicator.kernels import built
from hccc.runtime.communicator.runtime_library import UniqueId, library
from hccc.runtime.device.arrays import buffer_of
from hccc.runtime.device.device_layer import library as device_layer
from hccc.runtime.device.stream import Stream

NO_COLOR = -1


def unique_id() -> bytes:
    """What all ranks of one communicator are made with: 128 bytes, which hold a secret.

    The ranks meet in this process, which must live as long as they do. Raises CommunicatorError.
    """
    made = UniqueId()
    check(library().call("GetUniqueId", ctypes.byref(made)))
    return bytes(made)


@cache
def _connect() -> None:
    """Streams are those of this process's device layer."""
    check(library().call("SetDeviceLayer", device_layer().handle))


def handle_of(stream: Stream | int | None) -> int | None:
    """The stream that a call is put into, None for none."""
    if stream is None:
        return None
    _connect()
    return stream.handle if isinstance(stream, Stream) else stream


class CommunicatorRank:
    """One rank, as `Communicator` has it, without its collectives."""

    def __init__(self, handle: ctypes.c_void_p) -> None:
        self._handle: ctypes.c_void_p | None = handle
        self._kept = KeptArrays(self._progress)
        self._registered: defaultdict[int, list[object]] = defaultdict(list)

    @classmethod
    def join(cls, id: bytes, n_ranks: int, rank: int) -> Self:
        """Meets the other ranks, all of which were given the same `unique_id()`."""
        if len(id) != ctypes.sizeof(UniqueId):
            raise fail("E473", f"a unique id has 128 bytes, this one {len(id)}")
        known = UniqueId.from_buffer_copy(id)
        return cls._made("CommInitRank", n_ranks, known, rank)

    @classmethod
    def from_environment(cls) -> Self:
        """Meets the other ranks of the job that a launcher started: torchrun, mpirun, srun, or
        whoever sets HCCC_RANK and HCCC_NRANKS."""
        return cls._made("CommInitEnvironment")

    @classmethod
    def init_all(cls, n: int, devices: Sequence[int] | None = None) -> list[Self]:
        """All ranks, in this process, in order. devices: the `device` of each."""
        if devices is not None and len(devices) != n:
            raise fail("E473", f"{len(devices)} devices for {n} ranks")
        handles = (ctypes.c_void_p * max(n, 1))()
        numbers = None if devices is None else (ctypes.c_int * n)(*devices)
        check(library().call("CommInitAll", handles, n, numbers))
        return [cls(ctypes.c_void_p(handle)) for handle in handles]

    @classmethod
    def _made(cls, name: str, *arguments: Any) -> Self:
        """A new one; in a group it is there when the group ends."""
        handle = ctypes.c_void_p()
        check(library().call(name, ctypes.byref(handle), *arguments))
        made = cls(handle)
        at_end(lambda: made)
        return made

    def split(self, color: int | None, key: int = 0) -> Self | None:
        """All ranks call it: those of one color, a number from 0 on, get a communicator of their
        own, in the order of keys, then ranks; None gets none. It has no libraries yet."""
        handle, number = ctypes.c_void_p(), NO_COLOR if color is None else color
        self._call("CommSplit", number, key, ctypes.byref(handle), None)
        made = type(self)(handle)
        at_end(lambda: made)
        return None if color is None else made

    @cached_property
    def rank(self) -> int:
        """The number of this rank."""
        return self._ask("CommUserRank")

    @cached_property
    def n_ranks(self) -> int:
        """How many ranks there are."""
        return self._ask("CommCount")

    @property
    def device(self) -> int:
        """The number of this rank's device; it means nothing where memory is the host's."""
        return self._ask("CommCuDevice")

    @cached_property
    def platform(self) -> str:
        """Where its libraries run and its memory is: `cpu`, `cuda`, `hip`."""
        name = ctypes.c_char_p()
        self._call("CommPlatform", ctypes.byref(name))
        return (name.value or b"").decode()

    def _ask(self, name: str) -> int:
        value = ctypes.c_int()
        self._call(name, ctypes.byref(value))
        return value.value

    def _call(self, name: str, *arguments: Any) -> None:
        check(library().call(name, self.handle, *arguments))

    @property
    def handle(self) -> int:
        """Its hcccComm_t, for functions of `hccc_runtime.h`. Raises UserError E473 without one."""
        if self._handle is None:
            raise fail("E473", "the communicator was destroyed")
        if not self._handle.value:
            raise fail("E473", "the communicator is made when its group ends")
        return self._handle.value

    def load(self, path: Path, dtypes: Sequence[str] = (), ops: Sequence[str] = ("sum",)) -> None:
        """Adds a library of kernels: a shared library, or a directory that `hccc` emitted, whose
        kernels for this platform are built for these types and reductions unless they are already.

        All ranks load the same, in one order. Raises UserError E41x where it cannot be built.
        """
        file = path
        if not path.is_file():
            file = built(path, dtypes or ("float32",), ops, self.platform)
        self._call("CommLoad", str(file.resolve()).encode())

    def set_timeout(self, seconds: float) -> None:
        """How long a rank may be waited for, from the next call on; 0: for ever."""
        self._call("CommSetTimeout", seconds)

    def set_cut(self, micro_batch: int = 0, window: int = 0) -> None:
        """How finely calls are cut, from the next one on: bytes of a micro-batch, micro-batches of
        a window; 0: as the plan has it. The same at all ranks."""
        self._call("CommSetCut", micro_batch, window)

    def register(self, array: Any) -> int:
        """Says that calls will use an array; a handle for `deregister`. HCCC_DEBUG=INFO says how
        other ranks reach it. The same array has the same handle."""
        buffer, handle = buffer_of(array), ctypes.c_void_p()
        self._call("CommRegister", buffer.pointer, buffer.bytes, ctypes.byref(handle))
        self._registered[handle.value or 0].append(buffer.owner)
        return handle.value or 0

    def deregister(self, handle: int) -> None:
        """Once for each time that `register` returned the handle."""
        self._call("CommDeregister", handle)
        self._registered[handle].pop()

    @property
    def error(self) -> Result:
        """Why the communicator is lost, SUCCESS where it is not; waits for nothing."""
        return Result(self._ask("CommGetAsyncError"))

    def check(self) -> None:
        """Raises CommunicatorError where the communicator is lost, as by a call in a stream."""
        _ = self.done

    @property
    def done(self) -> bool:
        """Whether no call is in a stream, or runs; waits for nothing. Raises CommunicatorError."""
        found = int(library().call("CommQuery", self.handle, None, None))
        if found != Result.IN_PROGRESS:
            check(found)
        return found == Result.SUCCESS

    def _progress(self) -> tuple[int, int]:
        made, done = ctypes.c_ulonglong(), ctypes.c_ulonglong()
        library().call("CommQuery", self.handle, ctypes.byref(made), ctypes.byref(done))
        return made.value, done.value

    def finalize(self) -> None:
        """No call may be made any more; waits for those that are in streams."""
        self._call("CommFinalize")
        self._kept.clear()

    def destroy(self) -> None:
        """Ends it, when what is in streams is done; other ranks may go on to their own ends.
        Once is enough."""
        self._end("CommDestroy")

    def abort(self) -> None:
        """Ends it at once, at every rank."""
        self._end("CommAbort")

    def _end(self, how: str) -> None:
        if self._handle is None:
            return
        if in_group():
            raise fail("E473", "a group is open: communicators end before it, or after")
        handle = self.handle
        self._handle = None
        check(library().call(how, handle))
        self._kept.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.destroy()


__all__ = ["CommunicatorError", "CommunicatorRank", "Result", "handle_of", "unique_id"]
