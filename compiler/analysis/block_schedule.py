"""block_schedule: an order of primitives, and thread blocks for them, by list scheduling.

A rank has a number of thread blocks, and links that a few of them fill: a wide link more, a narrow
one fewer. A block that is free takes, of the primitives whose data arrive, one whose links have
room for what a block brings. So links get blocks in proportion to their bytes over their rates,
small ones share blocks, and blocks execute in the order in which data arrive (Graham 1969; HeteCCL
§5.3). What has the most left to do behind it comes first: on its links, or along its chunk's way.

Times are in µs, of `MICRO_BATCHES` micro-batches of the topology's size a channel. Links are shared
in proportion to what is asked of them (`sim` divides them fairly). What a proxy carries takes
links, but no block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hccc.analysis.connections import connections
from hccc.analysis.estimate import MICRO_BATCHES, remote
from hccc.analysis.grouping import transpose
from hccc.analysis.heap import pop, push
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4, I8, starts
from hccc.ir.dag import Dag
from hccc.ir.device import BLOCK_RATES
from hccc.ir.primitives import Primitives, memory_domain, network_puts
from hccc.ir.topology import BYTES_PER_US, F8
from hccc.network.routes import routes

STORE, LOAD = (BLOCK_RATES.index(name) for name in ("store", "load"))
PART = 0.2  # of what a block brings, for which a link must have room: full links matter more than
# blocks that wait for each other; by trial
UNEVEN = 1.5  # times as wide
SHORTEST = 1e-6  # µs of a primitive
EXACT = 1e-9  # part of a primitive that is none
IDLE = 1e-6  # part of a resource's capacity below which it carries nothing


@dataclass(frozen=True, slots=True, eq=False)
class BlockSchedule:
    """order: i4[n] primitives as they begin; block: i4[n] of each primitive, within its rank; time:
    µs until all end, by the estimate."""

    order: I4
    block: I4
    time: float


class _LoadedPrimitives(NamedTuple):
    """n primitives on R resources. owner: i4[n]; connection: i4[n], those of rank r are
    first[r]:first[r + 1]; held, time: f8[n] µs of a block and of links; behind: f8[n] µs from the
    begin of a primitive to the end of its chunk's way; use, rate: resources of primitive i and what
    it takes of them, bytes/µs, from ptr[i] on; capacity: f8[R] bytes/µs; rank: the ranks that use
    resource q, from users[q] on; succ, pred: successors and predecessors, from after[i] and
    before[i] on; preds: i4[n] how many.
    """

    owner: I4
    connection: I4
    first: I8
    held: F8
    time: F8
    behind: F8
    ptr: I8
    use: I4
    rate: F8
    capacity: F8
    users: I8
    rank: I4
    after: I8
    succ: I4
    before: I8
    pred: I4
    preds: I4


class _ScheduleState(NamedTuple):
    """The state of a run.

    soon: a heap of primitives by `at`, f8[n] µs when they may begin; heap: those that may, by
    `key`, of connection c from room[c] on, waiting[c] of them. active: primitives that have begun
    and not ended, of each of which `rest` is left, from 1 on, at `speed` parts a µs; frees: the
    rest at which its block is free. size: of `soon`, of `active`, and of `order`. taken, left:
    f8[R] bytes/µs in use, and µs that it takes to carry what has not begun; busy: b1[ranks,
    blocks]; asked: b1[ranks] whether to look at a rank; missing: preds that have not begun; done:
    b1[n].
    """

    at: F8
    soon: I4
    heap: I4
    room: I8
    waiting: I8
    key: F8
    active: I4
    rest: F8
    speed: F8
    frees: F8
    size: I8
    taken: F8
    left: F8
    busy: B1
    asked: B1
    missing: I4
    done: B1
    order: I4
    block: I4


def block_schedule(p: Primitives, blocks: int, channels: int) -> BlockSchedule:
    """Returns a schedule of `p`, whose data take no queues, with at most `blocks` thread blocks a
    rank in each of `channels` channels.

    O(primitives · (log primitives + ranks · (blocks + connections of a rank))).
    """
    n, ranks = len(p), p.dag.program.collective.n_ranks
    work = _work(p, channels)
    count = np.bincount(work.connection, minlength=int(work.first[-1]))
    run = _ScheduleState(
        np.zeros(n),
        np.empty(n, np.int32),
        np.empty(n, np.int32),
        starts(count)[:-1].copy(),
        np.zeros(len(count), np.int64),
        -work.behind,
        np.empty(n, np.int32),
        np.ones(n),
        np.zeros(n),
        1 - work.held / work.time,
        np.zeros(3, np.int64),
        np.zeros(len(work.capacity)),
        _to_carry(work),
        np.zeros((ranks, blocks), np.bool_),
        np.zeros(ranks, np.bool_),
        work.preds.copy(),
        np.zeros(n, np.bool_),
        np.empty(n, np.int32),
        np.zeros(n, np.int32),
    )
    return BlockSchedule(run.order, run.block, _schedule(work, run))


def uneven_links(dag: Dag) -> bool:
    """Tells whether a rank of a cluster works on links within its memory domain of which one is
    UNEVEN times as wide as another. O(tasks log tasks)."""
    t, rows = dag.topology, dag.program.transfers
    domain = t.dense_memory_domain()
    near = domain[rows["src"]] == domain[rows["dst"]]
    pair = rows["src"][near].astype(np.int64) * len(t) + rows["dst"][near]
    pairs = np.unique(pair)
    src, dst = (end.astype(np.int32) for end in np.divmod(pairs, len(t)))
    width = routes(t, src, dst).bandwidth
    for worker in (src, dst):
        widest, narrowest = np.zeros(len(t)), np.full(len(t), np.inf)
        np.maximum.at(widest, worker, width)
        np.minimum.at(narrowest, worker, width)
        if (widest[worker] >= UNEVEN * narrowest[worker]).any():
            return True
    return False


def _work(p: Primitives, channels: int) -> _LoadedPrimitives:
    """Returns the tables of a run."""
    t = p.dag.topology
    batch, ranks = float(t.chunk), p.dag.program.collective.n_ranks
    row, src, dst = remote(p)
    found = routes(t, src, dst)
    held, near = _held(p, batch)
    alpha = np.zeros(len(p))
    np.maximum.at(alpha, row, found.alpha)
    # A proxy takes all of its way; a block brings its bytes as fast as it can.
    far = np.zeros(len(p))
    domain = memory_domain(p)
    away = domain[src] != domain[dst]
    wide = found.bandwidth[away] * BYTES_PER_US
    np.maximum.at(far, row[away], batch * channels / np.where(wide > 0, wide, np.inf))
    time = np.maximum(MICRO_BATCHES * (np.maximum(held, far) + alpha), SHORTEST)
    held = MICRO_BATCHES * np.where(near, held + alpha, 0.0)
    each = found.uses.counts()
    owner = np.repeat(row, each).astype(np.int64)
    rate = (MICRO_BATCHES * batch * channels / time)[owner]
    ptr = starts(np.bincount(owner, minlength=len(p)))
    links = len(found.capacity)
    pairs = np.unique(found.uses.index.astype(np.int64) * ranks + p.owner[owner])
    users = starts(np.bincount(pairs // ranks, minlength=links))
    connected = connections(p)
    first = np.searchsorted(connected.rank, np.arange(ranks + 1)).astype(np.int64)
    after = transpose(p.deps)
    return _LoadedPrimitives(
        p.owner,
        connected.of,
        first,
        held,
        time,
        _behind(after.ptr, after.index, time),
        ptr,
        found.uses.index.astype(np.int32),
        rate,
        found.capacity * BYTES_PER_US,
        users,
        (pairs % ranks).astype(np.int32),
        after.ptr,
        after.index,
        p.deps.ptr,
        p.deps.index,
        p.deps.counts().astype(np.int32),
    )


def _held(p: Primitives, batch: float) -> tuple[F8, B1]:
    """Returns the µs of a thread block for a micro-batch of `batch` bytes of each primitive, f8[n],
    and whether the block moves any itself: b1[n].

    A block has the slowest of the rates of what it does (`sim/rates`, cost-model §2).
    """
    t = p.dag.topology
    device = t.device[p.owner]
    rates = np.array([x.block_rates for x in t.devices])[device]
    read = np.array([x.read for x in t.devices])[device]
    reduce = np.array([x.reduce for x in t.devices])[device] * BYTES_PER_US
    puts = network_puts(p.dst, p.owner, memory_domain(p))
    row = p.dst.owner()
    written = p.dst.counts() - np.bincount(row[puts], minlength=len(p))
    stores, loads = np.zeros((2, len(p)), np.bool_)
    stores[row[(p.dst.rank != p.owner[row]) & ~puts]] = True
    row = p.src.owner()
    loads[row[p.src.rank != p.owner[row]]] = True
    none = ~(stores | loads)
    ways = ((none, 0), (stores, STORE), (loads, LOAD))
    slowest = np.min([np.where(does, rates[:, way], np.inf) for does, way in ways], axis=0)
    sources = p.src.counts()
    copied = sources * read + written * (1 - read)
    near = written > 0
    time = copied * batch / (slowest * BYTES_PER_US) + (sources - 1) * batch / reduce
    return np.where(near, time, 0.0), near


@njit
def _behind(after: I8, succ: I4, time: F8) -> F8:
    """Returns the µs from the begin of each primitive to the end of its chunk's way: a successor
    begins a micro-batch later."""
    found = np.zeros(len(time))
    for i in range(len(time) - 1, -1, -1):
        longest = time[i]
        for k in range(after[i], after[i + 1]):
            longest = max(longest, found[succ[k]] + time[i] / MICRO_BATCHES)
        found[i] = longest
    return found


@njit
def _to_carry(w: _LoadedPrimitives) -> F8:
    """Returns the µs that each resource needs for all its bytes: f8[R]."""
    left = np.zeros(len(w.capacity))
    for i in range(len(w.time)):
        for k in range(w.ptr[i], w.ptr[i + 1]):
            left[w.use[k]] += w.rate[k] * w.time[i] / w.capacity[w.use[k]]
    return left


@njit
def _schedule(w: _LoadedPrimitives, s: _ScheduleState) -> float:
    """Begins all primitives, in `s.order`; returns when all have ended."""
    now = 0.0
    for i in range(len(w.time)):
        if s.missing[i] == 0:
            _later(s, i, 0.0)
    while s.size[0] + s.size[1] > 0:
        then = s.at[s.soon[0]] if s.size[0] > 0 else np.inf
        for x in range(s.size[1]):
            i = s.active[x]
            goal = s.frees[i] if s.rest[i] > s.frees[i] + EXACT else 0.0
            if s.speed[i] > 0:
                then = min(then, now + (s.rest[i] - goal) / s.speed[i])
        _advance(w, s, then - now)
        now = then
        while s.size[0] > 0 and s.at[s.soon[0]] <= now:
            i = pop(s.soon, 0, s.size[0], s.at)
            s.size[0] -= 1
            c = w.connection[i]
            push(s.heap, s.room[c], s.waiting[c], i, s.key)
            s.waiting[c] += 1
            s.asked[w.owner[i]] = True
        for r in range(len(s.asked)):
            if s.asked[r]:
                s.asked[r] = False
                _serve(w, s, r, now)
        for x in range(s.size[1]):
            s.speed[s.active[x]] = _speed(w, s, s.active[x])
    return now


@njit
def _later(s: _ScheduleState, i: int, at: float) -> None:
    s.at[i] = at
    push(s.soon, 0, s.size[0], i, s.at)
    s.size[0] += 1


@njit
def _advance(w: _LoadedPrimitives, s: _ScheduleState, passed: float) -> None:
    """Lets time pass; frees blocks and links of primitives that end. None ends before those that it
    depends on."""
    kept = 0
    for x in range(s.size[1]):
        i = s.active[x]
        before = s.rest[i]
        s.rest[i] -= passed * s.speed[i]
        if before > s.frees[i] + EXACT >= s.rest[i] and s.frees[i] > 0:
            _free(w, s, i)
        if s.rest[i] > EXACT or _follows(w, s, i):
            s.active[kept] = i
            kept += 1
            continue
        s.done[i] = True
        if s.frees[i] <= 0:
            _free(w, s, i)
        for k in range(w.ptr[i], w.ptr[i + 1]):
            q = w.use[k]
            s.taken[q] -= w.rate[k]
            for u in range(w.users[q], w.users[q + 1]):
                s.asked[w.rank[u]] = True
    s.size[1] = kept


@njit
def _serve(w: _LoadedPrimitives, s: _ScheduleState, r: int, now: float) -> None:
    """Begins primitives of rank r as long as it has a free block, and links have room."""
    for b in range(s.busy.shape[1]):
        if s.busy[r, b]:
            continue
        best, most = -1, 0.0
        for c in range(w.first[r], w.first[r + 1]):
            if s.waiting[c] > 0:
                i = s.heap[s.room[c]]
                urgent = _urgent(w, s, i)
                if urgent >= 0 and (best < 0 or urgent > most):
                    best, most = c, urgent
        if best < 0:
            return
        i = pop(s.heap, s.room[best], s.waiting[best], s.key)
        s.waiting[best] -= 1
        _begin(w, s, i, b, now)


@njit
def _urgent(w: _LoadedPrimitives, s: _ScheduleState, i: int) -> float:
    """Returns how urgent a primitive is, at least 0; -1 where its links have no room."""
    left = 0.0
    for k in range(w.ptr[i], w.ptr[i + 1]):
        q = w.use[k]
        if s.taken[q] > IDLE * w.capacity[q] and s.taken[q] + PART * w.rate[k] > w.capacity[q]:
            return -1.0
        left = max(left, s.left[q])
    return float(max(left, w.behind[i]))


@njit
def _free(w: _LoadedPrimitives, s: _ScheduleState, i: int) -> None:
    """Frees the block of a primitive."""
    if s.block[i] >= 0 and w.held[i] > 0:
        s.busy[w.owner[i], s.block[i]] = False
        s.asked[w.owner[i]] = True


@njit
def _speed(w: _LoadedPrimitives, s: _ScheduleState, i: int) -> float:
    """Returns the part of a primitive that is done in a µs: links are shared by what is asked."""
    if s.rest[i] <= EXACT:
        return 0.0
    crowd = 1.0
    for k in range(w.ptr[i], w.ptr[i + 1]):
        crowd = max(crowd, s.taken[w.use[k]] / w.capacity[w.use[k]])
    return float(1 / (w.time[i] * crowd))


@njit
def _follows(w: _LoadedPrimitives, s: _ScheduleState, i: int) -> bool:
    """Tells whether a primitive still waits for the end of another."""
    for k in range(w.before[i], w.before[i + 1]):  # noqa: SIM110 numba has no any()
        if not s.done[w.pred[k]]:
            return True
    return False


@njit
def _begin(w: _LoadedPrimitives, s: _ScheduleState, i: int, b: int, now: float) -> None:
    """Begins a primitive in block b of its rank."""
    s.order[s.size[2]], s.active[s.size[1]] = i, i
    s.size[1:] += 1
    s.block[i], crowd = b, 1.0
    for k in range(w.ptr[i], w.ptr[i + 1]):
        q = w.use[k]
        s.taken[q] += w.rate[k]
        s.left[q] -= w.rate[k] * w.time[i] / w.capacity[q]
        crowd = max(crowd, s.taken[q] / w.capacity[q])
    if w.held[i] > 0:
        s.busy[w.owner[i], b] = True
    batch = w.time[i] / MICRO_BATCHES
    end = now + w.time[i] * crowd
    for k in range(w.after[i], w.after[i + 1]):
        j = w.succ[k]
        s.missing[j] -= 1
        # It begins when its data arrive, but not so soon that its block would wait for the last.
        s.at[j] = max(s.at[j], now + batch, end + batch - w.time[j])
        if s.missing[j] == 0:
            _later(s, j, s.at[j])
