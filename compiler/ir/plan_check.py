"""plan_check: whether a Plan is well formed, whatever its origin.

Generated code indexes memory with a Plan's numbers, and a plan file may come from anybody. So
this check runs first: every operand lies inside its buffer, every flag inside its rank's flags,
and no size exceeds the Plan's use of it. The Plan's *effects* are left to the proofs
(`proofs/deadlock`, `race`, `result`).

All checks are whole-array comparisons, O(P log P); the first that fails is raised.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.base.diagnostics import UserError, fail
from hccc.ir.arrays import B1, I4, I8
from hccc.ir.choices import Accumulate, Bits, PlanProtocol
from hccc.ir.collective import MULTICAST, Collective, OpType
from hccc.ir.limits import MAX_CHANNELS, MAX_RANKS, MAX_WARPS
from hccc.ir.micro_batch import COARSEST, FINEST
from hccc.ir.names import IDENTIFIER, objection
from hccc.ir.plan import MOST_BLOCKS, Plan
from hccc.ir.primitives import Buffer, Guard, Operands, Transport
from hccc.ir.topology import Topology
from hccc.ir.transport import PLAN_TRANSPORTS

MAX_QUEUE_SLOTS = 1 << 16
MAX_TEXT = 1024
MAX_CUSTOM_CHUNKS = 1 << 20
MAX_IDLE_SLOTS = 1 << 20  # of scratch memory, over all ranks
MAX_LL_BYTES = 1 << 28  # of a call through packets, whose slots take twice that
MAX_OPERANDS = 512  # of a primitive: a block keeps their addresses on its stack or in shared memory
INT = 2**31 - 1  # rows, slots and windows are ints in tables and in generated code


def check(plan: Plan) -> None:
    """Raises the first problem of `plan`.

    Raises:
        UserError E310: a header value; E311: rows that do not fit together; E312: an operand
        outside its buffer; E313: flags; E314: queues; E315: sizes nothing in the Plan needs;
        E316: more than generated code has room for; E318: memory of another memory domain.
    """
    _header(plan)
    _protocol(plan)
    _multicast(plan)
    _rows(plan)
    _columns(plan)
    _limits(plan)
    _operands(plan)
    _domains(plan)
    _sizes(plan)
    _queues(plan)
    _flags(plan)
    _once(plan)


def check_ranks(plan: Plan, topology: Topology) -> None:
    """Raises E130 if the plan's number of ranks is not the cluster's number of GPUs."""
    if plan.n_ranks != len(topology):
        ranks = f"{plan.n_ranks} ranks, the cluster {len(topology)} GPUs"
        help = "give a cluster of as many GPUs as there are ranks"
        raise fail("E130", f"{plan.name} has {ranks}", help=help)


def _require(good: bool | np.bool_, code: str, message: str) -> None:
    if not good:
        raise fail(code, message)


def _header(plan: Plan) -> None:
    c = plan.collective
    _require(IDENTIFIER.fullmatch(plan.name) is not None, "E310", "name: not an identifier of C")
    why = objection(plan.name)
    _require(why is None, "E310", f"name: {why}")
    fits = len(plan.source) <= MAX_TEXT and plan.source.isprintable()
    _require(fits, "E310", f"source: not one printable line of at most {MAX_TEXT} characters")
    _reductions(plan)
    limits = {
        "collective.n_ranks": (c.n_ranks, 1, MAX_RANKS),
        "collective.n_chunks": (c.n_chunks, 1, INT),
        "collective.root": (c.root, 0, c.n_ranks - 1 if c.rooted else 0),
        "channels": (plan.channels, 1, MAX_CHANNELS),
        "warps": (plan.warps, 1, MAX_WARPS),
        "gpus_per_node": (plan.gpus_per_node, 1, MAX_RANKS),
        "nics_per_node": (plan.nics_per_node, 1, MAX_RANKS),
        "queue_slots": (plan.queue_slots, 1, MAX_QUEUE_SLOTS),
        "max_window": (plan.max_window, 0, INT),
        "window": (plan.window, 0, plan.largest_window or INT),
        "grain": (plan.grain, FINEST, COARSEST),
    }
    for field, (value, low, high) in limits.items():
        _require(low <= value <= high, "E310", f"{field}: {value} is not in {low}..{high}")
    _require(plan.transport in PLAN_TRANSPORTS, "E310", "transport: auto is no transport of a plan")
    _require(bool(plan.modes), "E310", "in_place, out_of_place: the plan serves no call")
    power = plan.queue_slots & (plan.queue_slots - 1) == 0
    _require(power, "E310", f"queue_slots: {plan.queue_slots} is not a power of two")
    alike = c.demand is None or (c.op is OpType.CUSTOM and c.demand.n_ranks == c.n_ranks)
    _require(alike, "E310", "collective.demand: of another collective, or of other ranks")
    _require(c.demand is None or not plan.in_place, "E310", "in_place: a demand has no such calls")
    blocks = c.least_chunks
    _require(
        c.n_chunks % blocks == 0,
        "E310",
        f"collective.n_chunks: {c.n_chunks} is not a multiple of the {blocks} blocks that "
        f"{c.name} has over {c.n_ranks} ranks",
    )


def _protocol(plan: Plan) -> None:
    """Requires of LL what its kernels rely on: all ranks in one memory domain, blocks of one
    length, one window of one micro-batch, and a largest call."""
    if plan.protocol is PlanProtocol.SIMPLE:
        _require(plan.max_bytes == 0, "E310", "max_bytes: the protocol is simple")
        _require(not plan.greets, "E310", "greets: the protocol is simple")
        return
    staged = plan.transport is Transport.STAGED
    _require(staged, "E310", "protocol: the transport of ll is staged")
    _require(not plan.memory_domain.any(), "E310", "protocol: ll has one memory domain")
    _require(not plan.collective.uneven, "E310", "protocol: ll has blocks of one length")
    _require(plan.max_window == 1, "E310", "max_window: ll has windows of one micro-batch")
    fits = 0 < plan.max_bytes <= MAX_LL_BYTES
    _require(fits, "E310", f"max_bytes: {plan.max_bytes} is not in 1..{MAX_LL_BYTES}")
    unused = not (plan.queues.data_flag.any() or plan.queues.credit_flag.any())
    _require(unused, "E314", "queues: in protocol ll they have no flags")


def _multicast(plan: Plan) -> None:
    """Requires of a plan for a switch that ranks load and store, and that a place of all ranks is
    at one place of each."""
    if plan.multicast is None:
        return
    c = plan.collective
    _require(c.op in MULTICAST, "E310", f"multicast: {c.name} is not for a switch")
    _require(plan.transport is Transport.DIRECT, "E310", "multicast: the transport is not direct")
    _require(not c.uneven, "E310", "multicast: blocks have lengths of their own")
    usual = plan.accumulate is Accumulate.FLOAT32 or plan.multicast is Bits.SAME
    _require(usual, "E310", f"multicast: a switch does not add in {plan.accumulate.value}")


def _once(plan: Plan) -> None:
    """Requires of a plan for a switch one primitive for each chunk: by which address its memory was
    touched before then makes no difference."""
    if plan.multicast is None:
        return
    _require(not plan.n_flags.any(), "E313", "n_flags: primitives of a multicast plan wait")
    chunk = np.sort(plan.chunk)
    if (again := chunk[1:][np.diff(chunk) == 0]).size:
        raise fail("E312", f"chunk: {again[0]} has several primitives of a multicast plan")


def _rows(plan: Plan) -> None:
    """Requires that every column has the length that the others imply."""
    n, ranks = len(plan), plan.n_ranks
    for field in ("n_tb", "n_flags", "scratch_slots", "stage_slots", "memory_domain"):
        _length(field, getattr(plan, field), ranks, "ranks")
    for field in ("sub", "line", "final", "guard"):
        _length(field, getattr(plan, field), n, "primitives")
    _require(n > 0, "E311", "chunk: the plan has no primitives")
    _require((plan.n_tb >= 0).all(), "E311", "n_tb: a negative number of thread blocks")
    blocks = int(plan.n_tb.sum(dtype=np.int64))
    _length("tb_ptr", plan.tb_ptr, blocks + 1, "thread blocks, and 1")
    _pointers("tb_ptr", plan.tb_ptr, n)
    _require((np.diff(plan.tb_ptr) > 0).all(), "E311", "tb_ptr: a thread block has no primitives")
    for field, rows, columns in (
        ("src", plan.src, ("rank", "buffer", "slot")),
        ("dst", plan.dst, ("rank", "buffer", "slot")),
        ("waits", plan.waits, ("index",)),
        ("posts", plan.posts, ("rank", "flag")),
    ):
        _length(f"{field}.ptr", rows.ptr, n + 1, "primitives, and 1")
        first = getattr(rows, columns[0])
        _pointers(f"{field}.ptr", rows.ptr, len(first))
        for column in columns[1:]:
            _length(f"{field}.{column}", getattr(rows, column), len(first), f"{field}.{columns[0]}")
    for field in ("dst", "length", "data_flag", "credit_flag"):
        _length(f"queues.{field}", getattr(plan.queues, field), len(plan.queues), "queues.src")


def _length(field: str, column: NDArray[Any], n: int, noun: str) -> None:
    _require(len(column) == n, "E311", f"{field}: {len(column)} entries, but {n} {noun}")


def _pointers(field: str, ptr: I8, n: int) -> None:
    good = ptr[0] == 0 and ptr[-1] == n and (np.diff(ptr) >= 0).all()
    _require(good, "E311", f"{field}: does not rise from 0 to {n}")


def _within(code: str, field: str, column: NDArray[Any], below: Any) -> None:
    """Requires every entry to be in [0, below); `below` is one number or one per entry."""
    bad = (column < 0) | (column >= below)
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        top = int(np.broadcast_to(below, column.shape)[i]) - 1
        room = f"0..{top}" if top >= 0 else "what there is: nothing"
        raise fail(code, f"{field}[{i}]: {column[i]} is not in {room}")


def _limits(plan: Plan) -> None:
    """Requires rows and slots to fit ints, blocks to fit a launch, operands to fit a block's room
    for them."""
    operands = plan.src.counts() + plan.dst.counts()
    for field, rows in (
        ("chunk", len(plan)),
        ("src.rank, dst.rank", int(operands.sum())),
        ("waits.index", len(plan.waits.index)),
        ("posts.rank", len(plan.posts.rank)),
    ):
        _require(rows <= INT, "E316", f"{field}: {rows} entries, more than {INT}")
    most = int(operands.argmax())
    if operands[most] > MAX_OPERANDS:
        many = f"{operands[most]} sources and destinations, more than {MAX_OPERANDS}"
        raise _at("src, dst", "E316", most, many)
    n_tb = int(plan.n_tb.max())
    blocks = f"n_tb: {n_tb} thread blocks in {plan.channels} channels"
    _require(n_tb * plan.channels <= MOST_BLOCKS, "E316", f"{blocks}, more than {MOST_BLOCKS}")
    slots = int((plan.scratch_slots.astype(np.int64) + plan.stage_slots).max())
    _require(slots <= INT, "E316", f"scratch_slots: {slots} with stage_slots, more than {INT}")


def _reductions(plan: Plan) -> None:
    """Requires that reductions of one's own are ones, and hold what their author states."""
    if not plan.reductions:
        return
    from hccc.base.reductions.laws import checked
    from hccc.base.reductions.parse import checked_names

    _require(plan.reduces, "E310", f"reductions: {plan.collective.name} reduces nothing")
    for text in plan.reductions:
        _require(checked(text).text == text, "E310", f"reductions: {text!r:.80} is not in one line")
    checked_names(plan.reductions)


