"""allocate: gives every primitive a thread block of its rank.

Connection-based (NCCL, MSCCL): one block for each set of peers a rank talks to in one direction.
Stage-based (MSCCL's expert algorithms, ResCCL §2.1): one for each connection and stage. State-based
(ResCCL §4.4, Eq. 7): connections of a rank whose active intervals never overlap share a block. The
intervals come from `estimate`; because it is an estimate, the merged plan is estimated again and
refused if it would take longer, or could not run with every window. Copies to the own output, which
no primitive waits for, get a block of their own if links would otherwise stand still while they are
made. Depth-based: one for each depth of data (`analysis/depth`), over all connections, or 8, 16 or
32, more for a depth that moves more (`analysis/shared_blocks`). There are few blocks, and none
waits for data while it could send other data: many channels fit. Load-based: 8, 16 or 32 that go
where bytes are, over their rates, by a schedule (`analysis/block_schedule`), which also orders the
primitives; through queues, whose messages keep their order, and of more than MOST_SCHEDULED
primitives, each connection has blocks by what it moves (`analysis/shared_blocks`).

A block executes its primitives in the Primitives' total order, so no allocation can deadlock.
Stages have queues of their own: a queue's end is one block.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hccc.analysis.block_schedule import block_schedule
from hccc.analysis.connections import Connections, connections, copies_apart, split
from hccc.analysis.depth import depths
from hccc.analysis.estimate import F8, estimate, link_time
from hccc.analysis.grouping import group
from hccc.analysis.queue_classes import any_window
from hccc.analysis.shared_blocks import shared_blocks
from hccc.analysis.stages import stages
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8
from hccc.ir.blocks import Blocks
from hccc.ir.choices import Allocator
from hccc.ir.primitives import Guard, Primitives, Transport
from hccc.passes.reorder import reorder
from hccc.passes.requeue import requeue

SLACK = 1.02  # a merge may lengthen the estimate by this much
WORTH = 1.05  # copies have blocks of their own where the estimate is as many times as long without
SKIP = 64  # blocks that are passed over at once
TOUCH = 0.001  # of the estimate: intervals that overlap by less only touch
MOST_SCHEDULED = 1 << 16  # primitives that are scheduled by load
# Blocks of a rank, or one for each depth where those are more.
DEPTHS: Mapping[str, int] = {
    Allocator.DEPTH: 1,
    Allocator.DEPTH8: 8,
    Allocator.DEPTH16: 16,
    Allocator.DEPTH32: 32,
}


# Blocks of a rank that links get by their load.
LOADS: Mapping[str, int] = {Allocator.LOAD8: 8, Allocator.LOAD16: 16, Allocator.LOAD32: 32}


def allocate(
    p: Primitives,
    allocator: str = Allocator.STATE,
    max_blocks: int | None = None,
    channels: int = 1,
) -> Blocks:
    """Puts `p` in thread blocks; at most `max_blocks` a rank if given. channels: that share links,
    where blocks are dealt by load.

    O(primitives + dependencies) for the two estimates, plus connections × intervals of each rank.
    """
    if allocator in LOADS and not len(p.queues) and 0 < len(p) <= MOST_SCHEDULED:
        return _scheduled(p, min(LOADS[allocator], max_blocks or LOADS[allocator]), channels)
    connected = connections(p)
    dealt = DEPTHS.get(allocator) or LOADS.get(allocator)
    if dealt:
        label = shared_blocks(p, depths(p) if allocator in DEPTHS else connected.of, dealt)
        one = Connections(np.zeros(len(p), np.int32), np.zeros(1, np.int32))
        connected, p = split(p, one, label), requeue(p, label)
    elif allocator == Allocator.STAGE and len(p):
        stage = _stage(p, connected)
        connected, p = split(p, connected, stage), requeue(p, stage)
    if p.transport is Transport.MIXED and not dealt:
        # where merged primitives of two connections share a queue
        p = requeue(p, connected.of)
    block: I4 = np.arange(len(connected.rank), dtype=np.int32)
    if allocator == Allocator.STATE and len(p):
        connected, block = _state_based(p, connected)
    if max_blocks is not None:
        block = _capped(p, connected, block, max_blocks)
    return Blocks(p, _within_rank(connected, block)[connected.of])


def _scheduled(p: Primitives, blocks: int, channels: int) -> Blocks:
    """Returns `p` in the order of its schedule, in the blocks of it."""
    made = block_schedule(p, blocks, channels)
    p, block = reorder(p, made.order), made.block[made.order]
    one = Connections(np.zeros(len(p), np.int32), np.zeros(1, np.int32))
    connected = split(p, one, block)
    own = np.arange(len(connected.rank), dtype=np.int32)
    return Blocks(p, _within_rank(connected, own)[connected.of])


@njit
def _overlap(ptr: I8, rows: I4, start: F8, end: F8, touch: float, c: int, o: int) -> bool:
    """Tells whether connections c and o are active at once for more than µs `touch`. Their
    intervals are sorted and disjoint."""
    i, j = ptr[c], ptr[o]
    while i < ptr[c + 1] and j < ptr[o + 1]:
        if end[rows[i]] <= start[rows[j]] + touch:
            i += 1
        elif end[rows[j]] <= start[rows[i]] + touch:
            j += 1
        else:
            return True
    return False


@njit
def _longest(ptr: I8, rows: I4, start: F8, end: F8, c: int) -> int:
    """Returns the primitive of connection c with the longest interval."""
    best = rows[ptr[c]]
    for k in range(ptr[c] + 1, ptr[c + 1]):
        if end[rows[k]] - start[rows[k]] > end[best] - start[best]:
            best = rows[k]
    return int(best)


@njit
def _merge(rank: I4, ptr: I8, rows: I4, start: F8, end: F8, touch: float) -> I4:
    """Puts every connection of a rank into its first block that is idle whenever the connection is
    active (first fit).

    `member[b]` is the last connection that joined block b, `before` the one that joined before it.
    The longest interval of a connection excludes most blocks that do not fit: the longest interval
    of the last to join a block ends at `until`, and `since` is `touch` after its start; `length` is
    the longest of all that joined. earliest, latest: the least `until` and the greatest `since` of
    SKIP blocks.
    """
    block = np.empty(len(rank), np.int32)
    length, since = np.zeros(len(rank)), np.full(len(rank), np.inf)
    until = np.full(len(rank), -np.inf)
    latest, earliest = since[::SKIP].copy(), until[::SKIP].copy()
    member, before = np.full(len(rank), -1, np.int32), np.full(len(rank), -1, np.int32)
    lo = 0
    for c in range(len(rank)):
        if rank[c] != rank[lo]:
            latest[: (c - lo) // SKIP + 1], earliest[: (c - lo) // SKIP + 1] = np.inf, -np.inf
            lo = c
        long = _longest(ptr, rows, start, end, c)
        first, last, lasts = start[long] + touch, end[long], end[long] - start[long]
        b = lo
        while True:
            k = (b - lo) // SKIP
            if (b - lo) % SKIP == 0 and earliest[k] > first and last > latest[k]:
                b += SKIP
                continue
            if until[b] <= first or last <= since[b]:
                o = member[b] if max(lasts, length[b]) > touch else -1  # short ones only touch
                while o >= 0 and not _overlap(ptr, rows, start, end, touch, c, o):
                    o = before[o]
                if o < 0:
                    break
            b += 1
        block[c], before[c], member[b] = b, member[b], c
        length[b], since[b], until[b] = max(lasts, length[b]), first, last
        some = slice(lo + k * SKIP, lo + (k + 1) * SKIP)
        latest[k], earliest[k] = since[some].max(), until[some].min()
    return block


def _state_based(p: Primitives, connected: Connections) -> tuple[Connections, I4]:
    """Returns connections and the block of each, idle ones sharing one; a rank's copies to its own
    output have a block of their own where that pays."""
    block, makespan = _merged(p, connected)
    if not (p.guard == Guard.OUT_OF_PLACE).any():
        return connected, block
    apart = copies_apart(p, connected)
    more, sooner = _merged(p, apart)
    if makespan < WORTH * sooner:
        return connected, block
    blocks, others = len(np.unique(block)), len(np.unique(more))
    # As many blocks more in other channels would gain as much, unless links are the limit.
    if others * sooner > blocks * makespan and sooner > SLACK * link_time(p):
        return connected, block
    return apart, more


def _merged(p: Primitives, connected: Connections) -> tuple[I4, float]:
    """Returns the block of each connection, idle connections sharing one, and the estimate."""
    apart = estimate(p, connected.of)
    ptr, rows = group(connected.of, len(connected.rank))
    block = _merge(connected.rank, ptr, rows, apart.start, apart.end, TOUCH * apart.makespan)
    merged = estimate(p, block[connected.of])
    slower = merged.makespan > SLACK * apart.makespan
    if slower or (p.transport is Transport.MIXED and not any_window(p, block[connected.of])):
        return np.arange(len(connected.rank), dtype=np.int32), apart.makespan
    return block, merged.makespan


def channels(p: Primitives, channel: I4) -> Blocks:
    """Puts `p` in NCCL's thread blocks: at each rank one for each channel, with queues of their
    own.

    channel: i4[tasks], at least 0. O(primitives log primitives).
    """
    mine = by_task(p, channel)
    one = Connections(np.zeros(len(p), np.int32), np.zeros(1, np.int32))
    connected = split(p, one, mine)
    block = np.arange(len(connected.rank), dtype=np.int32)
    return Blocks(requeue(p, mine), _within_rank(connected, block)[connected.of])


def by_task(p: Primitives, label: I4) -> I4:
    """Returns the `label` (i4[tasks]) of each primitive's first task; local copies take their
    chunk's: i4[n]."""
    of_chunk = np.zeros(p.dag.program.collective.n_chunks, np.int32)
    of_chunk[p.dag.program.transfers["chunk"]] = label
    mine = of_chunk[p.chunk]
    busy = p.tasks.counts() > 0
    mine[busy] = label[p.tasks.index[p.tasks.ptr[:-1][busy]]]
    return mine


