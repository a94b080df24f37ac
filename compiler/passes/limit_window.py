"""limit_window: sets the largest window of a mixed plan whose queues cannot carry every one.

Merged primitives may exchange messages in a circle: one slot a message of the window is then needed
(kernel-protocol §5). Where queues have fewer than one window needs, windows have one micro-batch.
"""

from __future__ import annotations

from dataclasses import replace

from hccc.analysis.queue_classes import stuck_for_long
from hccc.analysis.waits import enforced
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport


def limit_window(plan: Plan) -> Plan:
    """Returns `plan` with the largest window that is safe, or unchanged if all are. O(n log n)."""
    if plan.transport is not Transport.MIXED or not len(plan.queues):
        return plan
    if not len(stuck_for_long(plan, enforced(plan))):
        return plan
    return replace(plan, max_window=max(1, plan.queue_slots // int(plan.queues.length.max())))
