"""fabric: the network of a cluster in tiers: nodes, leaves, spines, and the lines between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hccc.ir import text
from hccc.ir.topology import Level, Rate, Topology
from hccc.pictures.node_classes import NodeClass, gathered, in_runs, slower

FEW = 8  # units of a tier that are drawn one by one
TANGLE = 24  # edges of nodes that are drawn one by one
MOST = 14  # classes of nodes that are drawn


@dataclass(frozen=True, slots=True)
class TierUnit:
    """One box of a tier. `members`: nodes, leaves, … counted from 0; `alert`: one of `lines` is
    slower than its peers."""

    lines: tuple[str, ...]
    members: tuple[int, ...]
    kind: int = 0
    alert: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """A line from unit `low` of tier `tier` to unit `high` of the tier above, with its GB/s in all.

    nics: of an edge from nodes, the NICs of each node that it stands for, from 0.
    """

    tier: int
    low: int
    high: int
    capacity: float
    nics: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Fabric:
    """Tiers from the nodes upwards, and the lines between neighbours."""

    tiers: tuple[tuple[TierUnit, ...], ...]
    edges: tuple[Edge, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Net:
    """The leaf above each NIC, and the tiers above it: plain tables of a Topology."""

    nics: list[dict[int, list[int]]]  # per node: leaf → NIC groups
    up: dict[int, int | None]  # per leaf: its group of uplinks
    spine: dict[int, int]  # per leaf
    top: dict[int, int | None]  # per spine: its group of uplinks


def _net(t: Topology) -> _Net:
    nics: list[dict[int, list[int]]] = [{} for _ in range(t.n_nodes)]
    up: dict[int, int | None] = {}
    spine: dict[int, int] = {}
    top: dict[int, int | None] = {}
    columns = (
        t.node,
        t.port[Level.NIC],
        t.domain[Level.LEAF],
        t.port[Level.LEAF],
        t.domain[Level.SPINE],
        t.port[Level.SPINE],
    )
    table = np.unique(np.stack(columns, 1)[t.port[Level.NIC] >= 0], axis=0)
    for node, nic, leaf, leaf_up, above, spine_up in table.tolist():
        nics[node].setdefault(leaf, []).append(nic)
        up[leaf] = leaf_up if leaf_up >= 0 else None
        spine[leaf] = above
        top[above] = spine_up if spine_up >= 0 else None
    return _Net(nics, up, spine, top)


def rates_text(t: Topology, groups: Sequence[int]) -> str:
    """Writes the rates of shared groups: `3 × 50 GB/s, 1 × 2.25 GB/s`."""
    alike = gathered(groups, lambda k: t.shared[k])
    return ", ".join(f"{len(same)} × {text.rate(t.shared[same[0]])}" for same in alike)


def fabric(t: Topology, classes: Sequence[NodeClass]) -> Fabric | None:
    """Returns the tiers above the nodes; None for a single node. O(ranks + groups)."""
    if t.n_nodes < 2:
        return None
    net = _net(t)
    kind = {n: i for i, c in enumerate(classes) for n in c.nodes}
    below = gathered([(n, leaf) for n in range(t.n_nodes) for leaf in net.nics[n]], lambda x: x[1])
    shape = {
        pairs[0][1]: tuple((kind[n], len(net.nics[n][pairs[0][1]])) for n, _ in pairs)
        for pairs in below
    }
    leaves = _leaf_units(t, net, shape)
    place = {leaf: i for i, unit in enumerate(leaves) for leaf in unit.members}
    nodes = _node_units(t, net, kind, place)
    spines, notes = _spine_units(t, net)
    edges = [*_node_edges(t, net, nodes, place), *_leaf_edges(t, net, leaves, spines)]
    tiers = [tier for tier in (nodes, leaves, spines) if tier]
    core = _core(net, spines) if len(spines) > 1 else []
    if core:
        tiers.append(core)
        edges += [
            Edge(2, i, 0, _capacity(t, [net.top[s] for s in unit.members]))
            for i, unit in enumerate(spines)
        ]
    return Fabric(tuple(tuple(tier) for tier in tiers), tuple(edges), tuple(notes))


def _node_units(
    t: Topology, net: _Net, kind: dict[int, int], place: dict[int, int]
) -> list[TierUnit]:
    def key(n: int) -> tuple[object, ...]:
        return kind[n], *sorted({place[leaf] for leaf in net.nics[n]})

    nodes = list(range(t.n_nodes))
    edges = sum(len(leaves) for leaves in net.nics)
    groups = [[n] for n in nodes]
    if len(nodes) > FEW or edges > TANGLE:
        groups = in_runs(nodes, key)
    if len(groups) > FEW:
        groups = gathered(nodes, key)
    slow = slower(t).tolist()
    drawn = groups if len(groups) <= MOST else groups[: MOST - 1]
    units = [_node_unit(t, net, group, kind[group[0]], slow) for group in drawn]
    if rest := [n for group in groups[len(drawn) :] for n in group]:
        units.append(TierUnit((f"… and {len(rest)} more nodes",), tuple(rest)))
    return units


def _node_unit(t: Topology, net: _Net, nodes: list[int], kind: int, slow: list[bool]) -> TierUnit:
    first = t.first_rank
    ranks = [r for n in nodes for r in range(int(first[n]), int(first[n + 1]))]
    size = int(t.node_size[nodes[0]])
    lines = [text.nodes(nodes, 3)]
    if ranks:
        lines.append(text.named("rank", ranks, 3))  # of all nodes, thus before "each"
    if len(nodes) > 1:
        lines.append(f"{len(nodes)} alike, each:")
    alive = int(first[nodes[0] + 1] - first[nodes[0]])
    name = t.devices[t.device[ranks[0]]].name if ranks else "GPU"
    lines.append(f"{alive} × {text.clean(name, 24)}")
    if alive < size:
        lines.append(f"{size - alive} of {size} failed")
    nics = [k for groups in net.nics[nodes[0]].values() for k in groups]
    if nics:
        lines.append(f"NICs {rates_text(t, nics)}")
    ports = [int(k) for k in t.port[Level.PORT][ranks] if k >= 0]
    alert = alive < size or any(slow[k] for k in nics + ports)
    return TierUnit(tuple(lines), tuple(nodes), kind, alert)


def _leaf_units(
    t: Topology, net: _Net, shape: dict[int, tuple[tuple[int, int], ...]]
) -> list[TierUnit]:
    """Returns leaves one by one while they are few, else alike ones in a row as one."""
    leaves = sorted(shape)

    def key(leaf: int) -> tuple[object, ...]:
        return shape[leaf], _rate(t, net.up[leaf]), net.spine[leaf]

    groups = [[leaf] for leaf in leaves] if len(leaves) <= FEW else in_runs(leaves, key)
    slow = slower(t)
    rails = all(len(nics) == len(leaves) > 1 for nics in net.nics if nics)
    found = []
    for group in groups:
        up = net.up[group[0]]
        name = (
            text.runs([i + 1 for i in group], 3, "rail" if rails else "leaf")
            if len(leaves) > 1
            else "switch"
        )
        lines = [name, *([f"{len(group)} alike, each:"] if len(group) > 1 else [])]
        if up is not None:
            lines.append(f"up {text.rate(t.shared[up])}")
        elif len(leaves) > 1:
            lines.append("no uplinks" if _parted(t) else "up without limit")
        else:
            lines += ["joins all NICs,", "limits nothing"]
        alert = up is not None and bool(slow[up])
        found.append(TierUnit(tuple(lines), tuple(group), 0, alert))
    return found


def _parted(t: Topology) -> bool:
    """Tells whether nothing lies above the leaves."""
    return bool((t.port[Level.LEAF] < 0).all())


def _rate(t: Topology, group: int | None) -> Rate | None:
    return None if group is None else t.shared[group]


def _capacity(t: Topology, groups: Sequence[int | None]) -> float:
    return float(sum(t.shared.capacity[k] for k in groups if k is not None))


def _spine_units(t: Topology, net: _Net) -> tuple[list[TierUnit], list[str]]:
    """Returns the spines above leaves that have uplinks, and notes; no spines if no leaf has
    any."""
    if len(net.up) < 2 or _parted(t):
        notes = ["Nothing crosses rails but the links inside nodes."] if len(net.up) > 1 else []
        return [], notes
    spines = sorted({net.spine[leaf] for leaf, up in net.up.items() if up is not None})
    slow = slower(t)

    def key(spine: int) -> tuple[object, ...]:
        below = [_rate(t, net.up[leaf]) for leaf, s in net.spine.items() if s == spine]
        return tuple(map(str, below)), _rate(t, net.top[spine])

    groups = [[s] for s in spines] if len(spines) <= FEW else in_runs(spines, key)
    found = []
    for group in groups:
        top = net.top[group[0]]
        name = text.runs([i + 1 for i in group], 3, "spine") if len(spines) > 1 else "spine"
        lines = [name, f"up {text.rate(t.shared[top])}" if top is not None else "limits nothing"]
        found.append(TierUnit(tuple(lines), tuple(group), 0, top is not None and bool(slow[top])))
    return found, []


def _core(net: _Net, spines: Sequence[TierUnit]) -> list[TierUnit]:
    joined = any(net.top[s] is not None for unit in spines for s in unit.members)
    return [TierUnit(("core", "limits nothing"), (0,))] if joined else []


def _node_edges(
    t: Topology, net: _Net, nodes: Sequence[TierUnit], place: dict[int, int]
) -> list[Edge]:
    capacity: dict[tuple[int, int], float] = {}
    used: dict[tuple[int, int], set[int]] = {}
    for i, unit in enumerate(nodes):
        seen: set[int] = set()
        for node in unit.members:
            nics_of_node = sorted(nic for nics in net.nics[node].values() for nic in nics)
            place_of = {nic: k for k, nic in enumerate(nics_of_node)}
            for leaf, nics in net.nics[node].items():
                if leaf not in seen:  # of alike nodes one tells what each has
                    seen.add(leaf)
                    at = (i, place[leaf])
                    capacity[at] = capacity.get(at, 0.0) + _capacity(t, nics)
                    used.setdefault(at, set()).update(place_of[nic] for nic in nics)
    return [Edge(0, *at, gbps, tuple(sorted(used[at]))) for at, gbps in capacity.items()]


def _leaf_edges(
    t: Topology, net: _Net, leaves: Sequence[TierUnit], spines: Sequence[TierUnit]
) -> list[Edge]:
    place = {spine: i for i, unit in enumerate(spines) for spine in unit.members}
    return [
        Edge(1, i, place[net.spine[leaf]], _capacity(t, [net.up[leaf]]))
        for i, unit in enumerate(leaves)
        for leaf in unit.members[:1]
        if net.up[leaf] is not None and net.spine[leaf] in place
    ]
