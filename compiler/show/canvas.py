"""A sheet to draw on, and how it becomes SVG: text stays text, the same input gives the same bytes.

matplotlib draws. Its own state is left alone: settings hold only while a sheet is made and
written, and no window system is touched.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from hccc.show.palette import FAINT, INK
from hccc.text import clean

FONTS = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
SETTINGS: Any = {
    "font.family": ["DejaVu Sans"],
    "svg.fonttype": "none",
    "svg.hashsalt": "hccc",
    "text.parse_math": False,
    "text.usetex": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "path.simplify": False,
}
_TIP = "tip-"
_EM = 0.54 / 72  # inches per point of size: an average letter of DejaVu Sans, the widest font named


@dataclass(frozen=True, slots=True)
class Picture:
    """One drawing. `svg`: a whole SVG document; `says`: what it shows, for who cannot see it."""

    name: str
    title: str
    says: str
    svg: str


def width_of(text: str, points: float, *, bold: bool = False) -> float:
    """About how wide `text` is, in inches."""
    return len(text) * points * _EM * (1.15 if bold else 1.0)


def width_around(title: str, notes: Sequence[str]) -> float:
    """The least width of a sheet with this heading and these notes, in inches."""
    return 0.6 + max([width_of(title, 12, bold=True), *(width_of(n, 7.5) for n in notes)])


@contextmanager
def settings() -> Iterator[None]:
    """matplotlib as pictures want it, and quiet about characters that its font lacks."""
    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        yield


class Sheet:
    """A figure of `width` by `height` inches, in one coordinate system of inches from its lower
    left corner. `tips` are shown where the pointer rests."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width, height))
        FigureCanvasSVG(self.figure)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, width), ylim=(0, height))
        self.axes.axis("off")
        self.tips: list[str] = []

    def plot(self, left: float, bottom: float, width: float, height: float) -> Axes:
        """Axes of their own, placed in inches."""
        box = (left / self.width, bottom / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(box)

    def tip(self, text: str) -> str:
        """The gid of an artist that explains itself with `text`."""
        self.tips.append(clean(text, 400))
        return f"{_TIP}{len(self.tips) - 1}"

    def text(self, x: float, y: float, text: str, points: float = 8, **style: Any) -> None:
        """One line of text; `ha`, `va`, `color`, `weight` as in matplotlib."""
        style = {"ha": "center", "va": "center", "color": INK} | style
        self.axes.text(x, y, clean(text, 240), fontsize=points, **style)

    def box(
        self,
        at: tuple[float, float, float, float],
        fill: str,
        edge: str = INK,
        *,
        round: float = 0.05,
        line: float = 0.8,
        tip: str | None = None,
        **style: Any,
    ) -> None:
        """A box at (x, y, width, height)."""
        x, y, w, h = at
        style |= {"facecolor": fill, "edgecolor": edge, "linewidth": line}
        shape = (
            FancyBboxPatch((x, y), w, h, boxstyle=f"round,pad=0,rounding_size={round}", **style)
            if round
            else Rectangle((x, y), w, h, **style)
        )
        if tip:
            shape.set_gid(self.tip(tip))
        self.axes.add_patch(shape)

    def line(
        self, xs: Sequence[float], ys: Sequence[float], colour: str = FAINT, width: float = 1.0,
        **style: Any,
    ) -> None:  # fmt: skip
        """A line through points; `width` in points."""
        style = {"solid_capstyle": "round"} | style
        self.axes.plot(xs, ys, color=colour, linewidth=width, **style)

    def heading(self, title: str, says: str = "") -> None:
        """The title at the top, and a line below it."""
        self.text(0.3, self.height - 0.3, title, 12, ha="left", weight="bold")
        self.text(0.3, self.height - 0.55, says, 8.5, ha="left", color=FAINT)

    def notes(self, lines: Sequence[str], x: float = 0.25, y: float = 0.2) -> None:
        """Small print at the bottom, the last line lowest."""
        for i, text in enumerate(reversed(lines)):
            self.text(x, y + i * 0.17, text, 7.5, ha="left", color=FAINT)

    def picture(self, name: str, title: str, says: str) -> Picture:
        """The finished drawing."""
        raw = io.StringIO()
        metadata: Any = {"Date": None, "Creator": "hccc", "Title": clean(title)}
        matplotlib.rcParams["svg.hashsalt"] = f"hccc {name}"  # ids of two pictures never meet
        self.figure.savefig(raw, format="svg", facecolor="white", metadata=metadata)
        return Picture(name, clean(title), clean(says, 1000), self._finished(raw.getvalue(), says))

    def _finished(self, svg: str, says: str) -> str:
        """Groups without their ids (two pictures on one page would share them), with tips."""

        def group(found: re.Match[str]) -> str:
            if not found[1].startswith(_TIP):
                return "<g>"
            tip = self.tips[int(found[1].removeprefix(_TIP))]
            return f"<g><title>{escape(tip, quote=False)}</title>"

        svg = re.sub(r'<g id="([^"<>]*)">', group, svg)
        svg = re.sub(r"(?<=font: )([^\"';]*?px)[^\";]*(?=[;\"])", rf"\1 {FONTS}", svg)
        svg = re.sub(r"font-family: [^\";]*(?=[;\"])", f"font-family: {FONTS}", svg)
        label = escape(clean(says, 1000), quote=True)
        return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def inline(picture: Picture) -> str:
    """The drawing as an element of a page: without the XML declaration and doctype."""
    return picture.svg[picture.svg.index("<svg ") :]
