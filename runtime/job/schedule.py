"""schedule: the tasks of one rank's call of a Job, as its lanes make them (schedule.cpp)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.ir.arrays import I8
from hccc.ir.job import Job
from hccc.ir.job_table import dumps
from hccc.ir.uneven import BlockTable
from hccc.runtime.communicator.errors import check
from hccc.runtime.communicator.runtime_library import library

# hccc_job_task and hccc_job_wait of hccc_job.h.
TASK = np.dtype(
    [(name, "i4") for name in ("kind", "step", "peer", "group", "from", "with", "to", "within")]
    + [(name, "i8") for name in ("from_at", "with_at", "to_at", "count", "first_wait", "n_waits")]
)
WAIT = np.dtype([("lane", "i4"), ("tasks", "i4")])


class Kind(IntEnum):
    """hccc_job_kind."""

    REDUCE = 0
    BROADCAST = 1
    REDUCE_SCATTER = 2
    ALL_GATHER = 3
    SEND = 4
    RECEIVE = 5
    HOP_SEND = 6
    HOP_RECEIVE = 7
    ADD = 8
    COPY = 9
    REDUCE_PAIR = 10


class JobBuffer(IntEnum):
    """Buffers of a call."""

    INPUT = 0
    OUTPUT = 1
    SCRATCH = 2
    ARRIVED = 3
    NOWHERE = 4


@dataclass(frozen=True, slots=True, eq=False)
class JobSchedule:
    """The tasks of one rank. tasks: TASK[n]; lane_begin: i8[lanes + 1]; waits: WAIT[m]; scratch,
    arrived: elements; output: elements of the receive buffer."""

    tasks: NDArray[Any]
    lane_begin: I8
    waits: NDArray[Any]
    scratch: int
    arrived: int
    output: int

    def lane(self, number: int) -> NDArray[Any]:
        """Returns the tasks of a lane."""
        return self.tasks[self.lane_begin[number] : self.lane_begin[number + 1]]


class _Shape(ctypes.Structure):
    """hccc_job_shape."""

    _fields_ = (
        ("table", ctypes.c_char_p),
        ("bytes", ctypes.c_size_t),
        ("count", ctypes.c_int64),
        *(
            (name, ctypes.c_int32)
            for name in ("rank", "batches", "in_place", "ordered", "messages")
        ),
        ("by_library", ctypes.c_char_p),
        ("blocks", ctypes.c_void_p),
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


def schedule(
    job: Job,
    rank: int,
    count: int,
    batches: int,
    in_place: bool,
    lanes: bool = True,
    messages: bool = False,
    by_library: Sequence[bool] = (),
    blocks: BlockTable | None = None,
) -> JobSchedule:
    """Returns the tasks of a rank. O(tasks of all ranks). count: elements of a block, of the
    longest of `blocks`; lanes: False for all tasks in one, an ordered list; messages: whether what
    a rank of the vendor cluster sends to another goes as over a border, as its library has no
    sends; by_library: of each vendor cluster, whether the library reduces at the border. Raises
    CommunicatorError."""
    table, reducers = dumps(job).encode(), bytes(by_library) or None
    numbers = (count, rank, batches, in_place, not lanes, messages)
    words = None if blocks is None else np.ascontiguousarray(blocks.words(), np.int64)
    shape = _Shape(
        table, len(table), *numbers, reducers, None if words is None else words.ctypes.data
    )
    made = ctypes.POINTER(_Schedule)()
    check(library().call("_job_schedule_make", ctypes.byref(made), ctypes.byref(shape)))
    try:
        own = made.contents
        begin = _copied(own.lane_begin, own.n_lanes + 1, np.dtype(np.int64))
        tasks = _copied(own.tasks, int(begin[-1]), TASK)
        waits = _copied(own.waits, int(tasks["n_waits"].sum()), WAIT)
        return JobSchedule(tasks, begin, waits, own.scratch, own.arrived, own.output)
    finally:
        library().call("_job_schedule_free", made)


def _copied(at: int | None, n: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Copies n values that lie at an address."""
    return np.frombuffer(ctypes.string_at(at or 0, n * dtype.itemsize), dtype).copy()
