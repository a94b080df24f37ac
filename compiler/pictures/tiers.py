"""tiers: the upper half of a cluster's picture: boxes for nodes, leaves and spines, lines between
them.

Lines from one box end side by side, in the order of the boxes that they lead to; if a node has
several, each end is labelled with its NICs.
"""

from __future__ import annotations

from collections.abc import Sequence

from hccc.ir import text
from hccc.pictures import palette
from hccc.pictures.canvas import SMALL, Sheet, width_of
from hccc.pictures.fabric import Edge, Fabric, TierUnit
from hccc.pictures.inter_node_links import InterNodeLink
from hccc.pictures.line_widths import LineWidths

MARGIN, GAP, LINE = 0.3, 0.22, 0.16
BETWEEN = 0.6  # tiers, inches
SPREAD = 0.7  # of a box's width: where lines end

Box = tuple[float, float, float, float]  # x, y, width, height
End = tuple[int, int]  # a tier, and a unit of it


class Tiers:
    """Tiers of boxes, the nodes lowest; below them the links of two nodes."""

    def __init__(self, net: Fabric, links: Sequence[InterNodeLink]) -> None:
        self.net = net
        units = [TierUnit(link.lines, ()) for link in links]
        self.links = list(zip(links, units, strict=True))
        self.rows = [*net.tiers, *([tuple(units)] if units else [])]
        self.up = _by_end(net.edges, high=False)
        self.down = _by_end(net.edges, high=True)
        self.widths = [
            [self._unit_width(tier, i) for i in range(len(row))]
            for tier, row in enumerate(self.rows)
        ]
        self.width = max(sum(widths) + GAP * len(widths) for widths in self.widths)
        if len(net.tiers[0]) == 1 and len(self.up.get((0, 0), ())) > 1:
            self.widths[0][0] = self.width - GAP  # its lines are then nearly parallel
        tall = [self._row_height(tier) for tier in range(len(self.rows))]
        self.height = sum(tall) + BETWEEN * (len(tall) - 1) + 0.35
        self.tall = tall

    def capacities(self) -> list[float]:
        """Returns the GB/s of all lines."""
        return [e.capacity for e in self.net.edges] + [link.capacity for link, _ in self.links]

    def draw(self, sheet: Sheet, top: float, line: LineWidths) -> float:
        """Draws below `top`; returns where the drawing ends."""
        order = [*reversed(range(len(self.net.tiers))), *range(len(self.net.tiers), len(self.rows))]
        boxes: dict[int, list[Box]] = {}
        y = top
        for tier in order:
            y -= self.tall[tier]
            boxes[tier] = self.places(tier, sheet.width, y)
            y -= BETWEEN
        for edge in self.net.edges:
            low, high = boxes[edge.tier][edge.low], boxes[edge.tier + 1][edge.high]
            xs = [self.low_end(edge, low), self._high_end(edge, high)]
            sheet.line(xs, [low[1] + low[3], high[1]], palette.FAINT, line(edge.capacity))
        if self.links:
            self._draw_links(sheet, boxes[0], boxes[len(self.net.tiers)], line)
        for tier, row in enumerate(self.rows):
            for i, (unit, at) in enumerate(zip(row, boxes[tier], strict=True)):
                self._draw_unit(sheet, unit, at, tier, i)
        return top - self.height

    def _ports(self, tier: int, i: int) -> Sequence[Edge]:
        """Returns the lines upwards of a node with several; none of any other unit."""
        edges = self.up.get((tier, i), [])
        return edges if tier == 0 and len(edges) > 1 else []

    def _unit_width(self, tier: int, i: int) -> float:
        unit = self.rows[tier][i]
        lines = max(width_of(line, SMALL, bold=k == 0) for k, line in enumerate(unit.lines))
        ports = [width_of(_port_text(edge), SMALL) + 0.12 for edge in self._ports(tier, i)]
        return max(1.0, lines + 0.2, max(ports, default=0.0) * len(ports))

    def _row_height(self, tier: int) -> float:
        """Returns the height of every box of a tier: that of its highest."""
        return max(
            0.14 + LINE * (len(unit.lines) + bool(self._ports(tier, i)))
            for i, unit in enumerate(self.rows[tier])
        )

    def places(self, tier: int, width: float, y: float) -> list[Box]:
        """Returns boxes side by side, spread over the width."""
        widths = self.widths[tier]
        spare = min((width - 2 * MARGIN - sum(widths)) / len(widths), 1.2)
        x = (width - sum(widths) - spare * len(widths)) / 2 + spare / 2
        found = []
        for w in widths:
            found.append((x, y, w, self.tall[tier]))
            x += w + spare
        return found

    def low_end(self, edge: Edge, box: Box) -> float:
        """Returns the x where a line leaves its lower box."""
        ports = self._ports(edge.tier, edge.low)
        edges = self.up[edge.tier, edge.low]
        return _at(box, edges.index(edge), len(edges), 1.0 if ports else SPREAD)

    def _high_end(self, edge: Edge, box: Box) -> float:
        edges = self.down[edge.tier + 1, edge.high]
        return _at(box, edges.index(edge), len(edges), SPREAD)

    def _draw_links(
        self, sheet: Sheet, nodes: Sequence[Box], places: Sequence[Box], line: LineWidths
    ) -> None:
        for (link, _), at in zip(self.links, places, strict=True):
            ends = [
                next(p for u, p in zip(self.net.tiers[0], nodes, strict=True) if node in u.members)
                for node in (link.a, link.b)
            ]
            for i, place in enumerate(sorted(ends)):
                xs = [_at(at, i, 2, SPREAD), place[0] + place[2] / 2]
                sheet.line(xs, [at[1] + at[3], place[1]], palette.FAINT, line(link.capacity))

    def _draw_unit(self, sheet: Sheet, unit: TierUnit, at: Box, tier: int, i: int) -> None:
        x, y, w, h = at
        edge, line = (palette.ALERT, 1.8) if unit.alert else (palette.INK, 0.8)
        fill = palette.kind(unit.kind) if tier == 0 else palette.PAPER
        fill = palette.STRIPE if tier == len(self.net.tiers) else fill
        sheet.box(at, fill, edge, line=line, tip="; ".join(unit.lines))
        ports = self._ports(tier, i)
        down = y + h - 0.07
        for k, port in enumerate(ports):
            middle = _at(at, k, len(ports), 1.0)
            sheet.text(middle, down - LINE / 2, _port_text(port), color=palette.FAINT)
        down -= LINE * bool(ports)
        for k, label in enumerate(unit.lines):
            weight = "bold" if k == 0 else "normal"
            sheet.text(x + w / 2, down - LINE * (k + 0.5), label, weight=weight)


def _port_text(edge: Edge) -> str:
    return text.named("NIC", edge.nics, 2)


def _by_end(edges: Sequence[Edge], *, high: bool) -> dict[End, list[Edge]]:
    """Returns the edges of every unit at one of their ends, in the order of their other end."""
    found: dict[End, list[Edge]] = {}
    for edge in sorted(edges, key=lambda e: (e.low, e.high)):
        end = (edge.tier + 1, edge.high) if high else (edge.tier, edge.low)
        found.setdefault(end, []).append(edge)
    return found


def _at(box: Box, i: int, n: int, share: float) -> float:
    """Returns where the i-th of n lines ends that share the middle of a box's side."""
    return box[0] + box[2] * (0.5 + share * ((i + 0.5) / n - 0.5))
