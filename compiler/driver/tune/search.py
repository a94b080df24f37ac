"""search: the Setting with which one structure makes a call of one size fastest.

Times are smooth in channels and grain, with one valley as a rule, so steps go downhill from where
the last size's search ended. `exhaustive` is what it is held to (`benchmarks/choice.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product

from hccc.driver.tune.setting import Setting, Space

Time = Callable[[Setting, float], float]  # µs; inf where they are more than the second argument
FLAT = 1e-3  # a step must save this part of the time


def descend(space: Space, time: Time, start: Setting, enough: float = 0.0) -> tuple[Setting, float]:
    """(Setting, µs) from which no step along one axis is faster, beginning at `start` (Setting), or
    which takes no more than `enough`.

    A step goes on for as long as nothing changes: many grains cut a short call alike.
    """
    best, least = start, time(start, math.inf)
    improved = True
    while improved and least > enough:
        improved = False
        for path in space.paths(best):
            other, took = _step(path, time, least)
            if other is not None and took < least * (1 - FLAT):
                best, least, improved = other, took, True
                break
    return best, least


def _step(path: Iterator[Setting], time: Time, now: float) -> tuple[Setting | None, float]:
    """The first of `path` that takes another time than `now`; what cannot be run takes inf."""
    for other in path:
        took = time(other, now * (1 + FLAT))
        if took != now and not abs(took - now) <= FLAT * min(took, now):
            return other, took
    return None, now


def exhaustive(space: Space, time: Time) -> tuple[Setting, float]:
    """(Setting, µs) of the fastest of all."""
    every = [Setting(*values) for values in product(*space)]
    times = [time(setting, math.inf) for setting in every]
    i = min(range(len(every)), key=times.__getitem__)
    return every[i], times[i]
