"""What a page shows of a command, written anew after what the command prints now."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence

from tests.docs import chapters

ELISION = "..."
CHANGED = 0.5  # lines at least as alike as this are one line that has changed
_NEVER = -1e9
_WORD = re.compile(r"\.\.\.|\w+|\s+|.")


def shown_anew(shown: str, printed: str, measured: bool) -> str:
    """Returns `shown` with the lines that differ as they are in `printed`; its `...` stay where
    they are. All of it stays if it matches. Quadratic in the number of lines."""
    if chapters.pattern(shown, measured).fullmatch(chapters.plain(printed)):
        return shown
    old, new = shown.splitlines(), [line.rstrip() for line in printed.splitlines()]

    def alike(a: str, b: str) -> float:
        if chapters.pattern(a, measured).fullmatch(chapters.plain(b)):
            return 2
        return difflib.SequenceMatcher(None, a, b, autojunk=False).ratio()

    lines = []
    for was, now in _aligned([line.strip() for line in old], new, alike):
        if was is None or now is None:
            lines.append(ELISION if now is None else new[now])
        else:
            lines.append(_line(old[was], new[now], measured))
    return "".join(f"{line}\n" for line in lines)


def _line(old: str, new: str, measured: bool) -> str:
    """Returns a line as it is printed now, with the old one's `...` in it. A line that is measured
    stays if it matches."""
    if ELISION not in old and not measured:
        return new
    if chapters.pattern(old, measured).fullmatch(chapters.plain(new)):
        return old
    was, now = _WORD.findall(old), _WORD.findall(new)
    pairs = _aligned(was, now, lambda a, b: 2 if a == b or (a.isspace() and b.isspace()) else 0)
    elided = "".join(ELISION if j is None else now[j] for _, j in pairs)
    fits = chapters.pattern(elided, measured).fullmatch(chapters.plain(new))
    return elided if fits and elided.replace(ELISION, "").strip() else new


def _aligned(
    old: Sequence[str], new: Sequence[str], alike: Callable[[str, str], float]
) -> list[tuple[int | None, int | None]]:
    """Returns the best alignment: (i, j) for an element of `new` in the place of one of `old`,
    (None, j) for an addition, (i, None) for a `...`. Elements that a `...` stands for, or that are
    gone, are left out. A pair is worth its likeness, from CHANGED on; additions and removals cost,
    elements under a `...` do not."""
    rows, columns = len(old) + 1, len(new) + 1
    best = [[_NEVER] * columns for _ in range(rows)]
    came: list[list[str]] = [[""] * columns for _ in range(rows)]
    best[0][0] = 0

    def offer(i: int, j: int, worth: float, way: str) -> None:
        if worth > best[i][j]:
            best[i][j], came[i][j] = worth, way

    for i in range(rows):
        for j in range(columns):
            here = best[i][j]
            elided = i < len(old) and old[i] == ELISION
            if j < len(new):
                offer(i, j + 1, here - (0 if elided else 0.3), "skip" if elided else "new")
            if i < len(old):
                offer(i + 1, j, here - (0 if elided else 0.2), "elision" if elided else "gone")
            if (
                i < len(old)
                and j < len(new)
                and not elided
                and (worth := alike(old[i], new[j])) >= CHANGED
            ):
                offer(i + 1, j + 1, here + worth, "pair")
    return _path(came, rows - 1, columns - 1)


def _path(came: list[list[str]], i: int, j: int) -> list[tuple[int | None, int | None]]:
    """Returns the alignment that ends at (i, j)."""
    path: list[tuple[int | None, int | None]] = []
    while i or j:
        way = came[i][j]
        if way in ("pair", "gone", "elision"):
            i -= 1
        if way in ("pair", "skip", "new"):
            j -= 1
        if way in ("pair", "new", "elision"):
            path.append((i if way != "new" else None, j if way != "elision" else None))
    return path[::-1]


def told_anew(stderr: str, shown: str, stdout: str) -> str:
    """Returns what `chapters.told` would, were changed lines of stderr shown as they are now."""
    printed = chapters.plain(stdout + stderr).splitlines()
    lines = [line for line in stderr.splitlines() if line.strip()]
    now = shown
    for line in shown.splitlines():
        one = chapters.pattern(line, False)
        if line.strip() != ELISION and not any(one.fullmatch(p + "\n") for p in printed):
            now += "".join(
                f"{like}\n"
                for like in difflib.get_close_matches(line, lines, n=1, cutoff=0.6)
                if like not in stdout
            )
    return chapters.told(stderr, now)
