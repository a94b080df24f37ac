"""sink: takes emitted transfers: as rows of a Program's table, or in search of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hccc.ir.arrays import B1, I8
from hccc.ir.collective import Collective
from hccc.ir.program import TRANSFER
from hccc.lang.transfer.checks import check_transfer
from hccc.lang.transfer.iterations import EmittedRows
from hccc.lang.transfer.syntax import TransferStmt, TransferTable
from hccc.lang.transfer.values import Ints, Value, as_array

FIELDS = TRANSFER.names or ()
VALUES = [FIELDS.index(name) for name in ("src", "dst", "step", "chunk")]
LINE, OP, STEP = FIELDS.index("line"), FIELDS.index("op"), FIELDS.index("step")


class Sink(Protocol):
    """Makes the rows of emitted transfers."""

    def check(self, stmt: TransferStmt, values: Sequence[Value], collective: Collective) -> None:
        """Raises `EvaluationFault` for the first iteration whose values make no transfer."""
        ...

    def transfer(
        self, stmt: TransferStmt, values: Sequence[Value], iterations: int
    ) -> EmittedRows | None:
        """Returns the rows that one execution of `stmt` in every iteration emits."""
        ...

    def table(self, stmt: TransferTable, iterations: int) -> EmittedRows | None:
        """Returns the rows that one execution of a literal table in every iteration emits."""
        ...

    def leave_loop(self, rows: NDArray[Any], variable: Value, iteration: I8) -> NDArray[Any]:
        """Returns the rows as they leave the iterations `iteration` of a loop with this
        variable."""
        ...


class TableSink:
    """Makes rows of a Program's table, as plain numbers: i4[n, 6], columns as in TRANSFER."""

    def check(self, stmt: TransferStmt, values: Sequence[Value], collective: Collective) -> None:
        """Checks ranks, chunk and step."""
        check_transfer(stmt, values, collective)

    def transfer(self, stmt: TransferStmt, values: Sequence[Value], iterations: int) -> EmittedRows:
        """Returns one row per iteration."""
        rows = np.empty((iterations, len(FIELDS)), np.int32)
        for column, value in zip(VALUES, values, strict=True):
            rows[:, column] = value.data if isinstance(value, Ints) else value
        rows[:, LINE] = stmt.at.line
        rows[:, OP] = stmt.reduces
        return EmittedRows(np.arange(iterations), rows)

    def table(self, stmt: TransferTable, iterations: int) -> EmittedRows:
        """Returns all rows for every iteration."""
        rows = np.empty((len(stmt.line), len(FIELDS)), np.int32)
        rows[:, [*VALUES, OP]] = stmt.columns
        rows[:, LINE] = stmt.line
        return EmittedRows(
            np.repeat(np.arange(iterations), len(rows)), np.tile(rows, (iterations, 1))
        )

    def leave_loop(self, rows: NDArray[Any], variable: Value, iteration: I8) -> NDArray[Any]:
        """Returns the rows unchanged: loop values are not kept, but found again by `SearchSink`."""
        return rows


@dataclass(frozen=True, slots=True)
class SearchSink:
    """Finds the iterations that emitted one given row: i8[n, loops] loop values, outermost
    first."""

    wanted: tuple[int, int, int, int]
    line: int

    def check(self, stmt: TransferStmt, values: Sequence[Value], collective: Collective) -> None:
        """Checks ranks, chunk and step."""
        check_transfer(stmt, values, collective)

    def transfer(
        self, stmt: TransferStmt, values: Sequence[Value], iterations: int
    ) -> EmittedRows | None:
        """Returns the iterations that emit the wanted row."""
        if stmt.at.line != self.line:
            return None
        hit: B1 = np.ones(iterations, np.bool_)
        for value, wanted in zip(values, self.wanted, strict=True):
            hit &= as_array(value, iterations) == wanted
        return self._hits(np.flatnonzero(hit))

    def table(self, stmt: TransferTable, iterations: int) -> EmittedRows | None:
        """Returns every iteration, if the wanted line is one of the table's."""
        inside = stmt.line[0] <= self.line <= stmt.line[-1]
        return self._hits(np.arange(iterations)) if inside else None

    def leave_loop(self, rows: NDArray[Any], variable: Value, iteration: I8) -> NDArray[Any]:
        """Returns the rows with one more loop value in front."""
        value = variable if isinstance(variable, int) else variable.data[iteration]
        return np.column_stack([np.broadcast_to(value, len(rows)), rows])

    def _hits(self, iterations: I8) -> EmittedRows | None:
        return (
            EmittedRows(iterations, np.empty((len(iterations), 0), np.int64))
            if len(iterations)
            else None
        )
