"""stepwise: executes a Plan one (primitive, micro-batch) at a time, in any interleaving.

The model of DESIGN §6 in plain Python, for small plans: every thread block runs the loop nest
window → primitive → micro-batch; a primitive waits for its flags, takes messages from queues,
combines its sources left to right, writes its destinations, and raises its flags. Which block
advances next is drawn from a seed. Memory remembers what was written: reading anything else is
an error, and so is a state in which no block can advance.

Shares nothing with the proofs: memory is aliased by NumPy views, order comes from running.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Guard, Operands
from hccc.testing.reference import COMBINE, Data, average

Address = tuple[int, int, int]  # (rank or queue, buffer, slot)


class Hang(Exception):
    """No thread block can advance, and not all have finished."""


class Poison(Exception):
    """Memory that was never written was read, or a receive slot was left unwritten."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Memory: `data[slot, micro_batch]` and whether each cell was `written`."""

    data: Data
    written: NDArray[np.bool_]

    @classmethod
    def empty(cls, slots: int, micro_batches: int, dtype: Any) -> Cells:
        """`slots` slots that hold nothing."""
        shape = (slots, micro_batches)
        return cls(np.zeros(shape, dtype), np.zeros(shape, np.bool_))

    def view(self, first: int, count: int) -> Cells:
        """`count` slots from `first`: the same memory."""
        return Cells(self.data[first : first + count], self.written[first : first + count])


@dataclass(frozen=True, slots=True)
class Primitive:
    """One row of the Plan with its operands as addresses."""

    row: int
    rank: int
    src: list[Address]
    dst: list[Address]
    waits: list[int]
    posts: list[tuple[int, int]]
    final: bool
    active: bool


@dataclass(slots=True)
class _Machine:
    memory: dict[tuple[int, int], Cells]
    slots: int
    op: str
    n_ranks: int
    flags: Counter[tuple[int, int]] = field(default_factory=Counter)
    queues: dict[int, deque[Any]] = field(default_factory=dict)

    def blocked_by(self, p: Primitive, m: int) -> str | None:
        """What primitive `p` waits for at micro-batch `m`, or None when it can run."""
        for flag in p.waits:
            if self.flags[p.rank, flag] <= m:
                return f"flag {flag}"
        takes = Counter(q for q, buffer, _ in p.src if buffer == Buffer.QUEUE)
        gives = Counter(q for q, buffer, _ in p.dst if buffer == Buffer.QUEUE)
        for q, count in takes.items():
            if len(self._queue(q)) < count:
                return f"a message in queue {q}"
        for q, count in gives.items():
            if len(self._queue(q)) + count > self.slots:
                return f"a free slot in queue {q}"
        return None

    def execute(self, p: Primitive, m: int) -> None:
        """Runs primitive `p` for micro-batch `m`."""
        if p.active:
            values = [self._read(a, m, p) for a in p.src]
            total = values[0]
            for value in values[1:]:
                total = COMBINE[self.op](total, value)
            if p.final and self.op == "avg":
                total = average(total, self.n_ranks)
            for a in p.dst:
                self._write(a, m, total)
        for rank, flag in p.posts:
            self.flags[rank, flag] = m + 1

    def _queue(self, q: int) -> deque[Any]:
        return self.queues.setdefault(q, deque())

    def _read(self, a: Address, m: int, p: Primitive) -> Any:
        if a[1] == Buffer.QUEUE:
            return self._queue(a[0]).popleft()
        cells = self.memory[a[0], a[1]]
        if not cells.written[a[2], m]:
            where = f"{Buffer(a[1]).name.lower()} slot {a[2]} of rank {a[0]}"
            raise Poison(f"primitive {p.row} micro-batch {m} reads {where}, which holds nothing")
        return cells.data[a[2], m].copy()

    def _write(self, a: Address, m: int, value: Any) -> None:
        if a[1] == Buffer.QUEUE:
            self._queue(a[0]).append(value)
            return
        cells = self.memory[a[0], a[1]]
        cells.data[a[2], m] = value
        cells.written[a[2], m] = True


