"""mutants: texts of PTX that lack one instruction of synchronisation each.

A test shows that the machine tells each that is executed: a release or an acquire that is only
relaxed, a fence or a barrier that is not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_WEAKER = re.compile(r"\.(release|acquire|acq_rel)\b")
_GONE = re.compile(r"^\s*(@!?%\w+\s+)?(fence(?!\.proxy)|membar|bar(rier)?\.(\w+\.)*sync)\b[^;]*;")
_REDUCES = re.compile(
    r"bar(?:rier)?\.(?:\w+\.)*red\.(?:or|and)\.pred\s+(\S+),[^;]*,\s*(!?%\w+)\s*;"
)


@dataclass(frozen=True, slots=True)
class PtxMutant:
    """A text in which the instruction of a line has no effect on others. was: that instruction."""

    line: int
    was: str
    text: str


def mutants(text: str) -> Iterator[PtxMutant]:
    """Yields a mutant for each instruction of synchronisation, in the order of the text."""
    lines = text.splitlines(keepends=True)
    for at, line in enumerate(lines):
        code = line.partition("//")[0]
        changed = _GONE.sub("", code)
        changed = _REDUCES.sub(r"mov.pred \1, \2;", changed)
        if re.match(r"\s*(@\S+\s+)?(ld|st|atom|red)\.", code):
            changed = _WEAKER.sub(".relaxed", changed)
        if changed != code:
            whole = "".join([*lines[:at], changed.rstrip("\n") + "\n", *lines[at + 1 :]])
            yield PtxMutant(at + 1, " ".join(code.split()), whole)
