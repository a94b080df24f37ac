"""stepwise: executes a Plan one (primitive, micro-batch) at a time, in any interleaving.

Does the work of the kernels, in plain Python, for small plans. Every thread block of every channel
runs the loop nest window → primitive → micro-batch; a primitive waits for its flags, for its
messages and for free slots of the queues it sends through, combines as many elements of its sources
as its chunk has there, writes its destinations, and raises its flags (`step_machine`). A seed draws
which block or proxy advances next; a state in which none can is an error.

Shares nothing with the proofs: memory is aliased by NumPy views, order comes from running, sizes
are restated.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hccc.ir.plan import Plan
from hccc.ir.primitives import Guard, Operands
from hccc.ir.uneven import BlockTable
from hccc.testing.reference import Data
from hccc.testing.step_machine import (
    Address,
    CallCut,
    Hang,
    Primitive,
    StepMachine,
    Turn,
    machine_of,
    outputs,
)


@dataclass(slots=True)
class _SteppedBlock:
    """A thread block of a channel: its remaining turns, its next turn, and its priority."""

    turns: Iterator[Turn]
    next: Turn | None
    priority: float = 0.0

    def can_advance(self, machine: StepMachine) -> bool:
        """Tells whether its next turn waits for nothing."""
        return self.next is not None and not machine.blocked_by(self.next)

    def advance(self, machine: StepMachine) -> None:
        """Runs its next turn."""
        assert self.next is not None
        machine.execute(self.next)
        self.next = next(self.turns, None)


@dataclass(slots=True)
class _Proxy:
    """The proxy of one thread block of a channel for one peer, with a priority."""

    block: int
    channel: int
    peer: int
    priority: float

    def can_advance(self, machine: StepMachine) -> bool:
        """Tells whether anything is left to carry."""
        return bool(machine.handed.get((self.block, self.channel, self.peer)))

    def advance(self, machine: StepMachine) -> None:
        """Performs the next item."""
        machine.carry(self.block, self.channel, self.peer)


def execute(
    plan: Plan,
    inputs: Sequence[Data],
    op: str = "sum",
    *,
    in_place: bool = False,
    window: int | None = None,
    seed: int = 0,
) -> list[Data]:
    """Runs `plan` on one element a micro-batch; returns receive buffers, (slots, micro-batches).

    inputs: every rank's send buffer, (input slots, micro-batches); copied, never changed. window:
    micro-batches a window, None for all of them (or the Plan's `max_window`). seed: of the
    interleaving.

    Raises:
        Hang: no block can advance.
        Poison: memory that holds nothing is used.
        Overrun: an element outside a buffer.
    """
    machine, kept = _small(plan, inputs, op, in_place)
    _interleave(machine, _blocks(machine, in_place, window), random.Random(seed))
    return _by_slot(machine, outputs(machine, kept))


def launch(
    plan: Plan,
    inputs: Sequence[Data],
    op: str = "sum",
    *,
    count: int,
    micro_batch: int = 1 << 10,
    blocks: BlockTable | None = None,
    in_place: bool = False,
    window: int | None = None,
    seed: int = 0,
) -> list[Data]:
    """Runs `plan` for a call of `count` elements a block; returns every rank's receive buffer,
    flat.

    inputs: every rank's send buffer, (input blocks · count), copied; micro_batch: bytes; blocks: of
    an uneven collective, whose sizes the buffers then have. Elements that a custom collective
    leaves unwritten are 0. Otherwise like `execute`.
    """
    machine_cut = CallCut.of(plan, count, inputs[0].dtype.itemsize, micro_batch, blocks)
    machine, kept = machine_of(plan, inputs, op, in_place, machine_cut)
    _interleave(machine, _blocks(machine, in_place, window), random.Random(seed))
    return outputs(machine, kept)


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

    Those at one time run in any order that works.

    Raises:
        Hang: a primitive is due that its thread block or its waits do not let run yet.
        Poison: memory that holds nothing is used.
    """
    machine, kept = _small(plan, inputs, op, in_place)
    blocks = _blocks(machine, in_place, window)
    for time in np.unique(times):
        _run_until(machine, blocks, times, time)
    return _by_slot(machine, outputs(machine, kept))


def _run_until(
    machine: StepMachine, blocks: list[_SteppedBlock], times: NDArray[np.float64], time: float
) -> None:
    def due() -> list[_SteppedBlock]:
        return [b for b in blocks if b.next and times[b.next.p.row, b.next.m] <= time]

    while waiting := due():
        chosen = next((b for b in waiting if b.next and not machine.blocked_by(b.next)), None)
        if chosen is None:
            raise Hang(_stuck(machine, waiting))
        chosen.advance(machine)
        machine.carry_all()


def _small(
    plan: Plan, inputs: Sequence[Data], op: str, in_place: bool
) -> tuple[StepMachine, list[Data] | None]:
    """Returns a machine of one channel whose micro-batches have one element."""
    batches = max(np.shape(a)[1] for a in inputs)
    cut = CallCut(plan.collective.chunks_per_block * batches, batches, 1, batches, 1)
    return machine_of(plan, [np.asarray(a).reshape(-1) for a in inputs], op, in_place, cut)


def _by_slot(machine: StepMachine, outputs: list[Data]) -> list[Data]:
    return [a.reshape(-1, max(1, machine.cut.batches)) for a in outputs]


def _blocks(machine: StepMachine, in_place: bool, window: int | None) -> list[_SteppedBlock]:
    plan, batches = machine.plan, machine.cut.batches
    most = plan.max_window or max(1, batches)
    window = min(window or most, most)
    blocks = []
    for channel in range(machine.cut.channels):
        rows = _primitives(plan, in_place, channel)
        for b in range(len(plan.tb_ptr) - 1):
            mine = rows[int(plan.tb_ptr[b]) : int(plan.tb_ptr[b + 1])]
            turns = _loop_nest(mine, batches, window)
            blocks.append(_SteppedBlock(turns, next(turns, None)))
    return blocks


def _loop_nest(mine: list[Primitive], batches: int, window: int) -> Iterator[Turn]:
    for first in range(0, batches, window):
        last = min(first + window, batches)
        for p in mine:
            for m in range(first, last):
                yield Turn(p, m, first, last)


def _primitives(plan: Plan, in_place: bool, channel: int) -> list[Primitive]:
    skipped = Guard.OUT_OF_PLACE if in_place else Guard.IN_PLACE
    block_of = plan.block_of().tolist()
    rank_of, moves = plan.rank_of().tolist(), (plan.guard != skipped).tolist()
    return [
        Primitive(
            row=i,
            rank=rank_of[i],
            block=block_of[i],
            channel=channel,
            sub=int(plan.chunk[i]) % plan.collective.chunks_per_block,
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


def _interleave(machine: StepMachine, blocks: list[_SteppedBlock], rng: random.Random) -> None:
    """Runs the free block or proxy of highest priority; priorities change at a drawn rate.

    A low rate starves some for long, which finds faults that a fair order never shows. A launch
    ends when proxies have carried everything.
    """
    change = rng.choice([0.0, 0.05, 0.3, 1.0])
    for block in blocks:
        block.priority = rng.random()
    busy: list[_SteppedBlock | _Proxy] = [b for b in blocks if b.next]
    busy += [_Proxy(*key, rng.random()) for key in _carried_for(machine.plan, machine.cut.channels)]
    busy.sort(key=lambda b: -b.priority)
    left = sum(isinstance(b, _SteppedBlock) for b in busy)
    while True:
        chosen = next((b for b in busy if b.can_advance(machine)), None)
        if chosen is None:
            break
        chosen.advance(machine)
        if isinstance(chosen, _SteppedBlock) and chosen.next is None:
            busy.remove(chosen)
            left -= 1
        elif rng.random() < change:
            chosen.priority = rng.random()
            busy.sort(key=lambda b: -b.priority)
    if left:
        raise Hang(_stuck(machine, [b for b in busy if isinstance(b, _SteppedBlock)]))


def _carried_for(plan: Plan, channels: int) -> list[tuple[int, int, int]]:
    """Returns the (thread block, channel, peer) of every proxy that may have to carry."""
    block, away, puts = plan.block_of(), plan.network_posts(), plan.network_puts()
    posts = zip(block[plan.posts.owner()[away]], plan.posts.rank[away], strict=True)
    places = zip(block[plan.dst.owner()[puts]], plan.dst.rank[puts], strict=True)
    pairs = sorted({(int(b), int(r)) for b, r in (*posts, *places)})
    return [(b, channel, r) for b, r in pairs for channel in range(channels)]


def _stuck(machine: StepMachine, left: list[_SteppedBlock]) -> str:
    waiting = [
        f"rank {t.p.rank} primitive {t.p.row} micro-batch {t.m} waits for {machine.blocked_by(t)}"
        for t in (b.next for b in left)
        if t
    ]
    return "no thread block can advance: " + "; ".join(waiting)
