"""model: linear constraints over small integers, for any solver.

    low <= Σ coefficient · variable <= high        0 <= variable <= upper

Constraints are put together from whole arrays of terms (`ConstraintRows`). A term's variable may be
ZERO or ONE, constants that presolving found: they leave no trace in the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.ir.arrays import I4, I8, frozen
from hccc.ir.topology import F8

ZERO, ONE = -1, -2  # in place of a variable
FREE = np.inf


@dataclass(frozen=True, slots=True, eq=False)
class LinearModel:
    """Constraint i: `index[ptr[i]:ptr[i + 1]]` i4 variables, `coefficient` i4, low, high f8; upper:
    i8[variables]."""

    upper: I8
    ptr: I8
    index: I4
    coefficient: I4
    low: F8
    high: F8

    @property
    def variables(self) -> int:
        """How many there are."""
        return len(self.upper)

    def __len__(self) -> int:
        return len(self.low)

    def holds(self, values: I8) -> bool:
        """Tells whether `values`, i8[variables], satisfy all constraints."""
        terms = self.coefficient * values[self.index]
        sums = np.add.reduceat(np.append(terms, 0), self.ptr[:-1]) * (np.diff(self.ptr) > 0)
        inside = (sums >= self.low) & (sums <= self.high)
        return bool(inside.all() and (values >= 0).all() and (values <= self.upper).all())


@dataclass(slots=True)
class ConstraintRows:
    """Constraints as they are added."""

    count: int = 0
    parts: list[tuple[I8, I8, I8]] = field(default_factory=list)
    bounds: list[tuple[F8, F8]] = field(default_factory=list)

    def add(self, low: float, high: float, count: int, *terms: tuple[I8, I8, int]) -> None:
        """Adds `count` constraints low <= Σ <= high. terms: (constraint from 0, variable,
        coefficient)."""
        for row, variable, coefficient in terms:
            self.parts.append((row + self.count, variable, np.full(len(row), coefficient)))
        self.bounds.append((np.full(count, low), np.full(count, high)))
        self.count += count

    def at_most(self, less: I8, more: I8, factor: int = 1) -> None:
        """Adds less[i] <= factor · more[i], for all i."""
        rows = np.arange(len(less))
        self.add(-FREE, 0, len(less), (rows, less, 1), (rows, more, -factor))

    def capacity(self, row: I8, variable: I8, high: I8) -> None:
        """Adds that the variables of row i sum up to at most high[i]."""
        self.parts.append((row + self.count, variable, np.ones(len(row), np.int64)))
        self.bounds.append((np.full(len(high), -FREE), high.astype(np.float64)))
        self.count += len(high)

    def include(self, model: LinearModel, first: int) -> None:
        """Adds the constraints of `model`, whose variables are numbered from `first`."""
        row = np.repeat(np.arange(len(model)), np.diff(model.ptr)) + self.count
        self.parts.append((row, model.index.astype(np.int64) + first, model.coefficient))
        self.bounds.append((model.low, model.high))
        self.count += len(model)

    def model(self, upper: I8) -> LinearModel:
        """Returns all constraints but those that always hold."""
        row, variable, coefficient = _columns(self.parts, 3)
        low, high = _columns(self.bounds, 2)
        row, variable = row.astype(np.int64), variable.astype(np.int64)
        one = variable == ONE
        constant = np.bincount(row[one], coefficient[one], self.count)
        low, high = low - constant, high - constant
        real = variable >= 0
        row, variable, coefficient = row[real], variable[real], coefficient[real]
        reach = coefficient * upper[variable]
        least = np.bincount(row, np.minimum(reach, 0), self.count)
        most = np.bincount(row, np.maximum(reach, 0), self.count)
        kept = (least < low) | (most > high)
        number = np.cumsum(kept) - 1
        stays = kept[row]
        row, variable, coefficient = number[row[stays]], variable[stays], coefficient[stays]
        order = np.argsort(row, kind="stable")
        ptr = np.searchsorted(row[order], np.arange(np.count_nonzero(kept) + 1))
        return LinearModel(
            frozen(upper, np.int64),
            frozen(ptr, np.int64),
            frozen(variable[order], np.int32),
            frozen(coefficient[order], np.int32),
            frozen(low[kept], np.float64),
            frozen(high[kept], np.float64),
        )


def _columns(parts: Sequence[tuple[NDArray[Any], ...]], count: int) -> list[NDArray[Any]]:
    """Concatenates each column of all parts."""
    return [np.concatenate([np.zeros(0), *(part[i] for part in parts)]) for i in range(count)]