def _columns(plan: Plan) -> None:
    c = plan.collective
    _within("E311", "chunk", plan.chunk, c.n_chunks)
    _within("E311", "sub", plan.sub, 2**31 - 1)
    _within("E311", "line", plan.line, 2**31 - 1)
    _within("E311", "final", plan.final, 2)
    _within("E311", "guard", plan.guard, len(Guard))
    _within("E311", "memory_domain", plan.memory_domain, plan.n_ranks)
    one = plan.transport is not Transport.DIRECT or not plan.memory_domain.any()
    _require(one, "E311", "memory_domain: all ranks of a direct plan are in domain 0")
    if plan.final.any():
        _require(_may_reduce(plan), "E311", f"final: {c.name} has no reduction to complete")


def _operands(plan: Plan) -> None:
    owner = plan.rank_of()
    room = _room(plan)
    for field, operands in (("src", plan.src), ("dst", plan.dst)):
        counts = operands.counts()
        if (counts == 0).any():
            raise _at(field, "E312", int(np.flatnonzero(counts == 0)[0]), "no operand")
        _within("E312", f"{field}.buffer", operands.buffer, Buffer.QUEUE + 1)
        queue = operands.buffer == Buffer.QUEUE
        limit = np.where(queue, len(plan.queues), plan.n_ranks)
        _within("E312", f"{field}.rank", operands.rank, limit)
        _within("E312", f"{field}.slot", operands.slot, room[operands.buffer, operands.rank])
        row = operands.owner()
        if plan.transport is Transport.STAGED:
            away = ~queue & (operands.rank != owner[row])
            message = "staged, but it touches another rank's memory"
            _none(field, away, operands, "E312", message)
        idle = queue & (plan.guard[row] != Guard.ALWAYS)
        _none(field, idle, operands, "E312", "a message is sent and taken in every kind of call")
        _length_fits(plan, field, operands)
    if not _may_reduce(plan):
        many = np.flatnonzero(plan.src.counts() > 1)
        if len(many):
            raise _at("src", "E312", int(many[0]), "several sources where nothing is reduced")
    written, guard = plan.dst.buffer, plan.guard[plan.dst.owner()]
    if not plan.out_of_place:
        return
    if plan.keeps_input:
        _none("dst", written == Buffer.INPUT, plan.dst, "E312", "writes a send buffer")
    staged = (written == Buffer.STAGE) & (guard != Guard.IN_PLACE)
    _none("dst", staged, plan.dst, "E312", "out of place, STAGE is a send buffer")


