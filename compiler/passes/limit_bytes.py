"""limit_bytes: sets the largest call of a plan of packets, by its devices and what its slots take.

Packets take a third more bytes, but no meeting. On GPUs that pays up to a MiB or so, on CPUs, whose
counters are near, up to some hundred bytes. Each message has a slot of its own that holds the
largest call's part, so a plan of many messages serves shorter calls. In a catalogue slots are only
as large as the calls that the plan gets there (`ir/catalogue`).
"""

from __future__ import annotations

from dataclasses import replace

from hccc.ir.choices import PlanProtocol
from hccc.ir.kernel_shape import slot_bytes
from hccc.ir.limits import MAX_CHANNELS
from hccc.ir.plan import Plan
from hccc.ir.topology import Topology
from hccc.passes.sync import LL_BYTES

MOST_LL_BYTES = 4 << 20  # on GPUs: of longer calls a third more bytes takes longer than a meeting
MOST_SLOT_BYTES = 64 << 20  # of a rank, both parities, unless calls of LL_BYTES need more


def limit_bytes(plan: Plan, topology: Topology | None) -> Plan:
    """Returns `plan` with the largest call that it serves on `topology`; a plan without packets,
    for CPUs, or for no cluster as it is."""
    gpus = topology is not None and not topology.cores.any()
    if plan.protocol is PlanProtocol.SIMPLE or not gpus:
        return plan
    most = MOST_LL_BYTES
    while most > LL_BYTES and _memory(plan, most) > MOST_SLOT_BYTES:
        most //= 2
    return replace(plan, max_bytes=most)


def _memory(plan: Plan, max_bytes: int) -> int:
    """Returns the bytes of a rank's packet slots, with as many channels as tuning may choose."""
    return slot_bytes(replace(plan, max_bytes=max_bytes, channels=MAX_CHANNELS))
