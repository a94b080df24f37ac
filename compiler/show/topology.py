"""The picture of a cluster: its network in tiers, and every kind of node from the inside.

Nodes that are alike are drawn once. Line widths grow with capacity; what is slower than its peers
(a degraded NIC, port or uplink) and failed GPUs are marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hccc import text
from hccc.ir.topology import Topology
from hccc.show import palette
from hccc.show.canvas import Picture, Sheet, settings, width_around, width_of
from hccc.show.fabric import Fabric, Unit, fabric
from hccc.show.inter_node_links import InterNodeLink, inter_node_links
from hccc.show.node_classes import NodeClass, node_classes, slower
from hccc.show.node_view import COLUMN, Arc, Hub, NodeView, Strip, node_view

MARGIN, GAP, LINE = 0.3, 0.22, 0.15
WIDEST = 13.5  # inches; what is wider goes into the next row
KINDS = 9  # kinds of node that are drawn from the inside
BETWEEN = 0.55  # tiers, inches
_THIN, _THICK = 0.7, 3.6  # points


@dataclass(frozen=True, slots=True)
class _Widths:
    """Points of a line for GB/s, by the square root: 2 to 900 GB/s must all be seen."""

    most: float

    def __call__(self, capacity: float) -> float:
        return _THIN + (_THICK - _THIN) * float((capacity / self.most) ** 0.5)


@settings()
def topology(t: Topology, name: str = "cluster", note: str = "") -> Picture:
    """A Topology drawn, `note` below it. O(its size); what is drawn is bounded."""
    kinds = node_classes(t)
    net = fabric(t, kinds)
    joined, notes = inter_node_links(t, net.tiers[0] if net else ())
    panels = [_Panel(t, kind, node_view(t, kind.first), i) for i, kind in enumerate(kinds[:KINDS])]
    if more := kinds[KINDS:]:
        notes.append(f"Not drawn from the inside: {text.count(len(more), 'more kind')} of node.")
    notes += [*(net.notes if net else ()), *_marks(t), *([note] if note else [])]
    rows = _rows(panels)
    top = _Tiers(net, joined) if net else None
    title = f"{text.clean(name, 48)}: {_title(t)}"
    widths = [top.width if top else 0.0, *(_row_width(row) for row in rows)]
    width = max(max(widths) + 2 * MARGIN, width_around(title, notes))
    height = sum(max(p.height for p in row) + GAP for row in rows) + (top.height if top else 0.0)
    height += 0.75 + 0.17 * len(notes) + 0.3
    sheet = Sheet(width, height)
    sheet.heading(title)
    y = height - 0.62
    if top:
        y = top.draw(sheet, y)
    for row in rows:
        x = MARGIN
        for panel in row:
            panel.draw(sheet, x, y)
            x += panel.width + GAP
        y -= max(p.height for p in row) + GAP
    sheet.notes(notes)
    return sheet.picture("topology", title, f"The cluster: {_title(t)}.")


def _title(t: Topology) -> str:
    kinds = dict.fromkeys(f"{d.vendor} {d.name}".removeprefix("any ") for d in t.devices)
    names = [text.clean(kind, 32) for kind in kinds]
    if len(names) > 3:
        names[2:] = [text.count(len(names) - 2, "other device")]
    lost = f", {text.count(len(t.failed), 'GPU')} failed" if len(t.failed) else ""
    nodes = text.count(t.n_nodes, "node")
    return f"{text.count(len(t), 'rank')} in {nodes}, {' and '.join(names)}{lost}"


def _marks(t: Topology) -> list[str]:
    found = ["Large numbers are ranks. The wider a line, the more capacity; rates are each way."]
    if slower(t).any() or len(t.failed):
        found.append("Red: slower than its peers, or failed.")
    return found


class _Tiers:
    """The upper part: tiers of boxes, the nodes lowest, joints of two nodes below them."""

    def __init__(self, net: Fabric, joined: Sequence[InterNodeLink]) -> None:
        self.net = net
        units = [_joint_unit(j) for j in joined]
        self.joined = list(zip(joined, units, strict=True))
        self.rows = [*net.tiers, *([tuple(units)] if units else [])]
        self.width = max(sum(_unit_width(u) + GAP for u in row) for row in self.rows)
        tall = [max(_unit_height(u) for u in row) for row in self.rows]
        self.height = sum(tall) + BETWEEN * (len(tall) - 1) + 0.35
        order = [*reversed(tall[: len(net.tiers)]), *tall[len(net.tiers) :]]
        ends = [sum(order[: i + 1]) + BETWEEN * i for i in range(len(order))]
        self.down = [*reversed(ends[: len(net.tiers)]), *ends[len(net.tiers) :]]
        most = max([e.capacity for e in net.edges] + [j.capacity for j in joined], default=1.0)
        self.line = _Widths(max(most, 1e-9))

    def draw(self, sheet: Sheet, top: float) -> float:
        """Draws below `top`; returns where it ends."""
        tiers = len(self.net.tiers)
        boxes = [
            _places(row, sheet.width, top - self.down[i]) for i, row in enumerate(self.net.tiers)
        ]
        for edge in self.net.edges:
            low, high = boxes[edge.tier][edge.low], boxes[edge.tier + 1][edge.high]
            ends = [low[0] + low[2] / 2, high[0] + high[2] / 2], [low[1] + low[3], high[1]]
            sheet.line(*ends, palette.FAINT, self.line(edge.capacity))
        if self.joined:
            self._draw_joints(sheet, boxes[0], top - self.down[tiers])
        for tier, (row, places) in enumerate(zip(self.net.tiers, boxes, strict=True)):
            for unit, at in zip(row, places, strict=True):
                _draw_unit(sheet, unit, at, _kind_colour(unit.kind) if tier == 0 else "#FFFFFF")
        return top - self.height

    def _draw_joints(
        self, sheet: Sheet, nodes: Sequence[tuple[float, float, float, float]], y: float
    ) -> None:
        places = _places([unit for _, unit in self.joined], sheet.width, y)
        for (joint, unit), at in zip(self.joined, places, strict=True):
            for node in (joint.a, joint.b):
                place = next(
                    p for u, p in zip(self.net.tiers[0], nodes, strict=True) if node in u.members
                )
                xs = [at[0] + at[2] / 2, place[0] + place[2] / 2]
                sheet.line(xs, [at[1] + at[3], place[1]], palette.FAINT, self.line(joint.capacity))
            _draw_unit(sheet, unit, at, "#F2F2F2")


def _joint_unit(joint: InterNodeLink) -> Unit:
    return Unit(joint.lines, ())


def _kind_colour(kind: int) -> str:
    return palette.tint(palette.KINDS[kind % len(palette.KINDS)], 0.32)


def _unit_width(unit: Unit) -> float:
    return max(1.0, max(width_of(label, 7.8) for label in unit.lines) + 0.2)


def _unit_height(unit: Unit) -> float:
    return 0.14 + LINE * len(unit.lines)


def _places(row: Sequence[Unit], width: float, y: float) -> list[tuple[float, float, float, float]]:
    """Boxes side by side, spread over the width."""
    if not row:
        return []
    widths = [_unit_width(unit) for unit in row]
    spare = min((width - 2 * MARGIN - sum(widths)) / len(row), 1.2)
    x = (width - sum(widths) - spare * len(row)) / 2 + spare / 2
    found = []
    for unit, w in zip(row, widths, strict=True):
        found.append((x, y, w, _unit_height(unit)))
        x += w + spare
    return found


def _draw_unit(sheet: Sheet, unit: Unit, at: tuple[float, float, float, float], fill: str) -> None:
    x, y, w, h = at
    edge, line = (palette.ALERT, 1.8) if unit.alert else (palette.INK, 0.8)
    sheet.box(at, fill, edge, line=line, tip="; ".join(unit.lines))
    for i, label in enumerate(unit.lines):
        weight = "bold" if i == 0 else "normal"
        sheet.text(x + w / 2, y + h - 0.07 - LINE * (i + 0.5), label, 7.5, weight=weight)


class _Panel:
    """One kind of node from the inside."""

    def __init__(self, t: Topology, kind: NodeClass, node: NodeView, colour: int) -> None:
        self.t, self.node, self.colour = t, node, _kind_colour(colour)
        self.lines = _panel_title(t, kind)
        self.slow = slower(t)
        span = max([abs(a.b - a.a) for a in node.arcs], default=0)
        self.arc = 0.28 + 0.16 * span if span else 0.0
        below = self.arc + 0.62 * len(node.bars) + 0.2 * len(node.strips)
        below += 0.1 * bool(node.strips)
        self.facts = [*node.facts, *([_STRIP] if node.strips else [])]
        self.height = 0.62 + 0.72 * bool(node.nics) + 0.6 + below + 0.2 * len(self.facts) + 0.2
        words_wide = max(width_of(label, 7.5) for label in [*self.facts, *self.lines, ""])
        right = 1.25 if node.strips else 0.2
        self.width = max(COLUMN * node.columns + 0.2 + right, words_wide + 0.4, 2.2)
        caps = [n.capacity for n in node.nics] + [p.capacity for b in node.bars for p in b]
        caps += [a.rate.bandwidth * a.rate.lanes for a in node.arcs]
        self.line = _Widths(max([*caps, 1e-9]))

    def centre(self, column: float) -> float:
        """The middle of a column."""
        return self.left + COLUMN * (column + 0.5)

    def draw(self, sheet: Sheet, x: float, top: float) -> None:
        """Draws it with its upper left corner there."""
        self.left = x + 0.2
        sheet.box((x, top - self.height, self.width, self.height), "#FFFFFF", palette.RULE)
        sheet.text(x + 0.15, top - 0.2, self.lines[0], 9, ha="left", weight="bold")
        sheet.text(x + 0.15, top - 0.39, self.lines[1], 7.5, ha="left", color=palette.FAINT)
        y = top - 0.62
        if self.node.nics:
            y -= 0.72
            self._draw_nics(sheet, y)
        y -= 0.45
        self._draw_gpus(sheet, y)
        below = y - 0.04
        for arc in self.node.arcs:
            self._draw_arc(sheet, arc, below)
        y = below - self.arc
        for bar in self.node.bars:
            self._draw_bar(sheet, bar, below, y - 0.5)
            y -= 0.62
        for strip in self.node.strips:
            y -= 0.2
            self._draw_strip(sheet, strip, y)
        y -= 0.1 * bool(self.node.strips)
        for fact in self.facts:
            y -= 0.2
            sheet.text(x + 0.15, y, fact, 7.5, ha="left")

    def _draw_gpus(self, sheet: Sheet, y: float) -> None:
        for gpu in self.node.gpus:
            at = (self.centre(gpu.column) - 0.27, y, 0.54, 0.42)
            fill, edge = ("#FFFFFF", palette.ALERT) if gpu.failed else (self.colour, palette.INK)
            tip = f"{gpu.below}: {'failed' if gpu.failed else 'rank ' + gpu.label}"
            sheet.box(at, fill, edge, tip=tip, linestyle="--" if gpu.failed else "-")
            ink = palette.ALERT if gpu.failed else palette.INK
            points = 7 if gpu.failed or len(gpu.label) > 4 else 9
            weight = "normal" if gpu.failed else "bold"
            sheet.text(at[0] + 0.27, y + 0.27, gpu.label, points, color=ink, weight=weight)
            sheet.text(at[0] + 0.27, y + 0.1, gpu.below, 6, color=palette.FAINT)

    def _draw_nics(self, sheet: Sheet, y: float) -> None:
        for nic in self.node.nics:
            middle = (nic.columns[0] + nic.columns[-1]) / 2
            whole = nic.columns[-1] - nic.columns[0] + 1 == len(nic.columns)
            w = COLUMN * len(nic.columns) - 0.08 if whole else 0.8
            slow = nic.group >= 0 and bool(self.slow[nic.group])
            edge = palette.ALERT if slow else palette.INK
            colour = palette.ALERT if slow else palette.FAINT
            for column in nic.columns:
                x = self.centre(column)
                ends = [x, x if whole else self.centre(middle)]
                sheet.line(ends, [y - 0.03, y + 0.2], colour, self.line(nic.capacity))
            at = (self.centre(middle) - w / 2, y + 0.2, w, 0.4)
            sheet.box(at, "#F4F5F6", edge, line=1.8 if slow else 0.8, tip=": ".join(nic.lines))
            for i, label in enumerate(nic.lines):
                points = 7.5 if width_of(label, 7.5) < w - 0.04 else 6
                sheet.text(self.centre(middle), y + 0.5 - 0.18 * i, label, points, color=edge)

    def _draw_bar(self, sheet: Sheet, bar: Sequence[Hub], top: float, y: float) -> None:
        for port in bar:
            slow = bool(self.slow[port.group])
            x = self.centre(port.columns[0])
            colour = palette.ALERT if slow else palette.COPY
            sheet.line([x, x], [y + 0.22, top], colour, self.line(port.capacity))
            if slow:
                sheet.text(x + 0.05, y + 0.36, port.lines[0], 6, ha="left", color=palette.ALERT)
        left, right = bar[0].columns[0], max(p.columns[0] for p in bar)
        at = (self.centre(left) - 0.27, y, COLUMN * (right - left) + 0.54, 0.22)
        sheet.box(at, palette.tint(palette.COPY, 0.18), palette.COPY, tip="crossbar")
        sheet.text(at[0] + at[2] / 2, y + 0.105, "crossbar", 7)

    def _draw_arc(self, sheet: Sheet, arc: Arc, y: float) -> None:
        """Half an ellipse below the GPUs; an arrow at the end of a link one way."""
        a, b = self.centre(arc.a), self.centre(arc.b)
        depth = self.arc * (abs(arc.b - arc.a) / max(abs(x.b - x.a) for x in self.node.arcs)) - 0.06
        shift = 0.0 if arc.both else 0.07 if b > a else -0.07
        steps = [i / 24 for i in range(25)]
        xs = [a + shift + (b - a) * (3 * s * s - 2 * s**3) for s in steps]
        ys = [y - max(depth - abs(shift), 0.1) * (4 * s * (1 - s)) ** 0.6 for s in steps]
        sheet.line(xs, ys, palette.COPY, self.line(arc.rate.bandwidth * arc.rate.lanes), alpha=0.75)
        if not arc.both:
            style = {"arrowstyle": "-|>", "color": palette.COPY, "shrinkA": 0, "shrinkB": 0}
            tip, tail = (xs[-1], ys[-1]), (xs[-3], ys[-3])
            sheet.axes.annotate("", tip, tail, arrowprops=style)

    def _draw_strip(self, sheet: Sheet, strip: Strip, y: float) -> None:
        for side, colour in ((strip.a, palette.COPY), (strip.b, palette.REDUCE)):
            for column in side:
                at = (self.centre(column) - 0.27, y + 0.02, 0.54, 0.13)
                sheet.box(at, palette.tint(colour, 0.75), colour, round=0, line=0.5)
        label = f"{text.rate(strip.rate)} shared"
        sheet.text(self.centre(self.node.columns - 0.4), y + 0.085, label, 7, ha="left")


_STRIP = "bars: a switch that all transfers between its blue and its orange GPUs share, each way"


def _panel_title(t: Topology, kind: NodeClass) -> tuple[str, str]:
    first = kind.first
    name = f"node{first + 1}"
    if more := kind.nodes[1:]:
        name += f" × {len(more)} more: {text.nodes(more, 4)}"
    start = int(t.first_rank[first])
    if start == t.first_rank[first + 1]:
        return name, "no GPU works"
    d = t.devices[t.device[start]]
    vendor = "" if d.vendor == "any" else f"{d.vendor} "
    speeds = f"reduces {text.number(d.reduce)} GB/s, {text.number(d.block)} GB/s a thread block"
    return name, f"{vendor}{d.name}: {speeds}"


def _rows(panels: Sequence[_Panel]) -> list[list[_Panel]]:
    rows: list[list[_Panel]] = []
    for panel in panels:
        if rows and _row_width(rows[-1]) + GAP + panel.width <= WIDEST:
            rows[-1].append(panel)
        else:
            rows.append([panel])
    return rows


def _row_width(row: Sequence[_Panel]) -> float:
    return sum(p.width + GAP for p in row) - GAP
