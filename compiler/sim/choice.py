"""choice: how fast a cluster runs a plan, in one figure, for the choice among several.

No plan is best for every size, so calls are weighed alike: a short one, where latency and the
pipeline's depth count, and a long one, where the busiest link does.
"""

from __future__ import annotations

import math

from hccc.diagnostics import UserError
from hccc.ir.plan import Plan
from hccc.ir.topology import Topology
from hccc.sim.machine import prepare, size_of
from hccc.sim.simulate import Request, simulate

CALLS = ((16 << 10, 1), (256 << 10, 8), (4 << 20, 16))  # bytes of a channel's part, micro-batches
CLOSE = 0.01  # a later plan has to be this much faster


def score(plan: Plan, topology: Topology) -> float:
    """What `plan` takes on `topology`: the logarithm of the calls' mean time (geometric); inf where
    it hangs. Two plans within CLOSE of each other are alike. O(instances of 25 micro-batches)."""
    machine, in_place = prepare(plan, topology), not plan.out_of_place
    calls = [Request(size_of(plan, part), part // n, in_place=in_place) for part, n in CALLS]
    try:
        times = [simulate(machine, call).time for call in calls]
    except UserError:  # the deadlock proof says it better
        return math.inf
    return sum(math.log(max(time, 1e-9)) for time in times) / len(CALLS)
