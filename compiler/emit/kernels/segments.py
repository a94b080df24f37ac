"""segments: cuts a run of alike primitives so that its numbers become closed forms.

Two phases of an algorithm may look alike and count differently. Then one loop over both needs
tables indexed by the loop, two loops need none. The cut is greedy: the longest start that needs no
such table, again and again; it is used only if the text gets shorter.
"""

from __future__ import annotations

from collections.abc import Callable

from hccc.emit.kernels.loops import Repeat, repeats
from hccc.ir.arrays import I4

ENTRY_BYTES = 4  # of a number in a table
CALL_BYTES = 350  # of a primitive's call with its comment

# Entries of the tables a run needs: all, and those that depend on the loop.
Price = Callable[[Repeat], tuple[int, int]]


def pieces(shapes: I4, price: Price) -> list[Repeat]:
    """Returns the repeats of a sequence of shapes, cut where that makes the text shorter."""
    return [piece for repeat in repeats(shapes) for piece in _pieces(repeat, price)]


def _pieces(repeat: Repeat, price: Price) -> list[Repeat]:
    if repeat.count == 1 or not price(repeat)[1]:
        return [repeat]
    budget = price(repeat)[0] * ENTRY_BYTES + repeat.period * CALL_BYTES
    found: list[Repeat] = []
    at = spent = 0
    while at < repeat.count:
        count = _longest(repeat, at, price)
        found.append(Repeat(repeat.start + at * repeat.period, repeat.period, count))
        spent += price(found[-1])[0] * ENTRY_BYTES + repeat.period * CALL_BYTES
        if spent >= budget:
            return [repeat]
        at += count
    return found


def _longest(repeat: Repeat, at: int, price: Price) -> int:
    """Returns how many turns from `at` on need no table indexed by the loop; at least 1."""

    def fits(count: int) -> bool:
        return not price(Repeat(repeat.start + at * repeat.period, repeat.period, count))[1]

    left = repeat.count - at
    good = 1
    while good < left and fits(min(2 * good, left)):
        good = min(2 * good, left)
    bad = min(2 * good, left + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good
