"""segments: where to cut a run of alike primitives so that its numbers become closed forms.

Two phases of an algorithm may look alike and count differently. Then one loop over both needs
tables indexed by the loop, two loops need none. The cut is greedy: the longest start that needs
no such table, again and again, and it is taken only if the text gets shorter.
"""

from __future__ import annotations

from collections.abc import Callable

from hccc.emit.kernels.loops import Run, runs
from hccc.ir.arrays import I4

ENTRY_BYTES = 4  # of a number in a table
CALL_BYTES = 350  # of a primitive's call with its comment

# Entries of the tables a run needs: all, and those that depend on the loop.
Price = Callable[[Run], tuple[int, int]]


def pieces(shapes: I4, price: Price) -> list[Run]:
    """The runs of a sequence of shapes, cut where that makes the text shorter."""
    return [piece for run in runs(shapes) for piece in _pieces(run, price)]


def _pieces(run: Run, price: Price) -> list[Run]:
    if run.count == 1 or not price(run)[1]:
        return [run]
    budget = price(run)[0] * ENTRY_BYTES + run.period * CALL_BYTES
    found: list[Run] = []
    at = spent = 0
    while at < run.count:
        count = _longest(run, at, price)
        found.append(Run(run.start + at * run.period, run.period, count))
        spent += price(found[-1])[0] * ENTRY_BYTES + run.period * CALL_BYTES
        if spent >= budget:
            return [run]
        at += count
    return found


def _longest(run: Run, at: int, price: Price) -> int:
    """How many turns from `at` on need no table indexed by the loop; at least 1."""

    def fits(count: int) -> bool:
        return not price(Run(run.start + at * run.period, run.period, count))[1]

    left = run.count - at
    good = 1
    while good < left and fits(min(2 * good, left)):
        good = min(2 * good, left)
    bad = min(2 * good, left + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good
