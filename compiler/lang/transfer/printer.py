"""printer: a Program as the transfer language, rolled into loops where it follows a pattern.

    # Ring on 8 GPUs
    def ResCCLAlgo(nRanks=8, ..., OpType="Allgather", ..., nChunks=8):
        for s in range(nRanks - 1):
            for i in range(nRanks):
                transfer(i, (i + 1) % nRanks, s, (i - s) % nChunks, recv)

Parsing it gives the same Program: the loops found by `roll` stand for exactly the Program's
transfers. A transfer without a pattern is printed alone. Many transfers that change alike from step
to step, but start anywhere, such as a ring through the ranks in any order, become a loop over
lists. Where all this makes more words than the language reads, every transfer is printed alone:
rows of numbers are read as tables, which are one word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from textwrap import wrap

import numpy as np

from hccc.ir.arrays import I8
from hccc.ir.program import Program
from hccc.ir.program import lines as plain
from hccc.lang.transfer.roll import CHUNK, DIGITS, DST, FIELDS, SRC, STEP, LoopShape, Rolled, roll
from hccc.lang.transfer.tokens import MAX_TOKENS, TABLE_ROWS

OVER_STEPS = ("s", "t")
OVER_RANKS = ("i", "j", "k", "l", "m")
LISTED = 8  # from this number on, transfers that differ only in their start become lists
ALONE = "    transfer("  # what the line of a transfer outside loops begins with
WORD = re.compile(r"\w+|[^\w\s]")
ENDS = 3  # words at most that the ends of a line are: of the line, of blocks


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop `for variable in range(count)`. shape: what a turn adds."""

    variable: str
    count: int
    shape: LoopShape


def lines(p: Program, comments: Iterable[str] = ()) -> Iterator[str]:
    """Yields the lines of `p` in the transfer language, after the lines of `comments`.

    O(transfers · log): 100,000 take about a second at most.
    """
    for comment in comments:
        for line in comment.splitlines() or [""]:
            yield f"# {line}".rstrip()
    rolled = list(_rolled(p))
    yield from rolled if _words(rolled) <= MAX_TOKENS else plain(p)


def _rolled(p: Program) -> Iterator[str]:
    """Yields the lists, the header and the statements, with loops."""
    lists: dict[tuple[int, ...], str] = {}
    body = list(_body(p, lists))
    for numbers, name in lists.items():
        shown = f"{name} = [{', '.join(map(str, numbers))}]"
        yield from wrap(shown, 100, subsequent_indent="    ")
    yield next(plain(p))
    yield from body


def _words(text: list[str]) -> int:
    """Returns a number of words that a reader finds no more of in `text`."""
    count = 0
    for alone, together in groupby(text, lambda line: line.startswith(ALONE)):
        run = list(together)
        table = alone and len(run) >= TABLE_ROWS
        count += ENDS + 1 if table else sum(len(WORD.findall(line)) + ENDS for line in run)
    return count


def _body(p: Program, lists: dict[tuple[int, ...], str]) -> Iterator[str]:
    """Yields all statements. lists: is filled with the numbers of the lists that they read, and
    their names."""
    rolled = roll(p)
    items = zip(rolled.shape.tolist(), rolled.values, strict=True)
    for loop, together in groupby(items, lambda item: _over_steps(rolled, *item)):
        if loop is None:
            for number, values in together:
                yield from _item(p, rolled, number, values)
            continue
        shared = True  # the loop's own line is not yet printed
        for number, alike in groupby(together, lambda item: item[0]):
            rows = np.array([values for _, values in alike])
            nests = _listed(p, rolled, number, rows, lists) or (
                list(_item(p, rolled, number, values)) for values in rows
            )
            for nest in nests:
                yield from nest if shared else nest[1:]
                shared = False


