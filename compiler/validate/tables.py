"""tables: the tables that a run of a text records, and their rows as a Plan requires them.

Names and order are those of `include/hccc/recorder.h`; a test compares the two. Nothing here comes
from `emit/`, because `emit/` is what is checked against the Plan.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np

from hccc.base.dtypes import OPS, STAND_IN, named, reduces
from hccc.base.reductions.expression import Expression
from hccc.base.reductions.parse import own
from hccc.ir.arrays import B1, I4, I8, places, places_among
from hccc.ir.catalogue import Catalogue
from hccc.ir.choices import Bits, PlanProtocol
from hccc.ir.kernel_shape import KernelShape, kernel_shape
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Guard, Operands
from hccc.validate import library_facts

WARP = 32  # threads
OPERAND_CELLS = 8
# Kinds of operands after those in memory, which are numbered as `Buffer`.
RECV, SEND, SEND_FAR, PACKETS_IN, PACKETS_OUT = range(4, 9)
OPERAND = (
    "kind",
    "rank or queue",
    "slot or rank",
    "turn",
    "length",
    "data flag",
    "credit flag",
    "own number",
)
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "primitives": (
        "rank",
        "thread block",
        "number",
        "mode",
        "chunk",
        "waits",
        "sources",
        "destinations",
        "puts",
        "posts",
    ),
    "waits": ("flag",),
    "sources": OPERAND,
    "destinations": OPERAND,
    "puts": OPERAND,
    "put_sources": OPERAND,
    "posts": ("rank", "flag"),
    "neighbours": ("rank", "neighbour"),
    "constants": ("value",),
    "buffers": ("rank", "input blocks", "output blocks"),
    "domains": ("rank", "memory domain"),
    "shape": (*KernelShape.__dataclass_fields__, "sizes"),
    "user_blocks": ("rank", "input blocks", "output blocks"),
    "calls": ("in place", "window", "status", "launches", "passed on", "window launched"),
    "names": ("status", "launches", "passed on"),
    "library": ("value",),
    "reduction_texts": ("character",),
}
OF_PRIMITIVES = {  # the column of their number
    "waits": 5,
    "sources": 6,
    "destinations": 7,
    "puts": 8,
    "put_sources": 8,
    "posts": 9,
}
UNORDERED = (
    "waits",
    "destinations",
    "puts",
    "posts",
)  # the order within a primitive changes nothing
CONSTANTS = (
    *KernelShape.__dataclass_fields__,
    "threads",
    "touches_peers",
    "network",
    "uneven",
    "accumulate",
    "greets",
    "multicast",
    "operands",
    "inline",
)
MODES = {
    "reduce": 1,
    "final": 2,
    "in place": 4,
    "out of place": 8,
    "network": 16,
    "from all": 32,
    "to all": 64,
}
BAD_ARGUMENT, NOT_BUILT, LAUNCHED = 2, 6, 1000  # statuses; LAUNCHED: of the recorded launch
ENTRY = ("float16", "sum")  # a text is compiled for; every library has it
Rows = Mapping[str, I4]


def expected(plan: Plan) -> dict[str, I4]:
    """Returns the rows of every table that a text of `plan` must record: i4[rows, columns]. O(P log
    P)."""
    return {
        "primitives": _primitives(plan),
        "waits": _rows(plan.waits.index),
        "sources": _operands(plan, plan.src, RECV),
        "destinations": _operands(plan, plan.dst, SEND)[~plan.network_puts()],
        "puts": _operands(plan, plan.dst, SEND)[plan.network_puts()],
        "put_sources": _put_sources(plan),
        "posts": _rows(plan.posts.rank, plan.posts.flag),
        "neighbours": _neighbours(plan),
        "constants": _constants(plan),
        "buffers": _buffers(plan),
        "domains": _domains(plan),
        "shape": shapes([plan]),
        "user_blocks": user_blocks(plan),
        "calls": _calls(plan),
        "names": names(plan, serves=plan.out_of_place, alone=True),
        "library": library_facts.rows(Catalogue.of(plan)),
        "reduction_texts": _reductions(plan),
    }


def _reductions(plan: Plan) -> I4:
    """Returns the characters of the reductions of one's own: name, kinds, and the expression with
    operations after what they take."""
    made = (own(text) for text in plan.reductions)
    all_ = "".join(f"{r.name} {r.kinds} {_after(r.expression)};" for r in made)
    return np.frombuffer(all_.encode(), np.uint8).astype(np.int32)[:, None]


def _after(e: Expression) -> str:
    """Writes an expression as `include/hccc/reductions.h` does."""
    if e.operation != "number":
        return f"{''.join(map(_after, e.parts))}{e.operation} "
    whole = e.number.isdigit()
    bits = struct.pack(">q", int(e.number)) if whole else struct.pack(">d", float(e.number))
    return f"{'i' if whole else 'f'}{bits.hex()} "


def _rows(*columns: I8 | list[int]) -> I4:
    return np.stack([np.asarray(c) for c in columns], axis=1).astype(np.int32)


def _primitives(plan: Plan) -> I4:
    block = plan.block_of()
    first = np.repeat(np.cumsum(plan.n_tb) - plan.n_tb, plan.n_tb)  # block of its rank's first
    tb = np.arange(len(plan.tb_ptr) - 1) - first
    put = np.bincount(plan.dst.owner()[plan.network_puts()], minlength=len(plan))
    counts = [plan.waits.counts(), plan.src.counts(), plan.dst.counts() - put, put]
    counts.append(plan.posts.counts())
    mode = (counts[1] > 1) * MODES["reduce"] + (plan.final > 0) * MODES["final"]
    mode = mode + (plan.guard == Guard.IN_PLACE) * MODES["in place"]
    mode = mode + (plan.guard == Guard.OUT_OF_PLACE) * MODES["out of place"]
    mode = mode + _by_network(plan) * MODES["network"]
    for name, operands in (("from all", plan.src), ("to all", plan.dst)):
        mode = mode + _of_all_ranks(plan, operands) * MODES[name]
    number = places(np.diff(plan.tb_ptr))
    sub = plan.length_index()
    return _rows(plan.rank_of(), tb[block], number, mode, sub, *counts)


def _of_all_ranks(plan: Plan, operands: Operands) -> B1:
    """Marks, in a plan for a switch, the primitives whose operands are one slot of one user buffer,
    once at every rank: b1[P]."""
    marked = np.zeros(len(plan), np.bool_)
    n = plan.n_ranks
    for i in np.flatnonzero(operands.counts() == n) if plan.multicast and n > 1 else ():
        rows = slice(operands.ptr[i], operands.ptr[i + 1])
        places = set(zip(operands.buffer[rows].tolist(), operands.slot[rows].tolist(), strict=True))
        user = places <= {(kind, slot) for _, slot in places for kind in (0, 1)}
        marked[i] = user and len(places) == 1 and len(set(operands.rank[rows].tolist())) == n
    return marked


def _by_network(plan: Plan) -> B1:
    """Marks the primitives that put, send, receive or raise a flag over the network: b1[P]."""
    network = plan.network_queues()
    marked = np.zeros(len(plan), np.bool_)
    for operands in (plan.src, plan.dst):
        queued = np.flatnonzero(operands.buffer == Buffer.QUEUE)
        marked[operands.owner()[queued[network[operands.rank[queued]]]]] = True
    marked[plan.dst.owner()[plan.network_puts()]] = True
    marked[plan.posts.owner()[plan.network_posts()]] = True
    return marked


def _put_sources(plan: Plan) -> I4:
    """Returns the place of the value that each put carries, one row a put: the first place in the
    own rank's memory that its primitive writes, else its only source."""
    sources = _operands(plan, plan.src, RECV)[plan.src.ptr[:-1]]
    own = plan.dst.rank == plan.rank_of()[plan.dst.owner()]
    at = np.flatnonzero(own & (plan.dst.buffer != Buffer.QUEUE))[::-1]  # the first comes last
    sources[plan.dst.owner()[at]] = _operands(plan, plan.dst, SEND)[at]
    return sources[plan.dst.owner()[plan.network_puts()]]


