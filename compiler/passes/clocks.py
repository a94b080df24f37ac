"""clocks: does primitive a happen before primitive b? Vector clocks over thread blocks.

`sync` and the race proof both rest on this. The order is: program order within a thread block,
and an edge from a post to each wait for it. The clock of b has, for every block, how many of its
primitives happen before b, or are b. Blocks are taken a column at a time, so memory is
O(primitives · COLUMNS); time is O(blocks/COLUMNS · (primitives + edges) · COLUMNS).
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from hccc.ir.arrays import I4, I8, U1, Csr
from hccc.passes.grouping import group

COLUMNS = 64
LANES = 2  # threads that take columns in turn; each needs a clock of its own


@njit(cache=True)
def topological(tb_ptr: I8, pred_ptr: I8, pred: I4, succ_ptr: I8, succ: I4) -> I4:
    """Primitives in an order that respects blocks and edges; on a cycle, those before it.

    The blocks take turns, as they would on a machine. O(n + edges).
    """
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


@njit(cache=True)
def _column(
    clock: I4,
    order: I4,
    block: I4,
    position: I4,
    first: I8,
    pred_ptr: I8,
    pred: I4,
    lo: int,
    hi: int,
) -> None:
    """Fills clock[i, c]: how many primitives of block lo + c are at or before i."""
    width = hi - lo
    for i in order:
        b = block[i]
        if i > first[b]:
            clock[i, :width] = clock[i - 1, :width]
        else:
            clock[i, :width] = 0
        for k in range(pred_ptr[i], pred_ptr[i + 1]):
            p = pred[k]
            for c in range(width):
                clock[i, c] = max(clock[i, c], clock[p, c])
        if lo <= b < hi:
            clock[i, b - lo] = position[i] + 1


@njit(cache=True, parallel=True)
def _before(
    order: I4, block: I4, position: I4, first: I8, pred_ptr: I8, pred: I4,
    query_ptr: I8, query: I4, a: I4, b: I4, n_blocks: int, columns: int, lanes: int,
) -> U1:  # fmt: skip
    """For every query: does a[q] happen before b[q]? Queries are grouped by the block of a."""
    n_groups = (n_blocks + columns - 1) // columns
    answer = np.zeros(len(a), np.uint8)
    for lane in prange(lanes):
        clock = np.zeros((len(order), columns), np.int32)
        for g in range(lane, n_groups, lanes):
            lo, hi = g * columns, min(n_blocks, (g + 1) * columns)
            if query_ptr[lo] == query_ptr[hi]:
                continue
            _column(clock, order, block, position, first, pred_ptr, pred, lo, hi)
            for k in range(query_ptr[lo], query_ptr[hi]):
                q = query[k]
                answer[q] = clock[b[q], block[a[q]] - lo] > position[a[q]]
    return answer


@njit(cache=True)
def _edge_implied(
    b: int, a: int, clock: I4, column: int, position: I4, at_start: bool, preds: I4
) -> bool:
    """Whether a reaches b through the primitive before b in its block or another edge into b."""
    if not at_start and clock[b - 1, column] > position[a]:
        return True
    implied = False
    for x in preds:
        implied |= x != a and clock[x, column] > position[a]
    return implied


@njit(cache=True, parallel=True)
def _implied(
    order: I4, block: I4, position: I4, first: I8, pred_ptr: I8, pred: I4,
    n_blocks: int, columns: int, lanes: int,
) -> U1:  # fmt: skip
    """For every edge: would the order be the same without it?"""
    n_groups = (n_blocks + columns - 1) // columns
    answer = np.zeros(len(pred), np.uint8)
    for lane in prange(lanes):
        clock = np.zeros((len(order), columns), np.int32)
        for g in range(lane, n_groups, lanes):
            lo, hi = g * columns, min(n_blocks, (g + 1) * columns)
            _column(clock, order, block, position, first, pred_ptr, pred, lo, hi)
            for b in range(len(order)):
                others = pred[pred_ptr[b] : pred_ptr[b + 1]]
                for k in range(pred_ptr[b], pred_ptr[b + 1]):
                    c = block[pred[k]] - lo
                    if 0 <= c < hi - lo:
                        start = b == first[block[b]]
                        answer[k] = _edge_implied(b, pred[k], clock, c, position, start, others)
    return answer


def _numbers(tb_ptr: I8) -> tuple[I4, I4]:
    """The block of every primitive and its position in it."""
    block = np.repeat(np.arange(len(tb_ptr) - 1, dtype=np.int32), np.diff(tb_ptr))
    return block, (np.arange(len(block)) - tb_ptr[:-1][block]).astype(np.int32)


def happens_before(tb_ptr: I8, preds: Csr, order: I4, a: I4, b: I4) -> U1:
    """For every pair: does primitive a[q] happen before b[q]? u1[q].

    tb_ptr: the blocks' ranges; preds: the waited-for primitives of each; order: `topological`.
    """
    n_blocks = len(tb_ptr) - 1
    block, position = _numbers(tb_ptr)
    query_ptr, query = group(block[a], n_blocks)
    return _before(
        order, block, position, tb_ptr[:-1].copy(), preds.ptr, preds.index, query_ptr, query,
        a, b, n_blocks, min(COLUMNS, n_blocks), LANES,
    )  # fmt: skip


def implied_edges(tb_ptr: I8, preds: Csr, order: I4) -> U1:
    """For every edge of `preds`: is it implied by the others and program order? u1[edges].

    All implied edges can go at once: the rest is the transitive reduction, which for an acyclic
    graph is unique.
    """
    if not len(preds.index):
        return np.zeros(0, np.uint8)
    n_blocks = len(tb_ptr) - 1
    block, position = _numbers(tb_ptr)
    return _implied(
        order, block, position, tb_ptr[:-1].copy(), preds.ptr, preds.index, n_blocks,
        min(COLUMNS, n_blocks), LANES,
    )  # fmt: skip
