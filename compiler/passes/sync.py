"""sync: Blocks → Plan. Turns dependencies between thread blocks into the fewest waits.

A dependency inside a block needs nothing: blocks run in order. Of the others, those that the rest
implies are dropped (transitive reduction over program order and waits, kernel-protocol §4). Each
remaining one becomes a wait on a flag in the consumer's memory; the waits of one rank for one
primitive share a flag. A message needs no flag: its queue counts it. A flag of another memory
domain comes after everything that the producer's block handed to its proxy before (`carriers`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hccc.analysis.carriers import carriers
from hccc.analysis.clocks import implied_edges, topological
from hccc.analysis.grouping import graph
from hccc.analysis.waits import messages
from hccc.base.diagnostics import InternalError
from hccc.ir.arrays import B1, I4, I8, Csr, csr_from_pairs, places_among, places_of, starts
from hccc.ir.blocks import Blocks
from hccc.ir.choices import Accumulate, PlanProtocol
from hccc.ir.plan import Plan, Posts
from hccc.ir.primitives import Primitives, Queues, Transport, memory_domain, network_puts
from hccc.ir.ranks import rank_distance

LL_BYTES = 64 << 10  # the largest call through packets, unless `limit_bytes` says more


@dataclass(frozen=True, slots=True, eq=False)
class _Order:
    """The Plan's numbering: `row`: primitive of each plan row, `of`: its inverse."""

    row: I8
    of: I4
    n_tb: I4
    tb_ptr: I8


class _Edges(NamedTuple):
    """Dependencies between primitives of different blocks, in plan rows: i4[m] each."""

    consumer: I4
    producer: I4

    def take(self, which: B1 | I8) -> _Edges:
        """Returns the edges marked, or at these indices."""
        return _Edges(self.consumer[which], self.producer[which])


class _Puts(NamedTuple):
    """Puts that a proxy carries: i4[m] each. row: the primitive's; rank: that it writes to."""

    row: I4
    rank: I4


class _Flagless(NamedTuple):
    """The order that holds without flags.

    tb_ptr: the blocks' rows; rank: i4[n], of every row; puts: which each proxy carries in order;
    queued: the edges that queues enforce.
    """

    tb_ptr: I8
    rank: I4
    puts: _Puts
    queued: _Edges


def sync(
    blocks: Blocks,
    source: str = "",
    queue_slots: int = 2,
    accumulate: Accumulate = Accumulate.FLOAT32,
) -> Plan:
    """Returns the Plan of `blocks`. Time and memory: see `clocks`.

    source: the program's name for comments; queue_slots: S, a power of two (staged); accumulate:
    the type of sums.
    """
    p, program = blocks.primitives, blocks.primitives.dag.program
    order = _number(p, blocks.tb, program.collective.n_ranks)
    waits, posts, n_flags = _flags(p, order, _flagged(p, order, _edges(p, order)))
    if p.protocol is PlanProtocol.LL:  # a packet says itself that it has come
        none = np.zeros(len(p.queues), np.int32)
        queues = replace(p.queues, data_flag=none, credit_flag=none)
    else:
        queues, n_flags = _queue_flags(p.queues, n_flags)
    line = np.zeros(len(p), np.int32)
    has = p.tasks.counts() > 0
    line[has] = program.transfers["line"][p.tasks.index[p.tasks.ptr[:-1][has]]]
    return Plan(
        name=program.name,
        source=source,
        collective=program.collective,
        in_place=program.collective.has_in_place,
        channels=program.channels,
        warps=program.warps,
        gpus_per_node=program.gpus_per_node,
        nics_per_node=program.nics_per_node,
        transport=p.transport,
        memory_domain=memory_domain(p),
        queue_slots=queue_slots,
        n_tb=order.n_tb,
        tb_ptr=order.tb_ptr,
        chunk=p.chunk[order.row],
        sub=p.sub[order.row],
        line=line[order.row],
        final=p.final[order.row],
        guard=p.guard[order.row],
        src=p.src.take(order.row),
        dst=p.dst.take(order.row),
        waits=waits,
        posts=posts,
        n_flags=n_flags,
        scratch_slots=p.scratch_slots,
        stage_slots=p.stage_slots,
        queues=queues,
        accumulate=accumulate,
        protocol=p.protocol,
        multicast=p.multicast,
        max_window=int(p.protocol is PlanProtocol.LL),
        max_bytes=LL_BYTES if p.protocol is PlanProtocol.LL else 0,
    )


def _number(p: Primitives, tb: I4, n_ranks: int) -> _Order:
    """Orders the Plan's rows: by rank, thread block, and execution order."""
    n_tb = np.zeros(n_ranks, np.int32)
    np.maximum.at(n_tb, p.owner, tb + 1)
    base = np.cumsum(n_tb) - n_tb
    block = base[p.owner] + tb
    row = np.argsort(block, kind="stable")
    of = np.empty(len(p), np.int32)
    of[row] = np.arange(len(p), dtype=np.int32)
    tb_ptr = starts(np.bincount(block, minlength=int(n_tb.sum())))
    return _Order(row, of, n_tb, tb_ptr)


def _edges(p: Primitives, order: _Order) -> _Edges:
    """Returns the dependencies between different blocks, each once, sorted by consumer."""
    row, pred = order.of[p.deps.owner()], order.of[p.deps.index]
    block = np.searchsorted(order.tb_ptr, np.arange(len(p)), side="right")
    apart = block[row] != block[pred]
    edges = graph(row[apart], pred[apart], len(p))
    return _Edges(edges.owner(), edges.index)


