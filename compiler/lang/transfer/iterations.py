"""iterations: the loop iterations in flight, their variables, and the rows they emitted.

A `Frame` runs a block for `n` iterations at once. They are in program order, so a stable sort of
emitted rows by iteration gives the order of a one-by-one execution.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.ir.arrays import B1, I8
from hccc.lang.transfer.budget import MAX_TRANSFERS, Budget
from hccc.lang.transfer.lists import AnyValue, at_iteration, elements, merged, take

MANY_CHUNKS = 1024
MANY_ROWS = 1 << 20
# Iteration 0 throughout, in no memory.
ONLY_ITERATION: I8 = np.broadcast_to(np.int64(0), MAX_TRANSFERS)


@dataclass(frozen=True, slots=True, eq=False)
class EmittedRows:
    """Emitted rows, sorted by iteration. iteration: i8[len(rows)]; rows: made by the sink."""

    iteration: I8
    rows: NDArray[Any]


@dataclass(slots=True)
class Frame:
    """`n` iterations. env: values by name; gaps[name]: the iterations in which the variable has a
    value, if not all."""

    n: int
    env: dict[str, AnyValue]
    budget: Budget
    gaps: dict[str, B1] = field(default_factory=dict)
    out: list[EmittedRows] = field(default_factory=list)
    packed: int = 0  # the first parts of `out` that are large enough

    def child(self, iterations: I8, names: Iterable[str]) -> Frame:
        """Returns a frame whose iteration i continues `iterations[i]` of this one, with the
        variables `names`."""
        frame = Frame(len(iterations), {}, self.budget)
        for name in names:
            if name in self.env:
                frame.env[name] = take(self.env[name], iterations)
                if name in self.gaps:
                    frame.gaps[name] = self.gaps[name][iterations]
        return frame

    def assign(self, name: str, value: AnyValue) -> None:
        """Sets a variable in every iteration."""
        self.env[name] = value
        self.gaps.pop(name, None)

    def adopt(self, child: Frame, iterations: I8, names: Iterable[str]) -> None:
        """Takes over the values that `child` assigned to `names`; the last of several counts."""
        for name in names:
            if name in child.env:
                self._adopt(name, child.env[name], child.gaps.get(name), iterations)

    def _adopt(self, name: str, value: AnyValue, has: B1 | None, iterations: I8) -> None:
        chosen = np.arange(len(iterations)) if has is None else np.flatnonzero(has)
        if not len(chosen):
            return
        if self.n == 1:
            return self.assign(name, at_iteration(value, int(chosen[-1])))
        target = iterations[chosen]
        last = np.append(target[1:] != target[:-1], True)
        chosen, target = chosen[last], target[last]
        if len(target) == self.n:
            return self.assign(name, take(value, chosen))
        self._patch(name, take(value, chosen), target)

    def _patch(self, name: str, value: AnyValue, target: I8) -> None:
        old = self.env.get(name)
        self.budget.spend(elements(old) + elements(value))
        known = self.gaps.get(name, np.full(self.n, old is not None)).copy()
        known[target] = True
        self.assign(name, merged(old, value, target, self.n))
        if not known.all():
            self.gaps[name] = known

    def emit(self, iteration: I8, rows: NDArray[Any]) -> None:
        """Adds the rows that a statement emitted, after those of earlier statements."""
        if self.n == 1:
            iteration = ONLY_ITERATION[: len(iteration)]
        self.out.append(EmittedRows(iteration, rows))
        loose = self.out[self.packed :] if len(self.out) >= self.packed + MANY_CHUNKS else []
        if loose:
            if sum(len(chunk.rows) for chunk in loose) < MANY_ROWS:
                self.out[self.packed :] = [_interleaved(loose, self.n)]
            self.packed = len(self.out)

    def emitted(self) -> list[EmittedRows]:
        """Returns all emitted rows, in parts that follow each other in program order."""
        ends = [(int(c.iteration[0]), int(c.iteration[-1])) for c in self.out if len(c.rows)]
        in_order = all(a[1] <= b[0] for a, b in pairwise(ends))
        return self.out if in_order else [_interleaved(self.out, self.n)]


def _interleaved(chunks: list[EmittedRows], iterations: int) -> EmittedRows:
    if iterations == 1:
        rows = np.concatenate([chunk.rows for chunk in chunks])
        return EmittedRows(ONLY_ITERATION[: len(rows)], rows)
    iteration = np.concatenate([chunk.iteration for chunk in chunks])
    # Sorting 16-bit keys stably is a radix sort in NumPy.
    key = iteration.astype(np.uint16) if iterations <= 1 << 16 else iteration
    order = np.argsort(key, kind="stable")
    return EmittedRows(iteration[order], np.concatenate([chunk.rows for chunk in chunks])[order])
