"""How things are timed: arms in alternating order, medians, and a budget of wall time."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

GRACE = 20.0  # seconds between the budget's end and the watchdog's


@dataclass(frozen=True, slots=True)
class Sample:
    """Launch times in µs: the median, the quartiles, and how many there were."""

    median: float
    low: float
    high: float
    launches: int


def summary(seconds: Sequence[float]) -> Sample:
    """Returns the median and quartiles of at least two launches."""
    low, median, high = (q * 1e6 for q in statistics.quantiles(seconds, n=4, method="inclusive"))
    return Sample(median, low, high, len(seconds))


def race(arms: Sequence[Callable[[int], list[float]]], launches: int, burst: int) -> list[Sample]:
    """Times every arm `launches` times or a few more, in bursts, in turns, after a warm-up.

    An arm takes how many launches to make and returns the seconds of each. Every other turn goes
    the other way round, so that neither arm always runs on what the other left in the caches.
    """
    samples: list[list[float]] = [[] for _ in arms]
    for arm in arms:
        arm(2)
    order = list(range(len(arms)))
    while len(samples[0]) < launches:
        for i in order:
            samples[i] += arms[i](burst)
        order.reverse()
    return [summary(s) for s in samples]


class Budget:
    """Wall time that may be spent, from when it is made."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._longest = 0.0

    def left(self) -> float:
        """Returns the seconds left."""
        return self._end - time.monotonic()

    def allows(self) -> bool:
        """Returns whether another piece of work like the longest one so far fits."""
        return self.left() > 1.5 * self._longest

    def within(self, seconds: float) -> Budget:
        """Returns a part of this budget: at most so many seconds from now."""
        return Budget(min(seconds, self.left()))

    @contextmanager
    def piece(self) -> Iterator[None]:
        """Times a piece of work."""
        begin = time.monotonic()
        yield
        self._longest = max(self._longest, time.monotonic() - begin)


def watchdog(seconds: float, last_words: Callable[[], None]) -> threading.Timer:
    """Ends the process with status 3 if it still runs then, after `last_words`.

    A launch that stands still is ended by its own deadline; this is for a driver that hangs.
    """

    def fire() -> None:
        try:
            last_words()
        finally:
            os._exit(3)

    timer = threading.Timer(seconds, fire)
    timer.daemon = True
    timer.start()
    return timer