def _constants(plan: Plan) -> I4:
    shape = kernel_shape(plan).constants().values()
    network = bool(_by_network(plan).any())
    uneven = plan.collective.blocks if plan.collective.uneven else 0
    accumulate = plan.accumulate.bits
    switch = {None: 0, Bits.SAME: 1, Bits.ANY: 2}[plan.multicast]
    flags = plan.touches_peers(), network, uneven, accumulate, plan.greets, switch
    return _rows([*shape, plan.warps * WARP, *flags])


def _operands(plan: Plan, operands: Operands, kind: int) -> I4:
    """Returns memory as (kind, rank, slot), messages as (kind, queue, peer, turn, length,
    flags)."""
    rows = np.zeros((len(operands.rank), OPERAND_CELLS), np.int32)
    rows[:, 0], rows[:, 1], rows[:, 2] = operands.buffer, operands.rank, operands.slot
    at = np.flatnonzero(operands.buffer == Buffer.QUEUE)
    q, queues = operands.rank[at], plan.queues
    peer = queues.src if kind == RECV else queues.dst
    if plan.protocol is PlanProtocol.LL:
        slot = _packet_slots(plan)[q] + operands.slot[at]
        rows[at, :3] = _rows(np.full(len(q), kind + PACKETS_IN - RECV), peer[q], slot)
        return rows
    here = places_among(queues.dst)  # queues are numbered at their receivers
    flags = (queues.data_flag[q], queues.credit_flag[q])
    rows[at, 0] = kind
    rows[at, 1:-1] = _rows(here[q], peer[q], operands.slot[at], queues.length[q], *flags)
    network = plan.network_queues()
    if kind == SEND and network.any():
        begins = np.cumsum(network) - 1  # place of a network queue among all of them
        own = places_among(queues.src[network])[np.maximum(begins, 0)]
        far = network[q]
        rows[at[far], 0], rows[at[far], -1] = SEND_FAR, own[q[far]]
    return rows


