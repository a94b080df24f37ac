"""explore: tries structures along one axis of choices after the other, from the best so far.

The product of all axes would be dozens; few choices depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TypeVar

from hccc.base.interruptible import ahead
from hccc.base.progress import far

C = TypeVar("C")
M = TypeVar("M")
WORTH = 0.005  # a later choice must be this much faster (log of time)


def explore(
    start: C,
    axes: Sequence[Callable[[C], Sequence[C]]],
    make: Callable[[C], M],
    probe: Callable[[M], float],
    enough: float = -math.inf,
) -> C:
    """Returns the best structure tried.

    axes: the other choices along each axis, given the best so far; make: of a choice what is
    probed, made while the one before is probed; probe: its cost (log of time), called once for
    each; enough: a cost that need not be beaten.
    """
    best, least, tried = start, probe(make(start)), 1
    for k, others in enumerate(axes):
        now = others(best)
        with closing(ahead(make, now)) as made:
            for i, other in enumerate(now):
                if least <= enough:
                    return best
                left = len(now) - i + sum(len(later(best)) for later in axes[k + 1 :])
                far(tried, tried + left)  # as it looks now: choices depend on the best so far
                tried += 1
                value = probe(next(made))
                if value < least - WORTH:
                    best, least = other, value
    return best
