"""requeue: gives groups of primitives queues of their own, as NCCL's channels and MSCCL's stages
do.

`lower` makes one queue for each connection. Thread blocks that share a connection cannot share its
queue, since each end of a queue is one block that serves it in order.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hccc.analysis.grouping import group
from hccc.analysis.waits import messages
from hccc.ir.arrays import I4, I8, places_of
from hccc.ir.primitives import Buffer, Operands, Primitives, Queues


def requeue(p: Primitives, label: I4) -> Primitives:
    """Gives `p` a queue for every connection from one group of primitives to another.

    label: i4[n], at least 0, the group of each primitive. Messages keep their order. Direct
    primitives have no queues and stay. O(messages log messages).
    """
    if not len(p.queues):
        return p
    sent, sender = _sorted_messages(p.dst)
    taken, receiver = _sorted_messages(p.src)
    width = int(label.max(initial=0)) + 1
    ends = label[sender].astype(np.int64) * width + label[receiver]  # both are sorted by message
    queue = sent >> 32
    keys, of = np.unique(queue * width * width + ends, return_inverse=True)
    if len(keys) == len(p.queues):
        return p
    ptr, rows = group(of.astype(np.int32), len(keys))
    message_index = places_of(rows, np.diff(ptr))
    old = keys // (width * width)
    unset = np.full(len(keys), -1, np.int32)
    return replace(
        p,
        src=_renamed(p.src, taken, of, message_index),
        dst=_renamed(p.dst, sent, of, message_index),
        queues=Queues(p.queues.src[old], p.queues.dst[old], np.diff(ptr), unset, unset),
    )


def _sorted_messages(o: Operands) -> tuple[I8, I4]:
    """Returns the messages among `o`, in order of queue and index, and the primitive of each."""
    key, primitive = messages(o)
    order = np.argsort(key)
    return key[order], primitive[order]


def _renamed(o: Operands, known: I8, queue: I8, message_index: I8) -> Operands:
    """Moves every message of `o` to its new queue and index. known: all messages, sorted."""
    where = o.buffer == Buffer.QUEUE
    at = np.searchsorted(known, messages(o)[0])
    rank, slot = o.rank.copy(), o.slot.copy()
    rank[where], slot[where] = queue[at], message_index[at]
    return replace(o, rank=rank, slot=slot)