def _listed(
    p: Program, rolled: Rolled, number: int, rows: I8, lists: dict[tuple[int, ...], str]
) -> list[list[str]] | None:
    """Prints many transfers over the same steps, different only in their start, as one loop over
    lists; None if they are few, or differ in more."""
    shape = rolled.shapes[number]
    begins = {f: rows[:, f] for f in (SRC, DST, CHUNK)}
    first = rows[0].copy()
    for f in begins:
        digits = FIELDS + (f - 1) * DIGITS + np.arange(DIGITS)
        turning = digits[shape.mods[digits] > 1]
        if len(turning) and (len(turning) > 1 or (begins[f] != first[f]).any()):
            return None
        begins[f] = rows[:, turning[0]] if len(turning) else begins[f]
        first[turning if len(turning) else f] = 0
    if shape.depth > 1 or len(rows) < LISTED:
        return None
    (loop,) = _loops(rolled, shape)
    values = []
    for f, name in ((SRC, "src"), (DST, "dst"), (CHUNK, "chunk")):
        numbers = tuple(begins[f].tolist())
        chosen = lists.setdefault(numbers, f"{name}{len(lists)}")
        values.append(_element(p, shape, loop, f, int(first[f]), f"{chosen}[i]"))
    step = _value([loop], rows[0], shape, STEP, 0, "")
    op = "rrc" if shape.reduces else "recv"
    nest = [
        f"    for {loop.variable} in range({_count(p, loop.count)}):",
        f"        for i in range({len(rows)}):",
        f"            transfer({values[0]}, {values[1]}, {step}, {values[2]}, {op})",
    ]
    return [nest]


def _element(p: Program, shape: LoopShape, loop: _Loop, f: int, base: int, element: str) -> str:
    """Writes a field that starts at `element` of a list, for each turn of `loop`."""
    c = p.collective
    whole, name = (c.n_chunks, "nChunks") if f == CHUNK else (c.n_ranks, "nRanks")
    turning = [
        d for d in range(FIELDS + (f - 1) * DIGITS, FIELDS + f * DIGITS) if shape.mods[d] > 1
    ]
    slope = _line([int(shape.slope[f])], base, [loop])
    if not turning:
        return element if slope == "0" else f"{element} + {slope}"
    m, turn = int(shape.mods[turning[0]]), int(shape.slope[turning[0]])
    turn -= m if turn > m // 2 else 0
    size = loop.variable if abs(turn) == 1 else f"{abs(turn)} * {loop.variable}"
    digit = f"({element} {'-' if turn < 0 else '+'} {size}) % {name if m == whole else m}"
    return digit if slope == "0" else f"{slope} + {digit}"


def text(p: Program, comments: Iterable[str] = ()) -> str:
    """Returns `lines` as one text."""
    return "\n".join([*lines(p, comments), ""])


def _over_steps(rolled: Rolled, number: int, values: I8) -> tuple[int, int, int] | None:
    """Returns the outermost loop of an item if each of its turns is one step: (count, first step,
    steps of a turn). Items with the same such loop may share it, as the items of a step stay in
    order."""
    shape = rolled.shapes[number]
    if shape.child is None or rolled.shapes[shape.child].span or not shape.slope[STEP]:
        return None
    return shape.count, int(values[STEP]), int(shape.slope[STEP])


def _item(p: Program, rolled: Rolled, number: int, values: I8) -> Iterator[str]:
    """Yields a transfer, or a nest of loops if that is shorter."""
    shape = rolled.shapes[number]
    if shape.child is None:
        op = "rrc" if shape.reduces else "recv"
        step, src, dst, chunk = values[:FIELDS].tolist()
        yield f"    transfer({src}, {dst}, {step}, {chunk}, {op})"
        return
    if not shape.span and shape.rows < 2 * (shape.depth + 1):
        for i in range(shape.count):
            inner = values + i * shape.slope
            inner[FIELDS:] %= shape.mods[FIELDS:]
            child = rolled.shapes[shape.child]
            yield from _item(p, rolled, shape.child, _folded(child, shape, inner))
        return
    loops = _loops(rolled, shape)
    for depth, loop in enumerate(loops):
        yield f"{'    ' * (depth + 1)}for {loop.variable} in range({_count(p, loop.count)}):"
    yield _transfer(p, loops, values, shape, len(loops) + 1)


