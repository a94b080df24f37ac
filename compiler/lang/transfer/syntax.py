"""syntax: the tree of a transfer program, built by parse.py and evaluated by evaluate.py.

Chains of one precedence (`a + b - c + …`) are one flat node, so a tree is never deeper than
`MAX_DEPTH` and functions over it may recurse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hccc.ir.arrays import I4, I8
from hccc.lang.mistakes import At

MAX_DEPTH = 100


@dataclass(frozen=True, slots=True, eq=False)
class NumberExpr:
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
class StringExpr:
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
class ChainLink:
    """One more operator and operand of a chain; `at` spans the chain up to here."""

    op: str
    operand: Expr
    at: At


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """`first op operand op operand …`, evaluated from the left; comparisons have one link."""

    first: Expr
    links: Sequence[ChainLink]
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
class CallExpr:
    """`min(…)`, `max(…)`, `abs(x)`, `len(list)`, or a function `own` that the program defines.

    args: in the order of the parameters; keywords: the arguments given by name, until parse.py has
    moved them to `args`. Other functions occur only until parse.py has replaced them.
    """

    function: str
    args: Sequence[Expr]
    at: At
    depth: int
    keywords: Sequence[Keyword] = ()
    own: FunctionDef | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Keyword:
    """`name=value` in a call."""

    name: str
    name_at: At
    value: Expr


Expr = (
    NumberExpr | Name | StringExpr | Prefix | Chain | Logic | Conditional | Items | Index | CallExpr
)


@dataclass(frozen=True, slots=True, eq=False)
class Assign:
    """`target = value`, or `a, b = x, y`: all values first, then all targets."""

    targets: Sequence[str]
    values: Sequence[Expr]
    at: At


@dataclass(frozen=True, slots=True, eq=False)
class FunctionDef:
    """`def name(parameters):`, assignments, `return result`. reads: all names in it; assigned: its
    own variables; depth, elements (of lists): as of an expression, with those of the functions that
    it calls."""

    name: str
    parameters: Sequence[str]
    body: Sequence[Assign]
    result: Expr
    reads: frozenset[str]
    assigned: frozenset[str]
    depth: int
    elements: int


@dataclass(frozen=True, slots=True, eq=False)
class TransferStmt:
    """`transfer(src, dst, step, chunk, recv|rrc)`. `order`: the first four as written."""

    args: Sequence[Expr]
    order: Sequence[int]
    reduces: bool
    op_at: At
    at: At


@dataclass(frozen=True, slots=True, eq=False)
class TransferTable:
    """Consecutive lines of transfers with literal numbers, as a printed program has millions.

    columns: i8[n, 5] src, dst, step, chunk, op (0 recv, 1 rrc); line: i4[n]; `places(row)` finds
    the places of a row's five values.
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
        """Returns the expressions of the range or list."""
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


Stmt = Assign | TransferStmt | TransferTable | For | If


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """`key=value` in the header."""

    key: str
    key_at: At
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class ProgramSyntax:
    """A whole program as written. constants: the assignments above the header."""

    constants: Sequence[Assign]
    pairs: Sequence[Pair]
    body: Sequence[Stmt]
    at: At


def names_in(expr: Expr) -> frozenset[str]:
    """Returns the variables that an expression reads."""
    return frozenset(part.id for part in _parts(expr) if isinstance(part, Name))


def varying_elements(expr: Expr) -> int:
    """Returns the number of elements of all lists in an expression, without lists of literal
    numbers."""
    parts = list(_parts(expr))
    lists = [part.items for part in parts if isinstance(part, Items)]
    called = sum(part.own.elements for part in parts if isinstance(part, CallExpr) and part.own)
    return called + sum(len(x) for x in lists if not all(isinstance(i, NumberExpr) for i in x))


def _parts(expr: Expr) -> Iterator[Expr]:
    """Yields an expression and all its parts."""
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
            case Logic(operands=operands) | CallExpr(args=operands) | Items(items=operands):
                pending.extend(operands)
            case Conditional(condition, then, otherwise):
                pending += condition, then, otherwise
            case Index(base, position):
                pending += base, position
            case Name() | NumberExpr() | StringExpr():
                pass
