"""relay: staged primitives as NCCL has them: a received value is sent on while it is stored.

1. receives reduced into one place with no read in between → one primitive;
2. a receive and the sends of its result → recvCopySend, recvReduceCopySend;
3. a value that is stored but never read is not stored → recvReduceSend.

Each end of a queue keeps the order of its messages, so the merged primitives are put in an order
that all ends agree on; if there is none, nothing is merged. Such plans are for a window of one
micro-batch: a thread block that ran all micro-batches of one primitive before the next would fill
its queues (kernel-protocol §5, §10).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hccc.ir.arrays import B1, I8, places_among, starts
from hccc.ir.primitives import Buffer, Operands, Primitives, Transport
from hccc.passes.contract import contract, writers
from hccc.passes.fuse import MAX_OPERANDS, chains
from hccc.passes.queue_order import queue_order, used_twice
from hccc.passes.reorder import reorder


def relay(p: Primitives) -> Primitives:
    """Merges receives and sends of `p`; direct primitives stay. O(n log n)."""
    if p.transport is not Transport.STAGED or not len(p):
        return p
    reduced = chains(p)
    if used_twice(reduced.src):
        reduced = p
    merged = _only_read(_sent_on(reduced))
    order = queue_order(merged)
    return p if len(order) < len(merged) else reorder(merged, order)


def _sends(p: Primitives) -> B1:
    """Marks primitives that only send: from memory into one queue."""
    alone = (p.src.counts() == 1) & (p.dst.counts() == 1)
    first, to = p.src.buffer[p.src.ptr[:-1]], p.dst.buffer[p.dst.ptr[:-1]]
    mergeable: B1 = alone & (first != Buffer.QUEUE) & (to == Buffer.QUEUE)
    return mergeable


def _sent_on(p: Primitives) -> Primitives:
    """Joins sends to the receive that made their value (2), one for each queue."""
    writer = writers(p)
    joins = np.flatnonzero(_sends(p) & (writer >= 0))
    to = p.dst.rank[p.dst.ptr[joins]].astype(np.int64)
    joins = joins[np.unique(writer[joins] * np.int64(len(p.queues)) + to, return_index=True)[1]]
    host = writer[joins]
    joins = joins[places_among(host) + p.dst.counts()[host] < MAX_OPERANDS]
    rep = np.arange(len(p), dtype=np.int32)
    rep[joins] = writer[joins]
    keep = rep[p.src.owner()] == p.src.owner()
    return contract(p, rep, keep, np.ones(len(p.dst.rank), np.bool_))


def _only_read(p: Primitives) -> Primitives:
    """Drops the store of a value that is never read before it is overwritten or left (3)."""
    c = p.dag.program.collective
    stores = p.dst.buffer == Buffer.VALUE
    row, rank, chunk = p.dst.owner()[stores], p.dst.rank[stores], p.dst.slot[stores]
    last: I8 = np.full(c.n_ranks * c.n_chunks, -1, np.int64)
    place = rank.astype(np.int64) * c.n_chunks + chunk
    np.maximum.at(last, place, row)
    read = np.zeros(len(p), np.bool_)
    owns = p.src.buffer[p.src.ptr[:-1]] == Buffer.VALUE
    writer = writers(p)
    read[writer[owns & (writer >= 0)]] = True
    stays = (last[place] == row) & c.wants(rank, chunk)
    needed = read[row] | stays | (p.dst.counts()[row] == 1)
    keep = np.ones(len(p.dst.rank), np.bool_)
    keep[np.flatnonzero(stores)[~needed]] = False
    ptr = starts(keep)[p.dst.ptr]
    d = p.dst
    return replace(p, dst=Operands(ptr, d.rank[keep], d.buffer[keep], d.slot[keep]))
