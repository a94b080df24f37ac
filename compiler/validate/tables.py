"""tables: what is recorded of a text, and what a Plan says that must be.

Names and order are those of `include/hccc/recorder.h`; a test holds the two together. Nothing here
comes from `emit/`: it is `emit/` that is held against the Plan.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hccc.dtypes import OPS, STAND_IN
from hccc.ir.arrays import B1, I4, I8, places, places_among
from hccc.ir.kernel_shape import KernelShape, kernel_shape
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Guard, Operands

WARP = 32  # threads
OPERAND_CELLS = 8
RECV, SEND, SEND_FAR = 4, 5, 6  # kinds of operands after those in memory: numbered as `Buffer`
OPERAND = ("kind", "rank or queue", "slot or rank", "turn", "length", "data flag", "credit flag",
           "own queue")  # fmt: skip
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "primitives": ("rank", "thread block", "number", "mode", "chunk", "waits", "sources",
                   "destinations", "puts", "posts"),
    "waits": ("flag",),
    "sources": OPERAND,
    "destinations": OPERAND,
    "puts": ("from kind", "from rank", "from slot", "kind", "rank", "slot"),
    "posts": ("rank", "flag"),
    "neighbours": ("rank", "neighbour"),
    "constants": ("value",),
    "shape": (*KernelShape.__dataclass_fields__, "sizes"),
    "user_blocks": ("rank", "input blocks", "output blocks"),
    "calls": ("in place", "window", "status", "launches", "passed on", "window launched"),
    "names": ("status", "launches", "passed on"),
}  # fmt: skip
# Of each list, the column that has its length; those whose order changes nothing.
OF_PRIMITIVES = {
    "waits": 5,
    "sources": 6,
    "destinations": 7,
    "puts": 8,
    "posts": 9,
}
UNORDERED = (
    "waits",
    "destinations",
    "puts",
    "posts",
)
CONSTANTS = (
    *KernelShape.__dataclass_fields__, "threads", "touches peers", "network", "operands", "inline",
)  # fmt: skip
MODES = {"reduce": 1, "final": 2, "in place": 4, "out of place": 8, "far": 16}
BAD_ARGUMENT, NOT_BUILT, LAUNCHED = 2, 6, 1000  # statuses; LAUNCHED: of the recorded launch
ENTRY = ("float16", "sum")  # a text is compiled for; every library has it
Rows = Mapping[str, I4]


def expected(plan: Plan) -> dict[str, I4]:
    """The rows of every table that a text of `plan` must record: i4[rows, columns]. O(P log P)."""
    return {
        "primitives": _primitives(plan),
        "waits": _rows(plan.waits.index),
        "sources": _operands(plan, plan.src, RECV),
        "destinations": _operands(plan, plan.dst, SEND)[~plan.network_puts()],
        "puts": _puts(plan),
        "posts": _rows(plan.posts.rank, plan.posts.flag),
        "neighbours": _neighbours(plan),
        "constants": _rows(
            [
                *kernel_shape(plan).constants().values(),
                plan.warps * WARP,
                int(plan.touches_peers()),
                int(_far(plan).any()),
            ]
        ),
        "shape": np.array([[*kernel_shape(plan).constants().values(), 1]], np.int32),
        "user_blocks": _user_blocks(plan),
        "calls": _calls(plan),
        "names": _names(plan),
    }


def _rows(*columns: I8 | list[int]) -> I4:
    return np.stack([np.asarray(c) for c in columns], axis=1).astype(np.int32)


def _primitives(plan: Plan) -> I4:
    block = plan.block_of()
    first = np.repeat(np.cumsum(plan.n_tb) - plan.n_tb, plan.n_tb)  # block of its rank's first
    tb = np.arange(len(plan.tb_ptr) - 1) - first
    puts = np.bincount(plan.dst.owner()[plan.network_puts()], minlength=len(plan))
    counts = [r.counts() for r in (plan.waits, plan.src, plan.dst, plan.posts)]
    counts[2:3] = [counts[2] - puts, puts]
    mode = (counts[1] > 1) * MODES["reduce"] + (plan.final > 0) * MODES["final"]
    mode = mode + (plan.guard == Guard.IN_PLACE) * MODES["in place"]
    mode = mode + (plan.guard == Guard.OUT_OF_PLACE) * MODES["out of place"]
    mode = mode + _far(plan) * MODES["far"]
    number = places(np.diff(plan.tb_ptr))
    sub = plan.chunk % plan.collective.chunks_per_block
    return _rows(plan.rank_of(), tb[block], number, mode, sub, *counts)


def _far(plan: Plan) -> B1:
    """Primitives that have to do with another memory domain than their rank's: b1[P]."""
    domain, rank = plan.memory_domain, plan.rank_of()
    found = np.zeros(len(plan), np.bool_)
    for operands, ends in ((plan.src, plan.queues.src), (plan.dst, plan.queues.dst)):
        there, queue = operands.rank.copy(), operands.buffer == Buffer.QUEUE
        there[queue] = ends[operands.rank[queue]]
        row = operands.owner()
        found[row[domain[there] != domain[rank[row]]]] = True
    row = plan.posts.owner()
    found[row[domain[plan.posts.rank] != domain[rank[row]]]] = True
    return found


