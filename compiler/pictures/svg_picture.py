"""svg_picture: one finished picture as an SVG, and the curves of charts. Nothing here loads
matplotlib, which takes its time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hccc.base.shown import brief


@dataclass(frozen=True, slots=True)
class SvgPicture:
    """One drawing. `svg`: a whole SVG document; `says`: describes the drawing for readers who
    cannot see it."""

    name: str
    title: str
    says: str
    svg: str

    def __repr__(self) -> str:
        return brief(self, f"{self.name}: {self.title}")

    def _repr_svg_(self) -> str:
        return self.svg

    def inline(self) -> str:
        """Returns the drawing as an element of a page: without the XML declaration."""
        return self.svg[self.svg.index("<svg") :]


@dataclass(frozen=True, slots=True)
class Curve:
    """The time of a call by its bytes, in µs, and who takes it."""

    name: str
    times: Mapping[int, float]