def _domains(plan: Plan) -> None:
    """Requires of MIXED that nothing is read from another memory domain, and that the bytes of
    every network put also have a place at their own rank, from which a proxy can carry them."""
    if plan.transport is not Transport.MIXED:
        return
    owner, domain = plan.rank_of(), plan.memory_domain
    row, memory = plan.src.owner(), plan.src.buffer != Buffer.QUEUE
    home = memory & (plan.src.rank == owner[row])
    away = memory & (domain[np.where(memory, plan.src.rank, 0)] != domain[owner[row]])
    _none("src", away, plan.src, "E318", "reads memory of another memory domain")
    put, to = plan.network_puts(), plan.dst.owner()
    kept = (plan.dst.buffer != Buffer.QUEUE) & (plan.dst.rank == owner[to])
    has_place = np.zeros(len(plan), np.bool_)
    has_place[to[kept]] = True
    copies = np.zeros(len(plan), np.bool_)
    copies[row[home]] = True
    copies &= (plan.src.counts() == 1) & (plan.final == 0)
    message = "writes memory of another memory domain, and no place at its own rank holds the bytes"
    _none("dst", put & ~(has_place | copies)[to], plan.dst, "E318", message)


def _length_fits(plan: Plan, field: str, operands: Operands) -> None:
    """Requires that no chunk is longer than the slots of user buffers that it passes through.

    A block's chunks get no longer from first to last (`layout.h`); scratch has room for any.
    """
    c, per = plan.collective, plan.collective.chunks_per_block
    if c.uneven:
        return _own_slots(plan, field, operands)
    if per == 1:
        return
    sub = np.repeat(_modulo(plan.chunk, per), operands.counts())
    buffer = operands.buffer
    short = _modulo(operands.slot, per) > sub
    short &= (buffer != Buffer.SCRATCH) & (buffer != Buffer.QUEUE)
    if short.any():
        k = int(np.argmax(short))
        i = int(operands.owner()[k])
        raise _at(
            field,
            "E312",
            i,
            f"chunk {plan.chunk[i]} may be longer than slot {operands.slot[k]} "
            f"of {Buffer(int(operands.buffer[k])).name}",
            "keep it in a slot of the same place in its block, or in scratch memory",
        )


