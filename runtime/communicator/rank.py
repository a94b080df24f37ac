"""rank: the life cycle of one rank of a communicator."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Sequence
from enum import IntEnum
from functools import cache, cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hccc.base.diagnostics import fail
from hccc.base.shown import brief
from hccc.ir.collective import ROOTED
from hccc.ir.job import Job
from hccc.runtime.communicator.buffers import number_of_dtype, reduction_of
from hccc.runtime.communicator.errors import CommunicatorError, Result, check
from hccc.runtime.communicator.groups import KeptArrays, at_end, in_group
from hccc.runtime.communicator.kernels import library_file
from hccc.runtime.communicator.premul import PremulSum, end
from hccc.runtime.communicator.runtime_library import UniqueId, library
from hccc.runtime.device.arrays import ArrayBuffer, buffer_of
from hccc.runtime.device.device_layer import library as device_layer
from hccc.runtime.device.stream import Stream
from hccc.runtime.job.loaded import LoadedJob, MicroBatches
from hccc.runtime.vendor.files import name_library

NO_COLOR = -1


class Can(IntEnum):
    """hcccCan_t: what there is for a call. NOT: nothing; MAKE: a standard library would be made;
    LOAD: one is in this user's cache or came with the package; NOW: a library is loaded."""

    NOT = 0
    MAKE = 1
    LOAD = 2
    NOW = 3


def unique_id() -> bytes:
    """Makes the id of a communicator: 128 bytes, which contain a secret.

    The ranks meet in this process, which must live as long as they do. Raises CommunicatorError.
    """
    made = UniqueId()
    check(library().call("GetUniqueId", ctypes.byref(made)))
    return bytes(made)


@cache
def connect_streams() -> None:
    """Sets the device layer of streams to this process's."""
    check(library().call("SetDeviceLayer", device_layer().handle))


def handle_of(stream: Stream | int | None) -> int | None:
    """Returns the handle of a call's stream, None for none."""
    if stream is None:
        return None
    connect_streams()
    return stream.handle if isinstance(stream, Stream) else stream


