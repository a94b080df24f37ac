"""legend: samples of colours and of lines, with their meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hccc.pictures import palette
from hccc.pictures.canvas import SMALL, Sheet, width_of

ROW = 0.2  # inches
_SAMPLE, _SPACE, _GAP = 0.2, 0.07, 0.2  # its width, then space, then text, then the gap


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """`label` beside a box of `fill` and `edge`, or beside a line of `line` points and the colour
    `fill`; without `fill` the label stands alone."""

    label: str
    fill: str = ""
    edge: str = "none"
    line: float = 0.0

    @property
    def width(self) -> float:
        """Inches, without a gap behind it."""
        return width_of(self.label, SMALL) + (_SAMPLE + _SPACE if self.fill else 0.0)


def legend_rows(entries: Sequence[LegendEntry], width: float) -> list[list[LegendEntry]]:
    """Puts `entries` into rows that are at most `width` inches wide, unless one entry alone is
    wider."""
    rows: list[list[LegendEntry]] = []
    left = -1.0
    for entry in entries:
        left -= _GAP + entry.width
        if left < 0:
            rows.append([])
            left = width - entry.width
        rows[-1].append(entry)
    return rows


def draw_legend(
    sheet: Sheet, rows: Sequence[Sequence[LegendEntry]], y: float, x: float = 0.3
) -> None:
    """Draws rows of entries, the middle of the first at `y`."""
    for i, row in enumerate(rows):
        at = x
        for entry in row:
            _draw(sheet, entry, at, y - ROW * i)
            at += entry.width + _GAP


def _draw(sheet: Sheet, entry: LegendEntry, x: float, y: float) -> None:
    if not entry.fill:
        sheet.text(x, y, entry.label, ha="left", color=palette.FAINT)
        return
    if entry.line:
        sheet.line([x, x + _SAMPLE], [y, y], entry.fill, entry.line, solid_capstyle="butt")
    else:
        at = (x, y - 0.06, _SAMPLE, 0.12)
        sheet.box(at, entry.fill, entry.edge, round=0, line=0.8 if entry.edge != "none" else 0)
    sheet.text(x + _SAMPLE + _SPACE, y, entry.label, ha="left")
