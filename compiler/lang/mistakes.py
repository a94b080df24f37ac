"""mistakes: places in a text and errors there, shared by all languages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from hccc.base.diagnostics import Source, Span, UserError, fail


class At(NamedTuple):
    """A place in the text: line and columns from 1, `end` exclusive and on the same line."""

    line: int
    column: int
    end: int

    def span(self, source: Source) -> Span:
        """Returns the place as diagnostics show it."""
        return Span(source, self.line, self.column, self.end)

    def to(self, other: At) -> At:
        """Returns the place from here to the end of `other`, clipped to this line."""
        return (
            At(self.line, self.column, max(self.end, other.end))
            if (other.line == self.line)
            else self
        )


class Mistake(Exception):
    """An error in the text; becomes a `UserError` once the source is known."""

    def __init__(
        self, code: str, message: str, at: At | None = None, help: str | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.at, self.help = code, message, at, help

    def in_source(self, source: Source) -> UserError:
        """Returns the error to show."""
        span = self.at.span(source) if self.at else None
        return fail(self.code, self.message, span, help=self.help)


def either(words: Sequence[str]) -> str:
    """Lists alternatives: `a, b or c`."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def clip(word: str) -> str:
    """Shortens a word of the user's for quoting."""
    return word if len(word) <= 40 else word[:37] + "..."


def did_you_mean(word: str, known: Iterable[str]) -> list[str]:
    """Returns the known name closest to `word`, if any is close."""
    return get_close_matches(word[:64], list(known), n=1, cutoff=0.6)
