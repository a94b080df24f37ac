"""msccl: runs an XML file on data as MSCCL's runtimes do, in plain Python.

Reads the table of steps (`lang/msccl`) and none of hccc's plan for it. One call of small chunks:
every step exchanges one message. FIFOs are unbounded here; `proofs/fifo` finds their limits. Flags,
dependencies and operands are as msccl_interpreter.h has them: a receiving step combines the message
with its *local* operand; a wait is for a signalling step at or after the one named, of any block of
the rank, its own included; a nop hands its wait on.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hccc.lang.msccl.load import RECEIVES, SENDS, Algo, Step, ThreadBlock
from hccc.testing.reference import Data
from hccc.testing.step_machine import Hang

Place = tuple[int, str, int]  # (rank, buffer, chunk)
_READS = frozenset({"s", "cpy", "re", "rrc", "rrs", "rrcs"})
_WRITES = frozenset({"r", "cpy", "re", "rcs", "rrc", "rrcs"})


@dataclass(slots=True)
class _Running:
    """A thread block: its next step, and the last step that signalled."""

    rank: int
    block: ThreadBlock
    at: int = 0
    flag: int = -1
    signalled: bool = False

    @property
    def step(self) -> Step | None:
        """The next step, or None."""
        return self.block.steps[self.at] if self.at < len(self.block.steps) else None


@dataclass(slots=True)
class ChunkMemory:
    """Chunks of all ranks. `alias`: the real place of a chunk in a call in place."""

    alias: dict[Place, Place]
    chunks: dict[Place, Data] = field(default_factory=dict)

    def read(self, place: Place) -> Data | None:
        """Returns the data at a place, or None."""
        return self.chunks.get(self.alias.get(place, place))

    def write(self, place: Place, value: Data) -> None:
        """Overwrites a place."""
        self.chunks[self.alias.get(place, place)] = value


def run_xml(
    algo: Algo, inputs: Sequence[Data], alias: dict[Place, Place], seed: int
) -> dict[Place, Data]:
    """Returns the receive buffers after a call: (rank, "o", chunk) → data, where anything is
    written.

    inputs: every rank's send buffer, (chunks, elements). Reductions are sums.

    Raises:
        Hang: no thread block can go on.
        KeyError: a chunk is read that holds nothing.
    """
    memory = ChunkMemory(alias)
    for rank, chunks in enumerate(inputs):
        for k, data in enumerate(chunks):
            memory.write((rank, "i", k), data)
    rng = random.Random(seed)
    blocks = [_Running(g.id, b) for g in algo.gpus for b in g.blocks]
    of_rank = {(b.rank, b.block.id): b for b in blocks}
    fifos: dict[tuple[int, int, int], deque[list[Data]]] = {}
    left = [b for b in blocks if b.step]
    while left:
        rng.shuffle(left)
        moved = [b for b in left if _advance(b, of_rank, memory, fifos)]
        if not moved:
            raise Hang("no thread block of the XML can go on")
        left = [b for b in left if b.step]
    written = ((rank, "o", k) for rank in range(len(inputs)) for k in range(algo.chunks_per_loop))
    found = {place: memory.read(place) for place in written}
    return {place: value for place, value in found.items() if value is not None}


def _advance(
    b: _Running,
    of_rank: dict[tuple[int, int], _Running],
    memory: ChunkMemory,
    fifos: dict[tuple[int, int, int], deque[list[Data]]],
) -> bool:
    """Runs the next step of a block if it can; returns whether it did."""
    step = b.step
    assert step is not None
    if step.depends is not None:
        target, wanted = step.depends
        other = of_rank.get((b.rank, target))
        if other is None or not other.signalled or other.flag < wanted:
            return False
    if step.kind != "nop" and not _perform(b, step, memory, fifos):
        return False
    if step.signals and step.kind != "nop":
        b.flag, b.signalled = b.at, True
    b.at += 1
    return True


def _perform(
    b: _Running,
    step: Step,
    memory: ChunkMemory,
    fifos: dict[tuple[int, int, int], deque[list[Data]]],
) -> bool:
    """Moves the data of a step; returns False while its message is not there."""
    block, message = b.block, None
    if step.kind in RECEIVES and block.recv is not None:
        inbox = fifos.setdefault((block.recv, b.rank, block.channel), deque())
        if not inbox:
            return False
        message = inbox.popleft()
    values = []
    for k in range(step.chunks):
        parts = [message[k]] if message is not None else []
        if step.kind in _READS:
            parts.append(_held(memory, b.rank, step.src, k))
        if step.kind == "re":
            parts.append(_held(memory, b.rank, step.dst, k))
        value = np.add.reduce(parts)
        if step.kind in _WRITES:
            memory.write((b.rank, step.dst[0], step.dst[1] + k), value)
        values.append(value)
    if step.kind in SENDS and block.send is not None:
        fifos.setdefault((b.rank, block.send, block.channel), deque()).append(values)
    return True


def _held(memory: ChunkMemory, rank: int, where: tuple[str, int], k: int) -> Data:
    place = rank, where[0], where[1] + k
    value = memory.read(place)
    if value is None:
        raise KeyError(place)
    return value
