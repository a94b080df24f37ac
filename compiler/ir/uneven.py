"""uneven: the table of an uneven collective's blocks: their lengths, and their places in buffers.

The words are those of `blocks` in `runtime/include/hccc/hccc.h`; all ranks have the same table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.base.diagnostics import fail
from hccc.ir.arrays import I8
from hccc.ir.collective import Collective, OpType
from hccc.ir.op_type import SKEWED

SEND, RECEIVE = 0, 1


@dataclass(frozen=True, slots=True, eq=False)
class BlockTable:
    """The blocks of one call, in elements.

    lengths: i8[collective.blocks]; places: i8[ranks, 2, ranks], where each block of the send (0)
    and the receive buffer (1) begins; sizes: i8[ranks, 2], of the buffers.
    """

    collective: Collective
    lengths: I8
    places: I8
    sizes: I8

    @classmethod
    def packed(cls, collective: Collective, lengths: I8) -> BlockTable:
        """Returns the table of buffers in which blocks follow each other without gaps."""
        n = collective.n_ranks
        places, sizes = np.zeros((n, 2, n), np.int64), np.zeros((n, 2), np.int64)
        for rank in range(n):
            for which in (SEND, RECEIVE):
                own = np.asarray(lengths, np.int64)[blocks_of(collective, rank, which)]
                places[rank, which, : len(own)] = np.cumsum(own) - own
                sizes[rank, which] = own.sum()
        return cls(collective, np.asarray(lengths, np.int64), places, sizes)

    @classmethod
    def of_rows(cls, collective: Collective, lengths: I8, count: int) -> BlockTable:
        """Returns the table of buffers in which every block has room for `count` elements."""
        n = collective.n_ranks
        places, sizes = np.zeros((n, 2, n), np.int64), np.zeros((n, 2), np.int64)
        for rank in range(n):
            for which in (SEND, RECEIVE):
                own = len(blocks_of(collective, rank, which))
                places[rank, which, :own] = np.arange(own) * count
                sizes[rank, which] = own * count
        return cls(collective, np.asarray(lengths, np.int64), places, sizes)

    def words(self) -> I8:
        """Returns the table as kernels read it."""
        return np.concatenate([self.lengths, self.places.ravel(), self.sizes.ravel()])

    def spans(self, rank: int, which: int) -> list[tuple[int, int, int]]:
        """Returns (block, first element, length) of each block of a buffer."""
        own = blocks_of(self.collective, rank, which)
        begin = self.places[rank, which, : len(own)]
        return list(zip(own.tolist(), begin.tolist(), self.lengths[own].tolist(), strict=True))

    def check(self, count: int, in_place: bool) -> None:
        """Raises UserError E421 unless a launch of blocks of at most `count` elements can use the
        table: no block is outside its buffer, and none overlaps another where it is received."""
        c = self.collective
        shapes = (c.blocks,), (c.n_ranks, 2, c.n_ranks), (c.n_ranks, 2)
        if (self.lengths.shape, self.places.shape, self.sizes.shape) != shapes:
            message = f"the table of {c.name} has lengths for {len(self.lengths)} blocks"
            raise fail("E421", message, help=f"there are {c.blocks} over {c.n_ranks} ranks")
        bad = (self.lengths < 0) | (self.lengths > count)
        if bad.any():
            block = int(np.argmax(bad))
            message = f"{self._said(block)} has {self.lengths[block]} elements, not 0 to {count}"
            raise fail("E421", message)
        for rank in range(c.n_ranks):
            for which in (SEND, RECEIVE):
                self._check_buffer(rank, which)
            if in_place:
                self._check_alias(rank)

    def _check_buffer(self, rank: int, which: int) -> None:
        buffer = f"the {'send' if which == SEND else 'receive'} buffer of rank {rank}"
        room, end, before = int(self.sizes[rank, which]), 0, -1
        spans = [span for span in self.spans(rank, which) if span[2]]
        for block, first, length in sorted(spans, key=lambda span: span[1]):
            if first < 0 or first + length > room:
                message = (
                    f"{self._said(block)}, {length} elements from {first}, is outside {buffer}"
                )
                raise fail("E421", message, help=f"it has {room} elements")
            if which == RECEIVE and first < end:
                message = f"{self._said(before)} and {self._said(block)} overlap in {buffer}"
                raise fail("E421", message, help=f"at element {first}")
            end, before = first + length, block

    def _check_alias(self, rank: int) -> None:
        """Requires, where both buffers are one memory, that Alltoallv's blocks swap places."""
        if self.collective.op is not OpType.ALLTOALL:
            return
        sent, received = self.spans(rank, SEND), self.spans(rank, RECEIVE)
        for peer, (out, back) in enumerate(zip(sent, received, strict=True)):
            if out[1:] != back[1:]:
                message = (
                    f"in place, rank {rank} sends {out[2]} elements from {out[1]} to rank {peer}"
                )
                message += f", and receives {back[2]} at {back[1]} from it"
                raise fail("E421", message, help="give both one place and length")

    def _said(self, block: int) -> str:
        c = self.collective
        if c.op is OpType.ALLTOALL:
            return f"the block from rank {block // c.n_ranks} to rank {block % c.n_ranks}"
        return f"the block of rank {block}"


