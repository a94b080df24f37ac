"""clocks: does primitive a happen before primitive b? Vector clocks over thread blocks.

`sync` and the race proof both rest on this. The order is: program order within a thread block, and
an edge from a post to each wait for it. Of a plan of FEW primitives each has the set of those
before it (`sets_before`). Of others `ancestry` answers most questions from labels, for collectives
nearly all. For the others, the clock of b counts, for every block that some a is in,
how many of its primitives happen before b, or are b. Those blocks are taken a few columns at a
time. Time: O(primitives + edges + questions), and for questions that `ancestry` leaves open O(its
blocks · (primitives + edges)); memory: O(primitives), at most CLOCK_BYTES of it for clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from hccc.analysis.ancestry.chunk_forests import within_chunks
from hccc.analysis.ancestry.labels import Labels, labels
from hccc.analysis.ancestry.queries import NO, UNKNOWN, YES, by_climbing, settle
from hccc.analysis.ancestry.searches import NONE, by_searching, settle_edges
from hccc.analysis.grouping import group, transpose
from hccc.analysis.sets_before import sets_before
from hccc.base.jit.compiled import njit, prange
from hccc.ir.arrays import I4, I8, U1, Csr, entries, places

FEW = 1 << 14  # primitives: of so many, each has a set of those before it, 16 MiB in all
COLUMNS = 64
THREADS = 2  # each takes groups of columns, and needs a clock of its own
CLOCK_BYTES = 1 << 30
EFFORT = 8  # `ancestry` may compare this fraction of what clocks for all would touch


Way = Callable[[I4, I4], U1]  # some answers for pairs


def topological(tb_ptr: I8, preds: Csr) -> I4:
    """Returns the primitives in an order that respects blocks and edges; on a cycle, those before
    it.

    Blocks advance by turns, one primitive each, as on a machine. O(n + edges).
    """
    succs = transpose(preds)
    return _topological(tb_ptr, preds.ptr, succs.ptr, succs.index)


@njit
def _topological(tb_ptr: I8, pred_ptr: I8, succ_ptr: I8, succ: I4) -> I4:
    n = tb_ptr[-1]
    waiting = np.zeros(n, np.int32)
    for i in range(n):
        waiting[i] = pred_ptr[i + 1] - pred_ptr[i]
    n_blocks = len(tb_ptr) - 1
    head = tb_ptr[:-1].copy()  # next primitive of each block
    block = np.empty(n, np.int32)
    queue = np.empty(max(n_blocks, 1), np.int32)  # blocks whose next primitive can run, a ring
    front, ready = 0, 0
    for b in range(n_blocks):
        block[tb_ptr[b] : tb_ptr[b + 1]] = b
        if tb_ptr[b] < tb_ptr[b + 1] and waiting[tb_ptr[b]] == 0:
            queue[ready] = b
            ready += 1
    order = np.empty(n, np.int32)
    done = 0
    while ready > 0:
        b = queue[front]
        front, ready = (front + 1) % n_blocks, ready - 1
        i = head[b]
        head[b] += 1
        order[done] = i
        done += 1
        for k in range(succ_ptr[i], succ_ptr[i + 1]):
            s = succ[k]
            waiting[s] -= 1
            if waiting[s] == 0 and head[block[s]] == s and block[s] != b:
                queue[(front + ready) % n_blocks] = block[s]
                ready += 1
        if head[b] < tb_ptr[b + 1] and waiting[head[b]] == 0:
            queue[(front + ready) % n_blocks] = b
            ready += 1
    return order[:done]


class _Graph(NamedTuple):
    """Primitives in thread blocks, and the edges between them.

    order: `topological`; block: i4[n]; position: i4[n], in its block; first: i8[blocks], the first
    primitive of each; the primitives that i waits for are `pred[pred_ptr[i]:pred_ptr[i + 1]]`.
    """

    order: I4
    block: I4
    position: I4
    first: I8
    pred_ptr: I8
    pred: I4


class _Questions(NamedTuple):
    """Is a[q] b[q], or before it? The questions with a[q] in block `starts[k]` are
    `which[ptr[k]:ptr[k + 1]]`."""

    a: I4
    b: I4
    starts: I4
    ptr: I8
    which: I4


@njit
def _fill(clock: I4, graph: _Graph, column: I4, width: int) -> None:
    """Fills clock[i, column[b]]: how many primitives of block b are at or before i."""
    for i in graph.order:
        b = graph.block[i]
        if i > graph.first[b]:
            clock[i, :width] = clock[i - 1, :width]
        else:
            clock[i, :width] = 0
        for k in range(graph.pred_ptr[i], graph.pred_ptr[i + 1]):
            p = graph.pred[k]
            for c in range(width):
                clock[i, c] = max(clock[i, c], clock[p, c])
        if column[b] >= 0:
            clock[i, column[b]] = graph.position[i] + 1


@njit(parallel=True)
def _before(graph: _Graph, asked: _Questions, columns: int, threads: int) -> U1:
    """Answers every question by clocks, `columns` blocks at a time: u1[q]."""
    starts, block = asked.starts, graph.block
    n_groups = (len(starts) + columns - 1) // columns
    answer = np.zeros(len(asked.a), np.uint8)
    for thread in prange(threads):
        clock = np.zeros((len(block), columns), np.int32)
        column = np.full(len(graph.first), -1, np.int32)
        for g in range(thread, n_groups, threads):
            lo, hi = g * columns, min(len(starts), (g + 1) * columns)
            column[starts[lo:hi]] = np.arange(hi - lo)
            _fill(clock, graph, column, hi - lo)
            for k in range(asked.ptr[lo], asked.ptr[hi]):
                q = asked.which[k]
                a, b = asked.a[q], asked.b[q]
                answer[q] = clock[b, column[block[a]]] > graph.position[a]
            column[starts[lo:hi]] = -1
    return answer


def _by_clock(tb_ptr: I8, preds: Csr, order: I4, a: I4, b: I4) -> U1:
    """Tells for every pair whether a[q] is b[q] or happens before it, by clocks: u1[q]."""
    block = np.repeat(np.arange(len(tb_ptr) - 1, dtype=np.int32), np.diff(tb_ptr))
    position = places(np.diff(tb_ptr)).astype(np.int32)
    starts, which = np.unique(block[a], return_inverse=True)
    query_ptr, query = group(which, len(starts))
    fitting = CLOCK_BYTES // (4 * THREADS * max(1, len(block)))
    columns = max(1, min(COLUMNS, len(starts), fitting))
    graph = _Graph(order, block, position, tb_ptr[:-1].copy(), preds.ptr, preds.index)
    return _before(graph, _Questions(a, b, starts, query_ptr, query), columns, THREADS)


def _effort(tb_ptr: I8) -> int:
    return int(tb_ptr[-1]) * len(tb_ptr) // EFFORT


def happens_before(tb_ptr: I8, preds: Csr, order: I4, a: I4, b: I4, chunk: I4) -> U1:
    """Tells for every pair whether a[q] is b[q] or happens before it: u1[q].

    tb_ptr: the blocks' ranges; preds: the waited-for primitives of each; order: `topological`;
    chunk: i4[n], the chunk of each primitive, which only makes answers faster (`chunk_forests`).
    """
    if len(order) < tb_ptr[-1]:  # a cycle: labels would mean nothing
        return _by_clock(tb_ptr, preds, order, a, b)
    if len(order) <= FEW:
        return sets_before(tb_ptr, preds, order).tell(a, b)
    label = labels(tb_ptr, preds, order)
    answer = settle(label, a, b)
    ways = _ways(label, preds, order, chunk, _effort(tb_ptr))
    while len(left := np.flatnonzero(answer == UNKNOWN)):
        way = next(ways, None) or partial(_by_clock, tb_ptr, preds, order)
        answer[left] = way(a[left], b[left])
    return answer


def _ways(label: Labels, preds: Csr, order: I4, chunk: I4, limit: int) -> Iterator[Way]:
    """Yields functions that answer questions which the labels leave open, the cheapest first; each
    may leave some."""
    other = within_chunks(label, preds, order, chunk)
    forests = label if other is None else other
    yield partial(settle, forests)
    yield lambda a, b: by_climbing(forests, preds.ptr, preds.index, a, b, limit)
    yield lambda a, b: by_searching(
        label, preds.ptr, preds.index, a, b, np.full(len(a), NONE, np.int64)
    )


def implied_edges(tb_ptr: I8, preds: Csr, order: I4) -> U1:
    """Tells for every edge of `preds` whether the others and program order imply it: u1[edges].

    All implied edges can go at once: the rest is the transitive reduction, which for an acyclic
    graph is unique.
    """
    if len(order) <= FEW:
        return sets_before(tb_ptr, preds, order).implied
    label = labels(tb_ptr, preds, order)
    answer = settle_edges(label, preds.ptr, preds.index, _effort(tb_ptr))
    open_ = np.flatnonzero(answer == UNKNOWN)
    if len(open_):
        edge, other = _detours(tb_ptr, preds, open_)
        reached = _by_clock(tb_ptr, preds, order, preds.index[edge], other)
        answer[open_] = NO
        answer[edge[reached == YES]] = YES
    return answer


def _detours(tb_ptr: I8, preds: Csr, edges: I8) -> tuple[I8, I4]:
    """Lists every (edge, other primitive right before the end of the edge)."""
    row = np.searchsorted(preds.ptr, edges, side="right") - 1
    ptr, sibling = entries(preds.ptr, row)
    edge = np.repeat(edges, np.diff(ptr))
    apart = sibling != edge
    inside = ~np.isin(row, tb_ptr[:-1])
    return (
        np.concatenate([edge[apart], edges[inside]]),
        np.concatenate([preds.index[sibling[apart]], (row[inside] - 1).astype(np.int32)]),
    )
