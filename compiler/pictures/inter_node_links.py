"""inter_node_links: links of two nodes besides the network: SWITCH groups (HeteCCL App. A) and
direct links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hccc.ir import text
from hccc.ir.topology import Topology
from hccc.pictures.fabric import TierUnit
from hccc.pictures.node_classes import gathered

MOST = 8


@dataclass(frozen=True, slots=True)
class InterNodeLink:
    """One or several alike groups or links between nodes a and b, counted from 0."""

    a: int
    b: int
    lines: tuple[str, ...]
    capacity: float


def inter_node_links(
    t: Topology, nodes: Sequence[TierUnit]
) -> tuple[list[InterNodeLink], list[str]]:
    """Returns the links to draw, alike ones of the same boxes together, and notes about those left
    out. O(groups + links)."""
    place = {node: i for i, unit in enumerate(nodes) for node in unit.members}

    def key(link: InterNodeLink) -> tuple[object, ...]:
        return place[link.a], place[link.b], link.lines

    found = [_together(same) for same in gathered([*_switches(t), *_links(t)], key)]
    shown = found[:MOST]
    notes = []
    if rest := found[MOST:]:
        alike = gathered(rest, lambda link: link.lines[-1])
        rates = ", ".join(f"{len(same)} of {same[0].lines[-1]}" for same in alike[:4])
        notes.append(f"Not drawn: {text.count(len(rest), 'more link')} between nodes ({rates}).")
    return shown, notes


def _together(same: list[InterNodeLink]) -> InterNodeLink:
    """Joins alike links to one."""
    first = same[0]
    if len(same) == 1:
        return first
    return replace(first, lines=(first.lines[0], f"{len(same)} alike, each:", *first.lines[1:]))


def _switches(t: Topology) -> list[InterNodeLink]:
    found = []
    for k in range(len(t.side_a)):
        a, b = t.side_a.row(k).tolist(), t.side_b.row(k).tolist()
        x, y = int(t.node[a[0]]), int(t.node[b[0]])
        if x != y:
            rate = t.shared[t.first_switch + k]
            left, right = (text.runs(t.local[side].tolist(), 3) for side in (a, b))
            if k < t.n_switches:
                lines = (f"GPUs {left} ↔ GPUs {right}", f"{text.rate(rate)} shared")
            else:
                lines = ("all routes", f"{text.rate(rate)} shared")
            found.append(InterNodeLink(x, y, lines, rate.bandwidth * rate.parallel))
    return found


def _links(t: Topology) -> list[InterNodeLink]:
    """Returns direct links between nodes, those of one pair of nodes and one rate together."""
    out = np.flatnonzero(t.node[t.link_src] != t.node[t.link_dst]).tolist()

    def key(i: int) -> tuple[object, ...]:
        return int(t.node[t.link_src[i]]), int(t.node[t.link_dst[i]]), t.links[i]

    found = []
    for same in gathered(out, key):
        x, y = int(t.node[t.link_src[same[0]]]), int(t.node[t.link_dst[same[0]]])
        rate = t.links[same[0]]
        lines = (
            f"node{x + 1} → node{y + 1}",
            f"{text.count(len(same), 'link')} of {text.rate(rate)}",
        )
        found.append(InterNodeLink(x, y, lines, rate.bandwidth * rate.parallel * len(same)))
    return found
