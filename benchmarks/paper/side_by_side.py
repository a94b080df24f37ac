"""A table of figures, published beside ours: as Markdown, and as data for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One line. cells: as printed; facts: what was simulated, for JSON; why: the reason that ours
    differs."""

    cells: tuple[str, ...]
    facts: dict[str, Any]
    why: str


@dataclass(frozen=True, slots=True)
class FigureTable:
    """One table of the paper. note: says what its columns are."""

    name: str
    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[FigureRow, ...]

    def facts(self) -> dict[str, Any]:
        """Returns the whole table for JSON."""
        rows = [
            {**dict(zip(self.columns, row.cells, strict=True)), **row.facts, "why": row.why}
            for row in self.rows
        ]
        return {"name": self.name, "title": self.title, "note": self.note, "rows": rows}

    def lines(self) -> Iterator[str]:
        """Yields Markdown; all columns but the last are as wide as their widest cell."""
        yield f"## {self.title}"
        yield ""
        yield self.note
        yield ""
        body = [(*self.columns, "why"), *((*row.cells, row.why) for row in self.rows)]
        widths = [max(len(line[k]) for line in body) for k in range(len(self.columns))]
        yield _line(body[0], widths)
        yield _line(["-" * width for width in [*widths, 3]], widths)
        yield from (_line(line, widths) for line in body[1:])
        yield ""


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    return f"| {' | '.join([*padded, cells[-1]])} |"


def span(values: Sequence[float]) -> str:
    """Writes speed-ups from least to most."""
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return f"{low}×" if low == high else f"{low}–{high}×"


def shares(last: float, values: Sequence[float]) -> str:
    """Writes a share at the largest size, and from least to most, in percent."""
    return f"{100 * last:.1f} ({100 * min(values):.0f}–{100 * max(values):.0f})"


def human(size: int) -> str:
    """Writes a size as `8 MiB` or `4 GiB`."""
    return f"{size >> 30} GiB" if size >= 1 << 30 else f"{size >> 20} MiB"
