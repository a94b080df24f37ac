"""raise_program: raises an imported Plan back to a Program, so that hccc can schedule it anew.

A Program moves whole values between (rank, chunk) places; a Plan moves memory. The Plan is run in a
valid order, and a message becomes a transfer when its value is needed: when it is sent on, or at
the end in a receive slot. Until then it may sit in scratch or be reduced with others, and the
transfers it turns into are rrc. What one rank holds of one chunk must be one value at a time; a
Plan that keeps two (and sends both) cannot be raised. `verify` then proves the Program like any
other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hccc.analysis.execution_order import execution_order
from hccc.analysis.locations import locate
from hccc.analysis.waits import enforced
from hccc.base.diagnostics import fail
from hccc.ir.collective import OpType
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Transport
from hccc.ir.program import TRANSFER, Op, Program

Place = tuple[int, int]  # rank, chunk


@dataclass(frozen=True, slots=True)
class _Message:
    """A value on its way: the sender, and the ranks whose pieces it contains (one bit a rank)."""

    src: int
    pieces: int


@dataclass(slots=True)
class _Value:
    """The value in a location. `pending`: messages that it contains and no transfer covers yet."""

    chunk: int
    pieces: int
    pending: tuple[_Message, ...]


@dataclass(slots=True)
class _Steps:
    """Chooses for each transfer the first step that docs/transfer-language.md allows."""

    changed: dict[Place, tuple[int, Op]] = field(default_factory=dict)
    read: dict[Place, int] = field(default_factory=dict)

    def next(self, src: Place, dst: Place, op: Op) -> int:
        """Returns the step of a transfer and records it."""
        step = self.changed.get(src, (-1, op))[0] + 1
        last, how = self.changed.get(dst, (-1, op))
        together = op is Op.RRC and how is Op.RRC  # reductions may share a step
        step = max(step, last + (not together), self.read.get(dst, -1) + 1)
        self.changed[dst] = (step, op)
        self.read[src] = max(self.read.get(src, -1), step)
        return step


class _Recovery:
    """The state of the run: the Program's value at every place, and the transfers so far."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._c = plan, plan.collective
        self._held: dict[Place, int] = {}
        self._steps = _Steps()
        self.transfers: list[tuple[int, ...]] = []

    def _value(self, place: Place) -> int:
        if place not in self._held:
            rank, chunk = place
            holds = bool(self._c.holds(np.int64(rank), np.int64(chunk)))  # type: ignore[arg-type]
            self._held[place] = 1 << rank if holds else 0
        return self._held[place]

    def settle(self, rank: int, value: _Value) -> None:
        """Adds the transfers that make `rank` hold `value` of its chunk. Raises E320 if none
        can."""
        place = (rank, value.chunk)
        for message in value.pending:
            if self._value(place) == value.pieces:
                break
            self._transfer(message, place, value.pieces)
        if self._value(place) != value.pieces:
            raise self._two_values(rank, value.chunk)

    def _transfer(self, message: _Message, place: Place, goal: int) -> None:
        rank, chunk = place
        if self._value((message.src, chunk)) != message.pieces:
            raise self._two_values(message.src, chunk)
        here = self._value(place)
        adds = here and not here & message.pieces and not here & ~goal
        op = Op.RRC if adds else Op.RECV
        step = self._steps.next((message.src, chunk), place, op)
        self.transfers.append((message.src, rank, step, chunk, 0, int(op)))
        self._held[place] = here | message.pieces if adds else message.pieces

    def _two_values(self, rank: int, chunk: int) -> Exception:
        return fail(
            "E320",
            f"{self._plan.name} cannot be rescheduled: rank {rank} keeps two values of chunk "
            f"{chunk} at once, and a program has one",
            help="run it as it is, without --reschedule",
        )


def raise_program(plan: Plan) -> Program:
    """Returns the Program that `plan` executes; `plan` must have passed its proofs.

    O(primitives · R/64) in Python: imported plans have thousands of primitives, not millions.

    Raises:
        UserError E320: a rank keeps two values of one chunk, the plan's result is unknown, or it
        puts or gets.
    """
    c = plan.collective
    if c.op is OpType.CUSTOM:
        raise fail("E320", f"{plan.name} cannot be rescheduled: a custom collective has no name")
    if plan.transport is Transport.DIRECT or plan.one_sided():
        kind = plan.transport.name.lower()
        message = (
            f"{plan.name} cannot be rescheduled: a {kind} plan has puts, no messages to follow"
        )
        raise fail("E320", message, help="give the program it was compiled from")
    recovery = _Recovery(plan)
    held = _run(plan, recovery)
    for rank in range(c.n_ranks):
        for value in held.get(rank, {}).values():
            if value.pending and bool(c.wants(rank, value.chunk)):  # type: ignore[arg-type]
                recovery.settle(rank, value)
    names = TRANSFER.names or ()
    table = np.array(recovery.transfers, np.int32).reshape(-1, len(names))
    rows = np.zeros(len(table), TRANSFER)
    for k, key in enumerate(names):
        rows[key] = table[:, k]
    rows = rows[np.argsort(rows["step"], kind="stable")]
    return Program(
        plan.name, c, plan.channels, plan.warps, plan.gpus_per_node, plan.nics_per_node, rows
    )


def _run(plan: Plan, recovery: _Recovery) -> dict[int, dict[int, _Value]]:
    """Runs the Plan; returns the values that receive slots end with, by rank and location."""
    where = locate(plan, in_place=plan.in_place)
    src, dst = where.src.tolist(), where.dst.tolist()
    rank_of, queue = plan.rank_of(), int(Buffer.QUEUE)
    memory: dict[int, _Value] = {}
    for x in np.flatnonzero(where.start >= 0):
        memory[int(x)] = _Value(int(where.start[x]), 1 << int(where.start_rank[x]), ())
    ends: dict[int, dict[int, _Value]] = {}
    for i in execution_order(plan, enforced(plan)).tolist():
        rank = int(rank_of[i])
        sources = [memory[x] for x in src[plan.src.ptr[i] : plan.src.ptr[i + 1]]]
        pieces = 0
        pending: tuple[_Message, ...] = ()
        for value in sources:
            pieces, pending = pieces | value.pieces, pending + value.pending
        made = _Value(sources[0].chunk, pieces, pending)
        for k in range(int(plan.dst.ptr[i]), int(plan.dst.ptr[i + 1])):
            x = dst[k]
            if plan.dst.buffer[k] == queue:
                recovery.settle(rank, made)
                memory[x] = _Value(made.chunk, pieces, (_Message(rank, pieces),))
                continue
            memory[x] = made
            if where.want[x] >= 0:
                ends.setdefault(rank, {})[x] = made
    return ends
