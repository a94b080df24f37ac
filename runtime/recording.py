"""recording: records of a launch by kernels built with HCCC_TRACE.

The library gets memory to write to (`include/hccc/trace.h`); after the launch the records are
copied out of its rings. Times are those of the host's monotonic clock, the same for all processes
of a machine, so recordings of several processes can be joined.
"""

from __future__ import annotations

import base64
import ctypes
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hccc.base.diagnostics import fail
from hccc.runtime.abi import Trace, TraceRecord

SYMBOL = "hccc_tracing"
STRIDE = 16  # HCCC_TRACE_STRIDE
RECORD = np.dtype(TraceRecord)


@dataclass(frozen=True, slots=True, eq=False)
class LaunchRecording:
    """n records, block by block in the order of writing. rank, block (its thread block times the
    channels, plus its channel): i4[n]; records: RECORD[n], ns; lost: how many earlier records were
    overwritten."""

    rank: NDArray[np.int32]
    block: NDArray[np.int32]
    records: NDArray[np.void]
    lost: int

    def __len__(self) -> int:
        return len(self.records)

    def fields(self) -> dict[str, Any]:
        """Converts to JSON's types, for another process."""
        columns = (self.rank, self.block, self.records)
        packed = [base64.b64encode(zlib.compress(x.tobytes(), 1)).decode() for x in columns]
        return {"columns": packed, "lost": self.lost}

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Reads another process's recording."""
        rank, block, records = (zlib.decompress(base64.b64decode(x)) for x in fields["columns"])
        return cls(
            np.frombuffer(rank, np.int32),
            np.frombuffer(block, np.int32),
            np.frombuffer(records, RECORD),
            fields["lost"],
        )


def joined(parts: Sequence[LaunchRecording]) -> LaunchRecording:
    """Joins the recordings of one launch by several processes of one machine. O(records)."""
    return LaunchRecording(
        np.concatenate([one.rank for one in parts]),
        np.concatenate([one.block for one in parts]),
        np.concatenate([one.records for one in parts]),
        sum(one.lost for one in parts),
    )


class Recorder:
    """Rings for the records of `ranks`, `blocks` (thread blocks times channels) of each, with room
    for `slots` records, a power of two."""

    def __init__(self, ranks: range, blocks: int, slots: int) -> None:
        self._ranks, self._blocks = ranks, blocks
        places = len(ranks) * blocks
        self._written = np.zeros((places, STRIDE), np.uint64)
        self._records = np.empty((places, slots), RECORD)
        self._records.view(np.uint8).fill(0)  # or kernels would wait for pages
        self.trace = Trace(
            ctypes.sizeof(Trace),
            ctypes.sizeof(TraceRecord),
            slots,
            ranks.start,
            len(ranks),
            blocks,
            self._written.ctypes.data,
            self._records.ctypes.data,
        )

    @property
    def memory(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The counts and the rings as bytes: what a GPU writes to copies of is copied here."""
        return self._written.view(np.uint8).ravel(), self._records.view(np.uint8).ravel()

    def read(self) -> LaunchRecording:
        """Returns the records in the rings, oldest first. O(records)."""
        written = self._written[:, 0].astype(np.int64)
        slots = self._records.shape[1]
        kept = np.minimum(written, slots)
        place = np.repeat(np.arange(len(written)), kept)
        within = np.arange(len(place)) - np.repeat(np.cumsum(kept) - kept, kept)
        at = ((written - kept)[place] + within) % slots
        return LaunchRecording(
            (self._ranks.start + place // self._blocks).astype(np.int32),
            (place % self._blocks).astype(np.int32),
            self._records[place, at],
            int((written - kept).sum()),
        )


@contextmanager
def on_device(
    recorder: Recorder, zeros: Callable[[int], Any], fetch: Callable[[Any], NDArray[np.uint8]]
) -> Iterator[Trace]:
    """Rings on a GPU, as its kernels are to have them; what they hold is the recorder's afterwards,
    and nothing more goes there.
    zeros: so many bytes there; fetch: copies them here."""
    copies = [zeros(host.nbytes) for host in recorder.memory]
    trace = Trace.from_buffer_copy(recorder.trace)
    trace.written, trace.records = (copy.data.ptr for copy in copies)
    try:
        yield trace
    finally:
        trace.slots = 0
    for host, copy in zip(recorder.memory, copies, strict=True):
        host[:] = fetch(copy)[: host.nbytes]


@contextmanager
def recording(library: Path, ranks: range, blocks: int, slots: int) -> Iterator[Recorder]:
    """Has the launches of a library that is loaded in this process record, meanwhile.

    Raises:
        UserError: E459 it was not built to.
    """
    try:
        told = ctypes.c_void_p.in_dll(ctypes.CDLL(str(library)), SYMBOL)
    except ValueError:
        message = f"{library}: was built without HCCC_TRACE, so that its launches record nothing"
        raise fail("E459", message, help="compile its directory again, with this hccc") from None
    recorder = Recorder(ranks, blocks, slots)
    told.value = ctypes.addressof(recorder.trace)
    try:
        yield recorder
    finally:
        told.value = None
