"""balance: how much of a batch each rank takes, where some compute faster than others.

HetCCL (SNU) §4.5, b_i = B·s_i/Σs_j, in whole numbers. Of all that add up to the batch they are
those whose slowest rank ends soonest.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from fractions import Fraction

from hccc.base.diagnostics import fail
from hccc.driver.options import check_integer

Speed = float | tuple[float, float]


def balance(speeds: Sequence[Speed], batch: int, least: int) -> tuple[int, ...]:
    """Divides a batch, as the function of that name in `hccc.api` says, which also says what is
    raised."""
    exact = [_speed(rank, one) for rank, one in enumerate(speeds)]
    if not exact:
        raise fail("E410", "speeds are of no rank", help="one for each rank")
    least = check_integer("least", least, 0, None)
    batch = check_integer("batch", batch, least * len(exact), None)
    shares = _floors(exact, batch, least)
    ends = [((shares[rank] + 1) / speed, rank) for rank, speed in enumerate(exact)]
    heapq.heapify(ends)
    for _ in range(batch - sum(shares)):
        rank = ends[0][1]
        shares[rank] += 1
        heapq.heapreplace(ends, ((shares[rank] + 1) / exact[rank], rank))
    return tuple(shares)


def _floors(speeds: Sequence[Fraction], batch: int, least: int) -> list[int]:
    """Returns the least shares: each rank's proportion, rounded down, or `least`."""
    shares = [least] * len(speeds)
    left = list(range(len(speeds)))
    while left:
        pace = (batch - least * (len(speeds) - len(left))) / sum(speeds[rank] for rank in left)
        others = [rank for rank in left if speeds[rank] * pace >= least]
        if len(others) == len(left):
            for rank in left:
                shares[rank] = math.floor(speeds[rank] * pace)
            break
        left = others
    return shares


def _speed(rank: int, given: Speed) -> Fraction:
    """Returns a rank's speed, of a number or of what it did in how many seconds."""
    done, seconds = given if isinstance(given, tuple) else (given, 1.0)
    if not all(math.isfinite(one) and one > 0 for one in (done, seconds)):
        help = "what a rank does in a second, or (what it did, seconds)"
        raise fail("E410", f"speeds: rank {rank} has {given!r}, no positive number", help=help)
    return Fraction(float(done)) / Fraction(float(seconds))
