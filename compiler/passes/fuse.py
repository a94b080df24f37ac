"""fuse: merges primitives into reduceCopy(k sources → d destinations) (kernel-protocol §2).

In this order:

a. a chain of reductions into one place with no read in between → one k-source reduction; b. puts of
one value to several ranks → one put with several destinations; c. a reduction and the puts of its
result → one primitive.

In a mixed plan a receive counts as a reduction or as the maker of a value, a send as a put: one
primitive may reduce eight peers' memory and a message into eight peers' memory and a message.

Every merge keeps the total order a linear extension: the merged primitive sits at one member's
position, and no dependency then points backwards. So fusing can never create a deadlock. Where
messages are merged, `queue_order` looks for an order in which both ends of every queue agree.
Fusing saves memory traffic (8-rank AllReduce: 35N bytes to 16N) and costs parallelism.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hccc.analysis.connections import connections
from hccc.analysis.estimate import least_traffic
from hccc.analysis.grouping import transpose
from hccc.analysis.queue_classes import any_window
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8, U1, Csr
from hccc.ir.choices import Fusion, PlanProtocol
from hccc.ir.primitives import Buffer, Primitives, Transport
from hccc.passes.contract import contract, writers
from hccc.passes.queue_order import reordered, used_twice

MAX_OPERANDS = 16  # sources or destinations of one primitive: what bodies keep in registers
B1 = NDArray[np.bool_]


def fuse(p: Primitives, level: str = "auto") -> Primitives:
    """Merges primitives up to `level`: "none", "reduce" (a), "full" (a, b, c), or "auto".

    "auto" estimates all three with a thread block per connection and takes the one with the least
    memory traffic among those about as fast as the fastest (`least_traffic`). Staged primitives are
    returned as they are: ResCCL and MSCCL run them one by one, and a queue's two ends must keep
    their message order. Packet slots have no such order, and calls are short: there "auto" is
    "full". O(primitives + dependencies), plus sorts.
    """
    packets = p.protocol is PlanProtocol.LL
    staged = p.transport is Transport.STAGED and not packets
    if level == Fusion.NONE or staged or not len(p):
        return p
    if len(p.queues) and not packets:
        return _mixed(p, level)
    chained = chains(p)
    if level == Fusion.REDUCE:
        return chained
    full = _results(_multi_puts(chained))
    return full if level == Fusion.FULL or packets else least_traffic([p, chained, full])


def _mixed(p: Primitives, level: str) -> Primitives:
    """Merges primitives where there are queues. "auto" takes only a result that runs with every
    window."""
    memory = _merged(p, level, messages=False)
    merged = reordered(_merged(p, level, messages=True))
    if level != "auto":
        return merged or memory
    reduced = reordered(_merged(p, "reduce", messages=True))
    some = [q for q in (reduced, merged) if q and any_window(q, connections(q).of)]
    return least_traffic([p, _merged(p, "reduce", messages=False), memory, *some])


def _merged(p: Primitives, level: str, *, messages: bool) -> Primitives:
    """Makes all merges up to `level`, with `messages` also of primitives with messages where no
    queue is used twice."""

    def step(merge: Callable[[Primitives, bool], Primitives], p: Primitives) -> Primitives:
        merged = merge(p, messages)
        return merge(p, False) if used_twice(merged.src) or used_twice(merged.dst) else merged

    p = step(chains, p)
    return p if level == Fusion.REDUCE else step(_results, step(_multi_puts, p))


def _mergeable(p: Primitives, messages: bool) -> B1:
    """Marks the primitives that may be merged: all, or those without `messages`: b1[n]."""
    free = np.ones(len(p), np.bool_)
    if not messages:
        for operands in (p.src, p.dst):
            free[operands.owner()[operands.buffer == Buffer.QUEUE]] = False
    return free


def _from_queue(p: Primitives) -> B1:
    """Marks the primitives whose only source is a message: b1[n]."""
    only: B1 = (p.src.counts() == 1) & (p.src.buffer[p.src.ptr[:-1]] == Buffer.QUEUE)
    return only


@njit
def _chain_ends(
    reduces: U1, width: I4, owner: I4, writer: I4, succ_ptr: I8, succ: I4, most: int
) -> I4:
    """Returns the last member of the chain of every reduction (itself when alone)."""
    n = len(reduces)
    end = np.arange(n).astype(np.int32)
    head = np.arange(n).astype(np.int32)
    size = width.copy()  # sources of the chain so far, by head
    limit = np.full(n, n, np.int64)  # earliest outside successor of the chain so far, by head
    for i in range(n):
        j = writer[i]
        if not reduces[i] or j < 0 or not reduces[j] or owner[j] != owner[i]:
            continue
        h = head[j]
        nearest = limit[h]
        for k in range(succ_ptr[j], succ_ptr[j + 1]):
            if succ[k] != i and succ[k] < nearest:
                nearest = succ[k]
        if nearest > i and end[h] == j and size[h] + width[i] - 1 <= most:
            head[i], end[h], limit[h] = h, i, nearest
            size[h] += width[i] - 1
    for i in range(n):
        end[i] = end[head[i]]
    return end


def chains(p: Primitives, messages: bool = True) -> Primitives:
    """Joins reductions to the one before them (a); the merged one sits at the last position."""
    width = p.src.counts().astype(np.int32)
    succs = transpose(p.deps)
    end = _chain_ends(
        ((width > 1) & _mergeable(p, messages)).astype(np.uint8),
        width,
        p.owner,
        writers(p),
        succs.ptr,
        succs.index,
        MAX_OPERANDS,
    )
    first = np.full(len(p), len(p), np.int64)
    np.minimum.at(first, end, np.arange(len(p)))
    row = p.src.owner()
    own = np.zeros(len(row), np.bool_)
    own[p.src.ptr[:-1][width > 1]] = True
    keep_src = ~own | (first[end[row]] == row)
    return contract(p, end, keep_src, end[p.dst.owner()] == p.dst.owner())


@njit
def _put_heads(rows: I4, key: I8, last_pred: I4, dests: I8, most: int) -> I4:
    """Returns the first put of the group of each of `rows` (sorted by key, then row)."""
    head = rows.copy()
    total = 0
    for k in range(len(rows)):
        if k > 0 and key[k] == key[k - 1]:
            h = head[k - 1]
            if last_pred[k] < h and total + dests[k] <= most:
                head[k] = h
                total += dests[k]
                continue
        total = dests[k]
    return head


def _last_pred(deps: Csr, besides: I4) -> I4:
    """Returns the latest predecessor of each primitive other than `besides[i]`, or -1: i4[n]."""
    row, pred = deps.owner(), deps.index
    other = pred != besides[row]
    last = np.full(len(deps), -1, np.int32)
    np.maximum.at(last, row[other], pred[other])
    return last


def _multi_puts(p: Primitives, messages: bool = True) -> Primitives:
    """Joins puts of one value to the first of them, where all their predecessors are already done
    (b)."""
    writer = writers(p)
    alone = (p.src.counts() == 1) & ~_from_queue(p) & _mergeable(p, messages)
    puts = np.flatnonzero(alone).astype(np.int32)
    n_chunks = p.dag.program.collective.n_chunks
    place = p.owner[puts].astype(np.int64) * n_chunks + p.chunk[puts]
    order = np.lexsort((puts, writer[puts], place))
    rows = puts[order]
    change = np.diff(place[order]) | np.diff(writer[rows])
    key = np.concatenate([np.zeros(1, np.int64), np.cumsum(change != 0)])[: len(rows)]
    last = _last_pred(p.deps, np.full(len(p), -1, np.int32))
    head = np.arange(len(p), dtype=np.int32)
    head[rows] = _put_heads(rows, key, last[rows], p.dst.counts()[rows], MAX_OPERANDS)
    keep_src = head[p.src.owner()] == p.src.owner()
    return contract(p, head, keep_src, np.ones(len(p.dst.rank), np.bool_))


def _results(p: Primitives, messages: bool = True) -> Primitives:
    """Joins the puts of a reduction's result to the reduction, which its own rank made (c)."""
    free, received = _mergeable(p, messages), _from_queue(p)
    writer = writers(p)
    dests = p.dst.counts()
    joins = (p.src.counts() == 1) & ~received & free & (writer >= 0)
    w = np.where(joins, writer, 0)
    joins &= ((p.src.counts()[w] > 1) | received[w]) & free[w]
    joins &= _last_pred(p.deps, writer) < w
    joins &= dests + dests[w] <= MAX_OPERANDS
    rows = np.flatnonzero(joins)
    _, first = np.unique(writer[rows], return_index=True)  # one group of puts a reduction
    rep = np.arange(len(p), dtype=np.int32)
    rep[rows[first]] = writer[rows[first]]
    keep_src = rep[p.src.owner()] == p.src.owner()
    return contract(p, rep, keep_src, np.ones(len(p.dst.rank), np.bool_))
