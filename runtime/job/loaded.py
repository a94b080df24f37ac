"""loaded: a Job that a communicator has loaded (job.cpp)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from hccc.base.diagnostics import UserError, fail
from hccc.ir.job import Job, check
from hccc.ir.job_table import dumps
from hccc.runtime.c_library import text_of
from hccc.runtime.communicator.errors import CommunicatorError, Result
from hccc.runtime.communicator.errors import check as check_result
from hccc.runtime.communicator.runtime_library import library
from hccc.runtime.vendor.files import library_file

OWN = "own"
# Bytes of a call's largest buffer, and micro-batches of calls of so many bytes or more. Without
# any, numbers are tried.
MicroBatches = Sequence[tuple[int, int]]
_CLOCK = ctypes.CFUNCTYPE(ctypes.c_double)


class _Given(ctypes.Structure):
    """hccc_job_given."""

    _fields_ = (
        ("table", ctypes.c_char_p),
        ("bytes", ctypes.c_size_t),
        ("vendor", ctypes.c_char_p),
        ("library", ctypes.c_char_p),
        ("functions", ctypes.c_void_p),
        ("failed", ctypes.c_char_p),
        ("beside", ctypes.c_void_p),
        ("ordered", ctypes.c_int),
        ("by_library", ctypes.c_int),
        ("clock", _CLOCK),
    )


class LoadedJob:
    """A Job at one rank of a communicator, with communicators of its own.

    vendor: of this rank's library, else HCCC_VENDOR's, else `own`; file: of the library; functions:
    the address of an hccc_vendor instead of both; lanes: False for all tasks one after another;
    micro_batches: none for those that are found by the first calls of each size; beside: a job over
    the same vendor clusters with the same library, whose communicators it shares: no two calls of
    theirs are made at once; clock: seconds, by which calls are timed, else the machine's;
    by_library: whether this rank's library reduces what comes over a border also where hccc can.

    All ranks make it. Raises CommunicatorError at every rank where one cannot, UserError E208 for a
    job that is not sound.
    """

    def __init__(
        self,
        communicator: int,
        rank: int,
        job: Job,
        vendor: str | None = None,
        file: Path | str | None = None,
        micro_batches: MicroBatches = (),
        functions: int | None = None,
        lanes: bool = True,
        beside: LoadedJob | None = None,
        clock: Callable[[], float] | None = None,
        by_library: bool = False,
    ) -> None:
        if problems := check(job):
            raise fail("E208", f"{job.name}: {problems[0]}")
        self.job, self._communicator = job, communicator
        alone = len(job.clusters.members(int(job.clusters.of_ranks()[rank]))) == 1
        vendor = vendor or os.environ.get("HCCC_VENDOR") or OWN
        failed = ""
        try:
            file = None if alone else library_file(vendor, file)
        except (CommunicatorError, UserError) as error:
            failed = str(error)  # told to all ranks
        table = dumps(job, micro_batches).encode()
        self._clock = _CLOCK(clock) if clock else _CLOCK()
        given = _Given(
            table,
            len(table),
            vendor.encode(),
            os.fsencode(file) if file else None,
            functions,
            failed.encode(),
            beside and beside._handle,
            not lanes,
            by_library,
            self._clock,
        )
        handle = ctypes.c_void_p()
        words = (ctypes.byref(handle), communicator, ctypes.byref(given))
        if made := library().call("_job_make", *words):
            raise CommunicatorError(Result(made), library().last_error())
        self._handle: ctypes.c_void_p | None = handle
        self._used = False

    def use(self) -> None:
        """Has calls of the communicator that the job does be made by it; the communicator ends
        it."""
        check_result(library().call("_job_use", self._communicator, self._handle))
        self._used = True

    def run(
        self,
        send: int | None,
        receive: int | None,
        count: int,
        type: int,
        op: int,
        timeout: float,
        stream: int | None = None,
    ) -> None:
        """Makes a call. count: elements of a block; type, op: numbers of hccc_runtime.h; timeout:
        seconds, 0 for no limit; stream: whose work is done first.

        Raises CommunicatorError: it failed, and the job is lost; or it is refused, and nothing is.
        """
        words = (send, receive, count, type, op, timeout, stream)
        if result := library().call("_job_run", self._handle, *words):
            error = text_of(library().call("_job_error", self._handle))
            raise CommunicatorError(Result(result), error)

    def trials_left(self, count: int, size: int) -> int:
        """Returns how many calls are needed until the number of micro-batches is found, of calls of
        `count` elements of `size` bytes."""
        return int(library().call("_job_trials_left", self._handle, count, size))

    def batches(self, count: int, size: int) -> int:
        """Returns into how many micro-batches a call of `count` elements of `size` bytes is cut; 0
        where that is not found yet."""
        return int(library().call("_job_batches", self._handle, count, size))

    @property
    def sent(self) -> int:
        """The bytes that this rank has sent over borders."""
        return int(library().call("_job_sent", self._handle))

    def end(self) -> None:
        """Leaves its communicators, unless a communicator ends it; the second time nothing."""
        if self._handle is not None and not self._used:
            library().call("_job_end", self._handle)
        self._handle = None
