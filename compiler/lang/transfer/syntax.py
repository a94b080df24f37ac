"""What a transfer program is made of: the tree that parse.py builds and evaluate.py walks.

Chains of one precedence (`a + b - c + …`) are one flat node, so a tree is never deeper than
`MAX_DEPTH` and everything that walks it may recurse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hccc.ir.arrays import I4, I8
from hccc.lang.mistakes import At

MAX_DEPTH = 100


@dataclass(frozen=True, slots=True, eq=False)
class Number:
    """An integer as written; may exceed 64 bits, which is an error where it is used."""

    value: int
    at: At
    depth: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Name:
    """A variable, or in the last place of a transfer `recv` or `rrc`."""

    id: str
    at: At
    depth: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """A string; only header values may be one."""

    value: str
    at: At
    depth: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """`-x`, `+x`, `~x`, `not x`."""

    op: str
    operand: Expr
    at: At
    depth: int


@dataclass(frozen=True, slots=True, eq=False)
class Link:
    """One more operator and operand of a chain; `at` spans the chain up to here."""

    op: str
    operand: Expr
    at: At


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """`first op operand op operand …`, evaluated from the left; comparisons have one link."""

    first: Expr
    links: Sequence[Link]
    at: At
    depth: int


@dataclass(frozen=True, slots=True, eq=False)
class Logic:
    """`a and b and …` or `a or b or …`, which is 0 or 1. `reads`: names in all but the first."""

    op: str
    operands: Sequence[Expr]
    reads: frozenset[str]
    at: At
    depth: int


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """`min(…)`, `max(…)`; `range` and `transfer` only until parse.py has used them up."""

    function: str
    args: Sequence[Expr]
    at: At
    depth: int


Expr = Number | Name | Text | Prefix | Chain | Logic | Call


@dataclass(frozen=True, slots=True, eq=False)
class Assign:
    """`target = value`."""

    target: str
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Transfer:
    """`transfer(src, dst, step, chunk, recv|rrc)`."""

    args: Sequence[Expr]
    reduces: bool
    op_at: At
    at: At


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Consecutive lines of transfers with literal numbers, as a printed program has millions.

    columns: i8[n, 5] src, dst, step, chunk, op (0 recv, 1 rrc); line: i4[n].
    `places(row)` finds where the five values of a row stand.
    """

    columns: I8
    line: I4
    at: At
    places: Callable[[int], list[At]]


@dataclass(frozen=True, slots=True, eq=False)
class For:
    """`for target in range(start, stop, step): body`."""

    target: str
    start: Expr
    stop: Expr
    step: Expr
    body: Sequence[Stmt]
    at: At


@dataclass(frozen=True, slots=True, eq=False)
class If:
    """`if`, `elif`s and `else`."""

    branches: Sequence[tuple[Expr, Sequence[Stmt]]]
    otherwise: Sequence[Stmt]


Stmt = Assign | Transfer | Table | For | If


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """`key=value` in the header."""

    key: str
    key_at: At
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Algorithm:
    """A whole program as written."""

    pairs: Sequence[Pair]
    body: Sequence[Stmt]
    at: At


def names_in(expr: Expr) -> frozenset[str]:
    """The variables an expression reads."""
    found: set[str] = set()
    pending: list[Expr] = [expr]
    while pending:
        match pending.pop():
            case Name(id):
                found.add(id)
            case Prefix(operand=operand):
                pending.append(operand)
            case Chain(first, links):
                pending.append(first)
                pending.extend(link.operand for link in links)
            case Logic(operands=operands) | Call(args=operands):
                pending.extend(operands)
            case Number() | Text():
                pass
    return frozenset(found)
