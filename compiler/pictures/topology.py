"""topology: the picture of a cluster: its network in tiers, and the inside of every class of nodes.

Nodes that are alike are drawn once. Line widths grow with capacity; parts slower than their peers
(a degraded NIC, port or uplink) and failed GPUs are marked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hccc.ir import text
from hccc.ir.topology import Topology
from hccc.pictures import palette
from hccc.pictures.canvas import NOTE, Picture, Sheet, settings, width_around
from hccc.pictures.fabric import fabric
from hccc.pictures.inter_node_links import inter_node_links
from hccc.pictures.legend import ROW as LEGEND_ROW
from hccc.pictures.legend import LegendEntry, draw_legend, legend_rows
from hccc.pictures.line_widths import LineWidths
from hccc.pictures.node_classes import NodeClass, node_classes, slower
from hccc.pictures.node_view import node_view
from hccc.pictures.panel import Panel
from hccc.pictures.tiers import GAP, MARGIN, Tiers

WIDEST = 13.5  # inches; what is wider goes into the next row
CLASSES = 9  # of nodes that are drawn from the inside
DOMAINS, DOMAIN_NODES = 6, 4  # memory domains, and runs of nodes of one, that are named


@settings()
def topology(t: Topology, name: str = "cluster", note: str = "") -> Picture:
    """Draws a Topology, with `note` below it. O(its size); the drawing is bounded."""
    classes = node_classes(t)
    net = fabric(t, classes)
    links, notes = inter_node_links(t, net.tiers[0] if net else ())
    panels = [Panel(t, c, node_view(t, c.first), i) for i, c in enumerate(classes[:CLASSES])]
    if more := classes[CLASSES:]:
        notes.append(f"Not drawn from the inside: {text.count(len(more), 'more class')} of nodes.")
    notes += [
        *(net.notes if net else ()),
        *_memory_note(t),
        "Large numbers are ranks; rates are each way.",
    ]
    notes += [note] if note else []
    tiers = Tiers(net, links) if net else None
    title = f"{text.clean(name, 48)}: {_title(t)}"
    rows = _rows(panels)
    widths = [tiers.width if tiers else 0.0, *(_row_width(row) for row in rows)]
    width = max(max(widths) + 2 * MARGIN, width_around(title, notes))
    line = LineWidths.of(
        [*(tiers.capacities() if tiers else []), *(c for p in panels for c in p.capacities())]
    )
    legend = legend_rows(_legend(t, classes, line), width - 2 * MARGIN)
    height = sum(_row_height(row) + GAP for row in rows) + (tiers.height if tiers else 0.0)
    height += 0.75 + LEGEND_ROW * len(legend) + NOTE * len(notes) + 0.15
    sheet = Sheet(width, height)
    sheet.heading(title)
    draw_legend(sheet, legend, height - 0.6)
    y = height - 0.65 - LEGEND_ROW * len(legend)
    if tiers:
        y = tiers.draw(sheet, y, line)
    for row in rows:
        x = MARGIN
        for panel in row:
            panel.draw(sheet, x, y, _row_height(row), line)
            x += panel.width + GAP
        y -= _row_height(row) + GAP
    sheet.notes(notes, MARGIN)
    return sheet.picture("topology", title, f"The cluster: {_title(t)}.")


def _title(t: Topology) -> str:
    devices = dict.fromkeys(f"{d.vendor} {d.name}".removeprefix("any ") for d in t.devices)
    names = [text.clean(device, 32) for device in devices]
    if len(names) > 3:
        names[2:] = [text.count(len(names) - 2, "other device")]
    lost = f", {text.count(len(t.failed), 'GPU')} failed" if len(t.failed) else ""
    nodes = text.count(t.n_nodes, "node")
    return f"{text.count(len(t), 'rank')} in {nodes}, {' and '.join(names)}{lost}"


def _legend(t: Topology, classes: Sequence[NodeClass], line: LineWidths) -> list[LegendEntry]:
    """Returns colours of nodes if there are several, the mark of slow parts, and line widths."""
    found = []
    if len(classes) > 1:
        own = len(palette.KINDS)
        found = [
            LegendEntry(_class_text(t, c), palette.kind(i), palette.INK)
            for i, c in enumerate(classes[:own])
        ]
        if classes[own:]:
            found.append(LegendEntry("other classes of nodes", palette.kind(own), palette.INK))
    if slower(t).any() or len(t.failed):
        found.append(LegendEntry("slower than its peers, or failed", palette.PAPER, palette.ALERT))
    return [*found, *line.legend()]


def _memory_note(t: Topology) -> Iterator[str]:
    """Yields the nodes that are one memory domain, unless every node is one of its own."""
    node, first = np.unique(t.node, return_index=True)
    domain = t.memory_domain[first]
    of: list[list[int]] = [node[domain == d].tolist() for d in np.unique(domain)]
    joint = [nodes for nodes in of if len(nodes) > 1]
    if not joint:
        return
    named = [text.nodes(nodes, DOMAIN_NODES) for nodes in joint[:DOMAINS]]
    if more := joint[DOMAINS:]:
        named.append(f"{len(more):,} more of several nodes")
    if alone := len(of) - len(joint):
        named.append(text.count(alone, "node") + " alone")
    yield f"Memory domains: {'; '.join(named)}."


def _class_text(t: Topology, of: NodeClass) -> str:
    """Describes a class of nodes: `node1, node2: 8 × H20`."""
    first = int(t.first_rank[of.first])
    alive = int(t.first_rank[of.first + 1]) - first
    device = text.clean(t.devices[t.device[first]].name, 24) if alive else "GPU"
    return f"{text.nodes(of.nodes, 2)}: {alive} × {device}"


def _rows(panels: Sequence[Panel]) -> list[list[Panel]]:
    rows: list[list[Panel]] = []
    for panel in panels:
        if rows and _row_width(rows[-1]) + GAP + panel.width <= WIDEST:
            rows[-1].append(panel)
        else:
            rows.append([panel])
    return rows


def _row_width(row: Sequence[Panel]) -> float:
    return sum(p.width + GAP for p in row) - GAP


def _row_height(row: Sequence[Panel]) -> float:
    return max(p.height for p in row)
