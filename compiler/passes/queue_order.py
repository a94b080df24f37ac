"""queue_order: merged primitives in an order that both ends of every queue agree on.

Who merges primitives moves messages, and each end of a queue serves them in their order.
"""

from __future__ import annotations

import numpy as np

from hccc.analysis.clocks import topological
from hccc.analysis.grouping import graph
from hccc.analysis.queue_classes import Edges, classes, exchanged, in_order
from hccc.ir.arrays import I4, Csr
from hccc.ir.primitives import Buffer, Operands, Primitives
from hccc.passes.reorder import reorder


def used_twice(o: Operands) -> bool:
    """Whether a primitive uses one queue twice: a queue's end serves one message at a time."""
    queue = o.buffer == Buffer.QUEUE
    pairs = o.owner()[queue].astype(np.int64) << 32 | o.rank[queue].astype(np.int64)
    return len(np.unique(pairs)) < len(pairs)


def queue_order(p: Primitives) -> I4:
    """An order of the primitives in which dependencies and the messages at both ends of every
    queue come in order; shorter than `p` where there is none."""
    return _sorted(_edges(p, [*_at_ends(p)]))


def reordered(p: Primitives) -> Primitives | None:
    """`p` in such an order, in which a message is also received before the next is sent: one slot
    is enough for a window of one micro-batch, whatever the thread blocks. None where there is none.

    Where classes (`queue_classes`) have an order, each class is in one piece, so that every window
    works with thread blocks that have one member of a class each. O(n log n).
    """
    edges = _edges(p, [*_at_ends(p), _credits(p)])
    order = _sorted(edges)
    if len(order) < len(p):
        return None
    position = np.empty(len(p), np.int32)
    position[order] = np.arange(len(p), dtype=np.int32)
    node, none = classes(len(p), *exchanged(p)), np.zeros(0, np.int32)
    by_class = in_order(node, (edges.owner(), edges.index), (none, none))
    if len(by_class) == len(p):
        rank = np.empty(len(p), np.int32)
        rank[by_class] = np.arange(len(p), dtype=np.int32)
        order = np.lexsort((position, rank[node])).astype(np.int32)
    return reorder(p, order)


def _at_ends(p: Primitives) -> tuple[Edges, Edges]:
    """What is before each message of a queue at its receiver, and at its sender."""
    return _after(p.src), _after(p.dst)


def _after(o: Operands) -> Edges:
    row, same = _served(o)
    return row[1:][same], row[:-1][same]


def _credits(p: Primitives) -> Edges:
    """Who sends a message, after who receives the one before it in its queue."""
    sender, same = _served(p.dst)
    receiver, _ = _served(p.src)
    apart = same & (sender[1:] != receiver[:-1])
    return sender[1:][apart], receiver[:-1][apart]


def _served(o: Operands) -> tuple[I4, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """The primitives that serve messages, queue by queue in order, i4[m]; whether the next serves
    the same queue, and is another: b1[m - 1]."""
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
