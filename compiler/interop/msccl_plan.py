"""msccl_plan: MSCCL XML to Plan, with blocks, queues and flags as its runtimes execute them.

Semantics (msccl-formats §4, §5): steps run in file order; a connection (src, dst, channel) is a
queue; a step that receives combines the queue's message with its *local* operand, whatever the
cross-rank fields say; `depid`/`deps` waits for the first signalling step of that block at or after
the named step, and within one block that step must come before the waiting one; a nop hands its
dependency on. A step of `cnt` chunks becomes `cnt` primitives with one line. The whole program
repeats for every tile: window 1.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from hccc.base.diagnostics import fail
from hccc.interop.msccl_connections import (
    RECEIVED,
    SENT,
    Connection,
    Located,
    check_matched,
    connections,
    located,
)
from hccc.interop.msccl_operands import Ends, Place
from hccc.ir.arrays import I8, Csr
from hccc.ir.collective import Collective, OpType, block_count
from hccc.ir.names import objection, source_name
from hccc.ir.plan import Plan, Posts
from hccc.ir.primitives import Buffer, Queues, Transport
from hccc.lang.msccl.load import Algo, Step

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
READS = ("s", "cpy", "re", "rrc", "rrs", "rrcs")  # a chunk at its rank
WRITES = ("r", "cpy", "re", "rcs", "rrc", "rrcs")
_BUFFERS = {"i": Buffer.INPUT, "o": Buffer.OUTPUT, "s": Buffer.SCRATCH}


def to_plan(algo: Algo) -> Plan:
    """Builds the Plan that `algo` describes; `label` fills in chunk and final later.

    Raises:
        UserError E51x: the runtimes would index out of bounds, corrupt data or wait for ever.
    """
    c = _collective(algo)
    steps = located(algo, c.n_ranks)
    if not steps:
        raise fail("E511", "no step does anything", algo.span(1))
    links = connections(algo, steps)
    src, dst = _operands(algo, c, steps, links)
    for connection in links:
        check_matched(algo, connection)
    _check_size(algo, c, steps, (src, dst))
    return _plan(algo, c, steps, links, src, dst)


def _plan(
    algo: Algo, c: Collective, steps: list[Located], links: list[Connection], src: Ends, dst: Ends
) -> Plan:
    """Makes a primitive for every chunk of every step. Raises as `_flags` and `_scratch`."""
    n = c.n_ranks
    counts = np.array([at.step.chunks for at in steps], np.int64)
    rows = int(counts.sum())
    waits, posts, n_flags = _flags(algo, steps, n, rows)
    n_tb, tb_ptr = _block_table(steps, n)
    queues, n_flags = _queue_table(links, n_flags)
    return Plan(
        name=_identifier(algo.name),
        source=source_name(algo.source.name),
        collective=c,
        channels=1,
        warps=16,
        gpus_per_node=n,
        nics_per_node=n,
        transport=Transport.STAGED,
        memory_domain=np.zeros(n, np.int32),
        queue_slots=FIFO_MESSAGES[algo.protocol],
        n_tb=n_tb,
        tb_ptr=tb_ptr,
        chunk=np.zeros(rows, np.int32),
        sub=np.repeat(np.arange(len(counts)), counts),
        line=np.repeat(np.array([at.step.line for at in steps], np.int64), counts),
        final=np.zeros(rows, np.uint8),
        guard=np.zeros(rows, np.uint8),
        src=src.operands(counts),
        dst=dst.operands(counts),
        waits=waits,
        posts=posts,
        n_flags=n_flags,
        scratch_slots=_scratch(algo, n, steps, src, dst),
        stage_slots=np.zeros(n, np.int32),
        queues=queues,
        max_window=1,
        in_place=algo.in_place,
        out_of_place=algo.out_of_place,
        keeps_input=all(buffer != Buffer.INPUT for _, buffer, _ in dst.places),
    )


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


def _block_table(steps: list[Located], n_ranks: int) -> tuple[I8, I8]:
    """Returns the busy thread blocks per rank, i8[n_ranks], and the ranges of their rows."""
    rows: dict[tuple[int, int], int] = {}
    for at in steps:
        rows[at.rank, at.block.id] = rows.get((at.rank, at.block.id), 0) + at.step.chunks
    ranks = np.array([rank for rank, _ in rows], np.int64)
    ends = np.cumsum(np.array(list(rows.values()), np.int64))
    return np.bincount(ranks, minlength=n_ranks), np.concatenate([np.zeros(1, np.int64), ends])


def _operands(
    algo: Algo, c: Collective, steps: list[Located], links: list[Connection]
) -> tuple[Ends, Ends]:
    """Returns the sources and destinations of every step.

    Raises:
        UserError E513: a chunk outside its buffer.
    """
    messages, room = _messages(links), _room(algo, c)
    src, dst = Ends(), Ends()
    for at in steps:
        kind, received, sent = at.step.kind, (at.row, RECEIVED), (at.row, SENT)
        sources = [messages[received]] if received in messages else []
        if kind == "re":
            sources.append(_place(algo, room, at, at.step.dst))
        if kind in READS:
            sources.append(_place(algo, room, at, at.step.src))
        targets = [_place(algo, room, at, at.step.dst)] if kind in WRITES else []
        if sent in messages:
            targets.append(messages[sent])
        src.add(sources)
        dst.add(targets)
    return src, dst


def _messages(links: list[Connection]) -> dict[tuple[int, int], Place]:
    """Returns the first message of each step at each end of its connections, by (row, end)."""
    places = {}
    for queue, connection in enumerate(links):
        for end, users in ((SENT, connection.sent), (RECEIVED, connection.received)):
            index = 0
            for at in users:
                places[at.row, end] = queue, int(Buffer.QUEUE), index
                index += at.step.chunks
    return places


def _room(algo: Algo, c: Collective) -> dict[tuple[int, str], int]:
    """Returns the chunks in each buffer of each gpu."""
    per = c.chunks_per_block
    return {
        (gpu.id, letter): chunks
        for gpu in algo.gpus
        for letter, chunks in (
            ("i", c.input_blocks(gpu.id) * per),
            ("o", c.output_blocks(gpu.id) * per),
            ("s", gpu.chunks["s"]),
        )
    }


def _place(
    algo: Algo, room: dict[tuple[int, str], int], at: Located, where: tuple[str, int]
) -> Place:
    """Returns the place of the step's first chunk; raises E513 unless all its chunks fit the
    buffer."""
    letter, offset = where
    chunks = room[at.rank, letter]
    if not 0 <= offset <= chunks - at.step.chunks:
        outside = offset if offset < 0 else max(offset, chunks)
        raise fail(
            "E513",
            f"chunk {outside} of buffer {letter!r} of gpu {at.rank}, which has {chunks}",
            algo.span(at.step.line),
        )
    return at.rank, int(_BUFFERS[letter]), offset


def _check_size(algo: Algo, c: Collective, steps: list[Located], ends: tuple[Ends, Ends]) -> None:
    """Raises E517 if the buffers are far larger than the steps touch: small files must not ask for
    terabytes."""
    blocks = sum(c.input_blocks(r) + c.output_blocks(r) for r in range(c.n_ranks))
    slots = blocks * c.chunks_per_block
    touched = sum(
        width * at.step.chunks for end in ends for width, at in zip(end.width, steps, strict=True)
    )
    if slots > FREE_SLOTS + touched:
        raise fail(
            "E517",
            f"nchunksperloop={algo.chunks_per_loop} makes {slots} chunks in all ranks' "
            f"buffers, of which the steps touch {touched} at most",
            algo.span(1),
        )


def _scratch(algo: Algo, n_ranks: int, steps: list[Located], src: Ends, dst: Ends) -> I8:
    """Returns the chunks of scratch that each rank writes, whatever the file declares. Raises
    E518."""
    used = np.zeros(n_ranks, np.int64)
    for rank, slot, at in _scratch_places(dst, steps):
        used[rank] = max(used[rank], slot + at.step.chunks)
    for rank, slot, at in _scratch_places(src, steps):
        if slot + at.step.chunks > used[rank]:
            raise fail(
                "E518",
                f"gpu {rank} reads chunk {max(slot, int(used[rank]))} of its scratch, "
                "which no step writes",
                algo.span(at.step.line),
            )
    return used


def _scratch_places(ends: Ends, steps: list[Located]) -> Iterator[tuple[int, int, Located]]:
    """Yields (rank, slot, step) for every operand in scratch."""
    owners = np.repeat(np.arange(len(ends.width)), ends.width).tolist()
    for (rank, buffer, slot), k in zip(ends.places, owners, strict=True):
        if buffer == Buffer.SCRATCH:
            yield rank, slot, steps[k]


def _dependencies(algo: Algo, steps: list[Located]) -> Iterator[tuple[int, int, int]]:
    """Yields (waiting row, rank, row waited for) for every dependency between two blocks.

    Raises:
        UserError E516: no step would end the wait.
    """
    last_row = {(at.rank, at.block.id, at.position): at.row + at.step.chunks - 1 for at in steps}
    signalling: dict[tuple[int, int], list[int]] = {}  # positions, ascending
    for at in steps:
        if at.step.signals:
            signalling.setdefault((at.rank, at.block.id), []).append(at.position)
    for at in steps:
        for step in at.waiting:
            target, first = step.depends or (0, 0)
            blocks = algo.gpus[at.rank].blocks
            if target >= len(blocks):
                message = f"depid={target}, but gpu {at.rank} has {len(blocks)} blocks"
                raise fail("E516", message, algo.span(step.line))
            signals = signalling.get((at.rank, blocks[target].id), [])
            k = bisect_left(signals, first)
            _check_signalled(algo, at, step, signals[k] if k < len(signals) else None)
            if target != at.block.id:
                yield at.row, at.rank, last_row[at.rank, target, signals[k]]


def _check_signalled(algo: Algo, at: Located, step: Step, signal: int | None) -> None:
    """Raises E516 unless a signal ends the wait of `step`: in its own block, one before `at`, which
    is held up."""
    target, first = step.depends or (0, 0)
    if target == at.block.id and (signal is None or signal >= at.position):
        message = (
            f"no step of its own block at or after {first} signals before step {at.position}: "
            "this waits for ever"
        )
        raise fail("E516", message, algo.span(step.line))
    if signal is None:
        message = f"no step of block {target} at or after {first} signals: this waits for ever"
        raise fail("E516", message, algo.span(step.line))


def _flags(algo: Algo, steps: list[Located], n_ranks: int, rows: int) -> tuple[Csr, Posts, I8]:
    """Assigns a flag to every primitive that is waited for, numbered at its rank by first wait."""
    edges = sorted(set(_dependencies(algo, steps)))
    flag: dict[int, int] = {}
    owner: dict[int, int] = {}
    counts = np.zeros(n_ranks, np.int64)
    for _, rank, pred in edges:
        if pred not in flag:
            flag[pred], owner[pred] = int(counts[rank]), rank
            counts[rank] += 1
    posters = sorted(flag)
    waits = Csr(_ptr([row for row, _, _ in edges], rows), np.array([flag[p] for *_, p in edges]))
    owners, flags = (np.array([of[p] for p in posters]) for of in (owner, flag))
    return waits, Posts(_ptr(posters, rows), owners, flags), counts


def _ptr(rows: list[int], n_rows: int) -> I8:
    counts = np.bincount(np.array(rows, np.int64), minlength=n_rows)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def _queue_table(links: list[Connection], n_flags: I8) -> tuple[Queues, I8]:
    """Returns the queues, each with two flags besides the `n_flags` of waits, and the number of all
    flags of each rank."""
    total = n_flags.copy()
    data, credit = [], []
    for connection in links:
        data.append(int(total[connection.dst]))
        total[connection.dst] += 1
        credit.append(int(total[connection.src]))
        total[connection.src] += 1
    columns = [c.src for c in links], [c.dst for c in links], [c.length for c in links]
    return Queues(*(np.array(column) for column in (*columns, data, credit))), total


def _identifier(name: str) -> str:
    """Turns `name` into a C identifier that is a legal plan name."""
    clean = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")[:63] or "msccl"
    if objection(clean):
        clean = f"msccl_{clean}"[:63]
    return clean if clean[0].isalpha() else f"a{clean}"[:63]
