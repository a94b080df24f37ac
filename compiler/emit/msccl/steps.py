"""steps: a staged Plan as MSCCL's thread blocks and steps, before any text.

A primitive becomes one step. A primitive that the wanted kind of call skips (`Guard`) leaves only
its order: primitives that waited for it wait for its predecessors. A wait becomes the step's
`depid`/`deps`, further ones nops before it (msccl-formats §4, §5). Channels become instances: part
k of slot c is index c·K + k, on channels of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from hccc.base.diagnostics import UserError, fail
from hccc.emit.order import Order
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Operands, Transport

STAGED_HELP = "compile with --transport staged --allocator connection"
MAX_COUNT = 71  # MSCCL_MAX_COUNT - 1
MAX_FUSED = 16  # reductions into one place that the runtimes make one
_LETTER = {Buffer.INPUT: "i", Buffer.OUTPUT: "o", Buffer.SCRATCH: "s"}
Place = tuple[str, int]  # buffer letter, offset in chunks


@dataclass(slots=True)
class MscclStep:
    """One step, before instances; `waits`: (block of the rank, step ordinal) it waits for."""

    kind: str
    src: Place
    dst: Place
    count: int
    rows: range
    waits: dict[int, int] = field(default_factory=dict)
    signals: bool = False


@dataclass(slots=True)
class MscclBlock:
    """One thread block: its queues, None for none, and its steps."""

    rank: int
    row: int  # its first primitive, for messages
    send: int | None = None
    recv: int | None = None
    steps: list[MscclStep] = field(default_factory=list)

    def length(self) -> int:
        """Returns the number of steps in the file, with nops."""
        return sum(max(1, len(s.waits)) for s in self.steps)

    def position(self, ordinal: int) -> int:
        """Returns the number in the file of the `ordinal`-th step."""
        return sum(max(1, len(s.waits)) for s in self.steps[: ordinal + 1]) - 1


def steps(plan: Plan, in_place: bool | None) -> list[list[MscclBlock]]:
    """Returns the blocks of every rank, for calls in place, out of place, or both (None).

    Raises:
        UserError E520: it puts or gets; E521: a thread block with several peers; E525: no step
        performs a primitive.
    """
    if plan.transport is Transport.DIRECT or plan.one_sided():
        raise fail("E520", "MSCCL's steps send and receive; this plan puts", help=STAGED_HELP)
    return _StepWriter(plan, in_place).ranks()


class _StepWriter:
    """Turns primitives into steps, block by block."""

    def __init__(self, plan: Plan, in_place: bool | None) -> None:
        self._plan = plan
        self._stage_in_scratch = in_place is True
        self._order = Order(plan, in_place)
        self._rank, self._block = self._order.rank, self._order.block
        base = np.cumsum(plan.n_tb) - plan.n_tb
        self._tb = self._block - base[self._rank]
        self._ordinal: dict[int, int] = {}  # primitive -> step of its block

    def ranks(self) -> list[list[MscclBlock]]:
        ranks: list[list[MscclBlock]] = [[] for _ in range(self._plan.n_ranks)]
        number: dict[int, int] = {}
        for b, rank in enumerate(self._plan.block_rank()):
            block = self._steps_of(b, int(rank))
            if block.steps:
                number[b] = len(ranks[rank])
                ranks[rank].append(block)
        for blocks in ranks:
            for block in blocks:
                self._add_waits(block, number, blocks)
        return [_waited_first(blocks) for blocks in ranks]

    def _steps_of(self, b: int, rank: int) -> MscclBlock:
        lo, hi = self._plan.tb_ptr[b : b + 2].tolist()
        block = MscclBlock(rank, lo)
        for row in range(lo, hi):
            if not self._order.active[row]:
                continue
            step = self._step(row, block)
            if block.steps and self._continues(block.steps[-1], step):
                last = block.steps[-1]
                last.count, last.rows = last.count + 1, range(last.rows.start, row + 1)
            else:
                block.steps.append(step)
            self._ordinal[row] = len(block.steps) - 1
        return block

    def _continues(self, last: MscclStep, step: MscclStep) -> bool:
        """Tells whether `step` is the next chunk of an imported step."""
        plan, row = self._plan, step.rows.start
        k = last.count
        return (
            plan.max_window == 1
            and plan.channels == 1
            and last.rows.stop == row
            and plan.sub[row] == plan.sub[row - 1]
            and k < MAX_COUNT
            and last.kind == step.kind
            and (last.src[0], last.src[1] + k) == step.src
            and (last.dst[0], last.dst[1] + k) == step.dst
        )

    def _step(self, row: int, block: MscclBlock) -> MscclStep:
        """Returns the step that performs primitive `row`."""
        taken, sources = self._operands(self._plan.src, row)
        given, targets = self._operands(self._plan.dst, row)
        shape = (len(taken), len(sources), len(given), len(targets))
        kind = _KINDS.get(shape)
        if shape == (0, 2, 0, 1):
            kind = "re" if targets[0] in sources else None
            sources = [p for p in sources if p != targets[0]][:1]
        if kind is None or (kind == "re" and not sources):
            raise self._inexpressible(row)
        block.recv = self._joined(block.recv, taken, row)
        block.send = self._joined(block.send, given, row)
        # Fields of the other end are decoration; the own ones are in bounds at every runtime.
        place = (sources or targets)[0]
        target = (targets or [place])[0]
        source = place if sources else target
        return MscclStep(kind, source, target, 1, range(row, row + 1))

    def _operands(self, operands: Operands, row: int) -> tuple[list[int], list[Place]]:
        """Returns (queues, places in own memory) of one end of a primitive."""
        queues, places = [], []
        for k in range(operands.ptr[row], operands.ptr[row + 1]):
            buffer, slot = Buffer(operands.buffer[k]), int(operands.slot[k])
            if buffer is Buffer.QUEUE:
                queues.append(int(operands.rank[k]))
            elif buffer is Buffer.STAGE:
                extra = int(self._plan.scratch_slots[self._rank[row]])
                places.append(("s", extra + slot) if self._stage_in_scratch else ("i", slot))
            elif buffer in _LETTER and operands.rank[k] == self._rank[row]:
                places.append((_LETTER[buffer], slot))
            else:
                raise self._inexpressible(row)
        return queues, places

    def _joined(self, queue: int | None, found: list[int], row: int) -> int | None:
        for other in found:
            if queue is not None and queue != other:
                raise fail(
                    "E521",
                    f"block {self._tb[row]} of rank {self._rank[row]} talks to several peers; "
                    "MSCCL's talk to one each way",
                    help=STAGED_HELP,
                )
            queue = other
        return queue

    def _inexpressible(self, row: int) -> UserError:
        where = f"rank {self._rank[row]} block {self._tb[row]}"
        return fail(
            "E525",
            f"no step of MSCCL does what primitive {row - self._order.first(row)} of {where} does: "
            f"{_count(self._plan.src, row)} sources, {_count(self._plan.dst, row)} destinations",
            help="compile with --transport staged --allocator connection --fuse none",
        )

    def _add_waits(
        self, block: MscclBlock, number: dict[int, int], blocks: list[MscclBlock]
    ) -> None:
        """Adds waits on other blocks of the rank; a wait that the block made before needs no
        repeat."""
        waited: dict[int, int] = {}
        for step in block.steps:
            for pred in sorted(self._order.preds(step.rows)):
                if self._rank[pred] != block.rank:
                    raise fail("E520", "a flag crosses ranks; MSCCL's do not", help=STAGED_HELP)
                target, ordinal = number[int(self._block[pred])], self._ordinal[pred]
                if blocks[target] is block or waited.get(target, -1) >= ordinal:
                    continue
                waited[target] = ordinal
                step.waits[target] = ordinal
            for target, ordinal in step.waits.items():
                blocks[target].steps[ordinal].signals = True


# (queue sources, own sources, queue destinations, own destinations) -> step type
_KINDS = {
    (0, 1, 0, 1): "cpy",
    (0, 1, 1, 0): "s",
    (1, 0, 0, 1): "r",
    (1, 0, 1, 1): "rcs",
    (1, 1, 0, 1): "rrc",
    (1, 1, 1, 0): "rrs",
    (1, 1, 1, 1): "rrcs",
}


def _count(operands: Operands, row: int) -> int:
    return int(operands.ptr[row + 1] - operands.ptr[row])


def _waited_first(blocks: list[MscclBlock]) -> list[MscclBlock]:
    """Puts blocks that others wait for first: the runtimes number those with 8 bits."""
    order = sorted(range(len(blocks)), key=lambda b: not any(s.signals for s in blocks[b].steps))
    number = {b: i for i, b in enumerate(order)}
    for block in blocks:
        for step in block.steps:
            step.waits = {number[b]: ordinal for b, ordinal in step.waits.items()}
        _part_reductions(block.steps)
    return [blocks[b] for b in order]


def _part_reductions(block: list[MscclStep]) -> None:
    """Signals where a run of reductions must end.

    The runtimes make one of successive `re` into one place, whatever their counts, and hold the
    sources of 16 in an array; a signalling step ends the run (topo.cc:1045-1134).
    """
    run = 0
    for step, after in pairwise(block):
        run = run + 1 if step.kind == "re" else 0
        joins = (
            after.kind == step.kind == "re"
            and after.dst == step.dst
            and after.src[0] == step.src[0]
            and not after.waits
        )
        if joins and (run == MAX_FUSED or after.count != step.count or _overlaps(after)):
            step.signals = True
        if step.signals or not joins:
            run = 0


def _overlaps(step: MscclStep) -> bool:
    """Tells whether the step reads the result of the reduction before it, into the same place."""
    (a, i), (b, j) = step.src, step.dst
    return a == b and abs(i - j) < step.count
