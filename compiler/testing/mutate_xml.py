"""mutate_xml: small changes to MSCCL XML, over every attribute of every element.

The file has one element a line, like every writer's of the format. A mutant changes an attribute,
gives it another element's, or drops, doubles or exchanges steps of one thread block.
"""

from __future__ import annotations

import re

from hccc.testing.mutate_plan import Choose

_ATTRIBUTE = re.compile(r' (\w+)="([^"]*)"')
_STEP = re.compile(r"^\s*<step ")
_LIKELY = 3  # of 4 changes, how many are to steps
_WORDS = {
    "type": ("s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop"),
    "srcbuf": ("i", "o", "s"),
    "dstbuf": ("i", "o", "s"),
    "proto": ("Simple", "LL", "LL128"),
    "coll": ("allreduce", "allgather", "alltoall", "reduce_scatter", "custom"),
}
_NUMBERS = (-1, 0, 1, 2, 3, 5)


def mutate_xml(xml: str, choose: Choose) -> tuple[str, str]:
    """Changes `xml` once or twice; also returns a description of the changes."""
    lines, what = xml.split("\n"), []
    for _ in range(1 + (choose(3) == 0)):
        change = (_other_steps, _changed_attribute, _changed_attribute)[choose(2)]
        what.append(change(lines, choose))
    return "\n".join(_renumbered(lines)), " and ".join(what)


def _changed_attribute(lines: list[str], choose: Choose) -> str:
    steps = [k for k, line in enumerate(lines) if _STEP.match(line)]
    others = [k for k, line in enumerate(lines) if _ATTRIBUTE.search(line) and k not in set(steps)]
    some = steps if steps and choose(3) < _LIKELY else others
    k = some[choose(len(some) - 1)]
    found = [m for m in _ATTRIBUTE.finditer(lines[k]) if m[1] != "s"]
    m = found[choose(len(found) - 1)]
    new = _other_value(m[1], m[2], _like(lines, m[1]), choose)
    lines[k] = f"{lines[k][: m.start(2)]}{new}{lines[k][m.end(2) :]}"
    return f"{m[1]} of line {k + 1}: {m[2]} → {new}"


def _like(lines: list[str], key: str) -> list[str]:
    """Returns the values that the attribute has anywhere."""
    return sorted({m[2] for line in lines for m in _ATTRIBUTE.finditer(line) if m[1] == key})


def _other_value(key: str, old: str, like: list[str], choose: Choose) -> str:
    if key in _WORDS:
        words = [w for w in _WORDS[key] if w != old]
        return words[choose(len(words) - 1)]
    kind = choose(3)
    if kind == 0 and len(like) > 1:
        others = [x for x in like if x != old]
        return others[choose(len(others) - 1)]
    if kind == 1 or not old.lstrip("-").isdecimal():
        return str(_NUMBERS[choose(len(_NUMBERS) - 1)])
    return str(int(old) + 1 - 2 * choose(1))


def _other_steps(lines: list[str], choose: Choose) -> str:
    steps = [k for k, line in enumerate(lines) if _STEP.match(line)]
    if not steps:
        return "no steps"
    k = steps[choose(len(steps) - 1)]
    mates = [j for j in steps if _block(lines, j) == _block(lines, k)]
    kind = choose(2)
    if kind == 0:
        del lines[k]
        return f"line {k + 1} dropped"
    if kind == 1:
        lines.insert(k, lines[k])
        return f"line {k + 1} doubled"
    j = mates[choose(len(mates) - 1)]
    lines[j], lines[k] = lines[k], lines[j]
    return f"lines {j + 1} and {k + 1} exchanged"


def _block(lines: list[str], k: int) -> int:
    """Returns the line that opens the thread block of line `k`."""
    return max(j for j in range(k) if "<tb " in lines[j])


def _renumbered(lines: list[str]) -> list[str]:
    """Renumbers the steps of each block from 0, as the format requires."""
    made, s = [], 0
    for line in lines:
        if "<tb " in line:
            s = 0
        if _STEP.match(line):
            line, s = re.sub(r' s="[^"]*"', f' s="{s}"', line, count=1), s + 1
        made.append(line)
    return made