def _flagged(p: Primitives, order: _Order, edges: _Edges) -> _Edges:
    """Returns the edges that need a flag, sorted by consumer."""
    domain, put = memory_domain(p), network_puts(p.dst, p.owner, memory_domain(p))
    rank = p.owner[order.row]
    puts = _Puts(order.of[p.dst.owner()[put]], p.dst.rank[put])
    queued = _queued(p, order, edges)
    flagless = _Flagless(order.tb_ptr, rank, puts, edges.take(queued))
    away = domain[rank[edges.consumer]] != domain[rank[edges.producer]]
    writes = _writes(puts, edges, rank)
    wanted = ~queued | (away & writes)  # a message does not say that a put has arrived
    edges, away, writes = edges.take(wanted), away[wanted], writes[wanted]
    # A flag from another domain implies more than the end of its producer. But if the producer has
    # put nothing there, only its end matters, and waits that imply this are enough.
    keep = _needed(edges, away & writes, flagless)
    edges, away = edges.take(keep), away[keep]
    return edges.take(_needed(edges, away, flagless)) if away.any() else edges


def _writes(puts: _Puts, edges: _Edges, rank: I4) -> B1:
    """Tells whether each producer has a proxy write at the rank of its consumer: b1[edges]."""
    n = len(rank)
    keys = puts.rank.astype(np.int64) * n + puts.row
    writes: B1 = np.isin(rank[edges.consumer].astype(np.int64) * n + edges.producer, keys)
    return writes


def _queued(p: Primitives, order: _Order, edges: _Edges) -> B1:
    """Marks the edges that a queue enforces by counting messages: b1[edges]."""
    if not len(p.queues):
        return np.zeros(len(edges.consumer), np.bool_)
    if p.transport is Transport.STAGED:  # only queues join ranks
        owner = p.owner[order.row]
        joins: B1 = owner[edges.consumer] != owner[edges.producer]
        return joins
    (sent, sender), (taken, receiver) = messages(p.dst), messages(p.src)
    sender, receiver = sender[np.argsort(sent)], receiver[np.argsort(taken)]
    joined = order.of[receiver].astype(np.int64) * len(p) + order.of[sender]
    return np.isin(edges.consumer.astype(np.int64) * len(p) + edges.producer, joined)


def _needed(edges: _Edges, carried: B1, flagless: _Flagless) -> B1:
    """Marks the edges that the others, and the order without flags, do not imply: b1[edges].

    carried: the edges whose flag the producer's proxy raises: b1[edges].
    """
    tb_ptr, rank, puts, queued = flagless
    consumer, producer = edges
    of = np.concatenate([puts.row, producer[carried]])
    proxies = carriers(tb_ptr, of, np.concatenate([puts.rank, rank[consumer[carried]]]))
    row = np.concatenate([consumer, queued.consumer])
    pred = np.concatenate([producer, queued.producer])
    by_proxy = np.concatenate([carried, np.zeros(len(queued.consumer), np.bool_)])
    waits = proxies.edges(row, pred, by_proxy, rank[row])
    run = topological(proxies.tb_ptr, waits)
    if len(run) != len(waits):
        raise InternalError("the thread blocks' order and the dependencies form a cycle")
    implied = implied_edges(proxies.tb_ptr, waits, run)
    key = waits.owner().astype(np.int64) * len(waits) + waits.index
    handed = proxies.handed(producer, carried, rank[consumer])
    at = np.searchsorted(key, consumer.astype(np.int64) * len(waits) + handed)
    needed: B1 = implied[at] == 0
    return needed


def _distance(p: Primitives, here: I4, there: I4) -> I8:
    program = p.dag.program
    return rank_distance(program.collective.n_ranks, program.gpus_per_node, here, there)


def _flags(p: Primitives, order: _Order, edges: _Edges) -> tuple[Csr, Posts, I4]:
    """Makes a flag per (producer, consumer rank), numbered at each rank in the order of first
    waits."""
    consumer, producer = edges
    n, n_ranks = len(p), p.dag.program.collective.n_ranks
    owner = p.owner[order.row]
    by_wait = np.lexsort((producer, _distance(p, owner[consumer], owner[producer]), consumer))
    consumer, producer = consumer[by_wait], producer[by_wait]
    key = producer.astype(np.int64) * n_ranks + owner[consumer]
    unique, first, which = np.unique(key, return_index=True, return_inverse=True)
    rank = (unique % n_ranks).astype(np.int32)
    n_flags = np.bincount(rank, minlength=n_ranks).astype(np.int32)
    number = np.lexsort((first, rank))
    flag = places_of(number, n_flags).astype(np.int32)
    waits = csr_from_pairs(consumer, flag[which.ravel()], n)
    poster = (unique // n_ranks).astype(np.int32)
    by_post = np.lexsort((_distance(p, owner[poster], rank), poster))
    ptr = starts(np.bincount(poster, minlength=n))
    return waits, Posts(ptr, rank[by_post], flag[by_post]), n_flags


def _queue_flags(queues: Queues, n_flags: I4) -> tuple[Queues, I4]:
    """Adds two flags per queue: data at its receiver, credit at its sender."""
    if not len(queues):
        return queues, n_flags
    total = n_flags.astype(np.int64)
    numbers = []
    for end in (queues.dst, queues.src):
        numbers.append(total[end] + places_among(end))
        total = total + np.bincount(end, minlength=len(total))
    named = replace(queues, data_flag=numbers[0], credit_flag=numbers[1])
    return named, total.astype(np.int32)
