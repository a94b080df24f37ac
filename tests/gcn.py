"""gcn: what kernels for AMD cost, read from clang's assembly.

A load is in flight until a wait for as many as are younger, or fewer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LABEL = re.compile(r"(\.LBB\d+_\d+):")
_BRANCH = re.compile(r"s_c?branch\S*\s+(\.LBB\d+_\d+)")
_WAIT = re.compile(r"s_waitcnt\b.*\bvmcnt\((\d+)\)")
_LOAD = re.compile(r"(global|flat)_load_dword")
_STREAMED = re.compile(r"global_load_dwordx4.*\b(nt|slc)$")


@dataclass(frozen=True, slots=True)
class Loop:
    """What one turn of a loop does, and the most loads that are in flight.

    streamed: loads of 16 bytes whose data need not stay in caches. local: accesses of scratch.
    """

    instructions: int
    streamed: int
    in_flight: int
    local: int


def moving(text: str) -> Iterator[Loop]:
    """Yields the innermost loops that load 16 bytes at a time past the caches."""
    lines = [line.partition(";")[0].strip() for line in text.splitlines()]
    labels = {m[1]: at for at, line in enumerate(lines) if (m := _LABEL.match(line))}
    every = [
        (labels[m[1]], at)
        for at, line in enumerate(lines)
        if (m := _BRANCH.match(line)) and labels.get(m[1], at) < at
    ]
    wide = [at for at, line in enumerate(lines) if _STREAMED.match(line)]
    for first, last in sorted(every):
        inside = [loop for loop in every if loop != (first, last)]
        inner = [(a, b) for a, b in inside if first <= a and b <= last]
        mine = [at for at in wide if first <= at <= last]
        if mine and not any(a <= at <= b for at in mine for a, b in inner):
            yield _loop([s for s in lines[first : last + 1] if s and not s.startswith(".")])


def _loop(body: list[str]) -> Loop:
    most = now = 0
    for line in body:
        now += bool(_LOAD.match(line))
        most = max(most, now)
        if wait := _WAIT.match(line):
            now = min(now, int(wait[1]))
    streamed = sum(bool(_STREAMED.match(line)) for line in body)
    return Loop(len(body), streamed, most, sum(line.startswith("scratch_") for line in body))


def used(text: str, what: str) -> int:
    """Returns a number of a kernel's description, as its vgpr_count."""
    found = re.findall(rf"\.{what}:\s+(\d+)", text)
    return max(map(int, found), default=0)