class CommunicatorRank:
    """One rank of a communicator without its collectives: the base of `Communicator`."""

    def __init__(self, handle: ctypes.c_void_p) -> None:
        self._handle: ctypes.c_void_p | None = handle
        self._kept = KeptArrays(self._progress)
        self._registered: defaultdict[int, list[object]] = defaultdict(list)
        self._jobs: list[LoadedJob] = []

    def __repr__(self) -> str:
        if self._handle is None:
            return brief(self, "destroyed")
        if not self._handle.value:
            return brief(self, "made when its group ends")
        return brief(self, f"rank {self.rank} of {self.n_ranks}, {self.platform}")

    @classmethod
    def join(cls, id: bytes, n_ranks: int, rank: int) -> Self:
        """Joins the communicator of a `unique_id()`, with all its other ranks."""
        if len(id) != ctypes.sizeof(UniqueId):
            raise fail("E473", f"a unique id has 128 bytes, this one {len(id)}")
        known = UniqueId.from_buffer_copy(id)
        return cls._made("CommInitRank", n_ranks, known, rank)

    @classmethod
    def from_environment(cls) -> Self:
        """Joins the communicator of a launcher's job: `hccc launch`, torchrun, mpirun, srun, or
        HCCC_RANK and HCCC_NRANKS."""
        return cls._made("CommInitEnvironment")

    @classmethod
    def init_all(cls, n: int, devices: Sequence[int] | None = None) -> list[Self]:
        """Makes all ranks in this process, in order. devices: the `device` of each."""
        if devices is not None and len(devices) != n:
            raise fail("E473", f"{len(devices)} devices for {n} ranks")
        handles = (ctypes.c_void_p * max(n, 1))()
        numbers = None if devices is None else (ctypes.c_int * n)(*devices)
        check(library().call("CommInitAll", handles, n, numbers))
        return [cls(ctypes.c_void_p(handle)) for handle in handles]

    @classmethod
    def _made(cls, name: str, *arguments: Any) -> Self:
        """Makes a communicator; in a group it exists when the group ends."""
        handle = ctypes.c_void_p()
        name_library()
        check(library().call(name, ctypes.byref(handle), *arguments))
        made = cls(handle)
        at_end(lambda: made)
        return made

    def split(self, color: int | None, key: int = 0) -> Self | None:
        """Makes a communicator of the ranks of one color, a number from 0 on, in the order of keys,
        then ranks. All ranks call it; color None gets none. It has no libraries yet."""
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
        """The number of ranks."""
        return self._ask("CommCount")

    @property
    def device(self) -> int:
        """The number of this rank's device; without a meaning where memory is the host's."""
        return self._ask("CommCuDevice")

    @cached_property
    def platform(self) -> str:
        """The platform of its libraries and its memory: `cpu`, `cuda`, `hip`."""
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

    def load(
        self,
        path: Path | str | Job,
        dtypes: Sequence[str] = (),
        ops: Sequence[str] = ("sum",),
        *,
        vendor: str | None = None,
        file: Path | str | None = None,
        micro_batches: MicroBatches = (),
    ) -> None:
        """Loads a library of kernels: a shared library; a directory that `hccc` emitted, whose
        kernels for this platform are built for these types and reductions, unless they are cached;
        or a directory of libraries that CMake has installed, of which this platform's is taken. Or
        a job.

        All ranks load the same libraries in the same order. Calls of a job's collective, and of its
        root, run it, before any library. Of a job, vendor: whose library serves this rank (`mpich`,
        `oneccl`, `own` ...), else HCCC_VENDOR's, else `own`; file: of that library; micro_batches:
        how many, of calls of so many bytes or more; without it they are found by the first calls.

        Raises UserError E41x where it cannot be built, E473 where there is none; CommunicatorError
        at every rank where one cannot load the job.
        """
        if isinstance(path, Job):
            made = LoadedJob(self.handle, self.rank, path, vendor, file, micro_batches)
            made.use()
            self._jobs.insert(0, made)
            return
        file_of = library_file(Path(path), dtypes or ("float32",), ops, self.platform)
        self._call("CommLoad", str(file_of.resolve()).encode())

    @property
    def jobs(self) -> tuple[LoadedJob, ...]:
        """The jobs that it has loaded, the last one first."""
        return tuple(self._jobs)

    def can(
        self, collective: str, dtype: str = "float32", op: str = "sum", root: int | None = None
    ) -> Can:
        """Says what there is for a call of a collective (`all_reduce`), without making it. root: 0
        where it has one and none is given."""
        answer = ctypes.c_int()
        name = collective.replace("_", "").capitalize()
        type_, number = number_of_dtype(dtype), reduction_of(op)
        if root is None:
            root = 0 if name.removesuffix("v") in ROOTED else -1
        self._call("CommCan", name.encode(), root, type_, number, ctypes.byref(answer))
        return Can(answer.value)

    def set_timeout(self, seconds: float) -> None:
        """Sets how many seconds a call may wait for a rank, from the next call on; 0: for ever."""
        self._call("CommSetTimeout", seconds)

    def set_cut(self, micro_batch: int = 0, window: int = 0) -> None:
        """Sets the bytes of a micro-batch and the micro-batches of a window, from the next call on;
        0: the plan's. The same at all ranks."""
        self._call("CommSetCut", micro_batch, window)

    def register(self, array: Any) -> int:
        """Registers an array that calls will use and returns a handle for `deregister`, the same
        for the same array. HCCC_DEBUG=INFO reports how other ranks reach it."""
        buffer, handle = buffer_of(array), ctypes.c_void_p()
        self._call("CommRegister", buffer.pointer, buffer.bytes, ctypes.byref(handle))
        self._registered[handle.value or 0].append(buffer.owner)
        return handle.value or 0

    def deregister(self, handle: int) -> None:
        """Deregisters an array, as often as it was registered."""
        self._call("CommDeregister", handle)
        self._registered[handle].pop()

    @property
    def error(self) -> Result:
        """The error of a communicator that is lost, or, once, that of a call in a stream, or on a
        GPU, which differed from other ranks'; else SUCCESS. Without waiting."""
        return Result(self._ask("CommGetAsyncError"))

    def check(self) -> None:
        """Raises CommunicatorError where `error` has one."""
        if found := self.error:
            raise CommunicatorError(found, library().last_error(self.handle))

    @property
    def done(self) -> bool:
        """Whether no call is in a stream or runs; without waiting. Raises CommunicatorError."""
        self.check()
        found = int(library().call("CommQuery", self.handle, None, None))
        if found != Result.IN_PROGRESS:
            check(found)
        return found == Result.SUCCESS

    def _launch(
        self,
        name: str,
        words: tuple[Any, ...],
        s: ArrayBuffer | None,
        r: ArrayBuffer | None,
        stream: Stream | int | None,
    ) -> None:
        """Makes a call of a function of the runtime library. s, r: its buffers."""
        queue = None if stream is None else handle_of(stream)
        try:
            result = library().function(name)(*words, self._handle or self.handle, queue)
        except ctypes.ArgumentError:  # before each call such a look takes 0.2 µs
            if PremulSum not in map(type, words):
                raise
            return self._launch_premul(name, words, s, r, stream)
        if result:
            check(result)
        later = queue is not None or self.platform != "cpu"
        if later or in_group():
            self._kept.keep([one.owner for one in (s, r) if one is not None], later)

    def _launch_premul(
        self,
        name: str,
        words: tuple[Any, ...],
        s: ArrayBuffer | None,
        r: ArrayBuffer | None,
        stream: Stream | int | None,
    ) -> None:
        """Does as `_launch`, with a reduction that is made for the call."""
        op = next(word for word in words if isinstance(word, PremulSum))
        one = r if s is None else s
        assert one is not None
        made, scalar = op.made(self.handle, self.platform, one.dtype)
        try:
            numbers = tuple(made if word is op else word for word in words)
            self._launch(name, numbers, one._replace(owner=(one.owner, scalar)), r, stream)
        finally:
            end(made, self.handle)

    def _prepared_op(self, op: str | PremulSum, dtype: str) -> int:
        """Returns the number of a reduction for calls of a dtype until the communicator ends."""
        if isinstance(op, str):
            return reduction_of(op)
        made, scalar = op.made(self.handle, self.platform, dtype)
        self._registered[made].append(scalar)  # numbers of reductions are no handles of arrays
        return made

    def _progress(self) -> tuple[int, int]:
        made, done = ctypes.c_ulonglong(), ctypes.c_ulonglong()
        library().call("CommQuery", self.handle, ctypes.byref(made), ctypes.byref(done))
        return made.value, done.value

    def finalize(self) -> None:
        """Waits for all calls in streams; no further call may be made."""
        self._call("CommFinalize")
        self._kept.clear()

    def destroy(self) -> None:
        """Ends the communicator after its calls in streams, without waiting for other ranks; the
        second time nothing."""
        self._end("CommDestroy")

    def abort(self) -> None:
        """Ends the communicator at once, at every rank."""
        self._end("CommAbort")

    def _end(self, how: str) -> None:
        if self._handle is None:
            return
        if in_group():
            raise fail("E473", "a group is open: communicators end before it, or after")
        handle = self.handle
        self._handle = None
        for job in self._jobs:
            job.end()
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


__all__ = ["Can", "CommunicatorError", "CommunicatorRank", "Result", "handle_of", "unique_id"]
