"""mutants: texts of assembly for AMD that lack one instruction of synchronisation each.

A test shows that the machine tells each that is executed: a wait, a write-back, an invalidation or
a barrier that is not there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_CODE = re.compile(r"\s+[a-z]+_|[\w.$]+:")
_GONE = re.compile(r"\s*(s_waitcnt|s_barrier|buffer_wbl2|buffer_inv\w*|buffer_wbinvl1\w*)\b")


@dataclass(frozen=True, slots=True)
class GcnMutant:
    """A text without an instruction. line: of it, and of waits in a row of the first; was: it."""

    line: int
    was: str
    text: str


def mutants(text: str) -> Iterator[GcnMutant]:
    """Yields a mutant for each instruction of synchronisation, in the order of the text. Waits in a
    row are one: what a fence waits for, the kernel's own wait behind it waits for, too."""
    lines = text.splitlines()
    code = [at for at, line in enumerate(lines, 1) if _CODE.match(line)]
    k = 0
    while k < len(code):
        first = k
        k += 1
        if not (found := _GONE.match(lines[code[first] - 1])):
            continue
        while found[1] == "s_waitcnt" and k < len(code) and "s_waitcnt" in lines[code[k] - 1]:
            k += 1
        was = " ".join(lines[code[first] - 1].partition(";")[0].split())
        yield GcnMutant(code[first], was, without(text, code[first:k]))


def without(text: str, gone: Collection[int]) -> str:
    """Returns a text in which some lines, from 1, are empty."""
    lines = text.splitlines(keepends=True)
    return "".join("\n" if at in gone else line for at, line in enumerate(lines, 1))