def _own_slots(plan: Plan, field: str, operands: Operands) -> None:
    """Requires that chunks of blocks of any length lie in their own slots of user buffers."""
    c, chunk = plan.collective, np.repeat(plan.chunk, operands.counts())
    received = operands.buffer == Buffer.OUTPUT
    sent = (operands.buffer == Buffer.INPUT) | (operands.buffer == Buffer.STAGE)
    foreign = received & (c.output_chunk(operands.rank, operands.slot) != chunk)
    foreign |= sent & (c.input_chunk(operands.rank, operands.slot) != chunk)
    if foreign.any():
        k = int(np.argmax(foreign))
        i = int(operands.owner()[k])
        where = f"slot {operands.slot[k]} of {Buffer(int(operands.buffer[k])).name}"
        message = f"chunk {plan.chunk[i]} may be longer than {where}, which is another block's"
        raise _at(field, "E312", i, message, "keep it in its own slot, or in scratch memory")


def _modulo(column: I4, n: int) -> I4:
    """Returns `column % n`, without the slow division if all entries are below n."""
    return column if int(column.max(initial=0)) < n else column % np.int32(n)


def _may_reduce(plan: Plan) -> bool:
    return plan.collective.reduces or plan.collective.op is OpType.CUSTOM


def _room(plan: Plan) -> I8:
    """Returns the number of slots by [buffer, rank]; the QUEUE row has messages by queue."""
    c, n = plan.collective, plan.n_ranks
    room = np.zeros((len(Buffer), max(n, len(plan.queues))), np.int64)
    room[Buffer.INPUT, :n] = [c.input_blocks(r) * c.chunks_per_block for r in range(n)]
    room[Buffer.OUTPUT, :n] = [c.output_blocks(r) * c.chunks_per_block for r in range(n)]
    room[Buffer.SCRATCH, :n] = plan.scratch_slots
    room[Buffer.STAGE, :n] = np.minimum(plan.stage_slots, room[Buffer.INPUT, :n])
    room[Buffer.QUEUE, : len(plan.queues)] = plan.queues.length
    return room


