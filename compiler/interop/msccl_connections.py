"""msccl_connections: the steps of an MSCCL schedule other than nops, and their connections.

A connection is a queue from one rank to another on a channel. The steps at its ends, and their
order, follow from the thread blocks: each end belongs to one block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hccc.base.diagnostics import fail
from hccc.lang.msccl.load import RECEIVES, SENDS, Algo, Gpu, Step, ThreadBlock

SENT, RECEIVED = 0, 1
Key = tuple[int, int, int]  # from rank, to rank, channel


@dataclass(frozen=True, slots=True)
class Located:
    """A step other than a nop, and its place.

    position: in its block, nops counted; row: of its first primitive, over all blocks; waiting: the
    steps whose dependencies it waits for: the nops right before it, and the step itself.
    """

    rank: int
    block: ThreadBlock
    step: Step
    position: int
    row: int
    waiting: tuple[Step, ...]

    def ends(self) -> Iterator[tuple[Key, int]]:
        """Yields the connections that the step uses, and the end it is at."""
        if self.step.kind in SENDS and self.block.send is not None:
            yield (self.rank, self.block.send, self.block.channel), SENT
        if self.step.kind in RECEIVES and self.block.recv is not None:
            yield (self.block.recv, self.rank, self.block.channel), RECEIVED


@dataclass(frozen=True, slots=True)
class Connection:
    """A queue, and the steps at its two ends in their order."""

    src: int
    dst: int
    channel: int
    sent: tuple[Located, ...]
    received: tuple[Located, ...]

    @property
    def length(self) -> int:
        """Messages of one micro-batch, a chunk each."""
        return sum(at.step.chunks for at in self.sent)


def located(algo: Algo, n_ranks: int) -> list[Located]:
    """Lists the steps of `algo` other than nops, in file order. O(steps).

    Raises:
        UserError E512: a step that its block has no peer for, or a nop that nothing follows.
    """
    steps: list[Located] = []
    row = 0
    for gpu in algo.gpus:
        for block in gpu.blocks:
            waiting: list[Step] = []
            for position, step in enumerate(block.steps):
                _check(algo, gpu, block, step, n_ranks)
                if step.depends is not None:
                    waiting.append(step)
                if step.kind == "nop":
                    continue
                steps.append(Located(gpu.id, block, step, position, row, tuple(waiting)))
                row, waiting = row + step.chunks, []
            if waiting:
                message = "a nop at the end of a thread block waits for nothing"
                raise fail("E512", message, algo.span(waiting[0].line))
    return steps


def _check(algo: Algo, gpu: Gpu, block: ThreadBlock, step: Step, n_ranks: int) -> None:
    for peer, needed in ((block.send, SENDS), (block.recv, RECEIVES)):
        if step.kind in needed and peer is None:
            what = "send to" if needed is SENDS else "receive from"
            message = f"a {step.kind} step, but the block has no peer to {what}"
            raise fail("E512", message, algo.span(step.line))
        if peer is not None and (peer == gpu.id or peer >= n_ranks):
            raise fail("E512", f"gpu {gpu.id} talks to gpu {peer}", algo.span(step.line))


def connections(algo: Algo, steps: list[Located]) -> list[Connection]:
    """Lists the connections of `steps`, numbered by first use. O(steps).

    Raises:
        UserError E514: two thread blocks are at one end.
    """
    users: dict[Key, tuple[list[Located], list[Located]]] = {}
    for at in steps:
        for key, end in at.ends():
            here = users.setdefault(key, ([], []))[end]
            if here and here[0].block.id != at.block.id:
                raise fail(
                    "E514",
                    f"two thread blocks of gpu {at.rank} use the connection with gpu "
                    f"{key[1 - end]} on channel {key[2]}; each would count its messages alone",
                    algo.span(at.step.line),
                )
            here.append(at)
    return [Connection(*key, tuple(sent), tuple(got)) for key, (sent, got) in users.items()]


def check_matched(algo: Algo, connection: Connection) -> None:
    """Raises UserError E515 unless both ends exchange the same messages."""
    sent, received = connection.sent, connection.received
    where = f"from gpu {connection.src} to gpu {connection.dst} on channel {connection.channel}"
    if len(sent) != len(received):
        message = f"{len(sent)} sends but {len(received)} receives {where}"
        raise fail("E515", message, algo.span((sent or received)[0].step.line))
    for a, b in zip(sent, received, strict=True):
        if a.step.chunks != b.step.chunks:
            message = f"a send of {a.step.chunks} chunks meets a receive of {b.step.chunks} {where}"
            raise fail("E515", message, algo.span(b.step.line))
