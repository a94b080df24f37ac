"""rows: a Plan of many unlike thread blocks → tables, and one loop that executes their rows.

Where blocks are alike, `function` writes each class of them as straight-line calls. A program
whose classes are many would be a text that takes compilers minutes. Here a thread block is a
sequence of rows instead: the kind of each primitive (its shape, see `classes`), and those numbers
of it that are not the same for the whole kind. A kind is one call. Blocks whose rows are equal,
as seen from their rank (`encodings`), share them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hccc.base.diagnostics import InternalError
from hccc.emit.kernels import wrap
from hccc.emit.kernels.calls import Argument, Call, Caller, numbers_of
from hccc.emit.kernels.classes import rank_axes, shape_ids
from hccc.emit.kernels.encodings import Encoding, encodings
from hccc.emit.kernels.fit import fit
from hccc.emit.kernels.forms import Axis, Grid, Lookup, names
from hccc.emit.kernels.function import Tables, coordinates
from hccc.emit.kernels.sharing import Blocks, Shared, entries_needed, shared
from hccc.emit.kernels.width import code, fits_int
from hccc.ir.arrays import I4, I8
from hccc.ir.plan import Plan

LAST = -1  # the kind that ends a block's rows
WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Numbers of a kind that differ. values: i8[its rows], as encoded; most: the largest number;
    entries: what they take in a table; key: of the numbers."""

    key: bytes
    encoding: Encoding
    values: I8
    most: int
    entries: int


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Alike primitives, `rows`, ascending; text: numbers by their bytes → C for them."""

    rows: I8
    call: Call
    verb: str
    columns: tuple[Column, ...]
    text: dict[bytes, str]


@dataclass(frozen=True, slots=True)
class Body:
    """The function that executes all rows: its lines, and how many calls are in it."""

    lines: tuple[str, ...]
    calls: int


def body(caller: Caller, moduli: tuple[int, ...], tables: Tables) -> Body:
    """The function for all thread blocks of the caller's plan; adds to `tables`. moduli: see `fit`.

    O(P log P) for every number of a primitive.
    """
    plan = caller.plan
    blocks, ids = Blocks.of_plan(plan), shape_ids(plan, caller.far)
    order = np.argsort(ids, kind="stable")
    cuts = np.cumsum(np.bincount(ids))[:-1]
    kinds = [_kind(caller, blocks, rows) for rows in np.split(order, cuts)]
    offsets = Offsets(plan, blocks, moduli, tables)
    pointers = offsets.pointers(ids, kinds)
    cases = [line for k, kind in enumerate(kinds) for line in _case(k, kind)]
    read = {word for kind in kinds for text in _texts(kind) for word in WORD.findall(text)}
    lines = (
        *coordinates(offsets.reads | read, plan.gpus_per_node),
        *pointers,
        "  HCCC_WINDOWS(b) {",
        "    HCCC_UNROLL(1)",
        f"    for (int i = 0; kind[i] != {LAST}; ++i) {{",
        "      switch (kind[i]) {",
        *cases,
        "      }",
        "    }",
        "  }",
    )
    return Body(lines, len(kinds))


def _kind(caller: Caller, blocks: Blocks, rows: I8) -> Kind:
    position = blocks.position[rows]
    call = caller.primitive(rows, position)
    text = {position.tobytes(): "i"} if np.ptp(position) else {}
    columns: dict[bytes, Column] = {}
    for number in numbers_of(call):
        key = number.values.tobytes()
        if key not in text and key not in columns:
            found = _cheapest(caller.plan, blocks, rows, number.values)
            if isinstance(found, str):
                text[key] = found
            else:
                columns[key] = found
    ordered = sorted(columns.values(), key=lambda c: c.entries)
    text |= {column.key: f"x{k}" for k, column in enumerate(ordered)}
    return Kind(rows, call, caller.verb(int(rows[0])), tuple(ordered), text)


def _cheapest(plan: Plan, blocks: Blocks, rows: I8, values: I8) -> Column | str:
    """Numbers as C where one expression does for all, else with the encoding that shares most."""
    if not fits_int(values):
        raise InternalError("a parameter of generated code does not fit an int")
    rank, most = blocks.rank[blocks.of[rows]], int(values.max())
    best: Column | None = None
    for encoding in encodings(plan):
        if encoding.ranks and values.min() < 0:
            continue
        coded = encoding.encode(values, rank)
        if not fits_int(coded):
            continue
        if (coded == coded[0]).all():
            return encoding.decoded(str(coded[0]), most)
        entries = entries_needed(blocks, rows, coded)
        if best is None or entries < best.entries:
            best = Column(values.tobytes(), encoding, coded, most, entries)
    if best is None:
        raise InternalError("no encoding for a number, not even itself")
    return best


def _texts(kind: Kind) -> Iterator[str]:
    """All expressions of a kind's case."""
    yield from kind.text.values()
    for k, column in enumerate(kind.columns):
        yield column.encoding.decoded(f"row{k}[i]", column.most)


