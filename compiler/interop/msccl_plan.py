"""MSCCL XML to Plan: thread blocks, queues and flags as the XML's runtimes execute them.

Semantics (msccl-formats §4, §5): steps run in file order; a connection (src, dst,
channel) is a queue; a step that receives combines the queue's message with its *local* operand,
whatever the cross-rank fields say; `depid`/`deps` waits for the first signalling step of that
block at or after the one named, which in its own block must be one that comes before it; a nop
hands its dependency on. A step of `cnt` chunks becomes
`cnt` primitives of one line. The whole program repeats for every tile: window 1.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from hccc.diagnostics import UserError, fail
from hccc.interop.msccl_operands import Ends, Place
from hccc.ir.arrays import I8, Csr
from hccc.ir.collective import Collective, OpType, block_count
from hccc.ir.names import objection, source_name
from hccc.ir.plan import Plan, Posts
from hccc.ir.primitives import Buffer, Queues, Transport
from hccc.lang.msccl.load import RECEIVES, SENDS, Algo, Gpu, Step, ThreadBlock

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
FREE_SLOTS = 1 << 20  # buffers may have so many more chunks than steps touch
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


class _Builder:
    """Collects primitives block by block, then joins queues and flags."""

    def __init__(self, algo: Algo, collective: Collective) -> None:
        self._algo, self._c = algo, collective
        self._queues: dict[tuple[int, int, int], int] = {}
        self._sent: dict[int, list[Step]] = {}
        self._received: dict[int, list[Step]] = {}
        self._server: dict[tuple[int, str], int] = {}  # (queue, end) -> thread block
        self._turns: dict[tuple[int, str], int] = {}
        self._src, self._dst = Ends(), Ends()
        self._line: list[int] = []  # of each step but nops, over all blocks
        self._count: list[int] = []
        self._rows = 0
        self._waits: list[tuple[int, int, ThreadBlock, Step]] = []  # (row, rank, block, step)
        self._position: dict[int, int] = {}  # of the step that a waiting row is of, in its block
        self._tb_end = [0]
        self._n_tb = np.zeros(collective.n_ranks, np.int64)
        self._signalling: dict[tuple[int, int], list[int]] = {}
        self._room = {
            (gpu.id, letter): chunks
            for gpu in algo.gpus
            for letter, chunks in (
                ("i", collective.input_blocks(gpu.id) * collective.chunks_per_block),
                ("o", collective.output_blocks(gpu.id) * collective.chunks_per_block),
                ("s", gpu.chunks["s"]),
            )
        }
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
            if pending:
                self._position[self._rows] = position
            self._waits += [(self._rows, gpu.id, block, s) for s in pending]
            pending = []
            self._exchange(gpu, block, step)
            self._primitives(gpu, block, step)
            self._last_row[gpu.id, block.id, position] = self._rows - 1
        if pending:
            raise self._wrong(
                "E512", "a nop at the end of a thread block waits for nothing", pending[0]
            )
        if self._rows > self._tb_end[-1]:  # blocks that do nothing are left out
            self._tb_end.append(self._rows)
            self._n_tb[gpu.id] += 1

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

    def _place(self, gpu: Gpu, step: Step, where: tuple[str, int]) -> Place:
        """Where the first of the step's chunks lies; all of them must be there."""
        letter, offset = where
        room = self._room[gpu.id, letter]
        if not 0 <= offset <= room - step.chunks:
            outside = offset if offset < 0 else max(offset, room)
            raise self._wrong(
                "E513", f"chunk {outside} of buffer {letter!r} of gpu {gpu.id}, which has {room}",
                step,
            )  # fmt: skip
        return gpu.id, int(_BUFFERS[letter]), offset

    def _queue(self, src: int, dst: int, channel: int) -> int:
        return self._queues.setdefault((src, dst, channel), len(self._queues))

    def _message(self, queue: int, end: str, count: int) -> Place:
        turn = self._turns.get((queue, end), 0)
        self._turns[queue, end] = turn + count
        return queue, int(Buffer.QUEUE), turn

    def _primitives(self, gpu: Gpu, block: ThreadBlock, step: Step) -> None:
        """One reduceCopy for every chunk of a step."""
        sources, targets = [], []
        if step.kind in RECEIVES and block.recv is not None:
            queue = self._queue(block.recv, gpu.id, block.channel)
            sources.append(self._message(queue, "recv", step.chunks))
        if step.kind == "re":
            sources.append(self._place(gpu, step, step.dst))
        if step.kind in ("s", "cpy", "re", "rrc", "rrs", "rrcs"):
            sources.append(self._place(gpu, step, step.src))
        if step.kind in ("r", "cpy", "re", "rcs", "rrc", "rrcs"):
            targets.append(self._place(gpu, step, step.dst))
        if step.kind in SENDS and block.send is not None:
            queue = self._queue(gpu.id, block.send, block.channel)
            targets.append(self._message(queue, "send", step.chunks))
        self._src.add(sources)
        self._dst.add(targets)
        self._line.append(step.line)
        self._count.append(step.chunks)
        self._rows += step.chunks

    def _exchange(self, gpu: Gpu, block: ThreadBlock, step: Step) -> None:
        """Notes which steps talk over which queue, and that one block a side does."""
        sides = (
            (SENDS, block.send, self._sent, "send", (gpu.id, block.send, block.channel)),
            (RECEIVES, block.recv, self._received, "recv", (block.recv, gpu.id, block.channel)),
        )
        for kinds, peer, table, end, (src, dst, channel) in sides:
            if step.kind not in kinds or src is None or dst is None:
                continue
            queue = self._queue(src, dst, channel)
            if self._server.setdefault((queue, end), block.id) != block.id:
                raise self._wrong(
                    "E514",
                    f"two thread blocks of gpu {gpu.id} use the connection with gpu {peer} on "
                    f"channel {block.channel}; each would count its messages alone",
                    step,
                )
            table.setdefault(queue, []).append(step)

    def plan(self) -> Plan:
        """The finished Plan."""
        if not self._rows:
            raise fail("E511", "no step does anything", self._algo.span(1))
        self._match_ends()
        self._fits()
        waits, posts, n_flags = self._flags()
        n = self._c.n_ranks
        queues, n_flags = self._queue_table(n_flags)
        rows, zeros = self._rows, np.zeros(self._rows, np.int32)
        counts = np.array(self._count, np.int64)
        return Plan(
            name=_identifier(self._algo.name),
            source=source_name(self._algo.source.name),
            collective=self._c,
            channels=1,
            warps=16,
            gpus_per_node=n,
            nics_per_node=n,
            transport=Transport.STAGED,
            queue_slots=FIFO_MESSAGES[self._algo.protocol],
            n_tb=self._n_tb,
            tb_ptr=np.array(self._tb_end, np.int64),
            chunk=zeros,
            sub=np.repeat(np.arange(len(counts)), counts),
            line=np.repeat(np.array(self._line, np.int64), counts),
            final=np.zeros(rows, np.uint8),
            guard=np.zeros(rows, np.uint8),
            src=self._src.operands(counts),
            dst=self._dst.operands(counts),
            waits=waits,
            posts=posts,
            n_flags=n_flags,
            scratch_slots=self._scratch(),
            stage_slots=np.zeros(n, np.int32),
            queues=queues,
            max_window=1,
            in_place=self._algo.in_place,
            out_of_place=self._algo.out_of_place,
            keeps_input=all(buffer != Buffer.INPUT for _, buffer, _ in self._dst.places),
        )

    def _fits(self) -> None:
        """A small file must not ask for terabytes: what a schedule gets right, it touches."""
        c = self._c
        blocks = sum(c.input_blocks(r) + c.output_blocks(r) for r in range(c.n_ranks))
        slots = blocks * c.chunks_per_block
        touched = sum(
            width * count
            for ends in (self._src, self._dst)
            for width, count in zip(ends.width, self._count, strict=True)
        )
        if slots > FREE_SLOTS + touched:
            raise fail(
                "E517",
                f"nchunksperloop={self._algo.chunks_per_loop} makes {slots} chunks in all ranks' "
                f"buffers, of which the steps touch {touched} at most",
                self._algo.span(1),
            )

    def _scratch(self) -> I8:
        """Chunks of scratch that each rank writes, whatever the file declares."""
        used = np.zeros(self._c.n_ranks, np.int64)
        for rank, slot, step in self._scratch_places(self._dst):
            used[rank] = max(used[rank], slot + self._count[step])
        for rank, slot, step in self._scratch_places(self._src):
            if slot + self._count[step] > used[rank]:
                raise fail(
                    "E518",
                    f"gpu {rank} reads chunk {max(slot, int(used[rank]))} of its scratch, "
                    "which no step writes",
                    self._algo.span(self._line[step]),
                )
        return used

    def _scratch_places(self, ends: Ends) -> Iterator[tuple[int, int, int]]:
        """(rank, slot, step) of every operand in scratch."""
        steps = np.repeat(np.arange(len(ends.width)), ends.width).tolist()
        for (rank, buffer, slot), step in zip(ends.places, steps, strict=True):
            if buffer == Buffer.SCRATCH:
                yield rank, slot, step

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
                if a.chunks != b.chunks:
                    raise self._wrong(
                        "E515",
                        f"a send of {a.chunks} chunks meets a receive of {b.chunks} {where}",
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
            signals = self._signals(rank, blocks[target])
            at = bisect_left(signals, first)
            if target == block.id:
                position = self._position[row]
                if at == len(signals) or signals[at] >= position:
                    raise self._wrong(
                        "E516",
                        f"no step of its own block at or after {first} signals before step "
                        f"{position}: this waits for ever",
                        step,
                    )
                continue
            if at == len(signals):
                raise self._wrong(
                    "E516",
                    f"no step of block {target} at or after {first} signals: this waits for ever",
                    step,
                )
            yield row, rank, self._last_row[rank, target, signals[at]]

    def _signals(self, rank: int, block: ThreadBlock) -> list[int]:
        """The steps of a block that signal, in order."""
        if (rank, block.id) not in self._signalling:
            self._signalling[rank, block.id] = [
                i for i, step in enumerate(block.steps) if step.signals and step.kind != "nop"
            ]
        return self._signalling[rank, block.id]

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
        rows = self._rows
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
        length = [sum(s.chunks for s in self._sent[q]) for q in self._queues.values()]
        queues = Queues(
            np.array([e[0] for e in ends]), np.array([e[1] for e in ends]), np.array(length),
            np.array(data), np.array(credit),
        )  # fmt: skip
        return queues, total


def _identifier(name: str) -> str:
    """`name` as a C identifier that a Plan may have."""
    clean = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")[:63] or "msccl"
    if objection(clean):
        clean = f"msccl_{clean}"[:63]
    return clean if clean[0].isalpha() or clean[0] == "_" else f"a{clean}"[:63]