def _packet_slots(plan: Plan) -> I8:
    """Returns the slot of each queue's first message: at a receiver, senders come in the order of
    ranks after it, and queues of one sender by id. i8[Q]"""
    first = np.zeros(len(plan.queues), np.int64)
    q, used = plan.queues, np.zeros(plan.n_ranks, np.int64)
    for k in sorted(range(len(q)), key=lambda k: (q.src[k] - q.dst[k]) % plan.n_ranks):
        first[k] = used[q.dst[k]]
        used[q.dst[k]] += q.length[k]
    return first


def _neighbours(plan: Plan) -> I4:
    """Returns the pairs of ranks of which one touches the other's data, flags or queues, both
    ways."""
    rank = plan.rank_of()
    pairs = [(plan.queues.src, plan.queues.dst), (rank[plan.posts.owner()], plan.posts.rank)]
    for operands in (plan.src, plan.dst):
        memory = operands.buffer != Buffer.QUEUE
        pairs.append((rank[operands.owner()[memory]], operands.rank[memory]))
    here, there = (np.concatenate(column).astype(np.int64) for column in zip(*pairs, strict=True))
    n = plan.n_ranks
    keys = np.unique(np.concatenate([here * n + there, there * n + here]))
    keys = keys[keys // n != keys % n]
    return _rows(keys // n, keys % n)


def _buffers(plan: Plan) -> I4:
    """Returns the blocks that windows must hold, 1 in texts whose buffers need no window."""
    blocks = user_blocks(plan)
    if not plan.touches_peers():
        blocks[:, 1:] = 1
    return blocks


def _domains(plan: Plan) -> I4:
    """Returns the memory domain of each rank, for texts that use a network."""
    if not _by_network(plan).any():
        return np.zeros((0, 2), np.int32)
    return _rows(np.arange(plan.n_ranks), plan.memory_domain)


def user_blocks(plan: Plan) -> I4:
    """Returns the blocks in the buffers of every rank: (rank, input, output)."""
    ranks, c = range(plan.n_ranks), plan.collective
    blocks = ([c.input_blocks(r) for r in ranks], [c.output_blocks(r) for r in ranks])
    return _rows(list(ranks), *blocks)


def _calls(plan: Plan) -> I4:
    """Returns calls in and out of place, and no call, with their outcome: the entry narrows
    windows."""
    most = plan.largest_window
    windows = {0, 1, 2, most - 1, most, most + 1, 2 * most, 1 << 20, (1 << 31) - 1, -1}
    windows |= {plan.window, plan.window + 1}
    rows = [(-1, 0, LAUNCHED, 1, 1, 0)]
    for in_place in (0, 1, 2):
        for window in sorted(w for w in windows if w < 1 << 31):
            given = (in_place, window)
            if bool(in_place) not in plan.modes:
                rows.append((*given, BAD_ARGUMENT, 0, 0, 0))
                continue
            narrowed = most if most and window > most else window or plan.default_window
            rows.append((*given, LAUNCHED, 1, 1, narrowed))
    return np.array(rows, np.int32)


def entries(plan: Plan) -> list[tuple[str, str]]:
    """Lists (dtype, op) of every entry that a library may be built with; ENTRY is the first.

    The dispatcher is told that all but the last were built.
    """
    reductions = plan.operations if plan.reduces else ("sum",)
    dtypes = dict.fromkeys(STAND_IN if plan.reduces else STAND_IN.values())
    pairs = [(dtype, named(op)) for dtype in dtypes for op in reductions if reduces(dtype, op)]
    pairs.remove(ENTRY)
    return [ENTRY, *pairs]


def queries(plan: Plan) -> list[tuple[str | None, str | None]]:
    """Lists the queries to the dispatcher: every dtype and op, unknown names, and null."""
    ops = (*OPS, *map(named, plan.reductions), "mean", "", None)
    return [(d, o) for d in (*STAND_IN, "float", "", None) for o in ops]


def shapes(plans: Sequence[Plan]) -> I4:
    """Returns the constants of the header's shapes, one row a plan, and 1 since sizes follow from
    them."""
    rows = [[*kernel_shape(plan).constants().values(), 1] for plan in plans]
    return np.array(rows, np.int32)


def names(plan: Plan, *, serves: bool, alone: bool) -> I4:
    """Returns the dispatcher's outcome of every query, for a call out of place.

    serves: whether such calls are served; alone: the library has one plan, whose other entries are
    not there to refuse the call.
    """
    place = {pair: LAUNCHED + k for k, pair in enumerate(entries(plan))}
    left_out = entries(plan)[-1]
    rows = []
    own_names = list(map(named, plan.reductions))
    for dtype, op in queries(plan):
        known = dtype in STAND_IN and (op in OPS or op in own_names or not plan.reduces)
        built = (dtype, op) if plan.reduces else (STAND_IN.get(dtype or ""), "sum")
        if not known:
            rows.append((BAD_ARGUMENT, 0, 1))
        elif built not in place or built == left_out:
            rows.append((NOT_BUILT, 0, 1))
        elif (built == ENTRY or not alone) and not serves:
            rows.append((BAD_ARGUMENT, 0, 1))
        else:
            rows.append((place[built], 1, 1))
    return np.array(rows, np.int32)
