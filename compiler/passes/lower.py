"""lower: Pipeline → Primitives, one task at a time, by how data crosses each connection.

*Memory*: both ends address it. A copy is one *put* by the source's rank, a reduction one
*get-reduce* by the destination's. *Slots*: a *send* into the queue of the connection and a *recv*
(or recvReduceCopy) out of it, as in ResCCL §4.3 and MSCCL. *Put*: a proxy writes into memory of
another domain: a copy goes to its final place, a reduction lands in scratch memory, in a slot of
its own, and the destination's rank adds it (kernel-protocol §1).

A direct plan is all memory, a staged one all slots; in a mixed one memory domains decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from hccc.analysis.contributions import CHUNK, DST, OP, SRC, columns, completing
from hccc.analysis.estimate import least_traffic
from hccc.analysis.grouping import graph
from hccc.ir.arrays import B1, I4, I8, U1, Csr, places_among, starts
from hccc.ir.choices import NetworkLowering
from hccc.ir.dag import SOURCE_INITIAL, TARGET_INITIAL, Dag
from hccc.ir.pipeline import Pipeline
from hccc.ir.primitives import Buffer, Operands, Primitives, Queues, Transport, no_queues
from hccc.ir.program import Op

RRC, START, VALUE = int(Op.RRC), int(Buffer.START), int(Buffer.VALUE)
SCRATCH, QUEUE = int(Buffer.SCRATCH), int(Buffer.QUEUE)
MEMORY, SLOTS, PUT = 0, 1, 2  # how a task crosses its connection


class _ScheduledTasks(NamedTuple):
    """The tasks in schedule order.

    table: i4[n, 6] (`contributions.columns`); initial: u1[n]; how: u1[n] MEMORY, SLOTS or PUT;
    first: i8[n + 1], the first of each task's primitives, one or two; queue: i4[n] of SLOTS, slot:
    i4[n] the message's index in it, or where a PUT lands.
    """

    table: I4
    initial: U1
    how: U1
    first: I8
    queue: I4
    slot: I4

    @property
    def reads(self) -> I8:
        """The primitive that reads each task's source: i8[n]."""
        return self.first[:-1]

    @property
    def last(self) -> I8:
        """The primitive that writes each task's destination: i8[n]."""
        last: I8 = self.first[1:] - 1
        return last

    @property
    def alone(self) -> B1:
        """Which tasks are one primitive: b1[n]."""
        alone: B1 = np.diff(self.first) == 1
        return alone


def lower(
    pipeline: Pipeline,
    transport: Transport = Transport.DIRECT,
    network: str = NetworkLowering.SLOTS,
    choose: Callable[[Sequence[Primitives]], Primitives] = least_traffic,
) -> Primitives:
    """Returns the primitives of `pipeline` in its order. O(tasks + dependencies).

    network: a `NetworkLowering`, or "auto": `choose` takes one. A copy whose source or destination
    changes later, or that another rank reads, stays with slots: nothing would tell its source's
    rank that the proxy has read it, or the other that it has come.
    """
    dag, order = pipeline.dag, pipeline.order
    transport = decide_transport(dag, transport)
    if network == "auto":
        several = transport is Transport.MIXED
        ways = tuple(NetworkLowering) if several else (NetworkLowering.SLOTS,)
        return choose([lower(pipeline, transport, way) for way in ways])
    table = columns(dag.program)[order]
    preds = _renumber(dag.preds, order)
    how = _crossings(dag, table, preds, transport, network)
    two = (how == SLOTS) | ((how == PUT) & (table[:, OP] == RRC))
    n_ranks = dag.program.collective.n_ranks
    queues, queue, slot, landings = _channels(table, how, n_ranks)
    tasks = _ScheduledTasks(table, dag.initial[order], how, starts(1 + two), queue, slot)
    n = int(tasks.first[-1])
    owner, *sources = _sources(tasks, n)
    final = np.zeros(n, np.uint8)
    final[tasks.first[1:] - 1] = _final(dag)[order]
    deps = preds  # of tasks that are one primitive each, and read and written when it is done
    if how.any():
        deps = graph(*_dependencies(tasks, preds), n)
    return Primitives(
        dag,
        transport,
        owner,
        np.repeat(table[:, CHUNK], 1 + two),
        np.repeat(pipeline.sub_of_position(), 1 + two),
        final,
        np.zeros(n, np.uint8),
        Operands(*sources),
        Operands(np.arange(n + 1), *_targets(tasks, n)),
        deps,
        Csr(np.arange(n + 1), np.repeat(order, 1 + two)),
        queues,
        landings,
        np.zeros(n_ranks, np.int32),
    )


def decide_transport(dag: Dag, transport: Transport) -> Transport:
    """Returns `transport`, with AUTO decided: direct if all ranks are in one memory domain."""
    if transport is not Transport.AUTO:
        return transport
    return Transport.MIXED if np.ptp(dag.topology.memory_domain) else Transport.DIRECT


def _crossings(dag: Dag, table: I4, preds: Csr, transport: Transport, network: str) -> U1:
    """Returns how each task crosses its connection: u1[n]."""
    if transport is not Transport.MIXED:
        return np.full(len(table), SLOTS if transport is Transport.STAGED else MEMORY, np.uint8)
    domain = dag.topology.memory_domain
    between = domain[table[:, SRC]] != domain[table[:, DST]]
    put = (between if network == "put" else np.zeros(len(table), np.bool_)) & _lasting(
        table, preds, between
    )
    return np.where(between, np.where(put, PUT, SLOTS), MEMORY).astype(np.uint8)