def _folded(child: LoopShape, shape: LoopShape, values: I8) -> I8:
    """Returns the values of the child: digits that only the outer loop has are added to its
    values."""
    for f in (SRC, DST, CHUNK):
        for d in range(FIELDS + (f - 1) * DIGITS, FIELDS + f * DIGITS):
            if child.mods[d] == 1 and shape.mods[d] > 1:
                values[f] += values[d]
                values[d] = 0
    return values


def _loops(rolled: Rolled, shape: LoopShape) -> list[_Loop]:
    """Returns the loops of a nest, outermost first."""
    loops, steps, ranks = [], iter(OVER_STEPS), iter(OVER_RANKS)
    while shape.child is not None:
        variable = next(steps if shape.slope[STEP] else ranks)
        loops.append(_Loop(variable, shape.count, shape))
        shape = rolled.shapes[shape.child]
    return loops


def _count(p: Program, count: int) -> str:
    n = p.collective.n_ranks
    names = {n: "nRanks", n - 1: "nRanks - 1"}
    return names.get(count, str(count)) if n > 3 else str(count)


def _transfer(p: Program, loops: list[_Loop], values: I8, shape: LoopShape, depth: int) -> str:
    n_ranks, n_chunks = p.collective.n_ranks, p.collective.n_chunks
    src = _value(loops, values, shape, SRC, n_ranks, "nRanks")
    dst = _value(loops, values, shape, DST, n_ranks, "nRanks")
    step = _value(loops, values, shape, STEP, 0, "")
    chunk = _value(loops, values, shape, CHUNK, n_chunks, "nChunks")
    op = "rrc" if shape.reduces else "recv"
    return f"{'    ' * depth}transfer({src}, {dst}, {step}, {chunk}, {op})"


def _value(loops: list[_Loop], values: I8, shape: LoopShape, f: int, whole: int, name: str) -> str:
    """Writes a field: a linear term, and each digit with its modulus, left out if no loop wraps
    around."""
    terms = [int(loop.shape.slope[f]) for loop in loops]
    constant = int(values[f])
    rounds = []
    columns = range(FIELDS + (f - 1) * DIGITS, FIELDS + f * DIGITS) if f else ()
    for d in columns:
        m = int(shape.mods[d])
        if m == 1:
            continue
        turns = [int(loop.shape.slope[d]) % m for loop in loops]
        begin = int(values[d]) % m
        if straight := _straight(turns, begin, m, loops):
            constant += straight[1]
            terms = [a + b for a, b in zip(terms, straight[0], strict=True)]
        else:
            turns = [c - m if c > m // 2 else c for c in turns]
            begin -= m if begin > m // 2 else 0
            line = _line(turns, begin, loops)
            line = line if line.isidentifier() else f"({line})"
            rounds.append(f"{line} % {name if m == whole else m}")
    line = _line(terms, constant, loops)
    return " + ".join([*([line] if line != "0" or not rounds else []), *rounds])


def _straight(
    turns: list[int], begin: int, m: int, loops: list[_Loop]
) -> tuple[list[int], int] | None:
    """Returns slopes and constant of a digit without the modulus, if no loop wraps around."""
    centred = [c - m if c > m // 2 else c for c in turns]
    for slopes in (turns, centred):
        ends = [c * (loop.count - 1) for c, loop in zip(slopes, loops, strict=True)]
        low = begin + sum(min(0, end) for end in ends)
        high = begin + sum(max(0, end) for end in ends)
        if low // m == high // m:
            return slopes, begin - low // m * m
    return None


def _line(slopes: list[int], constant: int, loops: list[_Loop]) -> str:
    """Writes `r - 2 * s + 1`: positive terms first, the innermost variable first."""
    terms = [(c, loop.variable) for c, loop in zip(slopes, loops, strict=True) if c][::-1]
    parts = [*sorted(terms, key=lambda term: term[0] < 0)]
    shown = ""
    for c, variable in [*parts, *([(constant, "")] if constant or not parts else [])]:
        size = abs(c)
        factor = str(size) if not variable else variable if size == 1 else f"{size} * {variable}"
        if shown:
            shown += f" {'-' if c < 0 else '+'} {factor}"
        else:
            shown = f"-{factor}" if c < 0 else factor
    return shown