def _puts(plan: Plan) -> I4:
    """(kind, rank, slot) that a proxy reads and that it writes, of every network put: it reads the
    first place at its rank that the primitive writes, else the one that it reads."""
    rank, dst, src = plan.rank_of(), plan.dst, plan.src
    row = dst.owner()
    own = np.flatnonzero((dst.buffer != Buffer.QUEUE) & (dst.rank == rank[row]))[::-1]
    places = [np.array(getattr(src, name)[src.ptr[:-1]]) for name in ("buffer", "rank", "slot")]
    for place, name in zip(places, ("buffer", "rank", "slot"), strict=True):
        place[row[own]] = getattr(dst, name)[own]  # the first is written last
    put = np.flatnonzero(plan.network_puts())
    targets = (dst.buffer[put], dst.rank[put], dst.slot[put])
    return _rows(*(place[row[put]] for place in places), *targets)


def _operands(plan: Plan, operands: Operands, kind: int) -> I4:
    """Memory as (kind, rank, slot), messages as (kind, queue, peer, turn, length, flags), and what
    leaves a memory domain with the queue's number at its sender."""
    found = np.zeros((len(operands.rank), OPERAND_CELLS), np.int32)
    found[:, 0], found[:, 1], found[:, 2] = operands.buffer, operands.rank, operands.slot
    at = np.flatnonzero(operands.buffer == Buffer.QUEUE)
    q, queues = operands.rank[at], plan.queues
    peer = queues.src if kind == RECV else queues.dst
    here = places_among(queues.dst)  # queues are numbered at their receivers
    flags = (queues.data_flag[q], queues.credit_flag[q])
    found[at, 0] = kind
    found[at, 1:7] = _rows(here[q], peer[q], operands.slot[at], queues.length[q], *flags)
    away = plan.memory_domain[queues.src] != plan.memory_domain[queues.dst]
    own = np.zeros(len(queues), np.int64)
    own[away] = places_among(queues.src[away])
    if kind == SEND:
        found[at, 0] += away[q]
        found[at, 7] = own[q]
    return found


def _neighbours(plan: Plan) -> I4:
    """Ranks of which one touches the other's data, flags or queues; each pair both ways."""
    rank = plan.rank_of()
    pairs = [(plan.queues.src, plan.queues.dst), (rank[plan.posts.owner()], plan.posts.rank)]
    for operands in (plan.src, plan.dst):
        memory = operands.buffer != Buffer.QUEUE
        pairs.append((rank[operands.owner()[memory]], operands.rank[memory]))
    here, there = (np.concatenate(column).astype(np.int64) for column in zip(*pairs, strict=True))
    n = plan.n_ranks
    found = np.unique(np.concatenate([here * n + there, there * n + here]))
    found = found[found // n != found % n]
    return _rows(found // n, found % n)


def _user_blocks(plan: Plan) -> I4:
    ranks, c = range(plan.n_ranks), plan.collective
    blocks = ([c.input_blocks(r) for r in ranks], [c.output_blocks(r) for r in ranks])
    return _rows(list(ranks), *blocks)


def _calls(plan: Plan) -> I4:
    """What the entry does with calls in and out of place, and of no call: it narrows windows."""
    most = plan.largest_window
    windows = {0, 1, 2, most - 1, most, most + 1, 2 * most, 1 << 20, (1 << 31) - 1, -1}
    rows = [(-1, 0, LAUNCHED, 1, 1, 0)]
    for in_place in (0, 1, 2):
        for window in sorted(w for w in windows if w < 1 << 31):
            given = (in_place, window)
            if bool(in_place) not in plan.modes:
                rows.append((*given, BAD_ARGUMENT, 0, 0, 0))
                continue
            narrowed = most if most and (not window or window > most) else window
            rows.append((*given, LAUNCHED, 1, 1, narrowed))
    return np.array(rows, np.int32)


def entries(plan: Plan) -> list[tuple[str, str]]:
    """(dtype, op) of every entry that a library may be built with; ENTRY is the first.

    The last is left out of what the dispatcher is told was built.
    """
    reductions = [op for op in OPS if plan.averages or op != "avg"] if plan.reduces else ["sum"]
    dtypes = dict.fromkeys(STAND_IN if plan.reduces else STAND_IN.values())
    found = [(dtype, op) for dtype in dtypes for op in reductions]
    found.remove(ENTRY)
    return [ENTRY, *found]


def queries(plan: Plan) -> list[tuple[str | None, str | None]]:
    """What the dispatcher is asked for: every dtype and op, names of none, and nothing."""
    return [(d, o) for d in (*STAND_IN, "float", "", None) for o in (*OPS, "mean", "", None)]


def _names(plan: Plan) -> I4:
    place = {pair: LAUNCHED + k for k, pair in enumerate(entries(plan))}
    left_out = entries(plan)[-1]
    rows = []
    for dtype, op in queries(plan):
        known = dtype in STAND_IN and (op in OPS or not plan.reduces)
        built = (dtype, op) if plan.reduces else (STAND_IN.get(dtype or ""), "sum")
        if not known:
            rows.append((BAD_ARGUMENT, 0, 1))
        elif built not in place or built == left_out:
            rows.append((NOT_BUILT, 0, 1))
        elif built == ENTRY and not plan.out_of_place:
            rows.append((BAD_ARGUMENT, 0, 1))
        else:
            rows.append((place[built], 1, 1))
    return np.array(rows, np.int32)
