"""Errors for people: the place, a caret, the fault and the remedy.

Every error that a user can cause is a `Problem` inside a `UserError`; the command line prints
it and exits with code 1. `InternalError` is a bug in hccc.

`hccc.base.codes` has every code and its meaning. W2xx are warnings: the program is right, but
hardly as meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal

from hccc.base.codes import CODES

MAX_SHOWN_COLUMNS = 160


@dataclass(frozen=True, slots=True)
class Source:
    """A text that the user wrote. name: how messages call it, usually a path."""

    name: str
    text: str

    def line(self, number: int) -> str:
        """Returns line `number`, counted from 1; empty past the end."""
        lines = self.text.split("\n")
        return lines[number - 1].rstrip("\r") if 1 <= number <= len(lines) else ""


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a source: line and columns count from 1, `end` is exclusive."""

    source: Source
    line: int
    column: int
    end: int

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"

    def caret(self) -> str:
        """Shows the source line, and carets below the span, clipped to one screen line."""
        text = self.source.line(self.line).expandtabs(1)
        first = (
            max(0, self.column - 1 - MAX_SHOWN_COLUMNS // 2) if len(text) > MAX_SHOWN_COLUMNS else 0
        )
        shown = "".join(
            c if c.isprintable() else "�" for c in text[first : first + MAX_SHOWN_COLUMNS]
        )
        start = self.column - 1 - first
        width = max(1, min(self.end, first + len(shown) + 1) - self.column)
        gutter = f"{self.line:>5} | "
        return f"{gutter}{shown}\n{' ' * 5} | {' ' * start}{'^' * width}"


@dataclass(frozen=True, slots=True)
class Note:
    """A second place or fact that explains a problem."""

    text: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """One error or warning, its place and its remedy. A warning: the input is legal, but hardly as
    meant.

    code: one of `hccc.base.codes.CODES`.
    """

    code: str
    message: str
    span: Span | None = None
    notes: Sequence[Note] = field(default=())
    help: str | None = None
    severity: Literal["error", "warning"] = "error"

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise InternalError(f"{self.code} is no code of hccc.base.codes: {self.message}")

    def render(self) -> str:
        """Formats the problem as the command line prints it."""
        place = f"{self.span}: " if self.span else ""
        parts = [f"{place}{self.severity}[{self.code}]: {self.message}"]
        if self.span:
            parts.append(self.span.caret())
        for note in self.notes:
            parts.append(f"{f'{note.span}: ' if note.span else ''}note: {note.text}")
            if note.span:
                parts.append(note.span.caret())
        if self.help:
            parts.append(f"help: {self.help}")
        return "\n".join(parts)

    def as_json(self) -> dict[str, object]:
        """Returns the problem as `--json` reports it."""
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "place": str(self.span) if self.span else None,
            "notes": [
                {"text": n.text, "place": str(n.span) if n.span else None} for n in self.notes
            ],
            "help": self.help,
        }


# Whether who reads messages gave options to the command line, not arguments to Python.
of_command_line: ContextVar[bool] = ContextVar("of_command_line", default=False)


class UserError(Exception):
    """Something the user gave is wrong. Carries the one problem to print."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.render())
        self.problem = problem

    def __reduce__(self) -> tuple[type[UserError], tuple[Problem]]:
        return (UserError, (self.problem,))


class InternalError(Exception):
    """A bug in hccc: an invariant that hccc itself should have kept does not hold."""


def fail(
    code: str,
    message: str,
    span: Span | None = None,
    *,
    notes: Sequence[Note] = (),
    help: str | None = None,
) -> UserError:
    """Builds the error to raise: `raise fail("E101", "…", span, help="…")`."""
    return UserError(Problem(code, message, span, tuple(notes), help))
