"""The loop iterations in flight, their variables, and the transfers they emitted.

A `Frame` runs a block for `n` iterations at once. They are in program order, so sorting what was
emitted by iteration, stably, gives the order in which a one-by-one execution would have emitted it.
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
from hccc.lang.transfer.lists import Thing, elements, merged, one, take

MANY_CHUNKS = 1024
MANY_ROWS = 1 << 20
# Iteration 0 throughout, in no memory.
ONLY_ITERATION: I8 = np.broadcast_to(np.int64(0), MAX_TRANSFERS)


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Emitted rows, sorted by iteration: iteration i8[len(rows)], rows what the sink makes."""

    iteration: I8
    rows: NDArray[Any]


@dataclass(slots=True)
class Frame:
    """`n` iterations. A name not in `env` has no value; `gaps[name]`: where it has one."""

    n: int
    env: dict[str, Thing]
    budget: Budget
    gaps: dict[str, B1] = field(default_factory=dict)
    out: list[Chunk] = field(default_factory=list)
    packed: int = 0  # so many chunks of `out` are large enough

    def child(self, iterations: I8, names: Iterable[str]) -> Frame:
        """A frame whose iteration i continues my `iterations[i]`, knowing only `names`."""
        frame = Frame(len(iterations), {}, self.budget)
        for name in names:
            if name in self.env:
                frame.env[name] = take(self.env[name], iterations)
                if name in self.gaps:
                    frame.gaps[name] = self.gaps[name][iterations]
        return frame

    def assign(self, name: str, value: Thing) -> None:
        """Sets a variable in every iteration."""
        self.env[name] = value
        self.gaps.pop(name, None)

    def adopt(self, child: Frame, iterations: I8, names: Iterable[str]) -> None:
        """Takes over what `child` assigned to `names`; of several, the last one counts."""
        for name in names:
            if name in child.env:
                self._adopt(name, child.env[name], child.gaps.get(name), iterations)

    def _adopt(self, name: str, value: Thing, has: B1 | None, iterations: I8) -> None:
        chosen = np.arange(len(iterations)) if has is None else np.flatnonzero(has)
        if not len(chosen):
            return
        if self.n == 1:
            return self.assign(name, one(value, int(chosen[-1])))
        target = iterations[chosen]
        last = np.append(target[1:] != target[:-1], True)
        chosen, target = chosen[last], target[last]
        if len(target) == self.n:
            return self.assign(name, take(value, chosen))
        self._patch(name, take(value, chosen), target)

    def _patch(self, name: str, value: Thing, target: I8) -> None:
        old = self.env.get(name)
        self.budget.spend(elements(old) + elements(value))
        known = self.gaps.get(name, np.full(self.n, old is not None)).copy()
        known[target] = True
        self.assign(name, merged(old, value, target, self.n))
        if not known.all():
            self.gaps[name] = known

    def emit(self, iteration: I8, rows: NDArray[Any]) -> None:
        """Adds what a statement emitted, after all that earlier statements did."""
        if self.n == 1:
            iteration = ONLY_ITERATION[: len(iteration)]
        self.out.append(Chunk(iteration, rows))
        loose = self.out[self.packed :] if len(self.out) >= self.packed + MANY_CHUNKS else []
        if loose:
            if sum(len(chunk.rows) for chunk in loose) < MANY_ROWS:
                self.out[self.packed :] = [_interleaved(loose, self.n)]
            self.packed = len(self.out)

    def emitted(self) -> list[Chunk]:
        """All that was emitted, as chunks that follow each other in program order."""
        ends = [(int(c.iteration[0]), int(c.iteration[-1])) for c in self.out if len(c.rows)]
        in_order = all(a[1] <= b[0] for a, b in pairwise(ends))
        return self.out if in_order else [_interleaved(self.out, self.n)]


def _interleaved(chunks: list[Chunk], iterations: int) -> Chunk:
    if iterations == 1:
        rows = np.concatenate([chunk.rows for chunk in chunks])
        return Chunk(ONLY_ITERATION[: len(rows)], rows)
    iteration = np.concatenate([chunk.iteration for chunk in chunks])
    # Sorting 16-bit keys stably is a radix sort in NumPy.
    key = iteration.astype(np.uint16) if iterations <= 1 << 16 else iteration
    order = np.argsort(key, kind="stable")
    return Chunk(iteration[order], np.concatenate([chunk.rows for chunk in chunks])[order])