def _at(field: str, code: str, primitive: int, message: str, help: str | None = None) -> UserError:
    return fail(code, f"{field}: primitive {primitive}: {message}", help=help)


def _none(field: str, bad: B1, operands: Operands, code: str, message: str) -> None:
    if bad.any():
        raise _at(field, code, int(operands.owner()[bad][0]), message)


def _sizes(plan: Plan) -> None:
    """Requires that no buffer is larger than the slots accessed: a small file must not ask for
    terabytes.

    Every receive slot must be written and every send slot read, or the result is wrong. (A custom
    collective has no known result; there a limit must do.)
    """
    custom = plan.collective.op is OpType.CUSTOM
    most = MAX_CUSTOM_CHUNKS
    if custom and plan.collective.n_chunks > most:
        raise fail("E315", f"collective.n_chunks: {plan.collective.n_chunks} is more than {most}")
    room = _room(plan)
    outputs, inputs = int(room[Buffer.OUTPUT].sum()), int(room[Buffer.INPUT].sum())
    writes = plan.dst.buffer == Buffer.OUTPUT
    reads = (plan.src.buffer == Buffer.INPUT) | (plan.src.buffer == Buffer.STAGE)
    stay = 0
    if not plan.out_of_place:  # one memory: chunks that start in their final slot need no access
        writes = writes | (plan.dst.buffer == Buffer.INPUT)
        reads = reads | (plan.src.buffer == Buffer.OUTPUT)
        stay = _in_place_from_the_start(plan.collective)
    for what, slots, touched in (
        ("receive slots, but only {} writes to one", outputs, int(writes.sum()) + stay),
        ("send slots, but only {} reads of one", inputs, int(reads.sum()) + stay),
    ):
        message = f"collective.n_chunks: {slots} {what.format(touched)}"
        _require(slots <= touched or custom, "E315", message)
    for field, buffer in (("scratch_slots", Buffer.SCRATCH), ("stage_slots", Buffer.STAGE)):
        slots = getattr(plan, field)
        used = np.zeros(plan.n_ranks, np.int64)
        there = plan.dst.buffer == buffer
        np.maximum.at(used, plan.dst.rank[there], plan.dst.slot[there] + np.int64(1))
        _within("E315", field, slots, used + 1)
        idle = int(slots.sum(dtype=np.int64)) - int(there.sum())
        _require(idle <= MAX_IDLE_SLOTS, "E315", f"{field}: {idle} slots that nothing writes")
    _require(int(room.sum()) <= INT, "E316", f"slots of all buffers and queues: more than {INT}")


