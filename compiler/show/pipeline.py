"""The picture of a Pipeline: a grid with a row for every link and a column for every sub-pipeline.

A cell is the chunk that the link moves. Where there are many links, alike ones are one row; where
there are many sub-pipelines, cells in a row with one operation are one bar without numbers.
"""

from __future__ import annotations

import numpy as np

from hccc import text
from hccc.ir.pipeline import Pipeline
from hccc.ir.program import Op
from hccc.show import palette
from hccc.show.canvas import Picture, Sheet, settings, width_around, width_of
from hccc.show.grid import Row, grid

ROWS, NUMBERED, BARS = 36, 40, 4000  # drawn at most: rows, columns with numbers, bars
FEW = 8  # rows without numbers that are drawn one by one
ROW = 0.24  # inches
WIDE = 11.0
_COLOURS = {int(Op.RECV): ("copy", palette.COPY), int(Op.RRC): ("reduce", palette.REDUCE)}


@settings()
def pipeline(value: Pipeline) -> Picture:
    """A Pipeline drawn. O(tasks log tasks); what is drawn is bounded."""
    name = text.clean(value.dag.program.name, 48)
    numbered = value.n_sub <= NUMBERED
    table = grid(value, ROWS if numbered else FEW)
    rows = table.rows[:ROWS]
    labels = [_label(row) for row in rows]
    left = 0.45 + max((width_of(label, 8) for label in labels), default=0.5)
    cell = min(0.36, WIDE / max(value.n_sub, 1))
    notes = _notes(value, table.rows, table.total, numbered)
    share = table.busy / max(table.total * value.n_sub, 1)
    says = (
        f"{text.count(len(value.order), 'transfer')} in {text.count(value.n_sub, 'sub-pipeline')}"
    )
    says += f" over {text.count(table.total, 'link')}; {100 * share:.0f} % of the grid is used"
    head = f"{name}: which link moves which chunk in which sub-pipeline"
    width = max(left + cell * value.n_sub + 0.4, width_around(head, notes))
    height = 1.55 + ROW * max(len(rows), 1) + 0.17 * len(notes)
    sheet = Sheet(width, height)
    sheet.heading(head, says)
    _legend(sheet, height - 0.8, numbered)
    top = height - 1.18
    _columns(sheet, value.n_sub, left, cell, top, len(rows))
    left_out = 0
    for i, (row, label) in enumerate(zip(rows, labels, strict=True)):
        y = top - ROW * (i + 1)
        sheet.text(left - 0.1, y + ROW / 2, label, 8, ha="right")
        left_out += _cells(sheet, value, row, (left, y, cell), numbered)
    if left_out:
        notes = [f"Bars left out: {left_out:,}.", *notes[1:]]
    sheet.notes(notes, 0.3)
    return sheet.picture("pipeline", f"{name}: sub-pipelines", says + ".")


def _label(row: Row) -> str:
    return row.name + (f" ({row.alike:,} alike)" if row.alike > 1 else "")


def _notes(value: Pipeline, rows: tuple[Row, ...], total: int, numbered: bool) -> list[str]:
    notes = []
    if any(row.alike > 1 for row in rows):
        notes.append(
            f"{total:,} links in {text.count(len(rows), 'kind')}: links of one kind copy and "
            "reduce in the same sub-pipelines; the chunks are those of the first."
        )
    if more := rows[ROWS:]:
        links = sum(row.alike for row in more)
        notes.append(f"Not drawn: {text.count(len(more), 'more kind')} ({links:,} links).")
    if not numbered:
        notes.append("Cells next to each other with the same operation are one bar.")
    return notes


def _columns(sheet: Sheet, n: int, left: float, cell: float, top: float, rows: int) -> None:
    """Faint stripes, and numbers as far as there is room."""
    every = max(1, int(np.ceil(0.32 / cell)))
    every = next((s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if s >= every), every)
    for k in range(0, n, every):
        sheet.text(left + cell * (k + 0.5), top + 0.1, str(k), 7, color=palette.FAINT)
    for i in range(rows):
        if i % 2 == 0:
            at = (left, top - ROW * (i + 1), cell * n, ROW)
            sheet.box(at, "#F4F5F6", "none", round=0, line=0)


def _cells(
    sheet: Sheet, value: Pipeline, row: Row, at: tuple[float, float, float], numbered: bool
) -> int:
    """The cells of one row; how many bars were left out."""
    left, y, cell = at
    if numbered:
        t = value.dag.program.transfers
        for sub, chunk, op, task in zip(
            row.sub.tolist(), row.chunk.tolist(), row.op.tolist(), row.task.tolist(), strict=True
        ):
            what, colour = _COLOURS[op]
            tip = f"{what} {t['src'][task]} → {t['dst'][task]}, chunk {chunk}, sub-pipeline {sub}"
            box = (left + cell * sub + 0.01, y + 0.02, cell - 0.02, ROW - 0.04)
            sheet.box(box, palette.tint(colour, 0.35), colour, round=0.02, line=0.6, tip=tip)
            points = 7.5 if width_of(str(chunk), 7.5) < cell - 0.03 else 5.5
            sheet.text(left + cell * (sub + 0.5), y + ROW / 2 - 0.005, str(chunk), points)
        return 0
    cut = np.flatnonzero(np.r_[True, (np.diff(row.sub) != 1) | (np.diff(row.op) != 0)])
    ends = np.r_[cut[1:], len(row.sub)]
    shown = BARS // ROWS
    for a, b in zip(cut[:shown].tolist(), ends[:shown].tolist(), strict=True):
        what, colour = _COLOURS[int(row.op[a])]
        box = (left + cell * int(row.sub[a]), y + 0.03, cell * (b - a), ROW - 0.06)
        tip = f"{row.name}: {what} in sub-pipelines {row.sub[a]} to {row.sub[b - 1]}"
        sheet.box(box, palette.tint(colour, 0.6), "none", round=0, line=0, tip=tip)
    return len(cut) - min(len(cut), shown)


def _legend(sheet: Sheet, y: float, numbered: bool) -> None:
    x = 0.3
    for label, colour in _COLOURS.values():
        sheet.box((x, y - 0.06, 0.2, 0.12), palette.tint(colour, 0.35), colour, round=0.02)
        sheet.text(x + 0.27, y, label, 8, ha="left")
        x += 0.45 + width_of(label, 8)
    label = "columns: sub-pipelines" + ("; numbers: chunks" if numbered else "")
    sheet.text(x, y, label, 8, ha="left", color=palette.FAINT)
