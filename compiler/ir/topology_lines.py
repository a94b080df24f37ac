"""A Topology printed in the cluster language; parsing it gives the same Topology.

Alike nodes in a row are one `N * size`. Every rate has its α with it, so nothing depends on the
language's defaults. O(size of the Topology).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np

from hccc.ir.arrays import I4
from hccc.ir.topology import Level, Rate, Topology

Member = tuple[int, tuple[int, ...] | None]  # a node, and which of its NICs (None: all)


def lines(t: Topology) -> Iterator[str]:
    """The Topology, a `define` a line."""
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
    yield from _between(t)
    if len(t.failed):
        gone = [f"(node{node + 1}, {gpu})" for node, gpu in t.failed.tolist()]
        yield f"define failed = [{', '.join(gone)}]"


def nodes(t: Topology) -> Iterator[tuple[str, ...]]:
    """Per node: its size, and the lines about it. Nodes with equal texts are alike inside."""
    first = t.first_rank.tolist()
    link = np.searchsorted(t.link_src, t.first_rank).tolist()
    a_node, b_node = _side_nodes(t)
    inner = np.flatnonzero(a_node == b_node)
    switch = np.searchsorted(a_node[inner], np.arange(t.n_nodes + 1)).tolist()
    for node in range(t.n_nodes):
        ranks = range(first[node], first[node + 1])
        kinds = {
            "direct": list(_direct(t, node, range(link[node], link[node + 1]))),
            "mesh": list(_meshes(t, ranks)),
            "port": list(_ports(t, ranks)),
            "switch": [_joint(t, k) for k in inner[switch[node] : switch[node + 1]].tolist()],
        }
        given = [f"{kind} => [{', '.join(made)}]" for kind, made in kinds.items() if made]
        text = [str(t.node_size[node])]
        if ranks:
            text.append(_device(t, ranks[0]))
        if t.cores[node]:
            text.append(f"define cores = {t.cores[node]}")
        if given:
            text.append(f"define bandwidth = {{{', '.join(given)}}}")
        if nics := [f"({_ids(t, on)} -> {_rate(t.shared[k])})" for k, on in _nics(t, ranks)]:
            text.append(f"define nic = [{', '.join(nics)}]")
        yield tuple(text)


def _device(t: Topology, rank: int) -> str:
    d = t.devices[t.device[rank]]
    speeds = f"reduce => {_number(d.reduce)}, block => {_number(d.block)}"
    return f'define device = {{vendor => "{d.vendor}", name => "{d.name}", {speeds}}}'


def _direct(t: Topology, node: int, links: range) -> Iterator[str]:
    for i in links:
        u, v = int(t.link_src[i]), int(t.link_dst[i])
        if t.node[v] == node:
            yield f"(({t.local[u]},{t.local[v]}) -> {_rate(t.links[i])})"


def _meshes(t: Topology, ranks: range) -> Iterator[str]:
    mesh = t.mesh[ranks.start : ranks.stop]
    for m in np.unique(mesh[mesh >= 0]).tolist():
        members = np.flatnonzero(mesh == m) + ranks.start
        yield f"({_ids(t, members.tolist())} -> {_rate(t.meshes[m])})"


def _ports(t: Topology, ranks: range) -> Iterator[str]:
    """In the order of the groups; runs of ascending GPUs with one rate are one entry."""
    port = t.port[Level.PORT]
    run: list[int] = []
    for rank in sorted((r for r in ranks if port[r] >= 0), key=lambda r: int(port[r])):
        rate = t.shared[port[rank]]
        if run and (rank < run[-1] or t.shared[port[run[-1]]] != rate):
            yield f"({_ids(t, run)} -> {_rate(t.shared[port[run[-1]]])})"
            run = []
        run.append(rank)
    if run:
        yield f"({_ids(t, run)} -> {_rate(t.shared[port[run[-1]]])})"


def _nics(t: Topology, ranks: range) -> list[tuple[int, list[int]]]:
    """The NICs of a node, as they are numbered there: (group, ranks)."""
    nic = t.port[Level.NIC, ranks.start : ranks.stop]
    return [
        (k, (np.flatnonzero(nic == k) + ranks.start).tolist())
        for k in np.unique(nic[nic >= 0]).tolist()
    ]


def _joint(t: Topology, k: int) -> str:
    a, b = _ids(t, t.side_a.row(k).tolist()), _ids(t, t.side_b.row(k).tolist())
    return f"({a}, {b} >-> {_rate(t.shared[t.first_switch + k])})"


def _side_nodes(t: Topology) -> tuple[I4, I4]:
    """The nodes of both sides of each SWITCH group: i4[k] each."""
    a, b = (t.node[side.index[side.ptr[:-1]]] for side in (t.side_a, t.side_b))
    return a, b


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
        leaves = ", ".join(_runs("leaf", np.unique(leaf[on]).tolist()))
        entries.append(_tier(leaves, t, int(top[on[0]])))
    yield f"define spine = [{', '.join(entries)}]"


def _tier(below: str, t: Topology, group: int) -> str:
    return f"({below})" if group < 0 else f"(({below}) -> {_rate(t.shared[group])})"


def _members(members: Iterable[Member]) -> str:
    text = []
    for nics, run in groupby(members, key=lambda m: m[1]):
        text.append(f"({', '.join(_runs('node', [node for node, _ in run]))})")
        if nics is not None:
            text.append(f"({', '.join(map(str, nics))})")
    return ", ".join(text)


def _runs(kind: str, numbers: Sequence[int]) -> Iterator[str]:
    """`node1..node4`, `node6`, … of ascending numbers from 0."""
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        found = [number for _, number in run]
        first, last = f"{kind}{found[0] + 1}", f"{kind}{found[-1] + 1}"
        yield first if len(found) == 1 else f"{first}..{last}"


def _between(t: Topology) -> Iterator[str]:
    """Direct links between nodes, then SWITCH groups between nodes, in their order."""
    out = np.flatnonzero(t.node[t.link_src] != t.node[t.link_dst])
    key = t.node[t.link_src[out]].astype(np.int64) * t.n_nodes + t.node[t.link_dst[out]]
    order = np.argsort(key, kind="stable")
    for pair, found in groupby(zip(key[order].tolist(), out[order].tolist(), strict=True), _key):
        made = [
            f"(({t.local[t.link_src[i]]},{t.local[t.link_dst[i]]}) -> {_rate(t.links[i])})"
            for _, i in found
        ]
        yield from _joined(*divmod(pair, t.n_nodes), "direct", made)
    a_node, b_node = _side_nodes(t)
    joins = [(int(a_node[k]), int(b_node[k]), k) for k in np.flatnonzero(a_node != b_node)]
    for (a, b), groups in groupby(joins, key=lambda join: join[:2]):
        yield from _joined(a, b, "switch", [_joint(t, int(k)) for _, _, k in groups])


def _key(pair: tuple[int, int]) -> int:
    return pair[0]


def _joined(a: int, b: int, kind: str, made: list[str]) -> Iterator[str]:
    yield f"define internode = (node{a + 1}, node{b + 1})"
    yield f"define interbandwidth = {{{kind} => [{', '.join(made)}]}}"


def _ids(t: Topology, ranks: Sequence[int]) -> str:
    local = t.local[list(ranks)].tolist()
    if len(local) > 2 and local == list(range(local[0], local[-1] + 1)):
        return f"({local[0]}..{local[-1]})"
    return f"({','.join(map(str, local))})"


def _rate(rate: Rate) -> str:
    return f"({_number(rate.bandwidth)}, {rate.lanes}, {_number(rate.alpha)})"


def _number(value: float) -> str:
    return repr(float(value)).removesuffix(".0")
