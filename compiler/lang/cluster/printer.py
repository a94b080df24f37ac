"""printer: a Topology in the cluster language; parsing it gives the same Topology.

Equal nodes in a row are one `N * size`. Every rate is printed with its α, so nothing depends on the
language's defaults. O(size of the Topology).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import numpy as np

from hccc.ir.arrays import I8
from hccc.ir.device import Network
from hccc.ir.ranks import named_runs
from hccc.ir.topology import Launch, Level, Topology
from hccc.lang.cluster.printer_device import device, network
from hccc.lang.cluster.printer_internode import between
from hccc.lang.cluster.printer_text import ids, number, numbers, rate, switch_text
from hccc.network.summary import limits, side_nodes

Member = tuple[int, tuple[int, ...] | None]  # a node, and which of its NICs (None: all)


def lines(t: Topology) -> Iterator[str]:
    """Prints the Topology, one `define` per line."""
    yield f"define chunk = {t.chunk}"
    yield f"define nodenum = {t.n_nodes}"
    number = 0
    for text, same in groupby(nodes(t)):
        count = sum(1 for _ in same)
        size, *rest = text
        yield f"define node{number + 1} = {f'{count} * ' if count > 1 else ''}{size}"
        yield from rest
        number += count
    yield from _tiers(t)
    yield from between(t)
    yield from _memory(t)
    yield from _vendor_clusters(t)
    if len(t.failed):
        yield f"define failed = [{', '.join(_failed(t))}]"
    if slow := [f"((node{a + 1}, node{b + 1}) -> {rate(r)})" for a, b, r in limits(t)]:
        yield f"define degraded = [{', '.join(slow)}]"


def _memory(t: Topology) -> Iterator[str]:
    """Yields the memory domains of more than one node, if any."""
    node, first = np.unique(t.node, return_index=True)
    domain = t.memory_domain[first]
    shared = np.unique(domain[node != domain])
    groups = (", ".join(named_runs("node", node[domain == d].tolist())) for d in shared)
    if text := ", ".join(f"({nodes})" for nodes in groups):
        yield f"define memory = [{text}]"


def _vendor_clusters(t: Topology) -> Iterator[str]:
    """Yields the vendor clusters and border ranks that the file names, if any."""
    groups = [np.flatnonzero(t.vendor_cluster == c) for c in np.unique(t.vendor_cluster) if c >= 0]
    if groups:
        yield f"define cluster = [{', '.join(f'({_gpus(t, ranks)})' for ranks in groups)}]"
    if t.border.any():
        yield f"define border = [({_gpus(t, np.flatnonzero(t.border))})]"


def _gpus(t: Topology, ranks: I8) -> str:
    """Writes ranks as nodes, and the GPUs of a node of which only some are meant."""
    alive = np.bincount(t.node, minlength=t.n_nodes)
    found: list[Member] = []
    for node in np.unique(t.node[ranks]).tolist():
        gpus = t.local[ranks[t.node[ranks] == node]].tolist()
        found.append((node, None if len(gpus) == alive[node] else tuple(gpus)))
    return _members(found)


def _failed(t: Topology) -> Iterator[str]:
    """Yields the failed GPUs of every node."""
    for node, rows in groupby(t.failed.tolist(), key=lambda row: row[0]):
        yield f"(node{node + 1}, {numbers([gpu for _, gpu in rows])})"


def nodes(t: Topology) -> Iterator[tuple[str, ...]]:
    """Yields for each node its size and its lines. Nodes with equal texts are equal inside."""
    first = t.first_rank.tolist()
    link = np.searchsorted(t.link_src, t.first_rank).tolist()
    a_node, b_node = side_nodes(t)
    inner = np.flatnonzero(a_node == b_node)
    switch = np.searchsorted(a_node[inner], np.arange(t.n_nodes + 1)).tolist()
    for node in range(t.n_nodes):
        ranks = range(first[node], first[node + 1])
        kinds = {
            "direct": list(_direct(t, node, range(link[node], link[node + 1]))),
            "mesh": list(_meshes(t, ranks)),
            "port": list(_ports(t, ranks)),
            "switch": [switch_text(t, k) for k in inner[switch[node] : switch[node + 1]].tolist()],
        }
        bandwidth = [
            f"{kind} => [{', '.join(entries)}]" for kind, entries in kinds.items() if entries
        ]
        text = [str(t.node_size[node])]
        if ranks:
            text.append(device(t.devices[t.device[ranks[0]]]))
        if t.cores[node]:
            text.append(f"define cores = {t.cores[node]}")
        if t.launch[node].any() or (ranks and t.devices[t.device[ranks[0]]].launch):
            text.append(f"define launch = {_launch(t, node)}")
        if bandwidth:
            text.append(f"define bandwidth = {{{', '.join(bandwidth)}}}")
        if (joined := t.networks[t.network[node]]) != Network():
            text.append(network(joined))
        if nics := [f"({ids(t, on)} -> {rate(t.shared[k])})" for k, on in _nics(t, ranks)]:
            text.append(f"define nic = [{', '.join(nics)}]")
        yield tuple(text)


def _launch(t: Topology, node: int) -> str:
    launch = Launch(*t.launch[node].tolist())
    if launch == Launch(launch.base):
        return number(launch.base)
    keys = Launch._fields if launch.small else Launch._fields[:-1]
    parts = [f"{key} => {number(getattr(launch, key))}" for key in keys]
    return f"{{{', '.join(parts)}}}"


def _direct(t: Topology, node: int, links: range) -> Iterator[str]:
    for i in links:
        u, v = int(t.link_src[i]), int(t.link_dst[i])
        if t.node[v] == node:
            yield f"(({t.local[u]},{t.local[v]}) -> {rate(t.links[i])})"


def _meshes(t: Topology, ranks: range) -> Iterator[str]:
    mesh = t.mesh[ranks.start : ranks.stop]
    for m in np.unique(mesh[mesh >= 0]).tolist():
        members = np.flatnonzero(mesh == m) + ranks.start
        yield f"({ids(t, members.tolist())} -> {rate(t.meshes[m])})"


def _ports(t: Topology, ranks: range) -> Iterator[str]:
    """Yields ports in the order of the groups; runs of ascending GPUs with one rate are one
    entry."""
    port = t.port[Level.PORT]
    run: list[int] = []
    for rank in sorted((r for r in ranks if port[r] >= 0), key=lambda r: int(port[r])):
        speed = t.shared[port[rank]]
        if run and (rank < run[-1] or t.shared[port[run[-1]]] != speed):
            yield f"({ids(t, run)} -> {rate(t.shared[port[run[-1]]])})"
            run = []
        run.append(rank)
    if run:
        yield f"({ids(t, run)} -> {rate(t.shared[port[run[-1]]])})"


def _nics(t: Topology, ranks: range) -> list[tuple[int, list[int]]]:
    """Returns the NICs of a node, in the order of their numbers: (group, ranks)."""
    nic = t.port[Level.NIC, ranks.start : ranks.stop]
    return [
        (k, (np.flatnonzero(nic == k) + ranks.start).tolist())
        for k in np.unique(nic[nic >= 0]).tolist()
    ]


def _tiers(t: Topology) -> Iterator[str]:
    leaf, spine = t.domain[Level.LEAF], t.domain[Level.SPINE]
    up = t.port[Level.LEAF]
    if leaf.max(initial=-1) < 1 and (up < 0).all():
        return
    below: dict[int, list[Member]] = {}
    first = t.first_rank.tolist()
    for node in range(t.n_nodes):
        nics = [int(leaf[on[0]]) for _, on in _nics(t, range(first[node], first[node + 1]))]
        for name in sorted(set(nics)):
            mine = tuple(i for i, at in enumerate(nics) if at == name)
            below.setdefault(name, []).append((node, mine if len(mine) < len(nics) else None))
    entries = []
    for name in sorted(below):
        rank = int(np.flatnonzero(leaf == name)[0])
        entries.append(_tier(_members(below[name]), t, int(up[rank])))
    yield f"define leaf = [{', '.join(entries)}]"
    top = t.port[Level.SPINE]
    if spine.max(initial=-1) < 1 and (top < 0).all():
        return
    entries = []
    for name in range(int(spine.max()) + 1):
        on = np.flatnonzero(spine == name)
        leaves = ", ".join(named_runs("leaf", np.unique(leaf[on]).tolist()))
        entries.append(_tier(leaves, t, int(top[on[0]])))
    yield f"define spine = [{', '.join(entries)}]"


def _tier(below: str, t: Topology, group: int) -> str:
    return f"({below})" if group < 0 else f"(({below}) -> {rate(t.shared[group])})"


def _members(members: Iterable[Member]) -> str:
    text = []
    for nics, run in groupby(members, key=lambda m: m[1]):
        text.append(f"({', '.join(named_runs('node', [node for node, _ in run]))})")
        if nics is not None:
            text.append(f"({', '.join(map(str, nics))})")
    return ", ".join(text)
