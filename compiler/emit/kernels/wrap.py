"""wrap: lays out a call in lines of at most 100 columns, broken as clang-format does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 100
DEEPEST = 64  # columns at which the arguments of a statement's call begin, else on the next line


@dataclass(frozen=True, slots=True)
class CallText:
    """`head(arguments...)`, or just `head` when there are no parentheses."""

    head: str
    arguments: tuple[CallText, ...] | None = None

    def flat(self) -> str:
        """Returns the call on one line."""
        if self.arguments is None:
            return self.head
        return f"{self.head}({', '.join(a.flat() for a in self.arguments)})"


def wrap(text: CallText, indent: int, tail: str = "") -> list[str]:
    """Lays out `text` followed by `tail`, as lines with the given indentation."""
    lines = [" " * indent]
    _place(text, lines, len(tail), DEEPEST)
    lines[-1] += tail
    return lines


def _place(text: CallText, lines: list[str], reserve: int, deepest: int = WIDTH) -> None:
    """Appends `text` to the last line, keeping `reserve` columns for the text that follows it."""
    flat = text.flat()
    if not text.arguments or len(lines[-1]) + len(flat) + reserve <= WIDTH:
        lines[-1] += flat
        return
    lines[-1] += text.head + "("
    if len(lines[-1]) > deepest:
        lines.append(" " * (len(lines[-1]) - len(lines[-1].lstrip()) + 4))
    column = len(lines[-1])
    for k, argument in enumerate(text.arguments):
        last = k == len(text.arguments) - 1
        if k:
            lines[-1] += ","
            if len(lines[-1]) + 1 + len(argument.flat()) + (reserve + 1 if last else 1) > WIDTH:
                lines.append(" " * column)
            else:
                lines[-1] += " "
        _place(argument, lines, reserve + 1 if last else 1)
    lines[-1] += ")"


def table(values: Sequence[int], indent: int) -> list[str]:
    """Packs numbers of an initializer into lines; each ends with a comma but the last."""
    lines, line = [], " " * indent
    for k, value in enumerate(values):
        word = f"{value}{',' if k + 1 < len(values) else ''}"
        if len(line) + 1 + len(word) > WIDTH and line.strip():
            lines.append(line)
            line = " " * indent
        line += word if not line.strip() else f" {word}"
    return [*lines, line]
