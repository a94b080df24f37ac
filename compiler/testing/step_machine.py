"""step_machine: one turn of a thread block: memory of elements, counters, and queues.

A call of `count` elements is cut into chunks, parts and micro-batches (`CallCut`), restated here;
buffers end where a user's would. Memory records writes: reading an element that was never written
is an error, and so is an element outside a buffer. `stepwise` orders the turns.

A thread block hands its writes and flags for another memory domain to a proxy, which carries them
in the order of that block, some time later, and reads the bytes only then. So a plan that
overwrites them before, or that takes them as arrived, goes wrong here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.base.dtypes import accumulated
from hccc.ir.choices import PlanProtocol
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Transport
from hccc.ir.uneven import RECEIVE, SEND, BlockTable
from hccc.runtime.layout import DTYPES
from hccc.testing.reference import COMBINE, Data, average, rounded

Address = tuple[int, int, int]  # (rank or queue, buffer, slot)
_ALIGNMENT = 16  # bytes: parts and micro-batches are whole numbers of them


class Hang(Exception):
    """No thread block can advance, and not all have finished."""


class Poison(Exception):
    """Memory that was never written was read, or a receive slot was left unwritten."""


class Overrun(Exception):
    """An element outside a buffer was read or written, or a send buffer was written."""


@dataclass(frozen=True, slots=True)
class CallCut:
    """The cut of a call, in elements.

    Blocks of `count` are cut into chunks of `channels` parts of `part`, a part into `batches`
    micro-batches of `micro` at most; only elements below `count` are moved.
    """

    count: int
    part: int
    micro: int
    batches: int
    channels: int
    blocks: BlockTable | None = None  # of an uneven collective; None: all have `count`

    @classmethod
    def of(
        cls,
        plan: Plan,
        count: int,
        itemsize: int,
        micro_batch: int,
        blocks: BlockTable | None = None,
    ) -> CallCut:
        """Returns the cut of a call with micro-batches of `micro_batch` bytes."""
        pieces = plan.collective.chunks_per_block * plan.channels
        part = _round_up(-(-count // pieces), _ALIGNMENT // itemsize)
        micro = min(part, _round_up(micro_batch, _ALIGNMENT) // itemsize)
        batches = -(-part // micro) if micro else 0
        return cls(count, part, micro, batches, plan.channels, blocks)

    def length(self, block: int, sub: int, channel: int, m: int) -> int:
        """Returns the elements of micro-batch `m` of a part of chunk `sub` of a block."""
        count = self.count if self.blocks is None else int(self.blocks.lengths[block])
        part = min(self.part, count - (sub * self.channels + channel) * self.part)
        return max(0, min(self.micro, part - m * self.micro))

    def place(self, rank: int, which: int, block: int) -> int:
        """Returns where a block of the send (0) or the receive buffer (1) of `rank` begins."""
        return (
            block * self.count
            if self.blocks is None
            else int(self.blocks.places[rank, which, block])
        )

    def size(self, rank: int, which: int, blocks: int) -> int:
        """Returns the elements of a buffer of so many blocks."""
        return blocks * self.count if self.blocks is None else int(self.blocks.sizes[rank, which])


def _round_up(n: int, to: int) -> int:
    return -(-n // to) * to


@dataclass(frozen=True, slots=True)
class Cells:
    """Memory: `data` of each element, and whether it was `written`."""

    data: Data
    written: NDArray[np.bool_]

    @classmethod
    def empty(cls, elements: int, dtype: Any) -> Cells:
        """Returns `elements` elements that hold nothing."""
        return cls(np.zeros(elements, dtype), np.zeros(elements, np.bool_))

    def view(self, first: int, count: int) -> Cells:
        """Returns `count` elements from `first`: the same memory."""
        return Cells(self.data[first : first + count], self.written[first : first + count])


@dataclass(frozen=True, slots=True)
class Primitive:
    """One row of the Plan with its operands as addresses. sub: its chunk's index in a block."""

    row: int
    rank: int
    block: int
    channel: int
    sub: int
    src: list[Address]
    dst: list[Address]
    waits: list[int]
    posts: list[tuple[int, int]]
    final: bool
    active: bool