def _lasting(table: I4, preds: Csr, between: B1) -> B1:
    """Marks reductions, and copies whose source and destination never change later and that only
    the destination's rank reads there: a proxy informs no other rank."""
    row, pred = preds.owner(), preds.index
    changed = table[row, DST]
    over = (changed == table[pred, SRC]) | (changed == table[pred, DST])
    over |= (table[row, OP] == RRC) & (table[row, SRC] == table[pred, DST]) & ~between[row]
    lasting = np.ones(len(table), np.bool_)
    lasting[pred[over & (table[pred, OP] != RRC)]] = False
    return lasting


def _channels(table: I4, how: U1, n_ranks: int) -> tuple[Queues, I4, I4, I4]:
    """Returns the queues, one for each connection with slots; the queue of each task, and its
    message's index there or where it lands, i4[n]; and how many land at each rank: i4[n_ranks]."""
    slots = how == SLOTS
    lands = (how == PUT) & (table[:, OP] == RRC)
    queue, slot = np.zeros(len(table), np.int32), np.zeros(len(table), np.int32)
    slot[lands] = places_among(table[lands, DST])
    landings = np.bincount(table[lands, DST], minlength=n_ranks).astype(np.int32)
    if not slots.any():
        return no_queues(), queue, slot, landings
    key = table[slots, SRC].astype(np.int64) * n_ranks + table[slots, DST]
    pairs, queue[slots] = np.unique(key, return_inverse=True)
    slot[slots] = places_among(queue[slots])
    length = np.bincount(queue[slots], minlength=len(pairs))
    unset = np.full(len(pairs), -1, np.int32)
    return Queues(pairs // n_ranks, pairs % n_ranks, length, unset, unset), queue, slot, landings


def _final(dag: Dag) -> U1:
    """Marks the tasks that complete a value, in table order."""
    return (
        completing(dag.program) if dag.program.collective.reduces else np.zeros(len(dag), np.uint8)
    )


def _sources(tasks: _ScheduledTasks, n: int) -> tuple[I4, I8, I4, U1, I4]:
    """Returns the owner of every primitive, i4[n]; ptr, rank, buffer and slot of its sources."""
    src, dst, chunk = (tasks.table[:, column] for column in (SRC, DST, CHUNK))
    reduces, alone, queued = tasks.table[:, OP] == RRC, tasks.alone, tasks.how == SLOTS
    owner, counts = np.empty(n, np.int32), np.ones(n, np.int64)
    owner[tasks.last] = dst
    owner[tasks.reads] = np.where(alone & reduces, dst, src)
    counts[tasks.last] += reduces
    ptr = starts(counts)
    rank, slot = np.empty(ptr[n], np.int32), np.empty(ptr[n], np.int32)
    buffer = np.empty(ptr[n], np.uint8)
    end = ptr[tasks.last + 1] - 1
    at = np.where(alone, end, ptr[tasks.reads])
    rank[at], slot[at] = src, chunk
    buffer[at] = np.where(tasks.initial & SOURCE_INITIAL, START, VALUE)
    at = end[~alone]
    rank[at], slot[at] = np.where(queued, tasks.queue, dst)[~alone], tasks.slot[~alone]
    buffer[at] = np.where(queued, QUEUE, SCRATCH)[~alone]
    at = end[reduces] - 1
    rank[at], slot[at] = dst[reduces], chunk[reduces]
    buffer[at] = np.where(tasks.initial & TARGET_INITIAL, START, VALUE)[reduces]
    return owner, ptr, rank, buffer, slot


def _targets(tasks: _ScheduledTasks, n: int) -> tuple[I4, U1, I4]:
    """Returns rank, buffer and slot of the one destination of every primitive."""
    dst, queued = tasks.table[:, DST], tasks.how == SLOTS
    rank, buffer, slot = np.empty(n, np.int32), np.empty(n, np.uint8), np.empty(n, np.int32)
    rank[tasks.reads] = np.where(queued, tasks.queue, dst)
    buffer[tasks.reads], slot[tasks.reads] = np.where(queued, QUEUE, SCRATCH), tasks.slot
    rank[tasks.last], buffer[tasks.last], slot[tasks.last] = dst, VALUE, tasks.table[:, CHUNK]
    return rank, buffer, slot


def _renumber(preds: Csr, order: I4) -> Csr:
    """Returns the predecessors of each position as positions."""
    position, moved = np.empty(len(order), np.int32), preds.take(order)
    position[order] = np.arange(len(order))
    return Csr(moved.ptr, position[moved.index])


def _dependencies(tasks: _ScheduledTasks, preds: Csr) -> tuple[I4, I4]:
    """Returns the dependencies between the ends of tasks: (primitive, earlier primitive), i4[m]
    each.

    A task's reading end waits for the writer of its source; its writing end for writers and readers
    of its destination, and for its own reading end. A proxy's read (PUT) is known to be over when
    the destination's rank has used the data.
    """
    t, p, src, dst = preds.owner(), preds.index, tasks.table[:, SRC], tasks.table[:, DST]
    reads, last, two = tasks.reads, tasks.last, ~tasks.alone
    wrote, read = last[p], np.where(tasks.how == PUT, last, reads)[p]
    makes, writes, reads_it = dst[p] == src[t], dst[p] == dst[t], src[p] == dst[t]
    row = [reads[t][makes], last[t][writes], last[t][reads_it], last[two]]
    value = [wrote[makes], wrote[writes], read[reads_it], reads[two]]
    return np.concatenate(row), np.concatenate(value)
