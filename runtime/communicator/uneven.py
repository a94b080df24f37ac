"""uneven: the collectives of a communicator whose blocks have lengths of their own."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import index
from typing import Any

import numpy as np

from hccc.base.diagnostics import fail
from hccc.ir.op_type import OpType
from hccc.ir.uneven import BlockTable
from hccc.runtime.communicator.buffers import (
    buffer_on,
    number_of_dtype,
    number_of_type,
)
from hccc.runtime.communicator.errors import check
from hccc.runtime.communicator.premul import PremulSum, word_of
from hccc.runtime.communicator.rank import CommunicatorRank, handle_of
from hccc.runtime.communicator.runtime_library import library
from hccc.runtime.device.arrays import ArrayBuffer, buffer_of
from hccc.runtime.device.device_layer import library as device_library
from hccc.runtime.device.stream import Stream, on_platform, value_of
from hccc.runtime.layout import DTYPES

_NAMES = {
    OpType.ALLGATHER: "AllGatherv",
    OpType.REDUCESCATTER: "ReduceScatterv",
    OpType.GATHER: "Gatherv",
    OpType.SCATTER: "Scatterv",
    OpType.ALLTOALL: "AllToAllv",
}
_Stream = Stream | int | None
Lengths = Sequence[int] | Any  # numbers, or an array of them
_Row = tuple[Any, Any]  # arrays of C: lengths and places; None: there are none


class UnevenCollectives(CommunicatorRank):
    """Collectives of blocks with lengths of their own, in elements, zero too.

    lengths: of the blocks of the longer buffer, in the order of ranks; places: where each begins,
    in elements; by default one follows another. Either may be an array, on a GPU also one in memory
    of the device: the call then waits until its stream has come to it. Ranks compare lengths before
    anything moves: where two differ about a block, all raise CommunicatorError, and the
    communicator stays usable.
    """

    def all_gather_v(
        self,
        send: Any,
        receive: Any,
        lengths: Lengths,
        places: Lengths | None = None,
        stream: _Stream = None,
    ) -> None:
        """Gathers all `send` at every rank."""
        s, r = self._pair("AllGatherv", send, receive)
        row = self._row("AllGatherv", "receive", r, lengths, places, stream)
        words = (_address(s), _elements(s), _address(r), *row)
        self._uneven("AllGatherv", words, s, r, stream)

    def reduce_scatter_v(
        self,
        send: Any,
        receive: Any,
        lengths: Lengths,
        op: str | PremulSum = "sum",
        places: Lengths | None = None,
        stream: _Stream = None,
    ) -> None:
        """Reduces block r of all `send` into rank r. lengths: the same at all ranks."""
        name = "ReduceScatterv"
        s, r = self._pair(name, send, receive)
        row = self._row(name, "send", s, lengths, places, stream)
        _row(name, "receive", r, 1, [row[0][self.rank]], None)
        words = (_address(s), *row, _address(r))
        self._uneven(name, words, s, r, stream, word_of(op))

    def gather_v(
        self,
        send: Any,
        receive: Any,
        lengths: Lengths | None,
        root: int,
        places: Lengths | None = None,
        stream: _Stream = None,
    ) -> None:
        """Gathers all `send` at the root. receive, lengths: None at other ranks."""
        s, r = self._pair("Gatherv", send, receive)
        row = self._row("Gatherv", "receive", r, lengths, places, stream)
        words = (_address(s), _elements(s), _address(r), *row)
        self._uneven("Gatherv", words, s, r, stream, root)

    def scatter_v(
        self,
        send: Any,
        receive: Any,
        lengths: Lengths | None,
        root: int,
        places: Lengths | None = None,
        stream: _Stream = None,
    ) -> None:
        """Copies block r of the root's `send` to rank r. send, lengths: None at other ranks."""
        s, r = self._pair("Scatterv", send, receive)
        row = self._row("Scatterv", "send", s, lengths, places, stream)
        words = (_address(s), *row, _address(r), _elements(r))
        self._uneven("Scatterv", words, s, r, stream, root)

    def all_to_all_v(
        self,
        send: Any,
        receive: Any,
        send_lengths: Lengths,
        receive_lengths: Lengths,
        send_places: Lengths | None = None,
        receive_places: Lengths | None = None,
        stream: _Stream = None,
    ) -> None:
        """Sends block r of every `send` to rank r, which receives in the order of ranks."""
        name = "AllToAllv"
        s, r = self._pair(name, send, receive)
        out = self._row(name, "send", s, send_lengths, send_places, stream)
        back = self._row(name, "receive", r, receive_lengths, receive_places, stream)
        self._uneven(name, (_address(s), *out, _address(r), *back), s, r, stream)

    def prepared_blocks(
        self,
        table: BlockTable,
        send: int | None,
        receive: int | None,
        dtype: str,
        op: str | PremulSum,
    ) -> Callable[[], None]:
        """Returns a function that makes the call of a table over addresses, to be called many
        times; None: no buffer."""
        c, type_ = table.collective, number_of_dtype(dtype)
        s, r = (self._at(table, which, at, dtype) for which, at in enumerate((send, receive)))
        root = [c.root] if c.rooted else []
        words: tuple[Any, ...]
        if c.op is OpType.ALLTOALL:
            words = (*s, *r, type_)
        elif c.op is OpType.REDUCESCATTER:
            words = (*s, r[0], type_, self._prepared_op(op, dtype))
        elif c.op is OpType.SCATTER:
            words = (*s, r[0], int(table.lengths[self.rank]), type_, *root)
        else:
            words = (s[0], int(table.lengths[self.rank]), *r, type_, *root)
        handle = self.handle
        function = library().function(_NAMES[c.op])

        def launch() -> None:
            check(function(*words, handle, None))

        return launch

    def _at(
        self, table: BlockTable, which: int, address: int | None, dtype: str
    ) -> tuple[Any, Any, Any]:
        """Returns the address, the lengths and the places of a buffer as C has them; the address
        is that of the first block."""
        spans = table.spans(self.rank, which)
        first = min((at for _, at, _ in spans), default=0)
        if address is not None:
            address += first * DTYPES[dtype].itemsize
        numbers = ctypes.c_size_t * len(spans)
        return (
            address,
            numbers(*(n for _, _, n in spans)),
            numbers(*(at - first for _, at, _ in spans)),
        )

    def _row(
        self,
        name: str,
        which: str,
        buffer: ArrayBuffer | None,
        lengths: Lengths | None,
        places: Lengths | None,
        stream: _Stream,
    ) -> _Row:
        """Converts the lengths and places of a buffer's blocks, as `_row`, wherever they lie."""
        if self.platform != "cpu":
            lengths = self._fetched(name, "lengths", lengths, stream)
            places = self._fetched(name, "places", places, stream)
        return _row(name, which, buffer, self.n_ranks, lengths, places)

    def _fetched(self, name: str, which: str, given: Any, stream: _Stream) -> Any:
        """Returns numbers that lie in memory of the device as an array of the host, which the
        stream has come to; others as they are."""
        if given is None or isinstance(given, (Sequence, np.ndarray)):
            return given
        there = buffer_of(given)
        if there.platform == "cpu":
            return given
        buffer_on(self.platform, name, which, given)
        made = np.empty(there.elements, DTYPES[there.dtype])
        queue = None if stream is None else handle_of(stream)
        with on_platform(self.platform):
            device = device_library()
            to, copies = made.ctypes.data, value_of("MemcpyDefault")
            device.call("MemcpyAsync", to, there.pointer, there.bytes, copies, queue)
            device.call("StreamSynchronize", queue)
        return made

    def _pair(
        self, name: str, send: Any, receive: Any
    ) -> tuple[ArrayBuffer | None, ArrayBuffer | None]:
        """Finds the memory of both arrays."""
        on = self.platform
        s = None if send is None else buffer_on(on, name, "send", send)
        r = None if receive is None else buffer_on(on, name, "receive", receive, writable=True)
        return s, r

    def _uneven(
        self,
        name: str,
        words: tuple[Any, ...],
        s: ArrayBuffer | None,
        r: ArrayBuffer | None,
        stream: _Stream,
        *more: int | PremulSum,
    ) -> None:
        self._launch(name, (*words, number_of_type(name, s, r), *more), s, r, stream)


