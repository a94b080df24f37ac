"""xml: Plan → MSCCL XML, for the runtimes that read it (docs/msccl-formats.md).

Two dialects: "msccl" is microsoft/msccl's; "executor" is accepted by both Azure's
msccl-executor-nccl and RCCL, so its limits are the smaller of theirs. Every attribute that either
dialect knows is written. A file that would exceed a limit is refused, naming the limit: the
runtimes would skip it silently, or index out of bounds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hccc.base.diagnostics import fail
from hccc.emit.msccl.channels import channels
from hccc.emit.msccl.steps import MAX_COUNT, MscclBlock, Place, steps
from hccc.emit.order import active
from hccc.ir.collective import OpType
from hccc.ir.plan import Plan

PROTOCOLS = ("Simple", "LL", "LL128")
OPERATIONS = ("sum", "prod", "min", "max")
MAX_OFFSET = 32767  # 16 bits
MAX_TARGET = 127  # a thread block waited for: 8 bits
MAX_ELEMENTS = 4096  # that the runtimes keep for a rank
MAX_CHILDREN = 1024  # of one element
UNBOUNDED = 1 << 40  # bytes, where a dialect has no word for it
WITH_SCRATCH = 1 << 27  # msccl allocates for maxBytes at once: its own default
_FEWER_BLOCKS = "compile with --allocator state or connection, or with fewer --channels"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_EVERYWHERE = {
    OpType.ALLREDUCE: "allreduce",
    OpType.ALLGATHER: "allgather",
    OpType.REDUCE: "reduce",
    OpType.BROADCAST: "broadcast",
    OpType.ALLTOALL: "alltoall",
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """The limits of a runtime. `steps`: of a thread block; `blocks`: of a rank."""

    name: str
    collectives: dict[OpType, str]
    steps: int
    blocks: int
    channels: int
    both_modes: bool  # whether one file may serve calls in and out of place
    end_inclusive: bool  # of maxBytes; then 0 means without end


DIALECTS = {
    d.name: d
    for d in (
        Dialect(
            "msccl",
            _EVERYWHERE
            | {
                OpType.REDUCESCATTER: "reduce_scatter",
                OpType.SENDRECV: "custom",
                OpType.CUSTOM: "custom",
            },
            steps=256,
            blocks=216,
            channels=32,
            both_modes=False,
            end_inclusive=False,
        ),
        Dialect(
            "executor",
            _EVERYWHERE
            | {
                OpType.REDUCESCATTER: "reducescatter",
                OpType.GATHER: "gather",
                OpType.SCATTER: "scatter",
            },
            steps=64,
            blocks=64,
            channels=32,
            both_modes=True,
            end_inclusive=True,
        ),
    )
}


def dumps(
    plan: Plan,
    dialect: str,
    in_place: bool | None,
    *,
    protocol: str = "Simple",
    largest: int | None = None,
    min_bytes: int = 0,
    max_bytes: int | None = None,
    op: str = "sum",
) -> str:
    """Writes `plan` as an XML file of `dialect`.

    in_place: the calls it is for; None for both ("executor" only). largest: bytes of the whole
    buffer that the protocol's FIFOs carry (`proofs/fifo` of the exported steps), None for any.
    min_bytes, max_bytes: the sizes to use it for. op: the reduction.

    Raises:
        UserError E520, E521, E525: the plan's shape (`steps`); E522: the collective or operation;
            E523: a limit of the runtimes; E524, E460: the kinds of call; E303: the FIFOs;
        E410: no such dialect or protocol; E526: the name.
    """
    d = _checked(plan, dialect, in_place, protocol, largest, op)
    _early_limits(plan, d, in_place)
    ranks = steps(plan, in_place)
    found = channels(plan, ranks)
    _limit(d, "channels", found.count * plan.channels, d.channels, "fewer --channels")
    for rank, blocks in enumerate(ranks):
        _limits(plan, d, rank, blocks)
    used = max(scratch_chunks(plan, r, in_place) for r in range(plan.n_ranks))
    window = _window(d, largest, (min_bytes, max_bytes), bool(used))
    lines = _lines(plan, d, in_place, protocol, window, ranks, (found.of, found.count))
    return "\n".join(lines) + "\n"


def _checked(
    plan: Plan, dialect: str, in_place: bool | None, protocol: str, largest: int | None, op: str
) -> Dialect:
    d = DIALECTS.get(dialect)
    if d is None:
        raise fail("E410", f"the dialect {dialect!r} is not one of {', '.join(DIALECTS)}")
    if protocol not in PROTOCOLS:
        raise fail("E410", f"the protocol {protocol!r} is not one of {', '.join(PROTOCOLS)}")
    c = plan.collective
    if c.uneven:
        raise fail("E522", f"the {d.name} dialect has no {c.name}: it cannot say lengths of blocks")
    if c.demand:
        raise fail("E522", f"the {d.name} dialect has no demands: buffers of ranks are alike there")
    if c.op not in d.collectives:
        known = ", ".join(dict.fromkeys(d.collectives.values()))
        raise fail("E522", f"the {d.name} dialect has no {c.op.value}; it has {known}")
    if c.rooted and c.root:
        raise fail(
            "E522",
            f"the XML names no root, and readers take it for rank 0; this plan's is {c.root}",
            help="compile it with Root=0",
        )
    if c.reduces and op not in OPERATIONS:
        known = ", ".join(OPERATIONS)
        raise fail("E522", f"MSCCL's runtimes reduce with {known}, not {op}")
    if largest is not None and largest < 1:
        raise fail("E303", f"with {protocol} FIFOs this plan hangs whatever the message size")
    if _NAME.fullmatch(plan.name) is None:
        raise fail("E526", "the plan's name is not an identifier of at most 63 letters")
    _mode(plan, d, in_place)
    return d


def _mode(plan: Plan, d: Dialect, in_place: bool | None) -> None:
    """Raises E524 or E460 unless both the plan and the dialect serve such calls."""
    if in_place is None and not d.both_modes:
        raise fail("E524", f"a file of the {d.name} dialect is for calls in place or out of place")
    for mode in (False, True) if in_place is None else (in_place,):
        if mode not in plan.modes:
            raise fail("E460", f"this plan does not serve calls {_words(mode)}")
    if plan.collective.op is OpType.SENDRECV and in_place:
        raise fail("E522", "sendrecv is a custom collective there, and those are not in place")


def _words(in_place: bool) -> str:
    return "in place" if in_place else "out of place"


def _limit(d: Dialect, what: str, value: int, most: int, help: str | None = None) -> None:
    if value > most:
        message = f"{value} {what}; the {d.name} dialect's runtimes take {most}"
        raise fail("E523", message, help=help)


def _early_limits(plan: Plan, d: Dialect, in_place: bool | None) -> None:
    """Checks the limits that need no steps. Raises E523."""
    c, k = plan.collective, plan.channels
    n = plan.n_ranks
    _limit(d, "ranks", n, MAX_CHILDREN)
    slots = max(max(c.input_blocks(r), c.output_blocks(r)) for r in range(n)) * c.chunks_per_block
    scratch = max(scratch_chunks(plan, r, in_place) for r in range(n))
    _limit(d, "chunks in a buffer", max(slots * k, scratch), MAX_OFFSET + 1)
    if plan.max_window != 1:  # one step a primitive
        rows = np.add.reduceat(active(plan, in_place).astype(np.int64), plan.tb_ptr[:-1])
        _limit(d, "steps in a thread block", int(rows.max(initial=0)), d.steps)


def scratch_chunks(plan: Plan, rank: int, in_place: bool | None) -> int:
    """Returns the XML's chunks of scratch at `rank`: hccc's, and staged send slots in place."""
    staged = int(plan.stage_slots[rank]) if in_place else 0
    return (int(plan.scratch_slots[rank]) + staged) * plan.channels


def _limits(plan: Plan, d: Dialect, rank: int, blocks: list[MscclBlock]) -> None:
    k = plan.channels
    _limit(d, f"thread blocks at rank {rank}", len(blocks) * k, d.blocks, _FEWER_BLOCKS)
    total = 1 + plan.n_ranks
    for b, block in enumerate(blocks):
        length = block.length()
        _limit(d, f"steps in thread block {b} of rank {rank}", length, d.steps)
        total += k * (1 + length)
        if any(s.signals for s in block.steps):
            _limit(d, "is a thread block that others wait for", b * k + k - 1, MAX_TARGET)
    _limit(d, f"elements that rank {rank} keeps", total, MAX_ELEMENTS)
    most = max((s.count for b in blocks for s in b.steps), default=0)
    _limit(d, "chunks in a step", most, MAX_COUNT)


def _window(
    d: Dialect, largest: int | None, wanted: tuple[int, int | None], scratch: bool
) -> tuple[int, int]:
    """Returns minBytes and maxBytes."""
    least, max_bytes = wanted
    if max_bytes is None and scratch and not d.end_inclusive:
        max_bytes = WITH_SCRATCH - 1
    ends = [end for end in (largest, max_bytes) if end is not None]
    if d.end_inclusive:
        return least, min(ends, default=0)
    return least, min(ends, default=UNBOUNDED) + 1


def _lines(
    plan: Plan,
    d: Dialect,
    in_place: bool | None,
    protocol: str,
    window: tuple[int, int],
    ranks: list[list[MscclBlock]],
    channel: tuple[dict[int, int], int],
) -> Iterator[str]:
    c, k = plan.collective, plan.channels
    whole = max(max(c.input_blocks(r), c.output_blocks(r)) for r in range(c.n_ranks))
    yield _tag(
        "algo",
        name=plan.name,
        proto=protocol,
        nchannels=channel[1] * k,
        nchunksperloop=whole * c.chunks_per_block * k,
        ngpus=c.n_ranks,
        coll=d.collectives[c.op],
        inplace=int(in_place is not False),
        outofplace=int(not in_place),
        minBytes=window[0],
        maxBytes=window[1],
    )
    for rank, blocks in enumerate(ranks):
        yield "  " + _tag(
            "gpu",
            id=rank,
            i_chunks=c.input_blocks(rank) * c.chunks_per_block * k,
            o_chunks=c.output_blocks(rank) * c.chunks_per_block * k,
            s_chunks=scratch_chunks(plan, rank, in_place),
        )
        for b in range(len(blocks)):
            for instance in range(k):
                yield from _block(plan, blocks, b, instance, channel[0])
        yield "  </gpu>"
    yield "</algo>"


def _tag(element: str, end: str = "", **attributes: str | int) -> str:
    return f"<{element} " + " ".join(f'{k}="{v}"' for k, v in attributes.items()) + f"{end}>"


def _block(
    plan: Plan, blocks: list[MscclBlock], b: int, instance: int, channel: dict[int, int]
) -> Iterator[str]:
    """Yields the lines of one thread block of one instance."""
    block, k = blocks[b], plan.channels
    send, recv = block.send, block.recv
    queue = send if send is not None else recv
    chan = 0 if queue is None else channel[queue]
    yield "    " + _tag(
        "tb",
        id=b * k + instance,
        send=-1 if send is None else int(plan.queues.dst[send]),
        recv=-1 if recv is None else int(plan.queues.src[recv]),
        chan=chan * k + instance,
    )
    position = 0
    for step in block.steps:
        waits = [(t, blocks[t].position(o)) for t, o in step.waits.items()]
        for target, deps in waits[:-1]:
            yield _step(position, "nop", ("i", -1), ("o", -1), 0, (target * k + instance, deps), 0)
            position += 1
        dep = (waits[-1][0] * k + instance, waits[-1][1]) if waits else (-1, -1)
        src, dst = ((x, i * k + instance) for x, i in (step.src, step.dst))
        yield _step(position, step.kind, src, dst, step.count, dep, int(step.signals))
        position += 1
    yield "    </tb>"


def _step(
    s: int, kind: str, src: Place, dst: Place, count: int, dep: tuple[int, int], signals: int
) -> str:
    return "      " + _tag(
        "step",
        "/",
        s=s,
        type=kind,
        srcbuf=src[0],
        srcoff=src[1],
        dstbuf=dst[0],
        dstoff=dst[1],
        cnt=count,
        depid=dep[0],
        deps=dep[1],
        hasdep=signals,
    )
