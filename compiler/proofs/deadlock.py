"""deadlock: a Plan never hangs, for every window and message size (kernel-protocol §5).

Direct: waits are on monotone facts, so a Plan hangs exactly when program order and waits form a
cycle. In protocol LL sends never wait either, since `reuse` shows that their slots are free. With
queues, a send and its receive are one node; if that contracted graph is acyclic and both ends of
every queue serve it in the same order, one slot is enough for any message.
"""

from __future__ import annotations

import numpy as np

from hccc.analysis.execution_order import execution_order
from hccc.analysis.queue_classes import stuck_for_long
from hccc.analysis.waits import enforced, messages, name
from hccc.base.diagnostics import UserError, fail
from hccc.ir.arrays import I4, Csr
from hccc.ir.choices import PlanProtocol
from hccc.ir.plan import Plan
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
    if len(plan.queues) and plan.protocol is PlanProtocol.SIMPLE:
        _queues_in_order(plan)
        if plan.max_window == 1:
            _one_tile(plan, waits)
        else:
            _every_window(plan, waits)
    detail: dict[str, int | str] = {
        "primitives": len(plan),
        "thread blocks per channel": len(plan.tb_ptr) - 1,
        "waits": len(waits.index),
    }
    window = f"a window of {plan.max_window}" if plan.max_window else "every window"
    return Proof("deadlock", f"no wait is in vain, for {window} and every message size", detail)


def _circle(plan: Plan, waits: Csr, order: I4) -> UserError:
    """Builds the error for a circle of waits: walks back from a stuck primitive until one
    repeats."""
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
    """Raises E303 unless each end of a queue is one block that serves the messages in order."""
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
    """Raises E303 unless one tile runs from empty queues; then others can follow (see `fifo`)."""
    if not passes(plan, waits, 1, plan.queue_slots):
        raise fail(
            "E303",
            f"with {plan.queue_slots} slots a queue this plan hangs: a thread block sends more "
            "messages than that before its peer takes one",
        )


def _every_window(plan: Plan, waits: Csr) -> None:
    """Raises E303 if a long message can hang: Kahn's algorithm on the classes of primitives that
    messages join (`queue_classes`).

    A wait inside a class is met one micro-batch at a time. Program order inside one is a circle:
    the block would first run all micro-batches of the class's one end. With few enough
    micro-batches a window, queues have room for all its messages, and there is no circle.
    """
    stuck = stuck_for_long(plan, waits)
    longest = int(plan.queues.length.max())
    if not len(stuck) or 0 < plan.max_window * longest <= plan.queue_slots:
        return
    raise fail(
        "E303",
        f"with {plan.queue_slots} slots a queue this plan hangs for long messages: "
        f"{name(plan, int(stuck[0]))} is in a circle of sends and receives",
        help=f"it is safe only while window · {longest} <= slots",
    )
