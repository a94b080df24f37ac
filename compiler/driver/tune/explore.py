"""explore: tries structures along one axis of choices after the other, from the best so far.

The product of all axes would be dozens; few choices depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

C = TypeVar("C")
WORTH = 0.005  # a later choice must be this much faster (log of time)


def explore(
    start: C,
    axes: Sequence[Callable[[C], Sequence[C]]],
    probe: Callable[[C], float],
    enough: float = -math.inf,
) -> C:
    """Returns the best structure tried.

    axes: the other choices along each axis, given the best so far; probe: the cost of a choice (log
    of time), called once for each; enough: a cost that need not be beaten.
    """
    best, least = start, probe(start)
    for others in axes:
        for other in others(best):
            if least <= enough:
                return best
            value = probe(other)
            if value < least - WORTH:
                best, least = other, value
    return best
