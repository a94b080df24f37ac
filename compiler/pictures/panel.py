"""panel: the lower half of a cluster's picture: the inside of one class of nodes."""

from __future__ import annotations

from collections.abc import Sequence

from hccc.ir import text
from hccc.ir.topology import Topology
from hccc.pictures import palette
from hccc.pictures.canvas import NORMAL, SMALL, Sheet, width_of
from hccc.pictures.line_widths import LineWidths
from hccc.pictures.node_classes import NodeClass, slower
from hccc.pictures.node_view import Arc, Hub, NodeView, SwitchGroup

COLUMN = 0.66  # inches, at least
FACT = 0.2
_GPU, _NIC, _BAR = 0.54, 0.44, 0.22  # the width of a GPU, the heights of a NIC and of a crossbar
_SWITCH = "bars: a switch that all transfers between its blue and its orange GPUs share, each way"


class Panel:
    """One class of nodes, ready to be drawn; `index` gives its colour."""

    def __init__(self, t: Topology, of: NodeClass, node: NodeView, index: int) -> None:
        self.t, self.node, self.colour = t, node, palette.kind(index)
        self.title, self.subtitle = panel_title(of), _speeds(t, of)
        self.slow = slower(t)
        span = max([abs(a.b - a.a) for a in node.arcs], default=0)
        self.arc = 0.28 + 0.16 * span if span else 0.0
        below = self.arc + 0.62 * len(node.bars) + 0.2 * len(node.switches)
        below += 0.1 * bool(node.switches)
        self.facts = [*node.facts, *([_SWITCH] if node.switches else [])]
        self.height = 0.62 + 0.76 * bool(node.nics) + 0.6 + below + FACT * len(self.facts) + 0.15
        self.column = max([COLUMN, *self._least_columns()])
        lines = [width_of(line, SMALL) for line in [self.subtitle, *self.facts]]
        lines.append(width_of(self.title, NORMAL, bold=True) + 0.25)
        right = max([width_of(_shared(s), SMALL) for s in node.switches], default=-0.1) + 0.3
        self.width = max(self.column * node.columns + 0.2 + right, max(lines) + 0.4, 2.2)

    def _least_columns(self) -> list[float]:
        """Returns the widths that columns need for their content."""
        found = [(_wide(nic) + 0.24) / len(nic.columns) for nic in self.node.nics if _adjacent(nic)]
        slow = [port for bar in self.node.bars for port in bar if self.slow[port.group]]
        return [*found, *(_wide(port) + 0.15 for port in slow)]

    def capacities(self) -> list[float]:
        """Returns the GB/s of all lines."""
        hubs = [*self.node.nics, *(port for bar in self.node.bars for port in bar)]
        arcs = [a.rate.bandwidth * a.rate.parallel for a in self.node.arcs]
        return [*(hub.capacity for hub in hubs), *arcs]

    def centre(self, column: float) -> float:
        """Returns the middle of a column."""
        return self.left + self.column * (column + 0.5)

    def draw(self, sheet: Sheet, x: float, top: float, height: float, line: LineWidths) -> None:
        """Draws it with its upper left corner there, in a frame of `height` inches."""
        self.left, self.line = x + 0.2, line
        sheet.box((x, top - height, self.width, height), palette.PAPER, palette.RULE)
        sheet.box((x + 0.15, top - 0.27, 0.16, 0.14), self.colour, palette.INK, round=0.02)
        sheet.text(x + 0.39, top - 0.2, self.title, NORMAL, ha="left", weight="bold")
        sheet.text(x + 0.15, top - 0.41, self.subtitle, ha="left", color=palette.FAINT)
        y = top - 0.62
        if self.node.nics:
            y -= 0.76
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
        for switch in self.node.switches:
            y -= 0.2
            self._draw_switch(sheet, switch, y)
        y -= 0.1 * bool(self.node.switches)
        for fact in self.facts:
            y -= FACT
            sheet.text(x + 0.15, y, fact, ha="left")

    def _draw_gpus(self, sheet: Sheet, y: float) -> None:
        for gpu in self.node.gpus:
            middle = self.centre(gpu.column)
            at = (middle - _GPU / 2, y, _GPU, 0.42)
            fill, edge = (
                (palette.PAPER, palette.ALERT) if gpu.failed else (self.colour, palette.INK)
            )
            tip = f"{gpu.below}: {'failed' if gpu.failed else 'rank ' + gpu.label}"
            sheet.box(at, fill, edge, tip=tip, linestyle="--" if gpu.failed else "-")
            ink, weight = (palette.ALERT, "normal") if gpu.failed else (palette.INK, "bold")
            points = SMALL if gpu.failed or len(gpu.label) > 4 else NORMAL
            sheet.text(middle, y + 0.29, gpu.label, points, color=ink, weight=weight)
            sheet.text(middle, y + 0.11, gpu.below, color=palette.FAINT)

    def _draw_nics(self, sheet: Sheet, y: float) -> None:
        for nic in self.node.nics:
            middle = self.centre((nic.columns[0] + nic.columns[-1]) / 2)
            whole = _adjacent(nic)
            w = self.column * len(nic.columns) - 0.08 if whole else _wide(nic) + 0.16
            slow = nic.group >= 0 and bool(self.slow[nic.group])
            edge, colour = (palette.ALERT,) * 2 if slow else (palette.INK, palette.FAINT)
            for column in nic.columns:
                x = self.centre(column)
                ends = [x, x if whole else middle]
                sheet.line(ends, [y - 0.03, y + 0.2], colour, self.line(nic.capacity))
            at = (middle - w / 2, y + 0.2, w, _NIC)
            fill, line = palette.STRIPE, 1.8 if slow else 0.8
            sheet.box(at, fill, edge, line=line, tip=": ".join(nic.lines))
            for i, label in enumerate(nic.lines):
                sheet.text(middle, y + 0.2 + _NIC * (0.72 - 0.42 * i), label, color=edge)

    def _draw_bar(self, sheet: Sheet, bar: Sequence[Hub], top: float, y: float) -> None:
        for port in bar:
            slow = bool(self.slow[port.group])
            x = self.centre(port.columns[0])
            colour = palette.ALERT if slow else palette.COPY
            sheet.line([x, x], [y + _BAR, top], colour, self.line(port.capacity))
            if slow:
                sheet.text(x + 0.05, y + 0.36, port.lines[0], ha="left", color=palette.ALERT)
        left, right = bar[0].columns[0], max(p.columns[0] for p in bar)
        at = (self.centre(left) - 0.27, y, self.column * (right - left) + 0.54, _BAR)
        sheet.box(at, palette.tint(palette.COPY, 0.18), palette.COPY, tip="crossbar")
        sheet.text(at[0] + at[2] / 2, y + _BAR / 2 - 0.005, "crossbar")

    def _draw_arc(self, sheet: Sheet, arc: Arc, y: float) -> None:
        """Draws half an ellipse below the GPUs, with an arrow at the end of a link one way."""
        a, b = self.centre(arc.a), self.centre(arc.b)
        depth = self.arc * (abs(arc.b - arc.a) / max(abs(x.b - x.a) for x in self.node.arcs)) - 0.06
        shift = 0.0 if arc.both else 0.07 if b > a else -0.07
        steps = [i / 24 for i in range(25)]
        xs = [a + shift + (b - a) * (3 * s * s - 2 * s**3) for s in steps]
        ys = [y - max(depth - abs(shift), 0.1) * (4 * s * (1 - s)) ** 0.6 for s in steps]
        sheet.line(
            xs, ys, palette.COPY, self.line(arc.rate.bandwidth * arc.rate.parallel), alpha=0.75
        )
        if not arc.both:
            style = {"arrowstyle": "-|>", "color": palette.COPY, "shrinkA": 0, "shrinkB": 0}
            tip, tail = (xs[-1], ys[-1]), (xs[-3], ys[-3])
            sheet.axes.annotate("", tip, tail, arrowprops=style)

    def _draw_switch(self, sheet: Sheet, switch: SwitchGroup, y: float) -> None:
        for side, colour in ((switch.a, palette.COPY), (switch.b, palette.REDUCE)):
            for column in side:
                at = (self.centre(column) - _GPU / 2, y + 0.02, _GPU, 0.13)
                sheet.box(at, palette.tint(colour, 0.75), colour, round=0, line=0.5)
        end = self.centre(self.node.columns - 0.5)
        sheet.text(end, y + 0.085, _shared(switch), ha="left")


def panel_title(of: NodeClass) -> str:
    """Writes `node1` or `node1 × 3 more: node2–node4`."""
    name = f"node{of.first + 1}"
    if more := of.nodes[1:]:
        name += f" × {len(more)} more: {text.nodes(more, 4)}"
    return name


def _speeds(t: Topology, of: NodeClass) -> str:
    start = int(t.first_rank[of.first])
    if start == t.first_rank[of.first + 1]:
        return "no GPU works"
    d = t.devices[t.device[start]]
    vendor = "" if d.vendor == "any" else f"{d.vendor} "
    speeds = f"reduces {text.number(d.reduce)} GB/s, {text.number(d.store)} GB/s a thread block"
    return f"{vendor}{d.name}: {speeds}"


def _shared(switch: SwitchGroup) -> str:
    return f"{text.rate(switch.rate)} shared"


def _wide(hub: Hub) -> float:
    return max(width_of(line, SMALL) for line in hub.lines)


def _adjacent(hub: Hub) -> bool:
    """Tells whether no other column stands between its columns."""
    return hub.columns[-1] - hub.columns[0] + 1 == len(hub.columns)
