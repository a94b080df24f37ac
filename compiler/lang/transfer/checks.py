"""checks: the ranges of every transfer's ranks, chunk and step, checked when it is made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hccc.ir.collective import Collective
from hccc.lang.mistakes import At
from hccc.lang.transfer.syntax import TransferStmt, TransferTable
from hccc.lang.transfer.values import (
    EvaluationFault,
    Value,
    bounds,
    first,
    iteration_value,
    raw,
    tight,
)

MAX_STEP = 2**31 - 1


def check_transfer(stmt: TransferStmt, values: Sequence[Value], collective: Collective) -> None:
    """Raises `EvaluationFault` for the first iteration with a bad rank, chunk or step."""
    if stmt.reduces and not collective.reduces:
        raise _no_reduction(collective).placed(stmt.op_at)
    src, dst, _, _ = values
    for (code, noun, end), value, arg in zip(_limits(collective), values, stmt.args, strict=True):
        _check_range(code, noun, value, end, arg.at)
    (low, high), (other_low, other_high) = bounds(src), bounds(dst)
    if low <= other_high and other_low <= high:
        same = np.atleast_1d(np.equal(raw(src), raw(dst)))
        if same.any():
            raise _to_itself(src, first(same)).placed(stmt.at)


def _limits(collective: Collective) -> list[tuple[str, str, int]]:
    ranks = ("E105", "rank", collective.n_ranks)
    return [ranks, ranks, ("E108", "step", MAX_STEP + 1), ("E106", "chunk", collective.n_chunks)]


def _no_reduction(collective: Collective) -> EvaluationFault:
    message = f"{collective.op.value} does not reduce, so nothing can be transferred with rrc"
    return EvaluationFault(0, "E109", message, "use recv")


def _to_itself(rank: Value, iteration: int) -> EvaluationFault:
    return EvaluationFault(
        iteration, "E107", f"rank {iteration_value(rank, iteration)} transfers to itself"
    )


def _check_range(code: str, noun: str, value: Value, end: int, at: At) -> None:
    low, high = bounds(value)
    if low >= 0 and high < end:
        return
    low, high = bounds(tight(value))
    if low >= 0 and high < end:
        return
    data = np.atleast_1d(np.asarray(raw(value)))
    iteration = first((data < 0) | (data >= end))
    message = f"{noun} {iteration_value(value, iteration)} is not in 0..{end - 1}"
    raise EvaluationFault(iteration, code, message).placed(at)


def check_table(table: TransferTable, collective: Collective) -> None:
    """Raises `EvaluationFault` for the first bad row of a table."""
    src, dst, _, _, op = table.columns.T
    bad = src == dst
    for (_, _, end), column in zip(_limits(collective), table.columns.T, strict=False):
        bad |= column >= end
    if not collective.reduces:
        bad |= op == 1
    if bad.any():
        raise _row_fault(table, first(bad), collective)


def _row_fault(table: TransferTable, row: int, collective: Collective) -> EvaluationFault:
    places = table.places(row)
    values: list[Value] = [int(x) for x in table.columns[row]]
    if values[4] == 1 and not collective.reduces:
        return _no_reduction(collective).placed(places[4])
    for (code, noun, end), value, at in zip(_limits(collective), values, places, strict=False):
        try:
            _check_range(code, noun, value, end, at)
        except EvaluationFault as fault:
            return fault
    return _to_itself(values[0], 0).placed(places[0].to(places[4]))
