"""queue_classes: the primitives that run at the same time if queues are bounded (kernel-protocol
§5).

A send and its receive are one class, and a primitive with several messages joins their classes.
However few slots a queue has, the members of a class pass a message on one micro-batch at a time,
each at the head of its thread block. A plan runs with every window if the graph of classes has no
cycle, its edges being the dependencies between classes and program order, also within a class: a
block cannot be at two members at once.
"""

from __future__ import annotations

import numpy as np

from hccc.analysis.clocks import topological
from hccc.analysis.grouping import group, root_of
from hccc.analysis.waits import by_queue, messages
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, I8, Csr, csr_from_pairs
from hccc.ir.plan import Plan
from hccc.ir.primitives import Primitives

Edges = tuple[I4 | I8, I4 | I8]  # (primitive, one before it), i4[m] each


@njit
def classes(n: int, a: I4, b: I4) -> I4:
    """Returns the first member of everyone's class, a[k] and b[k] being in one class:
    union-find."""
    root = np.arange(n).astype(np.int32)
    for k in range(len(a)):
        x, y = root_of(root, a[k]), root_of(root, b[k])
        root[max(x, y)] = min(x, y)
    for i in range(n):
        root[i] = root_of(root, i)
    return root


def in_order(node: I4, waits: Edges, program: Edges) -> I4:
    """Returns the classes in an order that respects `waits` between them and `program`; on a cycle,
    those before it. Primitives of no class are included.

    node: i4[n], the class of each primitive.
    """
    row, pred = (node[ends] for ends in waits)
    apart = row != pred
    later, earlier = (node[ends] for ends in program)
    graph = csr_from_pairs(
        np.concatenate([row[apart], later]), np.concatenate([pred[apart], earlier]), len(node)
    )
    return topological(np.arange(len(node) + 1, dtype=np.int64), graph)


def exchanged(p: Primitives) -> Edges:
    """Returns the receiver and the sender of every message, by queue and index."""
    (sent, sender), (taken, receiver) = messages(p.dst), messages(p.src)
    return receiver[np.argsort(taken)], sender[np.argsort(sent)]


def any_window(p: Primitives, block: I4) -> bool:
    """Tells whether `p` runs with every window, primitive i in thread block `block[i]` (numbered
    over all ranks), in row order. O(n log n)."""
    if not len(p.queues):
        return True
    rows: I4
    ptr: I8
    ptr, rows = group(block, int(block.max(initial=-1)) + 1)
    follows = np.setdiff1d(np.arange(1, len(rows)), ptr)
    node = classes(len(p), *exchanged(p))
    program = rows[follows], rows[follows - 1]
    return len(in_order(node, (p.deps.owner(), p.deps.index), program)) == len(p)


def stuck_for_long(plan: Plan, waits: Csr) -> I4:
    """Returns the primitives of `plan` that may wait for ever if a window is larger than the
    queues; none if every window works. waits: `waits.enforced`. O(n log n)."""
    node = classes(len(plan), *by_queue(plan))
    follows = np.setdiff1d(np.arange(1, len(plan)), plan.tb_ptr[:-1])
    reached = in_order(node, (waits.owner(), waits.index), (follows, follows - 1))
    return np.setdiff1d(np.arange(len(plan), dtype=np.int32), reached)
