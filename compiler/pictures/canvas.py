"""canvas: a sheet to draw on, and its SVG: text stays text, the same input gives the same bytes.

matplotlib draws. Its own state is left alone: settings hold only while a sheet is made and written,
and no window system is touched.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import FancyBboxPatch, Patch, PathPatch
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.transforms import IdentityTransform, TransformedPath

from hccc.ir.text import clean
from hccc.pictures.palette import FAINT, INK, PAPER
from hccc.pictures.svg import MARK, Mark, ZoomView, compact
from hccc.pictures.svg_picture import SvgPicture

_RECTANGLE = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY]
_UNCLIPPED = TransformedPath(Path.unit_rectangle(), IdentityTransform())  # where `clip_on` is off
SMALL, NORMAL, LARGE = 8.0, 9.0, 12.0  # points of text; nothing is written smaller
DPI = 200  # of a PNG
NOTE = 0.17  # inches: a line of small print
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


@dataclass(frozen=True, slots=True, repr=False)
class Picture(SvgPicture):
    """A drawing, and what matplotlib knows of it."""

    figure: Figure = field(compare=False)

    def png(self) -> bytes:
        """Returns the drawing as a PNG of DPI dots per inch, in the colours of light pages."""
        raw = io.BytesIO()
        with settings():
            self.figure.savefig(
                raw, format="png", dpi=DPI, facecolor=PAPER, metadata={"Software": "hccc"}
            )
        return raw.getvalue()


def width_of(text: str, points: float, *, bold: bool = False) -> float:
    """Returns the width of `text` in inches, in DejaVu Sans, the widest font that pictures name."""
    return sum(_advance(char, bold) for char in clean(text, len(text))) * points / 72


@cache
def _advance(char: str, bold: bool) -> float:
    """Returns how far a character moves the next one, in parts of the size of the font; 1 if it is
    drawn in another font."""
    weight = "bold" if bold else "normal"
    font = get_font(findfont(FontProperties(family="DejaVu Sans", weight=weight)))
    if not font.get_char_index(ord(char)):
        return 1.0
    font.set_size(100, 72)
    return float(font.load_char(ord(char)).linearHoriAdvance) / 65536 / 100


def width_around(title: str, notes: Sequence[str]) -> float:
    """Returns the least width of a sheet with this heading and these notes, in inches."""
    return 0.6 + max([width_of(title, LARGE, bold=True), *(width_of(n, SMALL) for n in notes)])


@contextmanager
def settings() -> Iterator[None]:
    """Applies the pictures' settings of matplotlib, without warnings about characters that its font
    lacks."""
    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        yield


def _rectangle(x: float, y: float, width: float, height: float) -> Path:
    """Returns a rectangle as a path of its own: matplotlib's Rectangle has a transform for each."""
    right, top = x + width, y + height
    return Path([(x, y), (right, y), (right, top), (x, top), (x, y)], _RECTANGLE)


