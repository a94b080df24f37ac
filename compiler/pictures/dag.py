"""dag: the picture of a Dag: the transfers of one chunk and their dependencies, in layers of depth.

Chunks whose DAGs are alike (`chunk_classes`) are drawn once. Of many transfers those among some
ranks are drawn, of many layers the first and the last. Data flows along whole lines; a dotted line
is from a read to a later overwrite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hccc.ir import text
from hccc.ir.dag import SOURCE_INITIAL, Dag
from hccc.ir.program import Op, Program
from hccc.pictures import palette
from hccc.pictures.canvas import (
    LARGE,
    NOTE,
    SMALL,
    Picture,
    Sheet,
    settings,
    width_around,
    width_of,
)
from hccc.pictures.chunk_classes import ChunkClass, chunk_classes
from hccc.pictures.legend import LegendEntry, draw_legend
from hccc.pictures.routes import BoxColumn, EdgeRoutes, Point
from hccc.pictures.source_lines import of_lines

TASKS, LAYERS, TALL = 64, 14, 24  # drawn at most
HEAD = 8
ROW, HEIGHT, GAP = 0.4, 0.28, 0.42  # inches
HEAD_LONG = 0.08
_OPS = {Op.RECV: ("copy", palette.COPY), Op.RRC: ("reduce", palette.REDUCE)}


Boxes = dict[str, tuple[float, float, float]]  # x of the left edge, y of the middle, width


@dataclass(frozen=True, slots=True)
class Node:
    """A box: one transfer, from one line of the program, or several that are not drawn one by one
    (`op` None, `line` 0)."""

    label: str
    op: Op | None
    tip: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class Drawing:
    """Layers of nodes, and edges between their names (the tasks they stand for)."""

    nodes: dict[str, Node]
    layers: list[list[str]]
    edges: dict[tuple[str, str], bool]  # True: data flows along it
    depth: int
    left_out: str


@settings()
def dag(value: Dag) -> Picture:
    """Draws a Dag. O(tasks log tasks) to find what is alike; the drawing is bounded."""
    name = text.clean(value.program.name, 48)
    found = chunk_classes(value)
    title = f"{name}: dependencies"
    if not found:
        sheet = Sheet(5, 1)
        sheet.text(0.3, 0.6, f"{name}: no transfers", LARGE, ha="left")
        return sheet.picture("dag", title, "The program has no transfers.")
    chunk_class = found[0]
    drawing = _drawing(value, chunk_class)
    boxes = _placed(drawing)
    curves = _curves(drawing, boxes)
    wide = max(x + w for x, _, w in boxes.values()) + 0.3
    low, high = _extent(boxes, curves)
    lines = [*([drawing.left_out] if drawing.left_out else []), *_notes(found)]
    says = f"Chunk {chunk_class.chunks[0]}: {text.count(len(chunk_class.tasks), 'transfer')} in"
    says += f" {text.count(drawing.depth, 'layer')}"
    height = high - low + 1.75 + NOTE * len(lines)
    head = f"{name}: what each transfer of a chunk waits for"
    sheet = Sheet(max(wide, width_around(head, lines), 6.5), height)
    sheet.heading(head, says)
    draw_legend(sheet, [_legend(drawing)], height - 0.82)
    _draw(sheet, drawing, boxes, curves, height - 1.2 - high)
    sheet.notes(lines, 0.3)
    return sheet.picture("dag", title, says + ".")


def _notes(found: list[ChunkClass]) -> list[str]:
    first, others = found[0], found[1:]
    alike, total = len(first.chunks), sum(len(s.chunks) for s in found)
    if not others:
        only = "It is the only chunk."
        return [
            f"All {total:,} chunks are alike but for the names of ranks." if alike > 1 else only
        ]
    sizes = ", ".join(
        f"{text.count(len(s.chunks), 'chunk')} of {text.count(len(s.tasks), 'transfer')}"
        for s in others[:4]
    )
    more = ", …" if len(others) > 4 else ""
    here = f"No two of the {total:,} chunks are alike."
    if alike > 1:
        here = f"{alike:,} of {total:,} chunks are alike but for the names of ranks: this one and "
        here += f"{text.named('chunk', first.chunks[1:], 4)}."
    return [here, f"Not drawn: {text.count(len(others), 'other class')} ({sizes}{more})."]


def _legend(d: Drawing) -> list[LegendEntry]:
    """Returns samples of the operations that occur."""
    ops = {node.op for node in d.nodes.values()}
    found = [
        LegendEntry(what, palette.tint(colour, 0.28), colour)
        for op, (what, colour) in _OPS.items()
        if op in ops
    ]
    dotted = "" if all(d.edges.values()) else "; dotted: read before it is written over"
    return [*found, LegendEntry(f"source → destination rank{dotted}")]


def _drawing(value: Dag, chunk_class: ChunkClass) -> Drawing:
    """Returns the part of a chunk's DAG to draw."""
    tasks = chunk_class.tasks.tolist()
    preds = {task: value.preds.row(task).tolist() for task in tasks}
    layer_of: dict[int, int] = {}
    for task in tasks:  # predecessors come first
        layer_of[task] = max((layer_of[p] + 1 for p in preds[task]), default=0)
    n_layers = max(layer_of.values()) + 1
    everything: list[list[int]] = [[] for _ in range(n_layers)]
    for task in tasks:
        everything[layer_of[task]].append(task)
    ranks, chosen = _chosen(value.program, tasks)
    layers = [found for layer in everything if (found := sorted(chosen.intersection(layer)))]
    left_out = ""
    if len(chosen) < len(tasks):
        among = f"transfers among {text.named('rank', ranks)}" if ranks else "first transfers"
        left_out = f"Drawn: the {len(chosen)} {among}."
        left_out += f" Left out: {len(tasks) - len(chosen):,} others of this chunk."
    d = Drawing({}, [], {}, n_layers, left_out)
    name: dict[int, str] = {}
    cut = range(HEAD, len(layers) - (LAYERS - HEAD - 1)) if len(layers) > LAYERS else range(0)
    for i, layer in enumerate(layers):
        if i not in cut:
            name |= _layer(d, value.program, layer, f"rest {i}")
            continue
        if i == cut.start:
            left = sum(len(layers[k]) for k in cut)
            label = f"… {len(cut):,} layers, {left:,} transfers …"
            d.nodes["cut"] = Node(label, None, label)
            d.layers.append(["cut"])
        name |= dict.fromkeys(layer, "cut")
    for b in name:
        used = _flows(value, b)
        for a in preds[b]:
            if a in name and name[a] != name[b]:
                pair = name[a], name[b]
                d.edges[pair] = d.edges.get(pair, False) or a in used
    return d


