"""text: cluster text to `Define`s, by own tokens and lark's LALR tables.

Nothing here recurses; brackets nest at most `MAX_BRACKETS` deep, so functions on the values may
recurse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedToken

from hccc.lang.mistakes import At, Mistake, clip, either
from hccc.lang.tables import place, tables

MAX_TOKENS = 1 << 18
MAX_BRACKETS = 32
MAX_DIGITS = 32
# In GB/s and µs, exactly, so that `700 ns` is the same float as `0.7`.
RATES = {
    "GB/s": Fraction(1),
    "MB/s": Fraction(1, 1000),
    "TB/s": Fraction(1000),
    "Gbps": Fraction(1, 8),
    "Mbps": Fraction(1, 8000),
    "Tbps": Fraction(125),
    "Gbit/s": Fraction(1, 8),
    "Tbit/s": Fraction(125),
    "Gb/s": Fraction(1, 8),
    "Mb/s": Fraction(1, 8000),
    "Tb/s": Fraction(125),
}
TIMES = {
    "us": Fraction(1),
    "µs": Fraction(1),
    "μs": Fraction(1),
    "ns": Fraction(1, 1000),
    "ms": Fraction(1000),
}
SIZES = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}
_UNIT = "|".join(sorted(map(re.escape, {**RATES, **TIMES, **SIZES}), key=len, reverse=True))
TOKEN = re.compile(
    rf"""(?P<skip>[ \t\f\r\n]+|\#[^\n]*)
      | (?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?=(?:{_UNIT})?(?![A-Za-z0-9_])))
      | (?P<unit>[A-Za-z]+/s(?![A-Za-z0-9_])|[µμ]s(?![A-Za-z0-9_]))
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*)
      | (?P<string>"[^"\n]*"|'[^'\n]*')
      | (?P<op>>->|->|=>|\.\.|[=*,()\[\]{{}}])""",
    re.VERBOSE,
)
OPERATORS = {
    **{"=": "_ASSIGN", "=>": "_FAT", "->": "ARROW", ">->": "ARROW", "..": "_DOTS", "*": "_STAR"},
    **{"(": "LPAR", ")": "RPAR", "[": "LSQB", "]": "RSQB", "{": "LBRACE", "}": "RBRACE"},
    ",": "_COMMA",
}
CLOSES = {")": "(", "]": "[", "}": "{"}
SAID = {
    "_DEFINE": "`define`",
    "_ASSIGN": "`=`",
    "_FAT": "`=>`",
    "ARROW": "`->` or `>->`",
    "_COMMA": "`,`",
    "RPAR": "`)`",
    "RSQB": "`]`",
    "RBRACE": "`}`",
    "NAME": "a name",
    "$END": "the end of the file",
}
A_VALUE = {"NUMBER", "NAME", "STRING", "LPAR", "LSQB", "LBRACE"}


@dataclass(frozen=True, slots=True)
class Num:
    """A number as written. whole: whether it is an integer."""

    value: float
    whole: bool
    at: At


@dataclass(frozen=True, slots=True)
class Measure:
    """A number with a unit, `1 MB`."""

    value: float
    unit: str
    at: At


@dataclass(frozen=True, slots=True)
class Word:
    """A name, or a text in quotes."""

    text: str
    at: At


@dataclass(frozen=True, slots=True)
class IdRange:
    """`first .. last`, both included."""

    first: Value
    last: Value
    at: At


@dataclass(frozen=True, slots=True)
class Times:
    """`count * value`."""

    count: Value
    value: Value
    at: At


@dataclass(frozen=True, slots=True)
class Group:
    """`(a, b, …)`."""

    items: Sequence[Value]
    at: At


@dataclass(frozen=True, slots=True)
class Arrow:
    """`left -> right`, or `left >-> right` (`shared`)."""

    left: Value
    right: Value
    shared: bool
    at: At


@dataclass(frozen=True, slots=True)
class List:
    """`[a, b, …]`."""

    items: Sequence[Value]
    at: At


@dataclass(frozen=True, slots=True)
class Map:
    """`{key => value, …}`."""

    pairs: Sequence[tuple[Word, Value]]
    at: At


Value = Num | Measure | Word | IdRange | Times | Group | Arrow | List | Map


@dataclass(frozen=True, slots=True)
class Define:
    """`define name = value`."""

    name: str
    at: At
    value: Value


def parse_defines(text: str) -> list[Define]:
    """Parses the statements of a whole cluster file. Raises `Mistake`. Linear in the text."""
    parser = _parser().parse_interactive("")
    before: Token | None = None
    try:
        for token in _tokens(text):
            parser.feed_token(token)
            before = token
        defines: list[Define] = parser.feed_eof(before)  # type: ignore[no-untyped-call]
    except UnexpectedToken as error:
        accepts: set[str] = parser.accepts()  # type: ignore[no-untyped-call]
        raise _complaint(error.token, before, accepts) from None
    return defines


def _tokens(text: str) -> Iterator[Token]:
    pos, line, start, count = 0, 1, 0, 0
    opened: list[Token] = []
    while pos < len(text):
        match = TOKEN.match(text, pos)
        if match is None:
            raise _stray(text, pos, At(line, pos - start + 1, pos - start + 2))
        value, kind, begin = match.group(), match.lastgroup or "", pos
        pos = match.end()
        if kind == "skip":
            if newlines := value.count("\n"):
                line, start = line + newlines, begin + value.rindex("\n") + 1
            continue
        token = _token(value, kind, line, begin - start + 1)
        _brackets(token, opened)
        count += 1
        if count > MAX_TOKENS:
            raise Mistake(
                "E037", f"this file is too long: more than {MAX_TOKENS:,} words", place(token)
            )
        yield token
    if opened:
        raise Mistake("E032", f"this `{opened[-1]}` is never closed", place(opened[-1]))


def _token(value: str, kind: str, line: int, column: int) -> Token:
    at = At(line, column, column + len(value))
    if kind == "number" and len(value) > MAX_DIGITS:
        raise Mistake("E036", "this number has too many digits", at)
    name = "_DEFINE" if value == "define" else "NAME"
    kinds = {"number": "NUMBER", "unit": "NAME", "name": name, "string": "STRING"}
    return Token(kinds.get(kind) or OPERATORS[value], value, None, line, column, line, at.end)


def _brackets(token: Token, opened: list[Token]) -> None:
    """Keeps track of open brackets. Raises E032 at a closing bracket that does not match."""
    if token in CLOSES.values():
        opened.append(token)
        if len(opened) > MAX_BRACKETS:
            message = f"brackets nest more than {MAX_BRACKETS} deep"
            raise Mistake("E037", message, place(token))
    elif token in CLOSES:
        if not opened:
            raise Mistake("E032", f"this `{token}` closes nothing", place(token))
        if opened.pop() != CLOSES[str(token)]:
            raise Mistake("E032", f"this `{token}` closes another kind of bracket", place(token))
    elif token.type == "_DEFINE" and opened:
        message = f"this `{opened[-1]}` is never closed"
        raise Mistake("E032", message, place(opened[-1]), "the next `define` begins inside it")


def _stray(text: str, pos: int, at: At) -> Mistake:
    char = text[pos]
    if char in "\"'":
        return Mistake("E031", "this text does not end on its line", at)
    if char.isascii() and char.isdigit():
        word = re.match(r"[0-9A-Za-z_]+", text[pos:])
        shown = clip(word.group() if word else char)
        at = At(at.line, at.column, at.column + len(shown))
        help = "units are " + ", ".join((*RATES, *TIMES, *SIZES))
        return Mistake("E031", f"`{shown}` is neither a number nor a name", at, help)
    negative = "no bandwidth, latency or id is negative" if char == "-" else None
    shown = char if char.isprintable() else f"U+{ord(char):04X}"
    return Mistake("E031", f"`{shown}` is not in the cluster language", at, negative)


def _complaint(token: Token, before: Token | None, accepts: set[str]) -> Mistake:
    """Describes the error at `token` after `before`, where only `accepts` may stand."""
    found = "the end of the file" if token.type == "$END" else f"`{clip(token)}`"
    if before is None:
        help = "for example `define nodenum = 2`"
        return Mistake("E030", f"a cluster is a list of `define`s, not {found}", place(token), help)
    if "_DEFINE" in accepts and token.type == "NAME":
        message = f"every statement begins with `define`, not {found}"
        return Mistake("E030", message, place(token), _in_quotes(before, token, accepts))
    if before in ("x", "X") and token.type == "NUMBER":
        message = f"expected `*`, found `{before}`"
        return Mistake("E030", message, place(before), f"nodes of so many GPUs: `2 * {token}`")
    wanted = [word for kind, word in SAID.items() if kind in accepts - A_VALUE]
    if accepts >= A_VALUE:
        wanted.insert(0, "a value")
    elif "NAME" in accepts:
        wanted.insert(0, "a name")
    message = f"expected {either(wanted) or 'nothing more'}, found {found}"
    return Mistake("E030", message, place(token), _in_quotes(before, token, accepts))


def _in_quotes(before: Token, token: Token, accepts: set[str]) -> str | None:
    """Explains how to write a name of several words, such as `H100 SXM5`."""
    words = before.type == "NAME" and token.type in ("NAME", "NUMBER")
    if not words or token.line != before.line or accepts & {"_ASSIGN", "_FAT"}:
        return None
    return f'a name of several words is in quotes: `"{clip(before)} ..."`'


@cache
def _parser() -> Lark:
    return tables("hccc.lang.cluster", "cluster.lark", _DefineBuilder())


class _DefineBuilder(Transformer[Token, Any]):
    """Makes the value of each rule of cluster.lark; a method per alias."""

    def start(self, items: list[Define]) -> list[Define]:
        return items

    def define(self, items: list[Any]) -> Define:
        return Define(str(items[0]), place(items[0]), items[1])

    def number(self, items: list[Token]) -> Num:
        return Num(float(items[0]), str(items[0]).isdecimal(), place(items[0]))

    def measure(self, items: list[Token]) -> Measure:
        return Measure(float(items[0]), str(items[1]), place(items[0]).to(place(items[1])))

    def word(self, items: list[Token]) -> Word:
        return Word(str(items[0]), place(items[0]))

    def string(self, items: list[Token]) -> Word:
        return Word(str(items[0])[1:-1], place(items[0]))

    def range(self, items: list[Any]) -> IdRange:
        return IdRange(items[0], items[1], items[0].at.to(items[1].at))

    def times(self, items: list[Any]) -> Times:
        return Times(items[0], items[1], items[0].at.to(items[1].at))

    def arrow(self, items: list[Any]) -> Arrow:
        left, sign, right = items
        return Arrow(left, right, sign == ">->", left.at.to(right.at))

    def group(self, items: list[Any]) -> Group:
        return Group(tuple(items[1:-1]), place(items[0]).to(place(items[-1])))

    def pointed(self, items: list[Any]) -> Arrow:
        at = place(items[0]).to(place(items[-1]))
        left, sign, right = items[1:-3], items[-3], items[-2]
        whole = left[0] if len(left) == 1 else Group(tuple(left), left[0].at.to(left[-1].at))
        return Arrow(whole, right, sign == ">->", at)

    def bracket(self, items: list[Any]) -> List:
        return List(tuple(items[1:-1]), place(items[0]).to(place(items[-1])))

    def pair(self, items: list[Any]) -> tuple[Word, Value]:
        return Word(str(items[0]), place(items[0])), items[1]

    def map(self, items: list[Any]) -> Map:
        return Map(tuple(items[1:-1]), place(items[0]).to(place(items[-1])))
