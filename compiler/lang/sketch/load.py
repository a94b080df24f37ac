"""The language of sketches (`.sketch`): text to Allotment (`ir/sketch`).

    sketch 7/8:                 # this share of the data; without shares all have the same
        stage:
            rail 0: 0 -> 8, 16  # group 0 of dimension `rail`: sources, and who gets it from them
        stage:
            node 0: 0 -> 1-7
            node 1: 8 -> 9-15
            node 2: 16 -> 17-23

`hccc cluster dimensions` prints the dimensions and groups of a cluster. `#` begins a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from lark import Lark, Token, Transformer, UnexpectedToken

from hccc.base.diagnostics import Source
from hccc.base.files.reading import read_text
from hccc.ir.arrays import I4
from hccc.ir.sketch import Allotment, Sketch, SketchFault, SubDemand, check
from hccc.lang.mistakes import At, Mistake, clip, either
from hccc.lang.tables import place, tables

MAX_BYTES = 8 << 20
MAX_DIGITS = 9
EXAMPLE = "a sub-demand is `node 0: 0 -> 1-7`"
TOKEN = re.compile(
    r"(?P<skip>[ \t\f\r\n]+|#[^\n]*)|(?P<number>[0-9]+)|(?P<name>[A-Za-z_]+)|(?P<op>->|[-:,/])"
)
KINDS = {
    **{"sketch": "SKETCH", "stage": "_STAGE", "->": "_ARROW"},
    **{":": "_COLON", ",": "_COMMA", "-": "_DASH", "/": "_SLASH"},
}
SAID = {
    **{"SKETCH": "`sketch`", "_STAGE": "`stage`", "NAME": "a dimension", "NUMBER": "a number"},
    **{"_COLON": "`:`", "_ARROW": "`->`", "_COMMA": "`,`", "_DASH": "`-`", "_SLASH": "`/`"},
    "$END": "the end of the file",
}


class _WrittenRun(NamedTuple):
    """Ranks `first` to `last`, and where they are named."""

    first: int
    last: int
    at: At


@dataclass(frozen=True, slots=True)
class _WrittenDemand:
    """A sub-demand as written."""

    name: Token
    group: int
    sources: tuple[_WrittenRun, ...]
    targets: tuple[_WrittenRun, ...]
    at: At

    def at_rank(self, rank: int | None) -> At:
        """Returns where a rank is named last; the whole sub-demand's place for None."""
        for run in (*reversed(self.targets), *reversed(self.sources)):
            if rank is not None and run.first <= rank <= run.last:
                return run.at
        return self.at


@dataclass(frozen=True, slots=True)
class _WrittenSketch:
    """A sketch as written. share: None where it has none."""

    share: Fraction | None
    stages: tuple[tuple[_WrittenDemand, ...], ...]
    at: At


def load(path: Path, groups: Mapping[str, I4]) -> Allotment:
    """Reads the sketches in a file. groups: of each dimension the group of each rank, i4[n], -1 for
    none. Raises `UserError`."""
    return parse(Source(str(path), read_text(path, MAX_BYTES)), groups)


def parse(source: Source, groups: Mapping[str, I4]) -> Allotment:
    """Reads the sketches in a text, of a cluster with these groups. Raises UserError E018, E019."""
    try:
        return _allotment(_parsed(source.text.removeprefix("\ufeff")), groups)
    except Mistake as mistake:
        raise mistake.in_source(source) from None


def _allotment(written: list[_WrittenSketch], groups: Mapping[str, I4]) -> Allotment:
    """Checks sketches and joins them."""
    n = len(next(iter(groups.values()))) if groups else 0
    found = tuple(_sketch(one, n) for one in written)
    for one, sketch in zip(written, found, strict=True):
        for fault in check(sketch, groups):
            raise _mistake(fault, one)
        if sketch.root != found[0].root:
            message = f"this sketch begins at rank {sketch.root}, the first at {found[0].root}"
            raise Mistake("E019", message, one.at, "all sketches of a file have the same root")
    given = [one for one in written if one.share is not None]
    if not given:
        return Allotment(found, (Fraction(1, len(found)),) * len(found))
    for one in written:
        if not one.share:
            message = "this sketch has no share" if one.share is None else "this share is 0"
            raise Mistake("E019", message, one.at, "all have one, `sketch 1/2:`, or none has")
    shares = tuple(one.share for one in written if one.share is not None)
    if sum(shares) != 1:
        message = f"the shares of all sketches add up to {sum(shares)}"
        raise Mistake("E019", message, written[-1].at, "they must add up to 1")
    return Allotment(found, shares)


