"""loaded: a Job that a communicator has loaded: its schedules, and calls of its lanes."""

from __future__ import annotations

import ctypes
import os
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from hccc.base.diagnostics import UserError, fail
from hccc.ir.collective import OpType
from hccc.ir.job import Job, JobOp, check, lines
from hccc.runtime.c_library import text_of
from hccc.runtime.communicator.buffers import TYPES
from hccc.runtime.communicator.errors import CommunicatorError, Result
from hccc.runtime.communicator.errors import check as check_result
from hccc.runtime.communicator.runtime_library import library
from hccc.runtime.job.schedule import JobSchedule, schedule
from hccc.runtime.layout import DTYPES
from hccc.runtime.vendor.files import library_file

OWN = "own"
_KEPT = 64  # schedules
# Functions of the library of communicators, and the collective that each makes.
COLLECTIVES = {
    "AllReduce": OpType.ALLREDUCE,
    "AllGather": OpType.ALLGATHER,
    "ReduceScatter": OpType.REDUCESCATTER,
    "AllToAll": OpType.ALLTOALL,
    "Broadcast": OpType.BROADCAST,
    "Reduce": OpType.REDUCE,
    "Gather": OpType.GATHER,
    "Scatter": OpType.SCATTER,
}
# Bits of HCCC_VENDOR_ALL_REDUCE and so on: the calls that a step may become.
_BROADCAST, _REDUCE, _ALL_GATHER, _REDUCE_SCATTER, _SEND = 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 8
_CALLS = {
    JobOp.REDUCE: _REDUCE | _REDUCE_SCATTER,
    JobOp.BROADCAST: _BROADCAST | _ALL_GATHER,
    JobOp.GATHER: _SEND,
    JobOp.SCATTER: _SEND,
    JobOp.ALLGATHER: _ALL_GATHER,
    JobOp.SEND: _SEND,
    JobOp.C2C_CPY: 0,
    JobOp.C2C_RED: 0,
}
# Bytes of a call's largest buffer, and micro-batches of calls of so many bytes or more. Without
# any, numbers are tried.
MicroBatches = Sequence[tuple[int, int]]
_TRIED = (1, 2, 4, 8, 16)
_TURNS = 3  # of each number; the first, which may make a library, is not counted
_LEAST_TRIED = 1 << 16  # bytes of calls that may be cut
_MOST_TASKS = 1 << 13  # steps times micro-batches: a schedule takes a second then


class _Given(ctypes.Structure):
    """hccc_job_given."""

    _fields_ = (
        ("table", ctypes.c_void_p),
        ("vendor", ctypes.c_char_p),
        ("library", ctypes.c_char_p),
        ("failed", ctypes.c_char_p),
        ("members", ctypes.POINTER(ctypes.c_int32)),
        ("n_members", ctypes.c_int32),
        ("calls", ctypes.c_uint32),
        ("digest", ctypes.c_char_p),
        ("steps", ctypes.POINTER(ctypes.c_char_p)),
        ("n_steps", ctypes.c_int64),
        ("beside", ctypes.c_void_p),
    )