def _stage(p: Primitives, connected: Connections) -> I4:
    """Returns the stage of every primitive: of its latest task, or a local copy's of its
    connection."""
    stage = np.full(len(p), -1, np.int32)
    np.maximum.at(stage, p.tasks.owner(), stages(p.dag)[p.tasks.index])
    last = np.zeros(len(connected.rank), np.int32)
    np.maximum.at(last, connected.of, stage)
    return np.where(stage < 0, last[connected.of], stage).astype(np.int32)


def _capped(p: Primitives, connected: Connections, block: I4, most: int) -> I4:
    """Merges a rank's least loaded blocks until at most `most` are left; of equal ones those that
    begin last, each with one that begins early."""
    load = np.bincount(block[connected.of], minlength=len(block))
    begin = np.full(len(block), len(p))
    moves = np.flatnonzero(p.tasks.counts())  # local copies are at either end
    np.minimum.at(begin, block[connected.of[moves]], moves)
    block = block.copy()
    for r in range(p.dag.program.collective.n_ranks):
        lo, hi = np.searchsorted(connected.rank, [r, r + 1])
        used = np.unique(block[lo:hi])
        heavy = used[np.lexsort((begin[used], -load[used]))]
        bins = heavy[:most]
        weight = load[bins].astype(np.int64)
        for b in heavy[most:]:
            least = int(np.argmin(weight))
            block[lo:hi][block[lo:hi] == b] = bins[least]
            weight[least] += load[b]
    return block


def _within_rank(connected: Connections, block: I4) -> I4:
    """Returns block numbers from 0 at each rank, by first use: i4[connections]."""
    _, dense = np.unique(block, return_inverse=True)
    first = np.full(len(connected.rank), len(block), np.int64)
    np.minimum.at(first, dense, np.arange(len(dense)))
    kept_rank = connected.rank[first[first < len(block)]]
    base = np.searchsorted(kept_rank, kept_rank)
    return (dense - base[dense]).astype(np.int32)
