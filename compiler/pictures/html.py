"""html: the report: one page that needs nothing else: no network, no script to be readable.

`templates/pictures/report.html.jinja` lays it out. Everything from input is escaped; the page's own
policy lets no script run but the one that it was made with, and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from hccc.base.render import environment
from hccc.base.version import __version__
from hccc.pictures.svg_picture import SvgPicture

TEMPLATE = "pictures/report.html.jinja"


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table. `head` has the name of each column, `rows` the cells; the first column is text."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    @property
    def broad(self) -> bool:
        """Whether it needs the width of the page."""
        return len(self.head) > 5


@dataclass(frozen=True, slots=True)
class ProofLine:
    """One proof: its name, the sentence that it proves, and the figures behind it."""

    name: str
    claim: str
    detail: str


@dataclass(frozen=True, slots=True)
class HeadlineFigure:
    """A figure of the page's head: its name, its value, and a sentence on it."""

    name: str
    value: str
    detail: str


@dataclass(frozen=True, slots=True)
class ProgramLine:
    """A line of the program; `gap`: it stands for lines that are left out."""

    number: int
    text: str
    gap: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a report, in the order of the page.

    `program` stands beside the first picture whose parts come of its lines.

    `options` and `figures` are pairs of a name and a value. `missing` has a pair for each picture
    that could not be drawn: its name, and the reason.
    """

    title: str
    summary: str
    headline: Sequence[HeadlineFigure] = ()
    program: Sequence[ProgramLine] = ()
    options: Sequence[tuple[str, str]] = ()
    figures: Sequence[tuple[str, str]] = ()
    proofs: Sequence[ProofLine] = ()
    pictures: Sequence[SvgPicture] = ()
    missing: Sequence[tuple[str, str]] = ()
    tables: Sequence[PageTable] = ()
    explanation: str = ""
    version: str = field(default=__version__)

    @property
    def beside(self) -> str:
        """The name of the picture beside the program; empty if there is none."""
        named = {picture.name for picture in self.pictures}
        found = (name for name in LINED if name in named)
        return next(found, "") if self.program else ""

    def svg(self, picture: SvgPicture) -> Markup:
        """Returns the markup of a picture; its texts were escaped when it was drawn."""
        return Markup(picture.inline())


LINED = ("timeline", "pipeline", "dag")
HEADINGS = {
    "topology": "Cluster",
    "dag": "Dependencies",
    "pipeline": "Sub-pipelines",
    "timeline": "Predicted timeline",
    "bandwidth": "Predicted bandwidth",
}


def html(page: Page) -> str:
    """Writes the page."""
    script = environment(escape=True).get_template("pictures/report.js.jinja").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        environment(escape=True)
        .get_template(TEMPLATE)
        .render(it=page, headings=HEADINGS, script=Markup(script), digest=digest)
    )