@dataclass(slots=True)
class _Block:
    """A thread block: what it still has to do, its next action, and its priority."""

    actions: Iterator[tuple[Primitive, int]]
    next: tuple[Primitive, int] | None
    priority: float = 0.0


def execute(
    plan: Plan,
    inputs: Sequence[Data],
    op: str = "sum",
    *,
    in_place: bool = False,
    window: int | None = None,
    seed: int = 0,
) -> list[Data]:
    """Runs `plan` and returns every rank's receive buffer, (slots, micro-batches).

    inputs: every rank's send buffer, (input slots, micro-batches); copied, never changed.
    window: micro-batches a window, None for all of them (or the Plan's `max_window`).
    seed: of the interleaving.

    Raises:
        Hang: no block can advance. Poison: memory that holds nothing is used.
    """
    machine, micro_batches = _machine(plan, inputs, op, in_place)
    window = window or plan.max_window or max(1, micro_batches)
    _interleave(machine, _blocks(plan, in_place, micro_batches, window), random.Random(seed))
    return _outputs(machine)


def replay(
    plan: Plan,
    inputs: Sequence[Data],
    times: NDArray[np.float64],
    op: str = "sum",
    *,
    in_place: bool = False,
    window: int | None = None,
) -> list[Data]:
    """Runs `plan` in the order of `times` (f8[primitives, micro-batches]) instead of a drawn one.

    Where several are at one time, any order that works among them is taken.

    Raises:
        Hang: something is due that its thread block or its waits do not let run yet.
        Poison: memory that holds nothing is used.
    """
    machine, micro_batches = _machine(plan, inputs, op, in_place)
    window = window or plan.max_window or max(1, micro_batches)
    blocks = _blocks(plan, in_place, micro_batches, window)
    for time in np.unique(times):
        _run_until(machine, blocks, times, time)
    return _outputs(machine)


def _run_until(
    machine: _Machine, blocks: list[_Block], times: NDArray[np.float64], time: float
) -> None:
    due = [b for b in blocks if b.next and times[b.next[0].row, b.next[1]] <= time]
    while due:
        chosen = next((b for b in due if b.next and not machine.blocked_by(*b.next)), None)
        if chosen is None:
            raise Hang(_stuck(machine, due))
        assert chosen.next is not None
        machine.execute(*chosen.next)
        chosen.next = next(chosen.actions, None)
        due = [b for b in due if b.next and times[b.next[0].row, b.next[1]] <= time]


def _machine(plan: Plan, inputs: Sequence[Data], op: str, in_place: bool) -> tuple[_Machine, int]:
    """All ranks' memory before the first action, and how many micro-batches there are."""
    micro_batches = max(np.shape(a)[1] for a in inputs)
    memory = {}
    for rank in range(plan.n_ranks):
        memory.update(_memory(plan, rank, inputs[rank], micro_batches, in_place))
    return _Machine(memory, plan.queue_slots, op, plan.n_ranks), micro_batches


def _outputs(machine: _Machine) -> list[Data]:
    return [_output(machine.memory[r, Buffer.OUTPUT], r) for r in range(machine.n_ranks)]


def _memory(
    plan: Plan, rank: int, sent: Data, micro_batches: int, in_place: bool
) -> dict[tuple[int, int], Cells]:
    """The buffers of one rank; in place the smaller user buffer is a view of the larger."""
    c = plan.collective
    n_in = c.input_blocks(rank) * c.chunks_per_block
    n_out = c.output_blocks(rank) * c.chunks_per_block

    def empty(slots: int) -> Cells:
        return Cells.empty(slots, micro_batches, sent.dtype)

    source, target = empty(n_in), empty(n_out)
    if in_place and n_in and n_out:
        offset = c.alias_offset(rank)
        if offset >= 0 and n_out >= n_in:
            source = target.view(offset, n_in)
        else:
            target = source.view(-offset, n_out)
    source.data[:], source.written[:] = sent, True
    stage = empty(int(plan.stage_slots[rank])) if in_place else source
    scratch = empty(int(plan.scratch_slots[rank]))
    kinds = (Buffer.INPUT, Buffer.OUTPUT, Buffer.SCRATCH, Buffer.STAGE)
    return {
        (rank, k): cells for k, cells in zip(kinds, (source, target, scratch, stage), strict=True)
    }