@dataclass(frozen=True, slots=True)
class Turn:
    """A primitive's micro-batch `m` of the window [first, last)."""

    p: Primitive
    m: int
    first: int
    last: int


@dataclass(slots=True)
class StepMachine:
    """All ranks' memory and counters. Queue q's messages lie in slots, numbered modulo S."""

    plan: Plan
    cut: CallCut
    memory: dict[tuple[int, int], Cells]
    op: str
    flags: dict[tuple[int, int, int], int] = field(default_factory=dict)
    messages: dict[tuple[int, int, int], tuple[int, Data]] = field(default_factory=dict)
    handed: dict[tuple[int, int, int], deque[Callable[[], None]]] = field(default_factory=dict)

    def blocked_by(self, t: Turn) -> str | None:
        """Returns what a turn waits for, or None if it can run."""
        p, q = t.p, self.plan.queues
        for flag in p.waits:
            if self._flag(p.rank, flag, p) <= t.m:
                return f"flag {flag}"
        if self.plan.protocol is PlanProtocol.LL:
            lacks = (a for a in _queued(p.src) if self._slot(a, t) not in self.messages)
            return next((f"packets in slot {a[2]} of queue {a[0]}" for a in lacks), None)
        for a in _queued(p.src):
            if self._flag(p.rank, int(q.data_flag[a[0]]), p) <= self._number(a, t):
                return f"a message in queue {a[0]}"
        for a in _queued(p.dst):
            taken = self._flag(p.rank, int(q.credit_flag[a[0]]), p)
            if taken <= self._number(a, t) - self.plan.queue_slots:
                return f"a free slot in queue {a[0]}"
        return None

    def execute(self, t: Turn) -> None:
        """Runs a turn."""
        p, q = t.p, self.plan.queues
        block = int(self.plan.chunk[p.row]) // self.plan.collective.chunks_per_block
        n = self.cut.length(block, p.sub, p.channel, t.m) if p.active else 0
        values = [self._read(a, t, n) for a in p.src]
        total = self._reduced(values, p.final and self.op == "avg")
        for a in p.dst:
            if not self._away(a, p.rank):
                self._write(a, t, total)
        if away := [a for a in p.dst if self._away(a, p.rank)]:
            own = (a for a in p.dst if a[1] != Buffer.QUEUE and a[0] == p.rank)
            source = next(own, p.src[0])
            for a in away:
                copy = partial(_copy, *self._place(source, t, n), *self._place(a, t, n))
                self._hand(p, a[0], copy)
        for rank, flag in p.posts:
            post = partial(self.flags.__setitem__, (rank, flag, p.channel), t.m + 1)
            if self._away((rank, Buffer.SCRATCH, 0), p.rank):
                self._hand(p, rank, post)
            else:
                post()
        if self.plan.protocol is PlanProtocol.LL:
            return
        for operands, end, flags in ((p.src, q.src, q.credit_flag), (p.dst, q.dst, q.data_flag)):
            for a in _queued(operands):
                counter = (int(end[a[0]]), int(flags[a[0]]), p.channel)
                self.flags[counter] = self._number(a, t) + 1

    def _reduced(self, values: list[Data], divides: bool) -> Data:
        """Combines values from left to right in the type that the Plan says, and rounds."""
        if len(values) == 1 and not divides:
            return values[0]
        dtype = values[0].dtype
        name = next((name for name, known in DTYPES.items() if known == dtype), "")
        wide = DTYPES[accumulated(name, self.plan.accumulate.bits)] if name else dtype
        total = values[0].astype(wide)
        for value in values[1:]:
            total = COMBINE[self.op](total, value.astype(wide))
        return rounded(average(total, self.plan.n_ranks) if divides else total, dtype)

    def carry(self, block: int, channel: int, peer: int) -> None:
        """Performs the next item that a thread block handed to its proxy for a peer."""
        self.handed[block, channel, peer].popleft()()

    def carry_all(self) -> None:
        """Performs all items handed to proxies."""
        for key, items in self.handed.items():
            while items:
                self.carry(*key)

    def _hand(self, p: Primitive, peer: int, item: Callable[[], None]) -> None:
        self.handed.setdefault((p.block, p.channel, peer), deque()).append(item)

    def _away(self, a: Address, rank: int) -> bool:
        """Tells whether an address is memory of another domain than a rank's."""
        domain = self.plan.memory_domain
        mixed = self.plan.transport is Transport.MIXED and a[1] != Buffer.QUEUE
        return mixed and bool(domain[a[0]] != domain[rank])

    def _flag(self, rank: int, flag: int, p: Primitive) -> int:
        return self.flags.get((rank, flag, p.channel), 0)

    def _number(self, a: Address, t: Turn) -> int:
        """Returns the number of a message in its queue: turn by turn within a window."""
        length = int(self.plan.queues.length[a[0]])
        return t.first * length + a[2] * (t.last - t.first) + t.m - t.first

    def _slot(self, a: Address, t: Turn) -> tuple[int, int, int]:
        """Returns the slot of a message: queue, channel and number in them; of packets its own."""
        number = self._number(a, t)
        packets = self.plan.protocol is PlanProtocol.LL
        return a[0], t.p.channel, number if packets else number % self.plan.queue_slots

    def _place(self, a: Address, t: Turn, n: int) -> tuple[Cells, slice]:
        """Returns the place of micro-batch `t.m` of an operand."""
        rank, buffer, slot = a
        cut, cells = self.cut, self.memory[rank, buffer]
        per = self.plan.collective.chunks_per_block
        if buffer == Buffer.SCRATCH or (buffer == Buffer.STAGE and self._staged(rank)):
            at = slot * cut.channels * cut.part
        else:
            which = int(buffer == Buffer.OUTPUT)
            at = cut.place(rank, which, slot // per) + slot % per * cut.channels * cut.part
        at += t.p.channel * cut.part + t.m * cut.micro
        if n and not 0 <= at <= len(cells.data) - n:
            where = f"{Buffer(buffer).name.lower()} slot {slot} of rank {rank}"
            raise Overrun(f"primitive {t.p.row} micro-batch {t.m} leaves the buffer at {where}")
        return cells, slice(at, at + n)

    def _staged(self, rank: int) -> bool:
        """Tells whether STAGE is memory of its own."""
        return self.memory[rank, Buffer.STAGE] is not self.memory[rank, Buffer.INPUT]

    def _read(self, a: Address, t: Turn, n: int) -> Data:
        if a[1] == Buffer.QUEUE:
            number = self._number(a, t)
            found, value = self.messages.get(self._slot(a, t), (-1, np.zeros(0)))
            if n and (found != number or len(value) < n):
                what = f"primitive {t.p.row} micro-batch {t.m} reads message {number} of"
                raise Poison(f"{what} queue {a[0]}, whose slot holds nothing of it")
            return value[:n] if n else np.zeros(0, self._dtype())
        cells, where = self._place(a, t, n)
        if not cells.written[where].all():
            what = f"{Buffer(a[1]).name.lower()} slot {a[2]} of rank {a[0]}"
            raise Poison(f"primitive {t.p.row} micro-batch {t.m} reads {what}, which holds nothing")
        return cells.data[where].copy()

    def _write(self, a: Address, t: Turn, value: Data) -> None:
        if a[1] == Buffer.QUEUE:
            self.messages[self._slot(a, t)] = self._number(a, t), value
            return
        cells, where = self._place(a, t, len(value))
        cells.data[where] = value
        cells.written[where] = True

    def _dtype(self) -> Any:
        return next(iter(self.memory.values())).data.dtype


def _copy(source: Cells, of: slice, target: Cells, to: slice) -> None:
    target.data[to] = source.data[of]
    target.written[to] = source.written[of]


def _queued(operands: list[Address]) -> list[Address]:
    return [a for a in operands if a[1] == Buffer.QUEUE]


def machine_of(
    plan: Plan, inputs: Sequence[Data], op: str, in_place: bool, cut: CallCut
) -> tuple[StepMachine, list[Data] | None]:
    """Returns all ranks' memory before the first turn, and the contents that send buffers must
    keep."""
    memory = {}
    for rank in range(plan.n_ranks):
        memory.update(_memory(plan, rank, inputs[rank], cut, in_place))
    kept = [a.copy() for a in inputs] if plan.keeps_input and not in_place else None
    return StepMachine(plan, cut, memory, op), kept


def outputs(machine: StepMachine, kept: list[Data] | None) -> list[Data]:
    """Returns every rank's receive buffer, whole."""
    for rank, sent in enumerate(kept or []):
        if not np.array_equal(machine.memory[rank, Buffer.INPUT].data, sent):
            raise Overrun(f"the send buffer of rank {rank} was written")
    return [_output(machine, r) for r in range(machine.plan.n_ranks)]


def _output(machine: StepMachine, rank: int) -> Data:
    cells, cut = machine.memory[rank, Buffer.OUTPUT], machine.cut
    if cut.blocks is not None:
        return _uneven_output(cells, cut.blocks, rank)
    if machine.plan.collective.known and not cells.written.all():
        at, per = int(np.argmin(cells.written)), machine.plan.collective.chunks_per_block
        chunk = max(1, cut.channels * cut.part)
        slot = at // cut.count * per + at % cut.count // chunk
        raise Poison(f"receive slot {slot} of rank {rank} was never written at element {at}")
    return cells.data.copy()


def _uneven_output(cells: Cells, table: BlockTable, rank: int) -> Data:
    """Returns a receive buffer whose blocks must have been written; 0 between them, unless that was
    written."""
    inside = np.zeros(len(cells.data), np.bool_)
    for block, first, length in table.spans(rank, RECEIVE):
        inside[first : first + length] = True
        if not cells.written[first : first + length].all():
            raise Poison(f"block {block} was never written whole at rank {rank}")
    return np.where(inside | cells.written, cells.data, 0).astype(cells.data.dtype)


def _memory(
    plan: Plan, rank: int, sent: Data, cut: CallCut, in_place: bool
) -> dict[tuple[int, int], Cells]:
    """Allocates the buffers of one rank; in place the smaller user buffer is a view of the
    larger."""
    c = plan.collective
    n_in = cut.size(rank, SEND, c.input_blocks(rank))
    n_out = cut.size(rank, RECEIVE, c.output_blocks(rank))
    source, target = (Cells.empty(n, sent.dtype) for n in (n_in, n_out))
    if in_place and n_in and n_out:
        own = c.alias_offset(rank) // c.chunks_per_block
        offset = cut.place(rank, RECEIVE, max(own, 0)) - cut.place(rank, SEND, max(-own, 0))
        if offset >= 0 and n_out >= n_in:
            source = target.view(offset, n_in)
        else:
            target = source.view(-offset, n_out)
    source.data[:], source.written[:] = sent, True
    chunk = cut.channels * cut.part
    stage = Cells.empty(int(plan.stage_slots[rank]) * chunk, sent.dtype) if in_place else source
    scratch = Cells.empty(int(plan.scratch_slots[rank]) * chunk, sent.dtype)
    kinds = (Buffer.INPUT, Buffer.OUTPUT, Buffer.SCRATCH, Buffer.STAGE)
    return {
        (rank, k): cells for k, cells in zip(kinds, (source, target, scratch, stage), strict=True)
    }
