"""summary: a Topology in a few words: its devices and its network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from hccc.ir.arrays import I4
from hccc.ir.topology import Level, Rate, Topology


def devices(t: Topology) -> str:
    """Writes the number of each device, in the order of the ranks: `8 A100, 4 H20`."""
    names = Counter(t.devices[row].name for row in t.device.tolist())
    return ", ".join(f"{count} {name}" for name, count in names.items())


def network(t: Topology) -> str:
    """Describes the connections within nodes, then between them: `crossbar; 4 NICs a node, 2
    leaves`."""
    parts = [", ".join(_within(t)) or "none"]
    if between := ", ".join(_between(t)):
        parts.append(between)
    return "; ".join(parts)


def _within(t: Topology) -> Iterator[str]:
    if (t.port[Level.PORT] >= 0).any():
        yield "crossbar"
    if (t.mesh >= 0).any():
        yield "mesh"
    if (t.node[t.link_src] == t.node[t.link_dst]).any():
        yield "links"
    a, b = side_nodes(t)
    if (a == b).any():
        yield "switches"


def _between(t: Topology) -> Iterator[str]:
    nic = t.port[Level.NIC]
    if (nic >= 0).any():
        nodes = np.unique(np.stack([t.node, nic], axis=1)[nic >= 0], axis=0)[:, 0]
        yield f"{_spread(np.bincount(nodes, minlength=t.n_nodes))} a node"
        yield from _tiers(t)
    if (t.node[t.link_src] != t.node[t.link_dst]).any():
        yield "links"
    a, b = side_nodes(t)
    if (a != b).any():
        yield "switches"
    if pairs := len(limits(t)):
        yield f"a limit between {pairs} pair{'s' if pairs > 1 else ''} of nodes"


def _spread(counts: np.ndarray) -> str:
    """Writes `4 NICs`, `1 NIC`, `4 to 8 NICs`."""
    least, most = int(counts.min()), int(counts.max())
    number = f"{most}" if least == most else f"{least} to {most}"
    return f"{number} NIC{'s' if most > 1 else ''}"


def _tiers(t: Topology) -> Iterator[str]:
    """Yields the leaves, or rails if each of several leaves has a NIC of every node, and the
    spines."""
    leaf, spine = t.domain[Level.LEAF], t.domain[Level.SPINE]
    below = np.unique(np.stack([leaf, t.node], axis=1)[leaf >= 0], axis=0)
    leaves = np.bincount(below[:, 0])
    if len(leaves) > 1:
        rails = t.n_nodes > 1 and bool((leaves == t.n_nodes).all())
        yield f"{len(leaves)} {'rails' if rails else 'leaves'}"
    if (spines := int(spine.max(initial=-1)) + 1) > 1 or (t.port[Level.SPINE] >= 0).any():
        yield f"{spines} spine{'s' if spines > 1 else ''}"


def side_nodes(t: Topology) -> tuple[I4, I4]:
    """Returns the nodes of both sides of each SWITCH group: i4[k] each."""
    n = t.n_switches
    a, b = (t.node[side.index[side.ptr[:n]]] for side in (t.side_a, t.side_b))
    return a, b


def limits(t: Topology) -> list[tuple[int, int, Rate]]:
    """Returns the nodes of each LIMIT group, and its rate."""
    a, b = (t.node[side.index[side.ptr[t.n_switches : -1]]] for side in (t.side_a, t.side_b))
    rates = [t.shared[t.first_switch + k] for k in range(t.n_switches, len(t.side_a))]
    return list(zip(a.tolist(), b.tolist(), rates, strict=True))
