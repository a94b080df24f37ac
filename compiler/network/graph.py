"""graph: a Topology as a graph: ranks, and the hubs they share, as vertices.

A route is a path over hubs, `("mesh", 0)`, `("leaf", 2)`, …: a switch is one hub with an edge to
and from each of its members, never an edge for each pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hccc.ir.arrays import B1, I8, Csr, csr_from_pairs
from hccc.ir.topology import Level, Rate, Rates, Topology

if TYPE_CHECKING:
    import networkx as nx  # type: ignore[import-untyped]

Vertex = int | tuple[str, int]
HUBS = ("mesh", "port", "switch", "leaf", "spine", "core")


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """Edges of one kind, in both directions, between members and hubs. below, above: the names of
    both kinds of vertices; member, hub: i8[m]; rate: i8[m] rows of `rates`."""

    below: str
    above: str
    member: I8
    hub: I8
    rates: Rates
    rate: I8


def spokes(t: Topology) -> list[Edges]:
    """Returns all edges but the direct links."""
    rank = np.arange(len(t))
    meshed, barred = t.mesh >= 0, t.domain[Level.PORT] >= 0
    bar = t.domain[Level.PORT][barred]
    owner = np.concatenate([t.side_a.owner(), t.side_b.owner()])
    member = np.concatenate([t.side_a.index, t.side_b.index])
    joins = owner < t.n_switches
    owner, member = owner[joins], member[joins]
    return [
        Edges("rank", "mesh", rank[meshed], t.mesh[meshed], t.meshes, t.mesh[meshed]),
        Edges("rank", "port", rank[barred], bar, t.shared, t.port[Level.PORT][barred]),
        Edges("rank", "switch", member, owner, t.shared, owner + t.first_switch),
        *_network(t),
    ]


def _network(t: Topology) -> list[Edges]:
    """Returns the edges between ranks, leaves, spines and the core.

    Leaves without uplinks have no spine, spines without uplinks no core. A leaf of one node leads
    nowhere unless another leaf can be reached above it.
    """
    wired = t.port[Level.NIC] >= 0
    nic, leaf, spine = t.port[Level.NIC], t.domain[Level.LEAF], t.domain[Level.SPINE]
    up = wired & (t.port[Level.LEAF] >= 0)
    top = up & (t.port[Level.SPINE] >= 0)
    core = len(np.unique(spine[top])) > 1
    climbs = up & (_kinds(spine, leaf, up) > 1) | (top & core)
    on = wired & (climbs | (_kinds(leaf, t.node, wired) > 1))
    top &= core & climbs
    rank = np.arange(len(t))
    return [
        Edges("rank", "leaf", rank[on], leaf[on], t.shared, nic[on]),
        Edges(
            "leaf",
            "spine",
            *_once(leaf, spine, climbs),
            t.shared,
            t.port[Level.LEAF][climbs][_first(leaf[climbs])],
        ),
        Edges(
            "spine",
            "core",
            *_once(spine, np.zeros_like(spine), top),
            t.shared,
            t.port[Level.SPINE][top][_first(spine[top])],
        ),
    ]


def _first(values: I8) -> I8:
    return np.unique(values, return_index=True)[1]


def _once(below: I8, above: I8, where: B1) -> tuple[I8, I8]:
    first = _first(below[where])
    return below[where][first], above[where][first]


def _kinds(group: I8, value: I8, where: B1) -> I8:
    """Returns for every row how many values the rows of its group have."""
    width = int(max(value.max(initial=0), 0)) + 1
    pairs = np.unique(group[where].astype(np.int64) * width + value[where])
    count = np.bincount(pairs // width, minlength=int(max(group.max(initial=0), 0)) + 1)
    return np.where(where, count[group], 0)


def graph(t: Topology) -> nx.DiGraph[Vertex]:
    """Builds a graph of ranks (integers, with node, gpu, vendor, device) and hubs. Edges have
    `bandwidth` (GB/s), `parallel` and `alpha` (µs); shared NICs and uplinks also their `group`.
    O(its size)."""
    import networkx as nx

    g: nx.DiGraph[Vertex] = nx.DiGraph()
    for r in range(len(t)):
        device = t.devices[t.device[r]]
        names = {"vendor": device.vendor, "device": device.name}
        g.add_node(r, node=int(t.node[r]), gpu=int(t.local[r]), **names)
    for i, (u, v) in enumerate(zip(t.link_src.tolist(), t.link_dst.tolist(), strict=True)):
        g.add_edge(u, v, **_named(t.links[i]))
    for edges in spokes(t):
        grouped = edges.rates is t.shared
        for m, h, k in zip(edges.member, edges.hub, edges.rate, strict=True):
            low: Vertex = int(m) if edges.below == "rank" else (edges.below, int(m))
            more = {"group": float(k)} if grouped else {}
            attributes = _named(edges.rates[int(k)]) | more
            g.add_edge(low, (edges.above, int(h)), **attributes)
            g.add_edge((edges.above, int(h)), low, **attributes)
    return g


def _named(rate: Rate) -> dict[str, float]:
    return {"bandwidth": rate.bandwidth, "parallel": rate.parallel, "alpha": rate.alpha}


def disconnected(t: Topology) -> tuple[I8, I8] | None:
    """Splits the ranks in two sets, ascending i8 each, if some rank cannot reach some other; else
    None.

    No rank of the first set reaches any of the second, even over others. O(ranks + links + group
    members): a breadth-first search in each direction, whole frontiers at a time.
    """
    src, dst, n = _numbered(t)
    for ahead, (a, b) in ((True, (src, dst)), (False, (dst, src))):
        seen = _seen(csr_from_pairs(a, b, n))[: len(t)]
        lost, found = np.flatnonzero(~seen), np.flatnonzero(seen)
        if len(lost):
            return (found, lost) if ahead else (lost, found)
    return None


def _numbered(t: Topology) -> tuple[I8, I8, int]:
    """Returns all edges, with hubs numbered after the ranks: src, dst, number of vertices."""
    edges = spokes(t)
    base, n = {"rank": 0}, len(t)
    for name in HUBS:
        last = [int(e.hub.max(initial=-1)) for e in edges if e.above == name]
        last += [int(e.member.max(initial=-1)) for e in edges if e.below == name]
        base[name], n = n, n + max(last) + 1
    member = [e.member + base[e.below] for e in edges]
    hub = [e.hub + base[e.above] for e in edges]
    return (
        np.concatenate([t.link_src, *member, *hub]),
        np.concatenate([t.link_dst, *hub, *member]),
        n,
    )


def _seen(after: Csr) -> B1:
    """Tells which vertices vertex 0 reaches."""
    seen = np.zeros(len(after), np.bool_)
    frontier = np.zeros(1, np.int64)
    while len(frontier):
        seen[frontier] = True
        ahead = after.take(frontier).index
        frontier = np.unique(ahead[~seen[ahead]]).astype(np.int64)
    return seen
