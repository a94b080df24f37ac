"""rows: a Plan of many unlike thread blocks → tables, and one loop that executes their rows.

For alike blocks, `function` writes each class of them as straight-line calls. With many classes
that text would take compilers minutes. Here a thread block is a sequence of rows instead: the kind
of each primitive (its shape, see `classes`), and those of its numbers that are not the same for the
whole kind. A kind is one call. Blocks whose rows are equal, as seen from their rank (`encodings`),
share them. `view` has an example.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hccc.base.diagnostics import InternalError
from hccc.emit.kernels import wrap
from hccc.emit.kernels.calls import Argument, Caller, KernelCall, parameters_of
from hccc.emit.kernels.classes import rank_axes, shape_ids
from hccc.emit.kernels.encodings import RankEncoding, encodings
from hccc.emit.kernels.fit import fit
from hccc.emit.kernels.forms import Axis, Grid, Lookup, names
from hccc.emit.kernels.function import LookupTables, coordinates
from hccc.emit.kernels.sharing import PlanBlocks, Shared, entries_needed, shared
from hccc.emit.kernels.width import code, fits_int
from hccc.ir.arrays import I4, I8
from hccc.ir.plan import Plan

LAST = -1  # the kind that ends a block's rows
WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True, eq=False)
class RowColumn:
    """Numbers of a kind that differ.

    values: i8[its rows], as encoded; most: the largest number; entries: in its table; key: of the
    numbers.
    """

    key: bytes
    encoding: RankEncoding
    values: I8
    most: int
    entries: int


@dataclass(frozen=True, slots=True, eq=False)
class PrimitiveKind:
    """Alike primitives, `rows`, ascending; text: C for numbers, by the numbers' bytes."""

    rows: I8
    call: KernelCall
    verb: str
    columns: tuple[RowColumn, ...]
    text: dict[bytes, str]


@dataclass(frozen=True, slots=True)
class Body:
    """The function that executes all rows: its lines, and the number of calls in it."""

    lines: tuple[str, ...]
    calls: int


def body(caller: Caller, moduli: tuple[int, ...], tables: LookupTables) -> Body:
    """Returns the function for all thread blocks of the caller's plan; adds to `tables`.

    moduli: see `fit`. O(P log P) for every number of a primitive.
    """
    plan = caller.plan
    blocks, ids = PlanBlocks.of_plan(plan), shape_ids(plan, caller.network)
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


def _kind(caller: Caller, blocks: PlanBlocks, rows: I8) -> PrimitiveKind:
    position = blocks.position[rows]
    call = caller.primitive(rows, position)
    text = {position.tobytes(): "i"} if np.ptp(position) else {}
    columns: dict[bytes, RowColumn] = {}
    for number in parameters_of(call):
        key = number.values.tobytes()
        if key not in text and key not in columns:
            found = _cheapest(caller.plan, blocks, rows, number.values)
            if isinstance(found, str):
                text[key] = found
            else:
                columns[key] = found
    ordered = sorted(columns.values(), key=lambda c: c.entries)
    text |= {column.key: f"x{k}" for k, column in enumerate(ordered)}
    return PrimitiveKind(rows, call, caller.verb(int(rows[0])), tuple(ordered), text)


def _cheapest(plan: Plan, blocks: PlanBlocks, rows: I8, values: I8) -> RowColumn | str:
    """Returns numbers as C if one expression gives all, else as a column in the encoding that
    shares most."""
    if not fits_int(values):
        raise InternalError("a parameter of generated code does not fit an int")
    rank, most = blocks.rank[blocks.of[rows]], int(values.max())
    best: RowColumn | None = None
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
            best = RowColumn(values.tobytes(), encoding, coded, most, entries)
    if best is None:
        raise InternalError("no encoding for a number, not even itself")
    return best


def _texts(kind: PrimitiveKind) -> Iterator[str]:
    """Yields all expressions of a kind's case."""
    yield from kind.text.values()
    for k, column in enumerate(kind.columns):
        yield column.encoding.decoded(f"row{k}[i]", column.most)


def _case(k: int, kind: PrimitiveKind) -> list[str]:
    lines = [f"        case {k}: {{  // {kind.verb}: {len(kind.rows):,} primitives"]
    for c, column in enumerate(kind.columns):
        value = column.encoding.decoded(f"row{c}[i]", column.most)
        lines.append(f"          const int x{c} = {value};")
    lines += wrap.wrap(_text(kind.call, kind.text), 10, ";")
    return [*lines, "          break;", "        }"]


def _text(call: KernelCall, text: dict[bytes, str]) -> wrap.CallText:
    def of(argument: Argument) -> wrap.CallText:
        if isinstance(argument, KernelCall):
            return _text(argument, text)
        return wrap.CallText(
            argument if isinstance(argument, str) else text[argument.values.tobytes()]
        )

    return wrap.CallText(call.function, tuple(of(a) for a in call.arguments))


class Offsets:
    """Writes the tables of columns, and C for the first row of a thread block in each.

    reads: the coordinates that this C needs.
    """

    def __init__(
        self, plan: Plan, blocks: PlanBlocks, moduli: tuple[int, ...], tables: LookupTables
    ) -> None:
        self.reads: set[str] = set()
        self._plan, self._blocks, self._moduli, self._tables = plan, blocks, moduli, tables

    def pointers(self, ids: I4, kinds: list[PrimitiveKind]) -> list[str]:
        """Declares `kind` and `row0`, `row1`, ...: the rows that this thread block executes."""
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
        """Declares one pointer. `last`: if a rank has fewer blocks than others, the missing ones
        have no rows."""
        blocks, n = self._blocks, self._plan.n_ranks
        at = np.full((n, int(self._plan.n_tb.max())), len(found.values) - 1 if last else 0)
        at[blocks.rank, blocks.tb] = found.at
        table = self._tables.name(Lookup(("at",), (0,), found.values))
        lines, offset = self._offset(name, at)
        return [*lines, f"  const auto* {name} = {table} + {offset};"]

    def _offset(self, name: str, at: I8) -> tuple[list[str], str]:
        """Returns locals, and C for at[rank][tb]: a part common to all ranks, and a part of each
        rank."""
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
