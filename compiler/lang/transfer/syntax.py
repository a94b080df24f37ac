"""What a transfer program is made of: the tree that parse.py builds and evaluate.py walks.

Chains of one precedence (`a + b - c + …`) are one flat node, so a tree is never deeper than
`MAX_DEPTH` and everything that walks it may recurse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
class Conditional:
    """`then if condition else otherwise`. `reads`: names in `then` and `otherwise`."""

    condition: Expr
    then: Expr
    otherwise: Expr
    reads: frozenset[str]
    at: At
    depth: int


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """`[a, b, …]`."""

    items: Sequence[Expr]
    at: At
    depth: int


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """`base[position]`."""

    base: Expr
    position: Expr
    at: At
    depth: int


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """`min(…)`, `max(…)`, `abs(x)`, `len(list)`, or a function of the program's own (`own`), whose
    parameters `args` are in order; others only until parse.py has used them up.

    `keywords`: the last arguments, where they are given by name.
    """

    function: str
    args: Sequence[Expr]
    at: At
    depth: int
    keywords: Sequence[Keyword] = ()
    own: Function | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Keyword:
    """`name=value` in a call."""

    name: str
    name_at: At
    value: Expr


Expr = Number | Name | Text | Prefix | Chain | Logic | Conditional | Items | Index | Call


@dataclass(frozen=True, slots=True, eq=False)
class Assign:
    """`target = value`, or `a, b = x, y`: all values first, then all targets."""

    targets: Sequence[str]
    values: Sequence[Expr]
    at: At


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """`def name(parameters):`, assignments, `return result`. `reads`: all names in it; `assigned`:
    those of its own variables; `depth` and `elements` (of lists): as an expression's, with those of
    the functions that it calls."""

    name: str
    parameters: Sequence[str]
    body: Sequence[Assign]
    result: Expr
    reads: frozenset[str]
    assigned: frozenset[str]
    depth: int
    elements: int


@dataclass(frozen=True, slots=True, eq=False)
class Transfer:
    """`transfer(src, dst, step, chunk, recv|rrc)`. `order`: the first four as written."""

    args: Sequence[Expr]
    order: Sequence[int]
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
class Steps:
    """`range(start, stop, step)`."""

    start: Expr
    stop: Expr
    step: Expr


@dataclass(frozen=True, slots=True, eq=False)
class For:
    """`for target in over: body`; `over` is a range or a list."""

    target: str
    over: Steps | Expr
    body: Sequence[Stmt]
    at: At

    def limits(self) -> Sequence[Expr]:
        """The expressions that say what the loop runs over."""
        match self.over:
            case Steps(start, stop, step):
                return start, stop, step
            case expr:
                return (expr,)


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
    """A whole program as written. `constants`: the assignments above the header."""

    constants: Sequence[Assign]
    pairs: Sequence[Pair]
    body: Sequence[Stmt]
    at: At


def names_in(expr: Expr) -> frozenset[str]:
    """The variables an expression reads."""
    return frozenset(part.id for part in _parts(expr) if isinstance(part, Name))


def varying_elements(expr: Expr) -> int:
    """The elements of all lists in an expression but those of literal numbers only."""
    parts = list(_parts(expr))
    lists = [part.items for part in parts if isinstance(part, Items)]
    called = sum(part.own.elements for part in parts if isinstance(part, Call) and part.own)
    return called + sum(len(x) for x in lists if not all(isinstance(i, Number) for i in x))


def _parts(expr: Expr) -> Iterator[Expr]:
    """An expression and all that it is made of."""
    pending: list[Expr] = [expr]
    while pending:
        part = pending.pop()
        yield part
        match part:
            case Prefix(operand=operand):
                pending.append(operand)
            case Chain(first, links):
                pending.append(first)
                pending.extend(link.operand for link in links)
            case Logic(operands=operands) | Call(args=operands) | Items(items=operands):
                pending.extend(operands)
            case Conditional(condition, then, otherwise):
                pending += condition, then, otherwise
            case Index(base, position):
                pending += base, position
            case Name() | Number() | Text():
                pass
