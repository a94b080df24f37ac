"""pipeline: the picture of a Pipeline: a grid with a row for every link and a column for every
sub-pipeline.

A cell is the chunk that the link moves. If there are many links, alike ones are one row. If there
are many sub-pipelines, or many rows still, a row is a class of links, a column several
sub-pipelines, and a cell gives the number of transfers and the part of the links they use.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from hccc.ir import text
from hccc.ir.pipeline import Pipeline
from hccc.ir.program import Op
from hccc.pictures import palette
from hccc.pictures.canvas import NOTE, SMALL, Picture, Sheet, settings, width_around, width_of
from hccc.pictures.grid import ClassGrid, ClassRow, ResourceGrid, ResourceRow, class_grid, grid
from hccc.pictures.legend import LegendEntry, draw_legend
from hccc.pictures.source_lines import of_lines

ROWS, NUMBERED = 36, 40  # drawn at most: rows, and columns that are a sub-pipeline each
GROUPED = 16  # columns of several sub-pipelines, at most
ROW, CLASS_ROW = 0.24, 0.5  # inches
CELL = 0.36  # inches, at most
NUMBER = 0.17  # inches: the height of a number, and of what keeps it from lines
WIDE = 11.0
_COLOURS = {Op.RECV: ("copy", palette.COPY), Op.RRC: ("reduce", palette.REDUCE)}


@settings()
def pipeline(value: Pipeline) -> Picture:
    """Draws a Pipeline. O(tasks log tasks); the drawing is bounded."""
    table = grid(value, ROWS)
    if len(value.order) and (value.n_sub > NUMBERED or len(table.rows) > ROWS):
        return _by_class(value)
    notes = _notes(table)
    rows = table.rows
    labels = [_label(row) for row in rows]
    left = 0.45 + max((width_of(label, SMALL) for label in labels), default=0.5)
    cell = min(CELL, WIDE / max(value.n_sub, 1))
    head = f"{_name(value)}: which link moves which chunk in which sub-pipeline"
    width = max(left + cell * value.n_sub + 0.4, width_around(head, notes))
    height = 1.55 + ROW * max(len(rows), 1) + NOTE * len(notes)
    sheet = Sheet(width, height)
    says = _says(value, table)
    sheet.heading(head, says)
    entries = [*_legend(value), LegendEntry("columns: sub-pipelines; numbers: chunks")]
    draw_legend(sheet, [entries], height - 0.8)
    top = height - 1.18
    for i in range(value.n_sub):
        sheet.text(left + cell * (i + 0.5), top + 0.1, str(i), color=palette.FAINT)
    for i, (row, label) in enumerate(zip(rows, labels, strict=True)):
        y = top - ROW * (i + 1)
        if i % 2 == 0:
            at = (left, y, cell * value.n_sub, ROW)
            sheet.box(at, palette.STRIPE, "none", round=0, line=0)
        sheet.text(left - 0.1, y + ROW / 2, label, ha="right")
        _cells(sheet, value, row, (left, y, cell))
    sheet.notes(notes, 0.3)
    return sheet.picture("pipeline", f"{_name(value)}: sub-pipelines", says + ".")


def _name(value: Pipeline) -> str:
    return text.clean(value.dag.program.name, 48)


def _says(value: Pipeline, table: ResourceGrid | ClassGrid) -> str:
    share = table.busy / max(table.total * value.n_sub, 1)
    transfers = text.count(len(value.order), "transfer")
    says = f"{transfers} in {text.count(value.n_sub, 'sub-pipeline')}"
    says += f" over {text.count(table.total, 'link')}"
    return f"{says}; {text.number(100 * share)} % of the grid is used"


def _legend(value: Pipeline) -> list[LegendEntry]:
    """Returns samples of the operations that occur."""
    ops = set(np.unique(value.dag.program.transfers["op"]).tolist())
    return [
        LegendEntry(what, palette.tint(colour, 0.35), colour)
        for op, (what, colour) in _COLOURS.items()
        if int(op) in ops
    ]


def _label(row: ResourceRow) -> str:
    return row.name + (f" ({row.alike:,} alike)" if row.alike > 1 else "")


def _notes(table: ResourceGrid) -> list[str]:
    if all(row.alike == 1 for row in table.rows):
        return []
    return [
        f"{table.total:,} links in {text.count(len(table.rows), 'kind')}: links of one kind copy "
        "and reduce in the same sub-pipelines; the chunks are those of the first."
    ]


def _cells(sheet: Sheet, value: Pipeline, row: ResourceRow, at: tuple[float, float, float]) -> None:
    """Draws the cells of one row; a number that has no room is in the tip only."""
    left, y, cell = at
    t = value.dag.program.transfers
    for sub, chunk, op, task in zip(
        row.sub.tolist(), row.chunk.tolist(), row.op.tolist(), row.task.tolist(), strict=True
    ):
        what, colour = _COLOURS[Op(op)]
        tip = f"{what} {t['src'][task]} → {t['dst'][task]}, chunk {chunk}, sub-pipeline {sub}"
        box = (left + cell * sub + 0.01, y + 0.02, cell - 0.02, ROW - 0.04)
        sheet.box(
            box,
            palette.tint(colour, 0.35),
            colour,
            round=0.02,
            line=0.6,
            tip=tip,
            data=of_lines([int(t["line"][task])]),
        )
        if width_of(str(chunk), SMALL) < cell - 0.02:
            sheet.text(left + cell * (sub + 0.5), y + ROW / 2 - 0.005, str(chunk))


def _by_class(value: Pipeline) -> Picture:
    """Draws a Pipeline with many sub-pipelines or many kinds of links."""
    table = class_grid(value, GROUPED)
    each = int(table.bounds[1])
    columns = len(table.bounds) - 1
    left = 0.45 + max(width_of(f"{row.name} ", SMALL, bold=True) for row in table.rows)
    cell = min(0.62, WIDE / columns)
    notes = [
        "Numbers: transfers of all links of the class in these sub-pipelines. Height: how much of "
        "the links and sub-pipelines they use."
    ]
    head = f"{_name(value)}: how many transfers use which links in which sub-pipelines"
    width = max(left + cell * columns + 0.4, width_around(head, notes))
    height = 1.65 + CLASS_ROW * len(table.rows) + NOTE * len(notes)
    sheet = Sheet(width, height)
    says = _says(value, table)
    sheet.heading(head, says)
    unit = "a sub-pipeline" if each == 1 else f"{each} sub-pipelines, the first is named"
    draw_legend(sheet, [[*_legend(value), LegendEntry(f"columns: {unit}")]], height - 0.8)
    top = height - 1.18
    for i in range(columns):
        first = str(table.bounds[i])
        sheet.text(left + cell * (i + 0.5), top + 0.1, first, color=palette.FAINT)
    for i, row in enumerate(table.rows):
        y = top - CLASS_ROW * (i + 1)
        sheet.text(left - 0.1, y + CLASS_ROW * 0.64, row.name, ha="right", weight="bold")
        links = f"{row.resources:,} used"
        sheet.text(left - 0.1, y + CLASS_ROW * 0.32, links, ha="right", color=palette.FAINT)
        _class_cells(sheet, table, row, (left, y, cell))
    sheet.notes(notes, 0.3)
    return sheet.picture("pipeline", f"{_name(value)}: sub-pipelines", says + ".")


def _class_cells(
    sheet: Sheet, table: ClassGrid, row: ClassRow, at: tuple[float, float, float]
) -> None:
    """Draws one bar of copies upon one of reductions for every column."""
    left, y, cell = at
    tall = CLASS_ROW - 0.08
    for i, (copies, reductions) in enumerate(
        zip(row.copies.tolist(), row.reductions.tolist(), strict=True)
    ):
        x, low = left + cell * i, y + 0.04
        room = row.resources * int(table.bounds[i + 1] - table.bounds[i])
        sheet.box((x + 0.01, low, cell - 0.02, tall), palette.STRIPE, "none", round=0, line=0)
        for op, n in ((Op.RRC, reductions), (Op.RECV, copies)):
            if n:
                what, colour = _COLOURS[op]
                last = table.bounds[i + 1] - 1
                tip = f"{row.name}: {n:,} × {what} in sub-pipelines {table.bounds[i]} to {last}"
                tip += f", {100 * n / room:.0f} % of what they hold"
                high = tall * n / room
                box = (x + 0.01, low, cell - 0.02, high)
                sheet.box(box, palette.tint(colour, 0.35), colour, round=0, line=0.6, tip=tip)
                low += high
        if copies + reductions:
            tops = np.cumsum([reductions, copies]) * tall / room
            middle = y + 0.03 + _between([0.0, *tops.tolist(), tall])
            sheet.text(x + cell / 2, middle, _short(copies + reductions))


def _between(lines: Sequence[float]) -> float:
    """Returns a place for the middle of a number that none of `lines` (ascending) crosses: among
    gaps that are high enough, the one nearest to half way from the first line to the last."""
    half = (lines[0] + lines[-1]) / 2
    gaps = list(itertools.pairwise(lines))
    room = min(NUMBER, max(b - a for a, b in gaps))
    places = [min(max(half, a + room / 2), b - room / 2) for a, b in gaps if b - a >= room]
    return min(places, key=lambda place: abs(place - half))


def _short(n: int) -> str:
    """Writes a number in at most five characters: `960`, `28.7k`, `1.2M`."""
    for unit, factor in (("M", 1e6), ("k", 1e3)):
        if n >= 1e4 and n >= factor:
            return f"{n / factor:.3g}{unit}"
    return f"{n:,}"
