"""search: finds the Setting with which one structure makes a call of one size fastest.

Times are smooth in channels and grain, usually with one valley, so steps go downhill from the end
of the previous size's search. `benchmarks/choice.py` compares this with `exhaustive`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product

from hccc.driver.tune.setting import Setting, Space

Time = Callable[[Setting, float], float]  # µs; inf if more than the second argument
FLAT = 1e-3  # a step must save this share of the time


def descend(space: Space, time: Time, start: Setting, enough: float = 0.0) -> tuple[Setting, float]:
    """Goes downhill from `start` to a Setting that no step along one axis improves, or that takes
    no more than `enough`: (Setting, µs).

    A step continues while the time stays the same: many grains cut a short call alike.
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
    """Returns the first of `path` that takes another time than `now`; inf if it cannot run."""
    for other in path:
        took = time(other, now * (1 + FLAT))
        if took != now and not abs(took - now) <= FLAT * min(took, now):
            return other, took
    return None, now


def exhaustive(space: Space, time: Time) -> tuple[Setting, float]:
    """Returns (Setting, µs) of the fastest of all."""
    every = [Setting(*values) for values in product(space.channels, space.windows, space.grains)]
    times = [time(setting, math.inf) for setting in every]
    i = min(range(len(every)), key=times.__getitem__)
    return every[i], times[i]