def _address(buffer: ArrayBuffer | None) -> int | None:
    return None if buffer is None else buffer.pointer


def _elements(buffer: ArrayBuffer | None) -> int:
    return 0 if buffer is None else buffer.elements


def _row(
    name: str,
    which: str,
    buffer: ArrayBuffer | None,
    n: int,
    lengths: Lengths | None,
    places: Lengths | None,
) -> _Row:
    """Converts the lengths and places of a buffer's blocks, None at a rank that has no such buffer.
    Raises UserError E473 where there are not as many as ranks, or a block is not in the buffer."""
    if lengths is None:
        return None, None
    counts = list(map(index, lengths))
    begins = [0, *accumulate(counts)][:-1] if places is None else list(map(index, places))
    if len(counts) != n or len(begins) != n:
        what, given = ("lengths", counts) if len(counts) != n else ("places", begins)
        message = f"{name}: {len(given)} {what} of blocks of {which}"
        raise fail("E473", message, help=f"one for each of the {n} ranks")
    room = _elements(buffer)
    for block, (begin, count) in enumerate(zip(begins, counts, strict=True)):
        if count < 0 or (count and (begin < 0 or begin + count > room)):
            message = f"{name}: block {block}, {count} elements from {begin}, is outside {which}"
            raise fail("E473", message, help=f"it has {room} elements")
    numbers = ctypes.c_size_t * n
    return numbers(*counts), numbers(*(max(0, begin) for begin in begins))
