"""deadlock: a Plan never hangs, for every window and message size (kernel-protocol §5).

Direct: waits are on monotone facts, so a Plan hangs exactly when program order and waits form a
cycle. Staged: a send and its receive are one node; if that contracted graph is acyclic and both
ends of every queue serve it in the same order, one slot is enough for any message.
"""

from __future__ import annotations

import numpy as np

from hccc.analysis.clocks import topological
from hccc.analysis.execution_order import execution_order
from hccc.analysis.grouping import root_of
from hccc.analysis.waits import by_queue, enforced, messages, name
from hccc.diagnostics import UserError, fail
from hccc.ir.arrays import I4, Csr, csr_from_pairs
from hccc.ir.plan import Plan
from hccc.jit.compiled import njit
from hccc.proofs.fifo import passes
from hccc.proofs.proof import Proof

SHOWN = 6  # primitives of a circle


def deadlock(plan: Plan) -> Proof:
    """Proves that `plan` never hangs. O(primitives + waits), plus sorts.

    Raises:
        UserError E302: the thread blocks wait for each other in a circle; E303: only the
        queues' bound makes them (a larger window or fewer slots hangs).
    """
    waits = enforced(plan)
    order = execution_order(plan, waits)
    if len(order) != len(plan):
        raise _circle(plan, waits, order)
    if len(plan.queues):
        _queues_in_order(plan)
        if plan.max_window == 1:
            _one_tile(plan, waits)
        else:
            _contracted(plan, waits)
    detail: dict[str, int | str] = {
        "primitives": len(plan),
        "thread blocks per channel": len(plan.tb_ptr) - 1,
        "waits": len(waits.index),
    }
    window = f"a window of {plan.max_window}" if plan.max_window else "every window"
    return Proof("deadlock", f"no wait is in vain, for {window} and every message size", detail)


def _circle(plan: Plan, waits: Csr, order: I4) -> UserError:
    """The error for a circle of waits: from a stuck primitive back until one repeats."""
    stuck = np.ones(len(plan), np.bool_)
    stuck[order] = False
    at, seen = int(np.flatnonzero(stuck)[0]), {}
    path: list[int] = []
    while at not in seen:
        seen[at] = len(path)
        path.append(at)
        late = [int(x) for x in waits.row(at) if stuck[x]]
        at = late[0] if late else at - 1  # what waits for nothing stuck is behind what does
    circle = path[seen[at] :]
    shown = [name(plan, i) for i in circle[:SHOWN]]
    if more := len(circle) - len(shown):
        shown.append(f"{more} more, of which the last")
    return fail(
        "E302",
        f"the thread blocks would wait for each other: {' waits for '.join([*shown, shown[0]])}",
        help="every block must run its primitives in one common order",
    )


def _queues_in_order(plan: Plan) -> None:
    """Each end of a queue is one block that serves the messages in their order."""
    block = plan.block_of()
    for operands in (plan.src, plan.dst):
        key, row = messages(operands)
        order = np.argsort(key, kind="stable")
        queue, row = (key >> 32)[order], row[order]
        same = np.diff(queue) == 0
        wrong = same & ((np.diff(row) <= 0) | (np.diff(block[row]) != 0))
        if wrong.any():
            i = int(row[1:][wrong][0])
            raise fail("E303", f"{name(plan, i)} serves its queue out of order")


def _one_tile(plan: Plan, waits: Csr) -> None:
    """Window 1: a tile that runs from empty queues can follow another (see `fifo`)."""
    if not passes(plan, waits, 1, plan.queue_slots):
        raise fail(
            "E303",
            f"with {plan.queue_slots} slots a queue this plan hangs: a thread block sends more "
            "messages than that before its peer takes one",
        )


@njit
def _groups(n: int, a: I4, b: I4) -> I4:
    """The first member of everyone's group, a[k] and b[k] being in one group: union-find."""
    root = np.arange(n).astype(np.int32)
    for k in range(len(a)):
        x, y = root_of(root, a[k]), root_of(root, b[k])
        root[max(x, y)] = min(x, y)
    for i in range(n):
        root[i] = root_of(root, i)
    return root


def _contracted(plan: Plan, waits: Csr) -> None:
    """Kahn's algorithm on tasks: sends merged with their receives, and through a primitive that
    takes a message and sends it on, with the next ones.

    A wait inside such a group is met one micro-batch at a time. Program order inside one is a
    circle: the block would first run all micro-batches of the group's one end.
    """
    receiver, partner = by_queue(plan)
    node = _groups(len(plan), receiver, partner)
    after = np.setdiff1d(np.arange(1, len(plan)), plan.tb_ptr[:-1])
    row, pred = node[waits.owner()], node[waits.index]
    apart = row != pred
    graph = csr_from_pairs(
        np.concatenate([row[apart], node[after]]),
        np.concatenate([pred[apart], node[after - 1]]),
        len(plan),
    )
    single = np.arange(len(plan) + 1, dtype=np.int64)
    reached = topological(single, graph)
    if len(reached) == len(plan):
        return
    stuck = np.setdiff1d(np.arange(len(plan)), reached)
    longest = int(plan.queues.length.max())
    raise fail(
        "E303",
        f"with {plan.queue_slots} slots a queue this plan hangs for long messages: "
        f"{name(plan, int(stuck[0]))} is in a circle of sends and receives",
        help=f"it is safe only while window · {longest} <= slots",
    )