def blocks_of(c: Collective, rank: int, which: int) -> I8:
    """Returns the block of chunk ids of each block in a rank's send (0) or receive buffer (1)."""
    counted: Callable[[int], int] = c.output_blocks if which else c.input_blocks
    slots = np.arange(counted(rank), dtype=np.int64) * c.chunks_per_block
    chunks = (c.output_chunk if which else c.input_chunk)(np.int64(rank) + 0 * slots, slots)
    return np.asarray(chunks // c.chunks_per_block, np.int64)


def check_uneven(c: Collective, given: str) -> None:
    """Raises UserError E415 where lengths are `given` for blocks that are all alike."""
    if not c.uneven:
        message = f"{given}: the blocks of {c.name} are alike"
        raise fail("E415", message, help='a program with OpType="Alltoallv", for example')


SKEWS = ("even", *SKEWED)


def skewed(c: Collective, count: int, skew: str, seed: int = 0) -> I8:
    """Returns lengths of all blocks, at most `count`.

    skew: even (all `count`), random (0 to `count`), zipf (count / 1, / 2, ... in a random order),
    one (one block of `count`, the others of 0) or empty (all of 0).
    """
    rng, n = np.random.default_rng(seed), c.blocks
    if skew == "even":
        return np.full(n, count, np.int64)
    if skew == "random":
        return rng.integers(0, count, n, dtype=np.int64, endpoint=True)
    if skew == "zipf":
        return (count // rng.permutation(np.arange(1, n + 1, dtype=np.int64))).astype(np.int64)
    lengths = np.zeros(n, np.int64)
    lengths[rng.integers(n)] = count if skew == "one" else 0
    return lengths


def modes_of(c: Collective, modes: tuple[bool, ...], skew: str) -> tuple[bool, ...]:
    """Returns the values of "in place" that calls of skewed lengths have, of those of a plan: one
    memory has no room for blocks of Alltoallv that differ in length both ways."""
    return tuple(m for m in modes if not (m and skew and c.op is OpType.ALLTOALL))


def table_of(c: Collective, count: int, skew: str) -> BlockTable | None:
    """Returns the table of a call of `skewed` lengths; None for no skew."""
    return BlockTable.of_rows(c, skewed(c, count, skew), count) if skew else None


def placed(
    table: BlockTable, rank: int, which: int, even: NDArray[Any], count: int
) -> NDArray[Any]:
    """Returns a rank's buffer of the table, zeros between the blocks, with the beginnings of the
    blocks of `count` elements of `even`."""
    buffer = np.zeros(int(table.sizes[rank, which]), even.dtype)
    for i, (_, first, length) in enumerate(table.spans(rank, which)):
        buffer[first : first + length] = even[i * count : i * count + length]
    return buffer


def scattered(c: Collective, lengths: I8, seed: int) -> BlockTable:
    """Returns a table whose blocks lie in any order, with gaps between them; blocks that in place
    are one memory have one place in both buffers."""
    rng, n = np.random.default_rng(seed), c.n_ranks
    places, sizes = np.zeros((n, 2, n), np.int64), np.zeros((n, 2), np.int64)
    for rank in range(n):
        for which in (SEND, RECEIVE):
            own, at = blocks_of(c, rank, which), 0
            for i in rng.permutation(len(own)):
                at += int(rng.integers(0, 4)) if len(own) > 1 else 0
                places[rank, which, i] = at
                at += int(lengths[own[i]])
            sizes[rank, which] = at + (int(rng.integers(0, 3)) if len(own) > 1 else 0)
        if c.op is OpType.ALLTOALL and (lengths.reshape(n, n) == lengths.reshape(n, n).T).all():
            places[rank, RECEIVE], sizes[rank, RECEIVE] = places[rank, SEND], sizes[rank, SEND]
    return BlockTable(c, np.asarray(lengths, np.int64), places, sizes)
