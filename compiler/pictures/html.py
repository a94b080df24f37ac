"""The report: one page that needs nothing else: no network, no script to be readable.

`templates/pictures/report.html.jinja` lays it out. Everything from input is escaped; the page's own
policy lets no script run but the one that it was made with, and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from hccc import __version__
from hccc.pictures.canvas import Picture, inline
from hccc.render import environment

TEMPLATE = "pictures/report.html.jinja"


@dataclass(frozen=True, slots=True)
class Table:
    """A table: `head` names the columns; the first column of `rows` is text."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Proof:
    """What was proved, and over how much."""

    name: str
    claim: str
    detail: str


@dataclass(frozen=True, slots=True)
class Page:
    """All that a report says. `missing`: pictures that there are not, and why."""

    title: str
    summary: str
    options: Sequence[tuple[str, str]] = ()
    figures: Sequence[tuple[str, str]] = ()
    proofs: Sequence[Proof] = ()
    pictures: Sequence[Picture] = ()
    missing: Sequence[tuple[str, str]] = ()
    tables: Sequence[Table] = ()
    explanation: str = ""
    version: str = field(default=__version__)

    def svg(self, picture: Picture) -> Markup:
        """A picture as markup of the page; what is in it was escaped when it was drawn."""
        return Markup(inline(picture))


HEADINGS = {
    "topology": "Cluster",
    "dag": "Dependencies",
    "pipeline": "Sub-pipelines",
    "timeline": "Predicted timeline",
    "bandwidth": "Predicted bandwidth",
}


def html(page: Page) -> str:
    """The page's text."""
    script = environment(escape=True).get_template("pictures/report.js.jinja").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment(escape=True).get_template(TEMPLATE).render(
        it=page, headings=HEADINGS, script=Markup(script), digest=digest
    )  # fmt: skip
