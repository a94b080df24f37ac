"""lower: Pipeline → Primitives, one-sided or staged, one task at a time.

Direct (kernel-protocol §1): a copy is one *put* by the source's rank, a
reduction one *get-reduce* by the destination's. Staged: a task is a *send* into the queue of its
connection and a *recv* (or recvReduceCopy) out of it, as in ResCCL §4.3 and MSCCL.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.analysis.contributions import CHUNK, DST, OP, SRC, columns, completing
from hccc.ir.arrays import I4, I8, U1, Csr, csr_from_pairs, places_among, starts
from hccc.ir.dag import SOURCE_INITIAL, TARGET_INITIAL, Dag
from hccc.ir.pipeline import Pipeline
from hccc.ir.primitives import Buffer, Operands, Primitives, Queues, Transport, no_queues
from hccc.ir.program import Op
from hccc.jit.compiled import njit

RRC, START, VALUE = int(Op.RRC), int(Buffer.START), int(Buffer.VALUE)


def lower(pipeline: Pipeline, transport: Transport = Transport.DIRECT) -> Primitives:
    """The primitives of `pipeline` in its order. O(tasks + dependencies)."""
    return _staged(pipeline) if transport is Transport.STAGED else _direct(pipeline)


def _columns(dag: Dag, order: I4) -> tuple[I4, I4, I4, NDArray[np.bool_]]:
    """src, dst, chunk and is-rrc of the tasks in schedule order."""
    t = dag.program.transfers
    src, dst, chunk, op = (t[k][order] for k in ("src", "dst", "chunk", "op"))
    return src, dst, chunk, op == RRC


def _final(dag: Dag) -> U1:
    """Which tasks complete a value, in table order."""
    return (
        completing(dag.program) if dag.program.collective.reduces else np.zeros(len(dag), np.uint8)
    )


def _value(initial: NDArray[Any], bit: int) -> NDArray[np.uint8]:
    return np.where(initial & bit, Buffer.START, Buffer.VALUE).astype(np.uint8)


def _direct(pipeline: Pipeline) -> Primitives:
    dag, order = pipeline.dag, pipeline.order
    n = len(order)
    owner, dst, chunk, *sources = _one_sided(columns(dag.program), dag.initial, order)
    ones = np.arange(n + 1, dtype=np.int64)
    targets = Operands(ones, dst, np.full(n, Buffer.VALUE, np.uint8), chunk)
    none = np.zeros(dag.program.collective.n_ranks, np.int32)
    return Primitives(
        dag, Transport.DIRECT, owner, chunk, pipeline.sub_of_position(), _final(dag)[order],
        np.zeros(n, np.uint8), Operands(*sources), targets, _renumber(dag.preds, order),
        Csr(ones, order), no_queues(), none, none,
    )  # fmt: skip


@njit
def _one_sided(table: I4, initial: U1, order: I4) -> tuple[I4, I4, I4, I8, I4, U1, I4]:
    """Owner, destination and chunk of puts and get-reduces; ptr, rank, buffer, slot of sources."""
    n = len(order)
    owner, dst, chunk = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    ptr = np.zeros(n + 1, np.int64)
    for i in range(n):
        ptr[i + 1] = ptr[i] + 1 + (table[order[i], OP] == RRC)
    rank, buffer = np.empty(ptr[n], np.int32), np.empty(ptr[n], np.uint8)
    slot = np.empty(ptr[n], np.int32)
    for i in range(n):
        t, last = order[i], ptr[i + 1] - 1
        reduces = table[t, OP] == RRC
        dst[i], chunk[i] = table[t, DST], table[t, CHUNK]
        owner[i] = dst[i] if reduces else table[t, SRC]
        if reduces:
            rank[last - 1], slot[last - 1] = dst[i], chunk[i]
            buffer[last - 1] = START if initial[t] & TARGET_INITIAL else VALUE
        rank[last], slot[last] = table[t, SRC], chunk[i]
        buffer[last] = START if initial[t] & SOURCE_INITIAL else VALUE
    return owner, dst, chunk, ptr, rank, buffer, slot


def _renumber(preds: Csr, order: I4) -> Csr:
    """Predecessors of each position as positions."""
    return Csr(*_moved(preds.ptr, preds.index, order))


@njit
def _moved(ptr: I8, index: I4, order: I4) -> tuple[I8, I4]:
    position = np.empty(len(order), np.int32)
    for i in range(len(order)):
        position[order[i]] = i
    new_ptr, new = np.zeros(len(order) + 1, np.int64), np.empty(len(index), np.int32)
    fill = 0
    for i in range(len(order)):
        for k in range(ptr[order[i]], ptr[order[i] + 1]):
            new[fill] = position[index[k]]
            fill += 1
        new_ptr[i + 1] = fill
    return new_ptr, new


def _staged(pipeline: Pipeline) -> Primitives:
    dag, order = pipeline.dag, pipeline.order
    n = len(order)
    src, dst, chunk, rrc = _columns(dag, order)
    initial = dag.initial[order]
    queues, queue, message_index = _queues(src, dst, dag.program.collective.n_ranks)
    send, recv = 2 * np.arange(n), 2 * np.arange(n) + 1
    counts = np.ones(2 * n, np.int64)
    counts[recv] += rrc
    ptr = starts(counts)
    rank, buffer, slot = _blank(int(ptr[-1]))
    _fill(rank, buffer, slot, ptr[send], src, _value(initial, SOURCE_INITIAL), chunk)
    own = ptr[recv][rrc]
    _fill(rank, buffer, slot, own, dst[rrc], _value(initial, TARGET_INITIAL)[rrc], chunk[rrc])
    _fill(rank, buffer, slot, ptr[recv + 1] - 1, queue, Buffer.QUEUE, message_index)
    sources = Operands(ptr, rank, buffer, slot)
    rank, buffer, slot = _blank(2 * n)
    _fill(rank, buffer, slot, send, queue, Buffer.QUEUE, message_index)
    _fill(rank, buffer, slot, recv, dst, Buffer.VALUE, chunk)
    ones = np.arange(2 * n + 1, dtype=np.int64)
    none = np.zeros(dag.program.collective.n_ranks, np.int32)
    final = np.zeros(2 * n, np.uint8)
    final[recv] = _final(dag)[order]
    return Primitives(
        dag, Transport.STAGED, np.stack([src, dst], 1).ravel(), np.repeat(chunk, 2),
        np.repeat(pipeline.sub_of_position(), 2), final, np.zeros(2 * n, np.uint8), sources,
        Operands(ones, rank, buffer, slot), _staged_deps(dag, order),
        Csr(ones, np.repeat(order, 2)), queues, none, none,
    )  # fmt: skip


def _blank(m: int) -> tuple[I4, NDArray[np.uint8], I4]:
    return np.empty(m, np.int32), np.empty(m, np.uint8), np.empty(m, np.int32)


def _fill(
    rank: I4, buffer: NDArray[Any], slot: I4, at: I8, r: I4, b: NDArray[Any] | Buffer, s: I4
) -> None:
    """Writes operands `at` the given places."""
    rank[at], buffer[at], slot[at] = r, b, s


def _queues(src: I4, dst: I4, n_ranks: int) -> tuple[Queues, I4, I4]:
    """One queue per connection; the queue of each task and its message index, in schedule order."""
    key = src.astype(np.int64) * n_ranks + dst
    pairs, queue = np.unique(key, return_inverse=True)
    length = np.bincount(queue, minlength=len(pairs))
    message_index = places_among(queue).astype(np.int32)
    unset = np.full(len(pairs), -1, np.int32)
    queues = Queues(pairs // n_ranks, pairs % n_ranks, length, unset, unset)
    return queues, queue.astype(np.int32), message_index


def _staged_deps(dag: Dag, order: I4) -> Csr:
    """Dependencies between the ends of two tasks at the rank where they meet.

    A send waits for what changed its source; a recv for what changed or read its destination,
    and for its own send (which the queue enforces, so `sync` adds no flag for it).
    """
    src, dst, _, _ = _columns(dag, order)
    preds = _renumber(dag.preds, order)
    task, pred = preds.owner(), preds.index
    pairs = [
        (2 * task, 2 * pred + 1, dst[pred] == src[task]),  # read after write
        (2 * task + 1, 2 * pred + 1, dst[pred] == dst[task]),  # write after write
        (2 * task + 1, 2 * pred, src[pred] == dst[task]),  # write after read
    ]
    own = np.arange(len(order), dtype=np.int32)
    rows = np.concatenate([a[m] for a, _, m in pairs] + [2 * own + 1])
    values = np.concatenate([b[m] for _, b, m in pairs] + [2 * own])
    return csr_from_pairs(rows, values, 2 * len(order))
