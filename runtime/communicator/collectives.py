"""collectives: the calls whose blocks have one length, of hccc's communicators and of vendors'."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from hccc.runtime.communicator.buffers import block_length, buffer_on, number_of_type
from hccc.runtime.communicator.premul import PremulSum, word_of
from hccc.runtime.device.arrays import ArrayBuffer
from hccc.runtime.device.stream import Stream

_Stream = Stream | int | None


class Collectives(ABC):
    """The calls of `Communicator`; `_launch` makes them."""

    rank: Any
    n_ranks: Any
    platform: Any

    @abstractmethod
    def _launch(
        self,
        name: str,
        words: tuple[Any, ...],
        s: ArrayBuffer | None,
        r: ArrayBuffer | None,
        stream: _Stream,
    ) -> None:
        """Makes a call of a name with its words in C but communicator and stream."""

    def all_reduce(
        self, send: Any, receive: Any = None, op: str | PremulSum = "sum", stream: _Stream = None
    ) -> None:
        """Reduces all `send` into every rank; in place without `receive`."""
        self._one("AllReduce", send, receive, (1, 1), stream, op)

    def all_gather(self, send: Any, receive: Any, stream: _Stream = None) -> None:
        """Gathers all `send` at every rank, in the order of ranks."""
        self._one("AllGather", send, receive, (1, self.n_ranks), stream)

    def reduce_scatter(
        self, send: Any, receive: Any, op: str | PremulSum = "sum", stream: _Stream = None
    ) -> None:
        """Reduces block r of all `send` into rank r."""
        self._one("ReduceScatter", send, receive, (self.n_ranks, 1), stream, op)

    def all_to_all(self, send: Any, receive: Any, stream: _Stream = None) -> None:
        """Sends block r of every `send` to rank r, which receives in the order of ranks."""
        self._one("AllToAll", send, receive, (self.n_ranks, self.n_ranks), stream)

    def broadcast(self, buffer: Any, root: int, stream: _Stream = None) -> None:
        """Copies the root's buffer to every rank, in place."""
        self._one("Broadcast", buffer, None, (1, 1), stream, root=root)

    def reduce(
        self,
        send: Any,
        receive: Any,
        root: int,
        op: str | PremulSum = "sum",
        stream: _Stream = None,
    ) -> None:
        """Reduces all `send` into the root. receive: None at other ranks."""
        self._one("Reduce", send, receive, (1, 1), stream, op, root=root, alone=True)

    def gather(self, send: Any, receive: Any, root: int, stream: _Stream = None) -> None:
        """Gathers all `send` at the root, in the order of ranks. receive: None at other ranks."""
        self._one("Gather", send, receive, (1, self.n_ranks), stream, root=root, alone=True)

    def scatter(self, send: Any, receive: Any, root: int, stream: _Stream = None) -> None:
        """Copies block r of the root's `send` to rank r. send: None at other ranks."""
        self._one("Scatter", send, receive, (self.n_ranks, 1), stream, root=root)

    def _one(
        self,
        name: str,
        send: Any,
        receive: Any,
        blocks: tuple[int, int],
        stream: _Stream,
        op: str | PremulSum | None = None,
        *,
        root: int | None = None,
        alone: bool = False,
    ) -> None:
        """Makes a call. blocks: of the send and of the receive buffer; alone: without `receive`
        this rank has no such buffer, rather than an in-place call."""
        in_place, platform = receive is None and not alone, self.platform
        s = r = None
        if send is not None:
            writes = in_place and root != self.rank
            s = buffer_on(platform, name, "send", send, writable=writes)
        if receive is not None:
            r = buffer_on(platform, name, "receive", receive, writable=True)
        elif in_place:
            r = s
        type_ = number_of_type(name, s, r)
        count = block_length(name, s, r, blocks)
        words: tuple[Any, ...] = (s and s.pointer, r and r.pointer, count, type_)
        if op is not None:
            words += (word_of(op),)
        if root is not None:
            words += (root,)
        self._launch(name, words, s, r, stream)
