"""Places in a text, and what is wrong there: shared by all languages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple

from hccc.base.diagnostics import Source, Span, UserError, fail


class At(NamedTuple):
    """A place in the text: line and columns from 1, `end` exclusive and on the same line."""

    line: int
    column: int
    end: int

    def span(self, source: Source) -> Span:
        """The place as diagnostics show it."""
        return Span(source, self.line, self.column, self.end)

    def to(self, other: At) -> At:
        """From here to the end of `other`, clipped to this line."""
        return (
            At(self.line, self.column, max(self.end, other.end))
            if (other.line == self.line)
            else self
        )


class Mistake(Exception):
    """Something wrong in the text; becomes a `UserError` where the source is known."""

    def __init__(
        self, code: str, message: str, at: At | None = None, help: str | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.at, self.help = code, message, at, help

    def in_source(self, source: Source) -> UserError:
        """The error to show."""
        span = self.at.span(source) if self.at else None
        return fail(self.code, self.message, span, help=self.help)


def clip(word: str) -> str:
    """A word of the user's, short enough to quote."""
    return word if len(word) <= 40 else word[:37] + "..."


def did_you_mean(word: str, known: Iterable[str]) -> list[str]:
    """The known names closest to `word`, best first; at most one."""
    return get_close_matches(word[:64], list(known), n=1, cutoff=0.6)
