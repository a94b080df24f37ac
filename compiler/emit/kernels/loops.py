"""loops: finds repeats in a sequence of shapes, so that alike primitives become one loop."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import I4, I8

LONGEST_PERIOD = 64  # shapes in the body of a loop


@dataclass(frozen=True, slots=True)
class Repeat:
    """Positions `start .. start + period * count`: `period` shapes, `count` times."""

    start: int
    period: int
    count: int


def repeats(shapes: I4) -> list[Repeat]:
    """Cuts a sequence into maximal repeats, left to right. O(length * LONGEST_PERIOD).

    At each place the repeat that covers most wins, and of those the one with the shortest body;
    places that no repeat covers are repeats with a count of 1.
    """
    n = len(shapes)
    reach = [_reach(shapes, p) for p in range(1, min(LONGEST_PERIOD, n // 2) + 1)]
    found: list[Repeat] = []
    at = 0
    while at < n:
        best = Repeat(at, 1, 1)
        for p, far in enumerate(reach, 1):
            count = int(far[at]) // p + 1 if at < len(far) else 1
            if count > 1 and p * count > best.period * best.count:
                best = Repeat(at, p, count)
        found.append(best)
        at += best.period * best.count
    return found


def _reach(shapes: I4, period: int) -> I8:
    """Returns for how many places, from each one on, the sequence equals itself `period` later."""
    same = shapes[:-period] == shapes[period:]
    stop = np.where(same, len(same), np.arange(len(same)))
    return np.minimum.accumulate(stop[::-1])[::-1] - np.arange(len(same))