def _sketch(one: _WrittenSketch, n: int) -> Sketch:
    return Sketch(
        tuple(
            tuple(
                SubDemand(str(d.name), d.group, _ranks(d.sources, n), _ranks(d.targets, n))
                for d in stage
            )
            for stage in one.stages
        )
    )


def _ranks(runs: tuple[_WrittenRun, ...], n: int) -> tuple[int, ...]:
    for run in runs:
        if run.last < run.first:
            message = f"{run.first}-{run.last} is empty"
            raise Mistake("E019", message, run.at, f"{run.last}-{run.first}")
        if run.last >= n:
            raise Mistake("E019", f"there is no rank {run.last}", run.at, f"0 to {n - 1}")
    return tuple(rank for run in runs for rank in range(run.first, run.last + 1))


def _mistake(fault: SketchFault, one: _WrittenSketch) -> Mistake:
    """Returns a broken invariant as a mistake at its place."""
    at = one.at
    if fault.stage is not None and fault.demand is not None:
        at = one.stages[fault.stage][fault.demand].at_rank(fault.rank)
    return Mistake("E019", fault.message, at, fault.help)


def _parsed(text: str) -> list[_WrittenSketch]:
    """Parses a whole file. Raises Mistake E018. Linear in the text."""
    parser = _parser().parse_interactive("")
    before: Token | None = None
    try:
        for token in _tokens(text):
            parser.feed_token(token)
            before = token
        found: list[_WrittenSketch] = parser.feed_eof(before)  # type: ignore[no-untyped-call]
    except UnexpectedToken as error:
        accepts: set[str] = parser.accepts()  # type: ignore[no-untyped-call]
        raise _complaint(error.token, accepts) from None
    return found


def _tokens(text: str) -> Iterator[Token]:
    pos, line, start = 0, 1, 0
    while pos < len(text):
        match = TOKEN.match(text, pos)
        column = pos - start + 1
        if match is None:
            shown = text[pos] if text[pos].isprintable() else f"U+{ord(text[pos]):04X}"
            at = At(line, column, column + 1)
            raise Mistake("E018", f"`{shown}` is nothing of a sketch", at, EXAMPLE)
        value, kind, begin = match.group(), match.lastgroup, pos
        pos = match.end()
        if kind == "skip":
            if newlines := value.count("\n"):
                line, start = line + newlines, begin + value.rindex("\n") + 1
            continue
        end = column + len(value)
        if kind == "number" and len(value) > MAX_DIGITS:
            raise Mistake("E018", "this number has too many digits", At(line, column, end))
        named = "NUMBER" if kind == "number" else KINDS.get(value, "NAME")
        yield Token(named, value, None, line, column, line, end)


def _complaint(token: Token, accepts: set[str]) -> Mistake:
    """Describes the error at `token`, where only `accepts` may stand."""
    found = "the end of the file" if token.type == "$END" else f"`{clip(token)}`"
    wanted = [said for kind, said in SAID.items() if kind in accepts]
    return Mistake("E018", f"expected {either(wanted)}, found {found}", place(token), EXAMPLE)


@cache
def _parser() -> Lark:
    return tables("hccc.lang.sketch", "sketch.lark", _SketchBuilder())


class _SketchBuilder(Transformer[Token, Any]):
    """Makes the value of each rule of sketch.lark."""

    def start(self, items: list[_WrittenSketch]) -> list[_WrittenSketch]:
        return items

    def sketch(self, items: list[Any]) -> _WrittenSketch:
        word, *rest = items
        if isinstance(rest[0], _WrittenShare):
            return _WrittenSketch(rest[0].value, tuple(rest[1:]), rest[0].at)
        return _WrittenSketch(None, tuple(rest), place(word))

    def share(self, items: list[Token]) -> _WrittenShare:
        at = place(items[0]).to(place(items[-1]))
        divisor = int(items[1]) if items[1:] else 1
        if divisor == 0:
            raise Mistake("E018", "a share is not over 0", at, "for example `sketch 1/2:`")
        return _WrittenShare(Fraction(int(items[0]), divisor), at)

    def stage(self, items: list[_WrittenDemand]) -> tuple[_WrittenDemand, ...]:
        return tuple(items)

    def demand(self, items: list[Any]) -> _WrittenDemand:
        name, group, sources, targets = items
        at = place(name).to(targets[-1].at)
        return _WrittenDemand(name, int(group), sources, targets, at)

    def ranks(self, items: list[_WrittenRun]) -> tuple[_WrittenRun, ...]:
        return tuple(items)

    def run(self, items: list[Token]) -> _WrittenRun:
        return _WrittenRun(int(items[0]), int(items[-1]), place(items[0]).to(place(items[-1])))


@dataclass(frozen=True, slots=True)
class _WrittenShare:
    """A share as written."""

    value: Fraction
    at: At
