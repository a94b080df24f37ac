"""choice: which of several plans of one collective a cluster runs fastest, by simulated calls.

No plan is best for every size, so calls are weighed alike: a short one, where latency and the
pipeline's depth count, and a long one, where the busiest link does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hccc.diagnostics import UserError
from hccc.ir.plan import Plan
from hccc.ir.topology import Topology
from hccc.sim.machine import prepare, size_of
from hccc.sim.simulate import Request, simulate

CALLS = ((16 << 10, 1), (256 << 10, 8), (4 << 20, 16))  # bytes of a channel's part, micro-batches
CLOSE = 0.01  # a later plan has to be this much faster


def fastest(plans: Sequence[Plan], topology: Topology) -> int:
    """The index of the plan whose CALLS take least, by the product of their times; of those that
    are CLOSE the first, as of those that cannot run. O(instances of 25 micro-batches of each)."""
    took = [_score(plan, topology) for plan in plans]
    return next(i for i, score in enumerate(took) if score <= min(took) + CLOSE)


def _score(plan: Plan, topology: Topology) -> float:
    """The logarithm of the calls' mean time (geometric); inf where the plan hangs."""
    machine, in_place = prepare(plan, topology), not plan.out_of_place
    calls = [Request(size_of(plan, part), part // n, in_place=in_place) for part, n in CALLS]
    try:
        times = [simulate(machine, call).time for call in calls]
    except UserError:  # the deadlock proof says it better
        return math.inf
    return sum(math.log(max(time, 1e-9)) for time in times) / len(CALLS)