def _layer(d: Drawing, program: Program, layer: list[int], rest: str) -> dict[int, str]:
    """Adds a layer; returns the node that each of its tasks became. `rest`: of those not drawn
    alone."""
    drawn = layer if len(layer) <= TALL else layer[: TALL - 1]
    name = dict.fromkeys(layer[len(drawn) :], rest)
    for task in drawn:
        t = program.transfers[task]
        op, label = Op(int(t["op"])), f"{t['src']} → {t['dst']}"
        tip = f"{_OPS[op][0]} {label}, step {t['step']}, line {t['line']}"
        name[task] = str(task)
        d.nodes[str(task)] = Node(label, op, tip, int(t["line"]))
    d.layers.append([str(task) for task in drawn])
    if len(drawn) < len(layer):
        more = f"+ {len(layer) - len(drawn):,} more"
        d.nodes[rest] = Node(more, None, "not drawn one by one")
        d.layers[-1].append(rest)
    return name


def _chosen(program: Program, tasks: list[int]) -> tuple[list[int], set[int]]:
    """Chooses ranks, from the node of the first transfer on, as many as keep the transfers among
    them few."""
    if len(tasks) <= TASKS:
        return [], set(tasks)
    t = program.transfers[tasks]
    n, size = program.collective.n_ranks, program.gpus_per_node
    first = int(t["dst"][0]) // size * size
    reach = np.maximum((t["src"] - first) % n, (t["dst"] - first) % n)
    last = int(np.sort(reach)[TASKS])  # with this rank they would be too many
    last = last // size * size or last  # whole nodes
    found = {task for task, far in zip(tasks, reach.tolist(), strict=True) if far < last}
    if not found:
        return [], set(tasks[:TASKS])
    return [(first + i) % n for i in range(last)], found


def _flows(value: Dag, b: int) -> set[int]:
    """Returns the predecessors whose data task b uses; the others only must not be overwritten
    early."""
    t, preds = value.program.transfers, value.preds.row(b)
    before, y = t[preds], t[b]
    into = before["dst"] == y["dst"] if y["op"] == Op.RRC else np.zeros(len(preds), np.bool_)
    read = before["dst"] == y["src"]
    if value.initial[b] & SOURCE_INITIAL:
        read[:] = False
    elif read.any():  # earlier writers are there for another reason
        read &= before["step"] == before["step"][read].max()
    return set(preds[into | read].tolist())


