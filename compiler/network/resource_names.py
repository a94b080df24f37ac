"""resource_names: names of the resources of `routes`, for people."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hccc.ir.arrays import I4, I8, places_among
from hccc.ir.topology import F8, Level, Topology
from hccc.network.routes import Router, router_of

# The kinds of resources; the first six are Levels.
KINDS = ("port", "NIC", "leaf", "spine", "switch", "limit", "link", "mesh")
PLURALS = (
    *("ports", "NICs", "uplinks of leaves", "uplinks of spines"),
    *("switches", "limits between nodes", "links", "links of a mesh"),
)
LINK, MESH = 6, 7
LEAST = 0.1  # part of the heaviest kind's weight below which a kind is not named


def kinds(t: Topology, resource: I8) -> I4:
    """Returns the index in KINDS of each resource: i4[R]."""
    router = router_of(t)
    groups = np.append(t.level, 0)[np.minimum(resource // 2, len(t.shared))].astype(np.int32)
    first_pair = router.first_link + len(t.links)
    link = np.where(resource < first_pair, LINK, MESH)
    return np.where(resource < router.first_link, groups, link).astype(np.int32)


def leading_kinds(t: Topology, resource: I8, weight: F8) -> str:
    """Returns the kinds of resources with most of the weight, the heaviest first: `NICs`, `links
    and switches`. weight: f8[R]; kinds with less than LEAST of the heaviest are left out."""
    total = np.bincount(kinds(t, resource), weight, len(KINDS))
    order = np.argsort(-total, kind="stable")
    leading = order[(total[order] > 0) & (total[order] >= LEAST * total.max(initial=0.0))]
    return " and ".join(PLURALS[k] for k in leading) or "the network"


def names(t: Topology, resource: I8) -> list[str]:
    """Returns the names of resources: `NIC 1 of node2, out`, `port of rank 5, in`, `link 0 → 1`.
    O(R + ranks)."""
    router = router_of(t)
    group = _groups(t)
    texts = []
    for number, kind in zip(resource.tolist(), kinds(t, resource).tolist(), strict=True):
        if kind < LINK:
            k, back = divmod(number, 2)
            texts.append(f"{group[k]}{_direction(kind, back)}")
        elif kind == LINK:
            at = number - router.first_link
            texts.append(f"link {t.link_src[at]} → {t.link_dst[at]}")
        else:
            texts.append(_mesh_pair(t, router, number))
    return texts


def _direction(kind: int, back: int) -> str:
    if kind in (Level.SWITCH, Level.LIMIT):
        return ", B to A" if back else ", A to B"
    return ", in" if back else ", out"


def _groups(t: Topology) -> list[str]:
    """Returns the name of every shared group: its kind, its number, and where it is."""
    texts = [""] * len(t.shared)
    for level in (Level.PORT, Level.NIC, Level.LEAF, Level.SPINE):
        ports, first = np.unique(t.port[level], return_index=True)
        used = ports >= 0
        for k, place, rank in zip(ports[used], _place(t, first[used]), first[used], strict=True):
            texts[k] = _group(t, level, int(place), int(rank))
    for i in range(len(t.side_a)):
        a, b = t.side_a.row(i), t.side_b.row(i)
        kind = f"switch {i}" if i < t.n_switches else "limit"
        texts[t.first_switch + i] = f"{kind} between {_ranks(a)} and {_ranks(b)}"
    return texts


def _place(t: Topology, rank: I8) -> NDArray[np.int64]:
    """Returns the place of each group in its node, among groups of one level. rank: a group's first
    rank."""
    order = np.argsort(rank, kind="stable")
    place = np.empty(len(rank), np.int64)
    place[order] = places_among(t.node[rank[order]])
    return place


def _group(t: Topology, level: Level, place: int, rank: int) -> str:
    match level:
        case Level.PORT:
            return f"port of rank {rank}"
        case Level.NIC:
            return f"NIC {place} of node{t.node[rank] + 1}"
        case Level.LEAF:
            return f"uplink of leaf{t.domain[Level.LEAF][rank] + 1}"
        case _:
            return f"uplink of spine{t.domain[Level.SPINE][rank] + 1}"


def _mesh_pair(t: Topology, router: Router, number: int) -> str:
    mesh = int(np.searchsorted(router.mesh_base, number, side="right")) - 1
    u, v = divmod(number - int(router.mesh_base[mesh]), int(router.mesh_size[mesh]))
    ranks = np.flatnonzero(t.mesh == mesh)
    place = router.mesh_place[ranks]
    return f"link {ranks[place == u][0]} → {ranks[place == v][0]}"


def _ranks(ranks: I4) -> str:
    """Writes `ranks 0-3`, `rank 7`, `ranks 0, 2`."""
    r = [int(x) for x in ranks]
    if len(r) == 1:
        return f"rank {r[0]}"
    if r == list(range(r[0], r[-1] + 1)):
        return f"ranks {r[0]}-{r[-1]}"
    return "ranks " + ", ".join(map(str, r))