def _case(k: int, kind: Kind) -> list[str]:
    lines = [f"        case {k}: {{  // {kind.verb}: {len(kind.rows):,} primitives"]
    for c, column in enumerate(kind.columns):
        value = column.encoding.decoded(f"row{c}[i]", column.most)
        lines.append(f"          const int x{c} = {value};")
    lines += wrap.wrap(_text(kind.call, kind.text), 10, ";")
    return [*lines, "          break;", "        }"]


def _text(call: Call, text: dict[bytes, str]) -> wrap.Text:
    def of(argument: Argument) -> wrap.Text:
        if isinstance(argument, Call):
            return _text(argument, text)
        return wrap.Text(argument if isinstance(argument, str) else text[argument.values.tobytes()])

    return wrap.Text(call.function, tuple(of(a) for a in call.arguments))


class Offsets:
    """Writes the tables of columns, and C for where the rows of a thread block begin in each.

    reads: the coordinates that this C needs.
    """

    def __init__(self, plan: Plan, blocks: Blocks, moduli: tuple[int, ...], tables: Tables) -> None:
        self.reads: set[str] = set()
        self._plan, self._blocks, self._moduli, self._tables = plan, blocks, moduli, tables

    def pointers(self, ids: I4, kinds: list[Kind]) -> list[str]:
        """Declarations of `kind` and `row0`, `row1`, ...: what this thread block executes."""
        every = np.ones(len(self._blocks.rank), np.bool_)
        lines = self._pointer("kind", shared(self._blocks, ids, every, LAST), last=True)
        for c in range(max(len(kind.columns) for kind in kinds)):
            column = np.zeros(len(self._plan), np.int64)
            used = np.zeros(len(self._blocks.rank), np.bool_)
            for kind in kinds:
                if c < len(kind.columns):
                    column[kind.rows] = kind.columns[c].values
                    used[self._blocks.of[kind.rows]] = True
            lines += self._pointer(f"row{c}", shared(self._blocks, column, used))
        return lines

    def _pointer(self, name: str, found: Shared, last: bool = False) -> list[str]:
        """`last`: where a rank has fewer blocks than others, the missing ones have no rows."""
        blocks, n = self._blocks, self._plan.n_ranks
        at = np.full((n, int(self._plan.n_tb.max())), len(found.values) - 1 if last else 0)
        at[blocks.rank, blocks.tb] = found.at
        table = self._tables.name(Lookup(("at",), (0,), found.values))
        lines, offset = self._offset(name, at)
        return [*lines, f"  const auto* {name} = {table} + {offset};"]

    def _offset(self, name: str, at: I8) -> tuple[list[str], str]:
        """Locals, and C for at[rank][tb]: what all ranks have in common, and what is their own."""
        base = at.min(axis=0)
        own, which = np.unique((at - base).T, axis=0, return_inverse=True)
        tb = Axis("tb", np.arange(len(base)))
        text = self._code(base, Grid((tb,)))
        if not own.any():
            return [], text
        text = f"{text} + " if base.any() else ""
        axes, gpus = rank_axes(tuple(range(len(at))), self._plan)
        if len(own) == 1:
            return [], text + self._code(own[0], Grid(axes, gpus))
        group = f"{name}_of"
        line = f"  const int {group} = {self._code(which.ravel(), Grid((tb,)))};"
        grid = Grid((Axis(group, np.arange(len(own))), *axes), gpus)
        return [line], text + self._code(own, grid)

    def _code(self, values: I8, grid: Grid) -> str:
        form = fit(values.reshape(grid.shape), grid, self._moduli)
        self.reads |= names(form)
        return code(form, grid, self._tables.name)
