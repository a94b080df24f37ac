"""explore: which structures to try: one axis of choices after the other, each with the best so far.

A product of all axes would try dozens; few choices depend on each other.
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
    """The best of what was tried. axes: the other choices along each, given the best so far;
    probe: what a choice comes to (log of time), asked once for each; enough: what need not be
    beaten."""
    best, least = start, probe(start)
    for others in axes:
        for other in others(best):
            if least <= enough:
                return best
            value = probe(other)
            if value < least - WORTH:
                best, least = other, value
    return best
