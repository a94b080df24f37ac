"""greet: in protocol LL every rank hears of all others in a launch, if need be by a greeting.

Of a Broadcast's leaves the root hears nothing: it could overwrite packets that they have not read,
and end a call that they do not make. There each rank sends all others an empty packet when it
begins, and ends when it has theirs (kernel-protocol §14). Sums and gathers of all ranks need none.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hccc.analysis.hearing import BITS, hearing
from hccc.ir.choices import PlanProtocol
from hccc.ir.plan import Plan


def greet(plan: Plan) -> Plan:
    """Returns `plan` with greetings where a rank would not hear of another; else unchanged. O(ranks
    / 64 · (primitives + waits))."""
    if plan.protocol is PlanProtocol.SIMPLE or plan.n_ranks == 1:
        return plan
    silent = False
    for low, heard in hearing(plan):
        every = np.uint64(2 ** min(BITS, plan.n_ranks - low) - 1)
        silent |= bool((heard != every).any())
    return replace(plan, greets=True) if silent else plan