def _placed(d: Drawing) -> Boxes:
    """Returns x of the left edge, y of the middle, width of every node; y counts upwards from any
    0."""
    before: dict[str, list[str]] = {name: [] for name in d.nodes}
    after: dict[str, list[str]] = {name: [] for name in d.nodes}
    for (a, b), flows in sorted(d.edges.items()):
        if flows:
            before[b].append(a)
            after[a].append(b)
    y: dict[str, float] = {}
    for sweep in range(6):  # each layer to the middle of its neighbours, there and back
        there = sweep % 2 == 0
        for layer in d.layers if there else reversed(d.layers):
            near = before if there else after
            _spread(layer, {n: [y[m] for m in near[n] if m in y] for n in layer}, y)
    _spread(d.layers[0], {n: [y[m] for m in after[n]] for n in d.layers[0]}, y)
    x = 0.3
    placed: Boxes = {}
    for layer in d.layers:
        wide = max(width_of(d.nodes[n].label, SMALL) for n in layer) + 0.16
        placed |= {n: (x, y[n], wide) for n in layer}
        x += wide + GAP
    return placed


def _spread(layer: list[str], wanted: dict[str, list[float]], y: dict[str, float]) -> None:
    """Sets a layer near the wanted places, ROW apart, with its middle at their mean."""
    wish = {n: sum(w) / len(w) if (w := wanted[n]) else y.get(n, 0.0) for n in layer}
    layer.sort(key=lambda n: wish[n])
    at: list[float] = []
    for n in layer:
        at.append(max(wish[n], at[-1] + ROW) if at else wish[n])
    shift = sum(at) / len(at) - sum(wish.values()) / len(wish)
    for n, value in zip(layer, at, strict=True):
        y[n] = value - shift


def _curves(d: Drawing, boxes: Boxes) -> dict[tuple[str, str], list[Point]]:
    """Returns the curve of every edge; those that data flows along choose first."""
    columns = []
    for layer in d.layers:
        x, _, wide = boxes[layer[0]]
        columns.append(BoxColumn(x, x + wide, np.array([boxes[n][1] for n in layer])))
    routes, found = EdgeRoutes(columns, HEIGHT), {}
    layer_of = {n: i for i, layer in enumerate(d.layers) for n in layer}
    for a, b in sorted(d.edges, key=lambda edge: (not d.edges[edge], edge)):
        (xa, ya, wa), (xb, yb, _) = boxes[a], boxes[b]
        skipped = range(layer_of[a] + 1, layer_of[b])
        found[a, b] = routes.route((xa + wa, ya), (xb - HEAD_LONG, yb), skipped)
    return found


def _extent(boxes: Boxes, curves: dict[tuple[str, str], list[Point]]) -> tuple[float, float]:
    """Returns the least and the greatest y of the drawing."""
    ys = [y for _, y, _ in boxes.values()] + [y for curve in curves.values() for _, y in curve]
    return min(ys), max(ys)


def _draw(
    sheet: Sheet, d: Drawing, boxes: Boxes, curves: dict[tuple[str, str], list[Point]], down: float
) -> None:
    for edge, curve in curves.items():
        _edge(sheet, [(x, y + down) for x, y in curve], d.edges[edge])
    for name, (x, y, w) in boxes.items():
        node, at = d.nodes[name], (x, y + down - HEIGHT / 2, w, HEIGHT)
        colour = _OPS[node.op][1] if node.op is not None else palette.FAINT
        fill = palette.tint(colour, 0.28) if node.op is not None else palette.PAPER
        style = "-" if node.op is not None else "--"
        sheet.box(
            at, fill, colour, tip=node.tip, data=of_lines([node.line]), line=1.1, linestyle=style
        )
        sheet.text(x + w / 2, y + down, node.label)


def _edge(sheet: Sheet, curve: Sequence[Point], flows: bool) -> None:
    """Draws a smooth line, behind the boxes, to the head of its arrow."""
    colour = palette.FAINT if flows else palette.ORDER
    style, width = ("-", 0.9) if flows else (":", 0.9)
    sheet.curve(curve, colour, width, linestyle=style, zorder=0.5)
    if flows:
        x, y = curve[-1]
        head = [x, x + HEAD_LONG, x], [y - 0.03, y, y + 0.03]
        sheet.axes.fill(*head, colour, zorder=0.6, clip_on=False)
