"""MSCCL XML to Plan: thread blocks, queues and flags as the XML's runtimes execute them.

Semantics (refs to msccl-formats.md §1.3-1.4): steps run in file order; a connection (src, dst,
channel) is a queue; a step that receives combines the queue's message with its *local* operand,
whatever the cross-rank fields say; `depid`/`deps` waits for the first signalling step of that
block at or after the one named; a nop hands its dependency on. A step of `cnt` chunks becomes
`cnt` primitives of one line. The whole program repeats for every tile: window 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from hccc.diagnostics import UserError, fail
from hccc.ir.arrays import Csr
from hccc.ir.collective import Collective, OpType, block_count
from hccc.ir.plan import Plan, Posts
from hccc.ir.primitives import Buffer, Operands, Queues, Transport
from hccc.lang.msccl_xml import RECEIVES, SENDS, Algo, Gpu, Step, ThreadBlock

COLLECTIVES = {
    "allreduce": OpType.ALLREDUCE,
    "allgather": OpType.ALLGATHER,
    "reduce": OpType.REDUCE,
    "broadcast": OpType.BROADCAST,
    "alltoall": OpType.ALLTOALL,
    "reduce_scatter": OpType.REDUCESCATTER,
    "reducescatter": OpType.REDUCESCATTER,
    "gather": OpType.GATHER,
    "scatter": OpType.SCATTER,
    "custom": OpType.CUSTOM,
}
FIFO_MESSAGES = {"Simple": 2, "LL": 8, "LL128": 8}
_BUFFERS = {"i": Buffer.INPUT, "o": Buffer.OUTPUT, "s": Buffer.SCRATCH}


def to_plan(algo: Algo) -> Plan:
    """The Plan that `algo` describes; chunk and final are for `passes/label` to fill in.

    Raises:
        UserError E51x: what the runtimes would index out of bounds, corrupt or wait on for ever.
    """
    c = _collective(algo)
    builder = _Builder(algo, c)
    for gpu in algo.gpus:
        for block in gpu.blocks:
            builder.add(gpu, block)
    return builder.plan()


def _collective(algo: Algo) -> Collective:
    op = COLLECTIVES.get(algo.collective)
    if op is None:
        known = ", ".join(COLLECTIVES)
        raise fail("E511", f"coll={algo.collective!r} is not one of {known}", algo.span(1))
    n, chunks = len(algo.gpus), algo.chunks_per_loop
    if n < 2:
        raise fail("E511", "a collective needs at least two ranks", algo.span(1))
    total = chunks * n if op in (OpType.ALLTOALL, OpType.CUSTOM) else chunks
    if total % block_count(op, n):
        raise fail("E511", f"nchunksperloop={chunks} does not divide among {n} ranks", algo.span(1))
    return Collective(op, n, total)


@dataclass(slots=True)
class _Rows:
    """Operand rows under construction."""

    count: list[int] = field(default_factory=list)
    rank: list[int] = field(default_factory=list)
    buffer: list[int] = field(default_factory=list)
    slot: list[int] = field(default_factory=list)

    def add(self, operands: list[tuple[int, int, int]]) -> None:
        self.count.append(len(operands))
        for rank, buffer, slot in operands:
            self.rank.append(rank)
            self.buffer.append(buffer)
            self.slot.append(slot)

    def operands(self) -> Operands:
        ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.count, dtype=np.int64)])
        return Operands(ptr, np.array(self.rank), np.array(self.buffer), np.array(self.slot))


class _Builder:
    """Collects primitives block by block, then joins queues and flags."""

    def __init__(self, algo: Algo, collective: Collective) -> None:
        self._algo, self._c = algo, collective
        self._queues: dict[tuple[int, int, int], int] = {}
        self._sent: dict[int, list[Step]] = {}
        self._received: dict[int, list[Step]] = {}
        self._turns: dict[tuple[int, str], int] = {}
        self._src, self._dst = _Rows(), _Rows()
        self._line: list[int] = []
        self._step: list[int] = []  # which step, over all blocks: steps may share a line
        self._waits: list[tuple[int, int, ThreadBlock, Step]] = []  # (row, rank, block, step)
        self._tb_end: list[int] = []
        self._last_row: dict[tuple[int, int, int], int] = {}  # (rank, block, step) -> row

    def add(self, gpu: Gpu, block: ThreadBlock) -> None:
        """Appends one thread block."""
        pending: list[Step] = []
        for position, step in enumerate(block.steps):
            self._check(gpu, block, step)
            if step.depends is not None:
                pending.append(step)
            if step.kind == "nop":
                continue
            first = len(self._line)
            self._waits += [(first, gpu.id, block, s) for s in pending]
            pending = []
            for k in range(step.count):
                self._primitive(gpu, block, step, k)
            self._last_row[gpu.id, block.id, position] = len(self._line) - 1
            self._exchange(gpu, block, step)
        if pending:
            raise self._wrong(
                "E512", "a nop at the end of a thread block waits for nothing", pending[0]
            )
        self._tb_end.append(len(self._line))

    def _wrong(self, code: str, message: str, step: Step) -> UserError:
        return fail(code, message, self._algo.span(step.line))

    def _check(self, gpu: Gpu, block: ThreadBlock, step: Step) -> None:
        for peer, needed in ((block.send, SENDS), (block.recv, RECEIVES)):
            if step.kind in needed and peer is None:
                what = "send to" if needed is SENDS else "receive from"
                raise self._wrong(
                    "E512", f"a {step.kind} step, but the block has no peer to {what}", step
                )
            if peer is not None and (peer == gpu.id or peer >= self._c.n_ranks):
                raise self._wrong("E512", f"gpu {gpu.id} talks to gpu {peer}", step)

    def _place(self, gpu: Gpu, step: Step, where: tuple[str, int], k: int) -> tuple[int, int, int]:
        letter, offset = where
        c = self._c
        room = {
            "i": c.input_blocks(gpu.id) * c.chunks_per_block,
            "o": c.output_blocks(gpu.id) * c.chunks_per_block,
            "s": gpu.chunks["s"],
        }[letter]
        if not 0 <= offset + k < room:
            raise self._wrong(
                "E513",
                f"chunk {offset + k} of buffer {letter!r} of gpu {gpu.id}, which has {room}",
                step,
            )
        return gpu.id, int(_BUFFERS[letter]), offset + k

    def _queue(self, src: int, dst: int, channel: int) -> int:
        return self._queues.setdefault((src, dst, channel), len(self._queues))

    def _message(self, queue: int, end: str) -> tuple[int, int, int]:
        turn = self._turns.get((queue, end), 0)
        self._turns[queue, end] = turn + 1
        return queue, int(Buffer.QUEUE), turn

    def _primitive(self, gpu: Gpu, block: ThreadBlock, step: Step, k: int) -> None:
        """One chunk of a step as one reduceCopy."""
        sources, targets = [], []
        if step.kind in RECEIVES and block.recv is not None:
            sources.append(self._message(self._queue(block.recv, gpu.id, block.channel), "recv"))
        if step.kind == "re":
            sources.append(self._place(gpu, step, step.dst, k))
        if step.kind in ("s", "cpy", "re", "rrc", "rrs", "rrcs"):
            sources.append(self._place(gpu, step, step.src, k))
        if step.kind in ("r", "cpy", "re", "rcs", "rrc", "rrcs"):
            targets.append(self._place(gpu, step, step.dst, k))
        if step.kind in SENDS and block.send is not None:
            targets.append(self._message(self._queue(gpu.id, block.send, block.channel), "send"))
        self._src.add(sources)
        self._dst.add(targets)
        self._line.append(step.line)
        self._step.append(len(self._last_row))

    def _exchange(self, gpu: Gpu, block: ThreadBlock, step: Step) -> None:
        """Notes which steps talk over which queue, and that one block a side does."""
        sides = (
            (SENDS, block.send, self._sent, lambda p: (gpu.id, p, block.channel)),
            (RECEIVES, block.recv, self._received, lambda p: (p, gpu.id, block.channel)),
        )
        for kinds, peer, table, key in sides:
            if step.kind not in kinds or peer is None:
                continue
            steps = table.setdefault(self._queue(*key(peer)), [])
            if steps and steps[0] not in block.steps:
                raise self._wrong(
                    "E514",
                    f"two thread blocks of gpu {gpu.id} use the connection with gpu {peer} on "
                    f"channel {block.channel}; each would count its messages alone",
                    step,
                )
            steps.append(step)

    def plan(self) -> Plan:
        """The finished Plan."""
        self._match_ends()
        waits, posts, n_flags = self._flags()
        n = self._c.n_ranks
        n_tb = np.array([len(g.blocks) for g in self._algo.gpus])
        queues, n_flags = self._queue_table(n_flags)
        rows, zeros = len(self._line), np.zeros(len(self._line), np.int32)
        return Plan(
            name=_identifier(self._algo.name),
            source=self._algo.source.name,
            collective=self._c,
            channels=1,
            warps=16,
            gpus_per_node=n,
            nics_per_node=n,
            transport=Transport.STAGED,
            queue_slots=FIFO_MESSAGES[self._algo.protocol],
            n_tb=n_tb,
            tb_ptr=np.concatenate([np.zeros(1, np.int64), np.array(self._tb_end, np.int64)]),
            chunk=zeros,
            sub=np.array(self._step, np.int32),
            line=np.array(self._line, np.int32),
            final=np.zeros(rows, np.uint8),
            guard=np.zeros(rows, np.uint8),
            src=self._src.operands(),
            dst=self._dst.operands(),
            waits=waits,
            posts=posts,
            n_flags=n_flags,
            scratch_slots=np.array([g.chunks["s"] for g in self._algo.gpus]),
            stage_slots=np.zeros(n, np.int32),
            queues=queues,
            max_window=1,
            in_place=self._algo.in_place,
            out_of_place=self._algo.out_of_place,
            keeps_input=int(Buffer.INPUT) not in self._dst.buffer,
        )

    def _match_ends(self) -> None:
        """Both ends of every connection exchange the same messages."""
        for (src, dst, channel), queue in self._queues.items():
            sent, received = self._sent.get(queue, []), self._received.get(queue, [])
            where = f"from gpu {src} to gpu {dst} on channel {channel}"
            if len(sent) != len(received):
                step = (sent or received)[0]
                raise self._wrong(
                    "E515", f"{len(sent)} sends but {len(received)} receives {where}", step
                )
            for a, b in zip(sent, received, strict=True):
                if a.count != b.count:
                    raise self._wrong(
                        "E515",
                        f"a send of {a.count} chunks meets a receive of {b.count} {where}",
                        b,
                    )

    def _dependencies(self) -> Iterator[tuple[int, int, int]]:
        """(waiting row, rank, row waited for) of every dependency between two blocks."""
        for row, rank, block, step in self._waits:
            target, first = step.depends or (0, 0)
            blocks = self._algo.gpus[rank].blocks
            if target >= len(blocks):
                raise self._wrong(
                    "E516", f"depid={target}, but gpu {rank} has {len(blocks)} blocks", step
                )
            if target == block.id:
                continue
            steps = blocks[target].steps
            signalling = [
                i
                for i in range(max(first, 0), len(steps))
                if steps[i].signals and steps[i].kind != "nop"
            ]
            if not signalling:
                raise self._wrong(
                    "E516",
                    f"no step of block {target} at or after {first} signals: this waits for ever",
                    step,
                )
            yield row, rank, self._last_row[rank, target, signalling[0]]

    def _flags(self) -> tuple[Csr, Posts, np.ndarray]:
        """A flag for every primitive that is waited for, numbered at its rank by first wait."""
        edges = sorted(set(self._dependencies()))
        flag: dict[int, int] = {}
        counts = np.zeros(self._c.n_ranks, np.int64)
        owner: dict[int, int] = {}
        for _, rank, pred in edges:
            if pred not in flag:
                flag[pred], owner[pred] = int(counts[rank]), rank
                counts[rank] += 1
        rows = len(self._line)
        wait_ptr = np.zeros(rows + 1, np.int64)
        np.add.at(wait_ptr, [row + 1 for row, _, _ in edges], 1)
        post_ptr = np.zeros(rows + 1, np.int64)
        posters = sorted(flag)
        np.add.at(post_ptr, [p + 1 for p in posters], 1)
        waits = Csr(np.cumsum(wait_ptr), np.array([flag[p] for _, _, p in edges], np.int32))
        posts = Posts(
            np.cumsum(post_ptr),
            np.array([owner[p] for p in posters]),
            np.array([flag[p] for p in posters]),
        )
        return waits, posts, counts

    def _queue_table(self, n_flags: np.ndarray) -> tuple[Queues, np.ndarray]:
        total = n_flags.astype(np.int64)
        data, credit = [], []
        for src, dst, _ in self._queues:
            data.append(int(total[dst]))
            total[dst] += 1
            credit.append(int(total[src]))
            total[src] += 1
        ends = list(self._queues)
        length = [sum(s.count for s in self._sent[q]) for q in self._queues.values()]
        queues = Queues(
            np.array([e[0] for e in ends]), np.array([e[1] for e in ends]), np.array(length),
            np.array(data), np.array(credit),
        )  # fmt: skip
        return queues, total


def _identifier(name: str) -> str:
    """`name` as a C identifier."""
    clean = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")[:63] or "msccl"
    return clean if clean[0].isalpha() or clean[0] == "_" else f"a{clean}"[:63]