class _Schedule(ctypes.Structure):
    """hccc_job_schedule."""

    _fields_ = (
        ("tasks", ctypes.c_void_p),
        ("lane_begin", ctypes.c_void_p),
        ("waits", ctypes.c_void_p),
        ("n_lanes", ctypes.c_int64),
        ("scratch", ctypes.c_int64),
        ("arrived", ctypes.c_int64),
        ("output", ctypes.c_int64),
        ("ranks", ctypes.c_int64),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Bound:
    """A schedule, and its structure in C, which points into its arrays."""

    made: JobSchedule
    in_c: _Schedule


@dataclass(slots=True)
class _Trials:
    """Calls of about one size, by which the number of micro-batches is found. left: the numbers to
    try, in turn; seconds: of each, the least time of its calls; chosen: the number, 0 before."""

    left: list[int]
    seconds: dict[int, float] = field(default_factory=dict)
    chosen: int = 0


class LoadedJob:
    """A Job at one rank of a communicator, with communicators of its own.

    vendor: of this rank's library, else HCCC_VENDOR's, else `own`; file: of the library; table: the
    address of an hccc_vendor instead of both; lanes: False for all tasks one after another;
    micro_batches: none for those that are found by the first calls of each size; beside: a job over
    the same vendor clusters with the same library, whose communicators it shares: no two calls of
    theirs are made at once.

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
        table: int | None = None,
        lanes: bool = True,
        beside: LoadedJob | None = None,
    ) -> None:
        if problems := check(job):
            raise fail("E208", f"{job.name}: {problems[0]}")
        self.job, self._rank, self._lanes = job, rank, lanes
        self._batches = [size for size, _ in micro_batches], [count for _, count in micro_batches]
        self._n_ranks = job.collective.n_ranks
        self._trials: dict[int, _Trials] = {}
        self._schedules: OrderedDict[tuple[int, int, bool], _Bound] = OrderedDict()
        v = job.clusters
        members = v.members(int(v.of_ranks()[rank]))
        steps = [job.describe(i).encode() for i in range(len(job))]
        calls = 0
        for op in set(job.steps["op"].tolist()):
            calls |= _CALLS[JobOp(op)]
        vendor = vendor or os.environ.get("HCCC_VENDOR") or OWN
        # Kernels of hccc's own send nothing of a device's memory to one rank.
        self._messages = table is None and vendor == OWN and _on_device(communicator)
        if self._messages:
            calls &= ~_SEND
        failed = ""
        try:
            file = library_file(vendor, file) if len(members) > 1 else None
        except (CommunicatorError, UserError) as error:
            failed = str(error)  # told to all ranks
        given = _Given(
            table,
            vendor.encode(),
            os.fsencode(file) if file else None,
            failed.encode(),
            (ctypes.c_int32 * len(members))(*members),
            len(members),
            calls,
            _digest(job, micro_batches),
            (ctypes.c_char_p * len(steps))(*steps),
            len(steps),
            beside and beside._handle,
        )
        handle = ctypes.c_void_p()
        made = library().call("_job_make", ctypes.byref(handle), communicator, ctypes.byref(given))
        if made:
            raise CommunicatorError(Result(made), library().last_error())
        self._handle: ctypes.c_void_p | None = handle

    def fits(self, op: OpType, root: int) -> bool:
        """Tells whether it does a collective, of a root where it has one."""
        c = self.job.collective
        return op is c.op and (not c.rooted or root == c.root)

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
        seconds, 0 for no limit; stream: of the device, whose work is done first.

        Raises:
            CommunicatorError: it failed, and the job is lost; or it is refused, and nothing is.
            UserError: E473 buffers that overlap.
        """
        size = DTYPES[TYPES[type]].itemsize
        in_place = self._in_place(send, receive, count * size)
        trials = self._trials_of(count, size)
        batches = self._given(count, size) if trials is None else trials.chosen or trials.left[-1]
        bound = self._bound(count, batches, in_place)
        words = (ctypes.byref(bound.in_c), send, receive, type, op, timeout, stream)
        begun = time.perf_counter()
        self._check(library().call("_job_run", self._handle, *words))
        if trials is not None and not trials.chosen:
            self._tried(trials, time.perf_counter() - begun)

    def trials_left(self, count: int, size: int) -> int:
        """Returns how many calls are needed until the number of micro-batches is found, of calls of
        `count` elements of `size` bytes."""
        trials = self._trials_of(count, size)
        return 0 if trials is None or trials.chosen else len(trials.left)

    def batches(self, count: int, size: int) -> int:
        """Returns into how many micro-batches a call of `count` elements of `size` bytes is cut; 0
        where that is not found yet."""
        trials = self._trials_of(count, size)
        return self._given(count, size) if trials is None else trials.chosen

    def _given(self, count: int, size: int) -> int:
        sizes, counts = self._batches
        at = bisect_right(sizes, self._bytes(count, size))
        return counts[at - 1] if at else 1

    def _bytes(self, count: int, size: int) -> int:
        """Returns the bytes of a call's largest buffer."""
        return count * size * self.job.collective.most_blocks()

    def _trials_of(self, count: int, size: int) -> _Trials | None:
        """Returns the trials of calls of this size, rounded up to a power of two; None where it is
        known how they are cut."""
        call = self._bytes(count, size)
        if self._batches[0] or call < _LEAST_TRIED:
            return None
        key = (call - 1).bit_length()
        if key not in self._trials:
            counts = [k for k in _TRIED if k == 1 or len(self.job) * k <= _MOST_TASKS]
            self._trials[key] = _Trials(counts * _TURNS)
        return self._trials[key]

    def _tried(self, trials: _Trials, seconds: float) -> None:
        """Notes a call's time; after the last, all ranks choose what the slowest of them was
        fastest with."""
        count = trials.left.pop()
        if trials.left.count(count) < _TURNS - 1:
            trials.seconds[count] = min(seconds, trials.seconds.get(count, seconds))
        if trials.left:
            return
        counts = sorted(trials.seconds)
        all_ranks = np.zeros((self._n_ranks, len(counts)))
        all_ranks[self._rank] = [trials.seconds[one] for one in counts]
        words = (self._handle, all_ranks.ctypes.data, all_ranks[0].nbytes)
        self._check(library().call("_job_gather", *words))
        trials.chosen = counts[int(all_ranks.max(axis=0).argmin())]

    def _check(self, result: int) -> None:
        """Raises CommunicatorError for a result that is one."""
        if result:
            error = text_of(library().call("_job_error", self._handle))
            raise CommunicatorError(Result(result), error)

    @property
    def sent(self) -> int:
        """The bytes that this rank has sent over borders."""
        return int(library().call("_job_sent", self._handle))

    def end(self) -> None:
        """Leaves its communicators; the second time nothing."""
        if self._handle is not None:
            library().call("_job_end", self._handle)
            self._handle = None

    def _in_place(self, send: int | None, receive: int | None, block: int) -> bool:
        c, rank = self.job.collective, self._rank
        ins, outs = c.input_blocks(rank), c.output_blocks(rank)
        if not (send and receive and ins and outs and block):
            return False
        if send == receive + c.alias_offset(rank) // c.chunks_per_block * block:
            return True
        if send < receive + outs * block and receive < send + ins * block:
            message = f"{c.name}: the send and the receive buffer overlap, and it is not in place"
            raise fail("E473", message)
        return False

    def _bound(self, count: int, batches: int, in_place: bool) -> _Bound:
        key = (count, batches, in_place)
        found = self._schedules.get(key)
        if found is None:
            found = self._schedules[key] = _bound(
                schedule(self.job, self._rank, *key, self._lanes, self._messages), self.job
            )
            if len(self._schedules) > _KEPT:
                self._schedules.popitem(last=False)
        self._schedules.move_to_end(key)
        return found


def _on_device(communicator: int) -> bool:
    """Tells whether a communicator's memory is a device's."""
    name = ctypes.c_char_p()
    check_result(library().call("CommPlatform", communicator, ctypes.byref(name)))
    return name.value != b"cpu"


def _bound(made: JobSchedule, job: Job) -> _Bound:
    arrays: list[Any] = [made.tasks, made.lane_begin, made.waits]
    lanes = len(made.lane_begin) - 1
    rest = (lanes, made.scratch, made.arrived, made.output, job.collective.n_ranks)
    return _Bound(made, _Schedule(*(array.ctypes.data for array in arrays), *rest))


def _digest(job: Job, micro_batches: MicroBatches) -> bytes:
    """Hashes all that ranks must have alike."""
    words = [*lines(job), *job.clusters.texts(), str(job.clusters.weight.tolist())]
    words += [str(job.collective.n_ranks), str([tuple(one) for one in micro_batches])]
    return blake2b("\n".join(words).encode(), digest_size=16).digest()
