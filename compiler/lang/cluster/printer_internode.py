"""printer_internode: links between nodes, one `define internode` for many nodes with equal links.

Written pair by pair, a thousand nodes would be half a million pairs. Direct links have no order, so
their pairs are covered greedily. SWITCH groups keep their order: only runs of groups in the order
of all pairs of some nodes are merged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hccc.ir.arrays import B1, I4, I8, Csr, entries
from hccc.ir.ranks import named_runs
from hccc.ir.topology import Topology
from hccc.lang.cluster.printer_text import rate, switch_text
from hccc.network.summary import side_nodes

MOST_NODES = 2048  # of one `interbandwidth`
MOST_ENTRIES = 64  # of one pair; pairs with more are printed one by one
NONE = np.zeros(0, np.int64)


def between(t: Topology) -> Iterator[str]:
    """Yields direct links between nodes, then SWITCH groups between nodes, in their order."""
    for nodes, entries_text in _direct(t).items():
        yield from _joined(list(nodes), "direct", entries_text)
    yield from _switches(t)


def _joined(nodes: list[int], kind: str, entries_text: list[str]) -> Iterator[str]:
    yield f"define internode = ({', '.join(named_runs('node', nodes))})"
    yield f"define interbandwidth = {{{kind} => [{', '.join(entries_text)}]}}"


def _direct(t: Topology) -> dict[tuple[int, ...], list[str]]:
    """Returns lists of nodes, and the links that every node of a list has to each one after it."""
    x, y = t.node[t.link_src], t.node[t.link_dst]
    away = np.flatnonzero(x != y)
    x, y = x[away], y[away]
    kind = np.zeros(len(away), np.int64)
    for column in (
        x > y,
        t.local[t.link_src[away]],
        t.local[t.link_dst[away]],
        t.links.bandwidth[away],
        t.links.parallel[away],
        t.links.alpha[away],
    ):
        values, value = np.unique(column, return_inverse=True)
        kind = np.unique(kind * len(values) + value, return_inverse=True)[1]
    order = np.argsort(kind, kind="stable")
    ends = np.flatnonzero(np.diff(kind[order], prepend=-1)).tolist()
    found: dict[tuple[int, ...], list[str]] = {}
    for begin, end in pairwise([*ends, len(away)]):
        mine, link = order[begin:end], int(away[order[begin]])
        u, v = (int(t.local[side[link]]) for side in (t.link_src, t.link_dst))
        text = f"(({u},{v}) -> {rate(t.links[link])})"
        down = x[mine[0]] > y[mine[0]]  # links to lower nodes: nodes are named in reverse
        src, dst = (t.n_nodes - 1 - x, t.n_nodes - 1 - y) if down else (x, y)
        for nodes in cover(src[mine], dst[mine]):
            named = tuple(t.n_nodes - 1 - node for node in nodes) if down else tuple(nodes)
            found.setdefault(named, []).append(text)
    return found


def cover(x: I4 | I8, y: I4 | I8) -> Iterator[list[int]]:
    """Yields ascending lists of numbers whose pairs are, each once, the given distinct pairs (x <
    y).

    Greedy: starts with the smallest remaining pair, and adds every number that is paired with all
    so far.
    """
    order = np.lexsort((y, x))
    x, y = x[order].astype(np.int64), y[order].astype(np.int64)
    starts = np.flatnonzero(np.diff(x, prepend=-1)).tolist()
    after = {int(x[i]): y[i:j] for i, j in pairwise([*starts, len(x)])}
    for a in list(after):
        row, taken = after[a], np.zeros(len(after[a]), np.bool_)
        for i in range(len(row)):
            if taken[i]:
                continue
            members, others = [a, int(row[i])], after.get(int(row[i]), NONE)
            if len(others):
                left = row[i + 1 :][~taken[i + 1 :]]
                members = _grown(members, np.intersect1d(left, others, True), after)
            taken[np.searchsorted(row, members[1:])] = True
            for k, b in enumerate(members[1:-1]):
                after[b] = np.setdiff1d(after[b], members[k + 2 :], assume_unique=True)
            yield members


def _grown(members: list[int], left: I8, after: dict[int, I8]) -> list[int]:
    """Appends to `members`, in order, the numbers of `left` that are joined to all before them."""
    while len(left) and len(members) < MOST_NODES:
        b = int(left[0])
        members.append(b)
        left = np.intersect1d(left[1:], after.get(b, NONE), assume_unique=True)
    return members


@dataclass(frozen=True, slots=True, eq=False)
class _SwitchGroups:
    """SWITCH groups between nodes, in order. number, a, b: i8[k] each group and the nodes of its
    sides; begin: i8[pairs + 1] the first group of each pair of nodes; x, y: i4[pairs] its nodes."""

    t: Topology
    number: I8
    a: I4
    b: I4
    begin: I8
    x: I4
    y: I4

    def text(self, i: int) -> str:
        """Writes group i."""
        return switch_text(self.t, int(self.number[i]))


def _switches(t: Topology) -> Iterator[str]:
    """Yields SWITCH groups, with as many equal pairs of nodes together as possible."""
    a, b = side_nodes(t)
    number = np.flatnonzero(a != b)
    a, b = a[number], b[number]
    new = (np.diff(a, prepend=-1) != 0) | (np.diff(b, prepend=-1) != 0)
    g = _SwitchGroups(t, number, a, b, np.append(np.flatnonzero(new), len(a)), a[new], b[new])
    pair = 0
    while pair < len(g.x):
        if (found := _clique(g, pair)) is None:
            groups = range(*g.begin[pair : pair + 2].tolist())
            found = [int(g.x[pair]), int(g.y[pair])], [g.text(k) for k in groups], pair + 1
        nodes, entries_text, pair = found
        yield from _joined(nodes, "switch", entries_text)


def _clique(g: _SwitchGroups, pair: int) -> tuple[list[int], list[str], int] | None:
    """Finds nodes whose pairs, in order, have equal groups from this pair on.

    Returns the nodes, the entries that all pairs have, and the next pair; None if the pair stands
    alone.
    """
    x, y = g.x, g.y
    run = pair + int(np.argmax(np.append(x[pair : pair + MOST_NODES] != x[pair], True)))
    if run - pair < 2 or run == len(x) or (x[run], y[run]) != (y[pair], y[pair + 1]):
        return None
    nodes = np.append(x[pair], y[pair:run])
    if len(np.unique(nodes)) < len(nodes):
        return None
    model = _model(g, pair, len(nodes))
    if len(model) > MOST_ENTRIES:
        return None
    end = _same(g, int(g.begin[pair]), nodes, model)
    if end is None or g.begin[after := int(np.searchsorted(g.begin, end))] != end:
        return None
    return nodes.tolist(), [g.text(k) for k in model.tolist()], after


def _model(g: _SwitchGroups, pair: int, nodes: int) -> I8:
    """Returns the groups of the pair with the fewest failures, of the pairs that may be equal."""
    pairs = np.arange(pair, min(pair + nodes * (nodes - 1) // 2, len(g.begin) - 1))
    failed = np.bincount(g.t.failed[:, 0], minlength=g.t.n_nodes) > 0
    first = g.begin[pairs]
    lost = failed[g.a[first]].astype(np.int64) + failed[g.b[first]]
    best = pairs[np.argmax(4 * (g.begin[pairs + 1] - first) - lost)]
    return np.arange(g.begin[best], g.begin[best + 1])


def _same(g: _SwitchGroups, i: int, nodes: I8, model: I8) -> int | None:
    """Returns the end of the groups from i on that are the model's for every pair of the nodes,
    apart from failed GPUs; None if they are not."""
    t = g.t
    first, second = np.triu_indices(len(nodes), 1)
    works, allowed = zip(
        *(_working(t, side, g.number[model]) for side in (t.side_a, t.side_b)), strict=True
    )
    there = (works[0][:, nodes[first]] > 0) & (works[1][:, nodes[second]] > 0)
    at, entry = np.nonzero(there.T)
    end = i + len(at)
    if end > len(g.a):
        return None
    mine = g.number[i:end]
    ends = (nodes[first[at]], t.side_a, g.a[i:end]), (nodes[second[at]], t.side_b, g.b[i:end])
    sizes = t.node_size[nodes]
    for s, (node, side, found) in enumerate(ends):
        least = int((sizes[1:] if s else sizes[:-1]).min())
        ptr, chosen = entries(side.ptr, mine)
        counts = np.diff(ptr)
        if (found != node).any() or (counts != works[s][entry, node]).any():
            return None
        member = t.local[side.index[chosen]]
        if not allowed[s][np.repeat(entry, counts), member].all() or allowed[s][:, least:].any():
            return None
    alike = mine + t.first_switch, g.number[model][entry] + t.first_switch
    for values in (t.shared.bandwidth, t.shared.parallel, t.shared.alpha):
        if (values[alike[0]] != values[alike[1]]).any():
            return None
    return end


def _working(t: Topology, side: Csr, groups: I8) -> tuple[I8, B1]:
    """Returns for each group the number of working GPUs in every node with an id that the group
    names, i8[k, N], and those ids, b1[k, widest node]."""
    named = np.zeros((len(groups), int(t.node_size.max())), np.bool_)
    for k, group in enumerate(groups.tolist()):
        named[k, t.local[side.row(group)]] = True
    counts = [np.bincount(t.node[row[t.local]], minlength=t.n_nodes) for row in named]
    return np.stack(counts), named
