"""grain: Plan → Plan, which knows how finely its calls are best cut on a cluster.

Cut into n micro-batches a call takes about a + b · n + c / n: n times what a micro-batch costs, and
a pipeline to fill that is n times as short. Three simulated calls give a, b and c.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hccc.ir.micro_batch import COARSEST, FINEST
from hccc.ir.plan import Plan
from hccc.ir.topology import Topology
from hccc.sim.machine import prepare, size_of
from hccc.sim.simulate import Request, simulate

PART = 1 << 20  # bytes of the calls that are simulated: of a channel's part of a chunk
COUNTS = (1, 6, 36)  # micro-batches in it
MOST = 1 << 13  # primitives; plans of more keep their grain, since simulating them takes seconds


def with_grain(plan: Plan, topology: Topology) -> Plan:
    """`plan` with the grain (bytes, `ir/micro_batch`) that suits `topology`.

    O(instances of 43 micro-batches), as `simulate`. Raises what `simulate` does.
    """
    if not 0 < len(plan) <= MOST:
        return plan
    machine = prepare(plan, topology)
    size = size_of(plan, PART)
    calls = [Request(size, -(-PART // n), in_place=not plan.out_of_place) for n in COUNTS]
    times = [simulate(machine, call).time for call in calls]
    terms = np.array([(1.0, n, 1.0 / n) for n in COUNTS])
    _, each, fill = np.linalg.solve(terms, times)
    best = np.sqrt(max(fill, 0.0) / each) if each > 0 else np.inf  # micro-batches in PART
    grain = PART / best**2 if best > 0 else COARSEST
    return replace(plan, grain=round(min(max(grain, FINEST), COARSEST)))
