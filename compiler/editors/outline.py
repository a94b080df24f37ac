"""outline: the names that a text defines, and where, as far as its words tell.

A text is often wrong while it is written, so this reads words, not the tree of a parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Symbol(Enum):
    """What a name is."""

    HEADER = "header"
    FUNCTION = "function"
    VARIABLE = "variable"
    DEFINE = "define"


@dataclass(frozen=True, slots=True)
class DefinedName:
    """A name and its place: line and column from 0. last: the last line of what it names; within:
    whether it is known only there."""

    name: str
    symbol: Symbol
    line: int
    column: int
    last: int
    within: bool = False


_FUNCTION = re.compile(r"^[ \t]*def[ \t]+([A-Za-z_]\w*)[ \t]*\(([^)]*)")
_HEADER = re.compile(r"^[ \t]*(?:def[ \t]+)?(ResCCLAlgo|HetCCLJob)[ \t]*\(")
_LOOP = re.compile(r"^[ \t]*for[ \t]+([A-Za-z_]\w*)[ \t]+in\b")
_ASSIGNED = re.compile(r"^[ \t]*((?:[A-Za-z_]\w*[ \t]*,[ \t]*)*[A-Za-z_]\w*)[ \t]*=(?!=)")
_DEFINE = re.compile(r"\bdefine[ \t]+([A-Za-z_]\w*)")
_NAME = re.compile(r"[A-Za-z_]\w*")


def outline(text: str, kind: str) -> list[DefinedName]:
    """Returns the names that a text defines, in order."""
    lines = [line.split("#")[0].rstrip() for line in text.split("\n")]
    return [*(_defines(lines) if kind == "cluster" else _program(lines))]


def definition(names: list[DefinedName], word: str, line: int) -> DefinedName | None:
    """Returns where the word at a line is defined: the last place above it, else the first."""
    found = [one for one in names if one.name == word]
    found = [one for one in found if not one.within or one.line <= line <= one.last]
    before = [one for one in found if one.line <= line]
    return before[-1] if before else next(iter(found), None)


def _defines(lines: list[str]) -> Iterator[DefinedName]:
    found = [(n, m) for n, line in enumerate(lines) for m in _DEFINE.finditer(line)]
    for k, (n, m) in enumerate(found):
        last = max(n, found[k + 1][0] - 1) if found[k + 1 :] else len(lines) - 1
        yield DefinedName(m[1], Symbol.DEFINE, n, m.start(1), last)


def _program(lines: list[str]) -> Iterator[DefinedName]:
    opened = 0
    for n, line in enumerate(lines):
        if opened <= 0 or _HEADER.match(line) or _FUNCTION.match(line) or _LOOP.match(line):
            opened = 0  # what was open may not be written to its end yet
            yield from _of_line(lines, n, line)
        opened += sum(line.count(c) for c in "([") - sum(line.count(c) for c in ")]")


def _of_line(lines: list[str], n: int, line: str) -> Iterator[DefinedName]:
    if m := _HEADER.match(line):
        yield DefinedName(m[1], Symbol.HEADER, n, m.start(1), len(lines) - 1)
    elif m := _FUNCTION.match(line):
        last = _block(lines, n)
        yield DefinedName(m[1], Symbol.FUNCTION, n, m.start(1), last)
        for parameter in _NAME.finditer(m[2]):
            column = m.start(2) + parameter.start()
            yield DefinedName(parameter.group(), Symbol.VARIABLE, n, column, last, within=True)
    elif m := _LOOP.match(line):
        yield DefinedName(m[1], Symbol.VARIABLE, n, m.start(1), _block(lines, n))
    elif m := _ASSIGNED.match(line):
        for target in _NAME.finditer(m[1]):
            yield DefinedName(target.group(), Symbol.VARIABLE, n, m.start(1) + target.start(), n)


def _block(lines: list[str], begin: int) -> int:
    """Returns the last line of the block that a line begins."""
    deep = len(lines[begin]) - len(lines[begin].lstrip())
    last = begin
    for n in range(begin + 1, len(lines)):
        if lines[n].strip():
            if len(lines[n]) - len(lines[n].lstrip()) <= deep:
                break
            last = n
    return last
