"""meeting: what it costs that the ranks of a launch meet when it begins and when it ends.

A rank finds its buffers, tells its neighbours where they are, hears from all of them, and only then
do its thread blocks run; when they have ended it tells its neighbours and hears from them
(`runtime/include/hccc/launch.h`). What follows one thing after the other there is counted: flags on
their way, loads of own memory and fences, each at what the device takes for one.
`tests/runtime/test_sass.py` counts loads and fences in kernels' machine code.
"""

from __future__ import annotations

from typing import NamedTuple

from hccc.ir.choices import PlanProtocol
from hccc.ir.plan import Plan
from hccc.ir.topology import Topology

FLAGS = 2  # one way each: that a rank has begun, and that it has ended


class AccessChain(NamedTuple):
    """Accesses that wait for each other. loads: of own memory, flags there too; fences: of all
    devices."""

    loads: int
    fences: int


ALONE = AccessChain(loads=10, fences=2)
SHARED = AccessChain(loads=10, fences=4)  # blocks of a rank wait for its first, and it for them
# Ranks that exchange packets do not meet: a rank loads its epoch and its data before its first
# packet and stores its result after its last, which takes as long as two flags.
PACKETS = AccessChain(loads=0, fences=0)


class Meeting(NamedTuple):
    """µs of flags on their way, and of the loads and fences of generated kernels."""

    flags: float
    accesses: float


def chain(plan: Plan) -> AccessChain:
    """Returns the accesses by which the ranks of a plan meet."""
    if plan.protocol is PlanProtocol.LL:
        return PACKETS
    alone = int(plan.n_tb.max(initial=0)) * plan.channels <= 1
    return ALONE if alone else SHARED


def meeting(plan: Plan, t: Topology) -> Meeting:
    """Returns what ranks' meeting takes on the slowest device and network. 0 if the devices' launch
    is unknown, or was measured with it, as on hosts, or no rank has a neighbour."""
    known = any(t.devices[row].launch > 0 for row in set(t.device.tolist()))
    memory, network = plan.connections()
    if not known or (t.cores > 0).any() or not (memory or network):
        return Meeting(0.0, 0.0)
    alphas = [device.alpha.ll for device in t.devices] if memory else []
    if network:
        alphas += [net.alpha.ll for net in t.networks]
    loads, fences = chain(plan)
    accesses = max(loads * device.own + fences * device.fence for device in t.devices)
    return Meeting(FLAGS * max(alphas), accesses)
