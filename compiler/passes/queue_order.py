"""queue_order: merged primitives in an order that both ends of every queue agree on.

Merging primitives moves messages, and each end of a queue serves them in their order.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hccc.analysis.clocks import topological
from hccc.analysis.grouping import graph
from hccc.analysis.queue_classes import Edges, classes, exchanged, in_order
from hccc.analysis.waits import messages
from hccc.ir.arrays import I4, Csr, places_among
from hccc.ir.primitives import Buffer, Operands, Primitives
from hccc.passes.reorder import reorder


def used_twice(o: Operands) -> bool:
    """Tells whether a primitive uses one queue twice: a queue's end serves one message at a
    time."""
    queue = o.buffer == Buffer.QUEUE
    pairs = o.owner()[queue].astype(np.int64) << 32 | o.rank[queue].astype(np.int64)
    return len(np.unique(pairs)) < len(pairs)


def queue_order(p: Primitives) -> I4:
    """Returns an order of the primitives that respects dependencies and, at both ends of every
    queue, the messages; shorter than `p` if there is none."""
    return _sorted(_edges(p, [*_at_ends(p)]))


def reordered(p: Primitives) -> Primitives | None:
    """Returns `p` in such an order, in which each message is also received before the next is sent:
    one slot is enough for a window of one micro-batch, whatever the thread blocks. None if there is
    none.

    Where classes (`queue_classes`) have an order, each class is in one piece, so that every window
    works with thread blocks that have one member of a class each, and messages are numbered in that
    order. O(n log n).
    """
    node, row = classes(len(p), *exchanged(p)), np.arange(len(p))
    last, rank = np.zeros(len(p), np.int64), np.zeros(len(p), np.int64)
    np.maximum.at(last, node, row)
    none = np.zeros(0, np.int32)
    by_class = in_order(node, (p.deps.owner(), p.deps.index), (none, none))
    rank[by_class] = np.arange(len(by_class))
    for key in (last, rank) if len(by_class) == len(p) else ():
        ordered = _renumbered(reorder(p, np.lexsort((row, key[node])).astype(np.int32)))
        edges = _edges(ordered, [*_at_ends(ordered), _credits(ordered)])
        if (edges.index < edges.owner()).all():
            return ordered
    order = _sorted(_edges(p, [*_at_ends(p), _credits(p)]))
    return reorder(p, order) if len(order) == len(p) else None


def _renumbered(p: Primitives) -> Primitives:
    """Renumbers every queue's messages in the order in which they are sent."""
    (sent, sender), (taken, _) = messages(p.dst), messages(p.src)
    by_sender = np.lexsort((sender, sent >> 32))
    index = np.empty(len(sent), np.int32)
    index[by_sender] = places_among(sent[by_sender] >> 32)
    known = np.argsort(sent)
    src, dst = p.src.slot.copy(), p.dst.slot.copy()
    dst[p.dst.buffer == Buffer.QUEUE] = index
    src[p.src.buffer == Buffer.QUEUE] = index[known][np.searchsorted(sent[known], taken)]
    return replace(p, src=replace(p.src, slot=src), dst=replace(p.dst, slot=dst))


def _at_ends(p: Primitives) -> tuple[Edges, Edges]:
    """Returns the predecessor of each message of a queue at its receiver, and at its sender."""
    return _after(p.src), _after(p.dst)


def _after(o: Operands) -> Edges:
    row, same = _served(o)
    return row[1:][same], row[:-1][same]


def _credits(p: Primitives) -> Edges:
    """Returns each sender of a message after the receiver of the one before it in its queue."""
    sender, same = _served(p.dst)
    receiver, _ = _served(p.src)
    apart = same & (sender[1:] != receiver[:-1])
    return sender[1:][apart], receiver[:-1][apart]


def _served(o: Operands) -> tuple[I4, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Returns the primitives that serve messages, queue by queue in order, i4[m]; and whether the
    next serves the same queue, and is another: b1[m - 1]."""
    queue = o.buffer == Buffer.QUEUE
    row = o.owner()[queue]
    by_index = np.lexsort((o.slot[queue], o.rank[queue]))
    row, number = row[by_index], o.rank[queue][by_index]
    return row, (number[1:] == number[:-1]) & (row[1:] != row[:-1])


def _edges(p: Primitives, more: list[Edges]) -> Csr:
    rows, preds = zip((p.deps.owner(), p.deps.index), *more, strict=True)
    return graph(np.concatenate(rows), np.concatenate(preds), len(p))


def _sorted(edges: Csr) -> I4:
    return topological(np.arange(len(edges) + 1, dtype=np.int64), edges)