def _blocks(plan: Plan, in_place: bool, micro_batches: int, window: int) -> list[_Block]:
    rows = _primitives(plan, in_place)
    blocks = []
    for b in range(len(plan.tb_ptr) - 1):
        mine = rows[int(plan.tb_ptr[b]) : int(plan.tb_ptr[b + 1])]
        actions = _loop_nest(mine, micro_batches, window)
        blocks.append(_Block(actions, next(actions, None)))
    return blocks


def _loop_nest(
    mine: list[Primitive], micro_batches: int, window: int
) -> Iterator[tuple[Primitive, int]]:
    for first in range(0, micro_batches, window):
        for p in mine:
            for m in range(first, min(first + window, micro_batches)):
                yield p, m


def _primitives(plan: Plan, in_place: bool) -> list[Primitive]:
    skipped = Guard.OUT_OF_PLACE if in_place else Guard.IN_PLACE
    rank_of, moves = plan.rank_of().tolist(), (plan.guard != skipped).tolist()
    return [
        Primitive(
            row=i,
            rank=rank_of[i],
            src=_addresses(plan.src, i),
            dst=_addresses(plan.dst, i),
            waits=plan.waits.row(i).tolist(),
            posts=_posts(plan, i),
            final=bool(plan.final[i]),
            active=moves[i],
        )
        for i in range(len(plan))
    ]


def _addresses(o: Operands, i: int) -> list[Address]:
    row = slice(int(o.ptr[i]), int(o.ptr[i + 1]))
    columns = (o.rank[row].tolist(), o.buffer[row].tolist(), o.slot[row].tolist())
    return list(zip(*columns, strict=True))


def _posts(plan: Plan, i: int) -> list[tuple[int, int]]:
    row = slice(int(plan.posts.ptr[i]), int(plan.posts.ptr[i + 1]))
    return list(zip(plan.posts.rank[row].tolist(), plan.posts.flag[row].tolist(), strict=True))


def _interleave(machine: _Machine, blocks: list[_Block], rng: random.Random) -> None:
    """Always runs the free block of highest priority; priorities change at a drawn rate.

    A low rate starves some blocks for long, which finds what a fair order never shows.
    """
    change = rng.choice([0.0, 0.05, 0.3, 1.0])
    for block in blocks:
        block.priority = rng.random()
    left = [b for b in blocks if b.next]
    while left:
        left.sort(key=lambda b: -b.priority)
        chosen = next((b for b in left if b.next and not machine.blocked_by(*b.next)), None)
        if chosen is None:
            raise Hang(_stuck(machine, left))
        assert chosen.next is not None
        machine.execute(*chosen.next)
        chosen.next = next(chosen.actions, None)
        if chosen.next is None:
            left.remove(chosen)
        if rng.random() < change:
            chosen.priority = rng.random()


def _stuck(machine: _Machine, left: list[_Block]) -> str:
    waiting = [
        f"rank {p.rank} primitive {p.row} micro-batch {m} waits for {machine.blocked_by(p, m)}"
        for p, m in (b.next for b in left if b.next)
    ]
    return "no thread block can advance: " + "; ".join(waiting)


def _output(cells: Cells, rank: int) -> Data:
    if not cells.written.all():
        slot, m = np.argwhere(~cells.written)[0]
        raise Poison(f"receive slot {slot} of rank {rank} micro-batch {m} was never written")
    return cells.data.copy()
