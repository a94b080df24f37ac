"""estimates: the figures behind a simulated plan that are estimates, not measurements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from hccc.ir.device import BLOCK_RATES
from hccc.ir.topology import Level
from hccc.network.resource_names import LINK, MESH, kinds
from hccc.sim.machine import Machine
from hccc.sim.rates import ways

NAMES = {
    "reduce": "reduction",
    "alpha_simple": "latency",
    "alpha_ll": "latency of packets",
    "delivered": "delivered bandwidth",
    "launch": "launch",
    "own": "loads of own memory",
    "fence": "fences",
    "block": "copies of a block",
    "store": "stores of a block",
    "load": "loads of a block",
    "proxy": "block to proxy",
}


def estimates(machine: Machine, *, launch: bool) -> tuple[str, ...]:
    """Describes the estimates used, one text per device or network: `H20: stores of a block,
    reduction`. launch: whether the cluster's launch counts. O(operands)."""
    t = machine.topology
    used = _used(machine, launch)
    found = dict.fromkeys(_of_devices(machine, used))
    if "nic" in used:
        rows = np.unique(t.network[np.unique(t.node)]).tolist()
        found |= dict.fromkeys(
            f"{t.networks[row].name or 'network'}: {said}"
            for row in rows
            if (said := _words(t.networks[row].estimates, {"delivered", "alpha_simple"}))
        )
    return tuple(found)


def _of_devices(machine: Machine, used: set[str]) -> Iterator[str]:
    t, plan = machine.topology, machine.plan
    through = ways(plan, t) & (machine.move > 0)
    device = t.device[plan.rank_of()]
    for row, known in enumerate(t.devices):
        mine = through[:, device == row].any(axis=1)
        rates = {BLOCK_RATES[way] for way in np.flatnonzero(mine)}
        if said := _words(known.estimates, used | rates):
            yield f"{known.name}: {said}"


def _used(machine: Machine, launch: bool) -> set[str]:
    """Returns the figures that matter for the plan as a whole."""
    used: set[str] = {"launch"} if launch else set()
    if machine.meeting.accesses:
        used |= {"own", "fence"}
    if (machine.combine > 0).any():
        used.add("reduce")
    t = machine.topology
    crossed = np.zeros(len(machine.resource), np.bool_)
    crossed[machine.uses.index] = True
    crossed[machine.transfers.uses.index] = True
    kind = set(kinds(t, machine.resource[crossed & machine.links]).tolist())
    if kind & {LINK, MESH, int(Level.PORT), int(Level.SWITCH)}:
        packets = machine.transfers.packets
        used |= {"delivered", "alpha_ll" if packets else "alpha_simple"}
    return used | ({"nic"} if int(Level.NIC) in kind else set())


def _words(names: Iterable[str], used: set[str]) -> str:
    there = [name for name in names if name in used]
    return ", ".join(said for name, said in NAMES.items() if name in there)
