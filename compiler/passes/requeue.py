"""requeue: gives parts of a program queues of their own, as NCCL's channels and MSCCL's stages do.

`lower` makes one queue for each connection. Thread blocks that share a connection cannot share its
queue, since each end of a queue is one block that serves it in turn.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hccc.diagnostics import InternalError
from hccc.ir.arrays import I4, I8
from hccc.ir.primitives import Buffer, Operands, Primitives, Queues
from hccc.passes.grouping import group


def requeue(p: Primitives, part: I4) -> Primitives:
    """`p` with a queue for every connection and `part` of its tasks: i4[tasks], at least 0.

    Primitives are as `lower` made them: one task each. Direct ones have no queues and stay.
    O(primitives log primitives).
    """
    if not len(p.queues):
        return p
    if (p.tasks.counts() > 1).any():
        raise InternalError("a primitive of several tasks cannot choose a queue")
    of_row = np.zeros(len(p), np.int64)
    of_row[p.tasks.owner()] = part[p.tasks.index]
    width = int(part.max(initial=0)) + 1
    keys = [_keys(o, of_row, width) for o in (p.src, p.dst)]
    found = np.unique(keys[1])
    if len(found) == len(p.queues):
        return p
    return replace(
        p,
        src=_turned(p.src, keys[0], found),
        dst=_turned(p.dst, keys[1], found),
        queues=_queues(p.queues, found // width, keys[1], found),
    )


def _keys(o: Operands, part: I8, width: int) -> I8:
    """The old queue and the part of every message among `o`, in row order."""
    queue = o.buffer == Buffer.QUEUE
    key: I8 = o.rank[queue].astype(np.int64) * width + part[o.owner()[queue]]
    return key


def _turned(o: Operands, key: I8, found: I8) -> Operands:
    """`o` in the new queues, messages numbered in row order."""
    number = np.searchsorted(found, key).astype(np.int32)
    ptr, rows = group(number, len(found))
    turn = np.empty(len(key), np.int64)
    turn[rows] = np.arange(len(key)) - np.repeat(ptr[:-1], np.diff(ptr))
    rank, slot = o.rank.copy(), o.slot.copy()
    queue = o.buffer == Buffer.QUEUE
    rank[queue], slot[queue] = number, turn
    return replace(o, rank=rank, slot=slot)


def _queues(old: Queues, of: I8, key: I8, found: I8) -> Queues:
    length = np.bincount(np.searchsorted(found, key), minlength=len(found))
    unset = np.full(len(found), -1, np.int32)
    return Queues(old.src[of], old.dst[of], length, unset, unset)