class Sheet:
    """A figure of `width` by `height` inches, in one coordinate system of inches from its lower
    left corner. `marks` say what a page knows of artists, `view` what it can zoom into."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width, height))
        FigureCanvasSVG(self.figure)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, width), ylim=(0, height))
        self.axes.axis("off")
        self.marks: list[Mark] = []
        self.view: ZoomView | None = None
        self._viewed = False

    def plot(self, left: float, bottom: float, width: float, height: float) -> Axes:
        """Adds axes of their own, placed in inches."""
        box = (left / self.width, bottom / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(box)

    def set_view(self, at: tuple[float, float, float, float], data: Mapping[str, str]) -> None:
        """Makes (x, y, width, height) what a page can zoom into. data: attributes for the page."""
        x, y, w, h = at
        self.view = ZoomView(72 * x, 72 * (self.height - y - h), 72 * w, 72 * h, data)

    @contextmanager
    def viewed(self) -> Iterator[None]:
        """Puts what is drawn within it into the view."""
        before, self._viewed = self._viewed, True
        try:
            yield
        finally:
            self._viewed = before

    def _marked(self, text: str = "", data: Mapping[str, str] | None = None) -> str | None:
        """Returns the gid of an artist with a tip and attributes, or of one of the view; None for
        the others."""
        if not text and not data and not self._viewed:
            return None
        self.marks.append(Mark(clean(text, 400), data or {}, self._viewed))
        return f"{MARK}{len(self.marks) - 1}"

    def text(self, x: float, y: float, text: str, points: float = SMALL, **style: Any) -> None:
        """Draws one line of text; `ha`, `va`, `color`, `weight` as in matplotlib."""
        look: Any = {"ha": "center", "va": "center", "color": INK, "clip_on": False} | style
        self._add(Text(x, y, clean(text, 240), fontsize=points, gid=self._marked(), **look))

    def box(
        self,
        at: tuple[float, float, float, float],
        fill: str,
        edge: str = INK,
        *,
        round: float = 0.05,
        line: float = 0.8,
        tip: str = "",
        data: Mapping[str, str] | None = None,
        **style: Any,
    ) -> None:
        """Draws a box at (x, y, width, height). `tip` is shown where the pointer rests, `data` are
        attributes for the page's script."""
        x, y, w, h = at
        style |= {"facecolor": fill, "edgecolor": edge, "linewidth": line, "clip_on": False}
        shape = (
            FancyBboxPatch((x, y), w, h, boxstyle=f"round,pad=0,rounding_size={round}", **style)
            if round
            else PathPatch(_rectangle(x, y, w, h), **style)
        )
        shape.set_gid(self._marked(tip, data))
        self._add(shape)

    def _add(self, shape: Patch | Text) -> None:
        """Draws a shape or a text. The axes' limits are set, so none are looked for, and nothing is
        clipped, so no path to clip by is made of the axes for each: both take longer than drawing.
        """
        shape.set_clip_path(_UNCLIPPED)
        self.axes.add_artist(shape)

    def line(
        self,
        xs: Sequence[float],
        ys: Sequence[float],
        colour: str = FAINT,
        width: float = 1.0,
        **style: Any,
    ) -> None:
        """Draws a line through points; `width` in points."""
        looks: Any = {"solid_capstyle": "round", "clip_on": False, "gid": self._marked()} | style
        self.axes.plot(xs, ys, color=colour, linewidth=width, **looks)

    def curve(
        self,
        points: Sequence[tuple[float, float]],
        colour: str = FAINT,
        width: float = 1.0,
        **style: Any,
    ) -> None:
        """Draws cubic Bézier curves. points: the start, then two control points and the end of each
        curve."""
        codes = [Path.MOVETO, *[Path.CURVE4] * (len(points) - 1)]
        looks: Any = {"fill": False, "capstyle": "round", "clip_on": False} | style
        path = Path(points, codes)
        self._add(PathPatch(path, edgecolor=colour, linewidth=width, **looks))

    def heading(self, title: str, says: str = "") -> None:
        """Draws the title at the top, and a line below it."""
        self.text(0.3, self.height - 0.3, title, LARGE, ha="left", weight="bold")
        self.text(0.3, self.height - 0.55, says, NORMAL, ha="left", color=FAINT)

    def notes(self, lines: Sequence[str], x: float = 0.25, y: float = 0.2) -> None:
        """Draws small print at the bottom, the last line lowest."""
        for i, text in enumerate(reversed(lines)):
            self.text(x, y + i * NOTE, text, SMALL, ha="left", color=FAINT)

    def picture(self, name: str, title: str, says: str) -> Picture:
        """Returns the finished drawing."""
        raw = io.StringIO()
        metadata: Any = {"Date": None, "Creator": None, "Type": None, "Format": None}
        matplotlib.rcParams["svg.hashsalt"] = f"hccc {name}"  # ids of two pictures never meet
        self.figure.savefig(raw, format="svg", facecolor=PAPER, metadata=metadata)
        title, says = clean(title), clean(says, 1000)
        svg = compact(raw.getvalue(), name, title, says, self.marks, self.view)
        return Picture(name, title, says, svg, self.figure)