def _in_place_from_the_start(c: Collective) -> int:
    """Returns the number of chunks that an in-place call finds already at their final place."""
    if c.reduces or c.op is OpType.SENDRECV:
        return 0
    return c.n_chunks if c.all_want else c.n_chunks // c.n_ranks


def _queues(plan: Plan) -> None:
    """Requires queues to join two ranks, and each message to be sent at one end and received at the
    other."""
    q = plan.queues
    queued = plan.transport is not Transport.DIRECT
    _require(queued or not len(q), "E314", "queues: the transport is direct")
    _within("E314", "queues.src", q.src, plan.n_ranks)
    _within("E314", "queues.dst", q.dst, plan.n_ranks)
    if (q.src == q.dst).any():
        raise fail("E314", f"queues.dst[{int(np.argmax(q.src == q.dst))}]: a queue to its own rank")
    if plan.protocol is PlanProtocol.SIMPLE:
        _within("E314", "queues.data_flag", q.data_flag, plan.n_flags[q.dst])
        _within("E314", "queues.credit_flag", q.credit_flag, plan.n_flags[q.src])
    _require((q.length > 0).all(), "E314", "queues.length: a queue without messages")
    total = int(q.length.sum(dtype=np.int64))
    owner = plan.rank_of()
    for field, operands, end in (("src", plan.src, q.dst), ("dst", plan.dst, q.src)):
        mine = operands.buffer == Buffer.QUEUE
        queue, message_index = operands.rank[mine], operands.slot[mine]
        wrong = np.zeros(len(mine), np.bool_)
        wrong[mine] = end[queue] != owner[operands.owner()[mine]]
        _none(field, wrong, operands, "E314", "not at this end of the queue")
        messages = np.unique(queue.astype(np.int64) << 32 | message_index)
        _require(
            len(messages) == len(queue) == total,
            "E314",
            f"queues.length: {total} messages, but {len(queue)} in {field}, "
            f"{len(messages)} of them different",
        )


def _flags(plan: Plan) -> None:
    """Requires every flag to have one producer (a primitive, or a queue), and a primitive that
    waits for it."""
    _within("E313", "posts.rank", plan.posts.rank, plan.n_ranks)
    _within("E313", "posts.flag", plan.posts.flag, plan.n_flags[plan.posts.rank])
    rank = plan.rank_of()[plan.waits.owner()]
    _within("E313", "waits.index", plan.waits.index, plan.n_flags[rank])
    flagged = plan.protocol is PlanProtocol.SIMPLE
    ends = len(plan.posts.rank) + 2 * len(plan.queues) * flagged
    total = int(plan.n_flags.sum(dtype=np.int64))
    good = total == ends and (plan.n_flags >= 0).all()
    _require(good, "E313", f"n_flags: {total} flags, but {ends} are raised")
    base = np.cumsum(plan.n_flags, dtype=np.int64) - plan.n_flags
    q = plan.queues
    of_queues = np.concatenate([base[q.dst] + q.data_flag, base[q.src] + q.credit_flag])
    of_queues = of_queues[: len(of_queues) * flagged]
    raised = np.concatenate([base[plan.posts.rank] + plan.posts.flag, of_queues])
    times = np.bincount(raised, minlength=total)
    if (times > 1).any():
        raise fail("E313", f"posts: {_flag(base, int(np.argmax(times > 1)))} is raised twice")
    waited = np.unique(np.concatenate([base[rank] + plan.waits.index, of_queues]))
    if len(waited) != total:
        missing = int(np.setdiff1d(np.arange(total), waited)[0])
        raise fail("E313", f"waits: nothing waits for {_flag(base, missing)}")


def _flag(base: I8, flag: int) -> str:
    rank = int(np.searchsorted(base, flag, side="right")) - 1
    return f"flag {flag - int(base[rank])} of rank {rank}"
