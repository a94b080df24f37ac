"""lines: fits what a link costs, α + bytes / rate, to measured times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hccc.ir.topology import BYTES_PER_US

FASTEST = 1e6  # GB/s of a link whose times do not depend on bytes
GOOD_R2 = 0.95
SMALL = 4 << 10  # bytes of calls that take little more than α


@dataclass(frozen=True, slots=True)
class Line:
    """What a call over one link costs, by size. alpha: µs; rate: GB/s; r2: the part of the
    (relative) differences between times that it explains, 0 where it explains none of them; worst:
    its largest relative error."""

    alpha: float
    rate: float
    r2: float
    worst: float

    def time(self, size: float) -> float:
        """Returns the µs of a call of `size` bytes."""
        return self.alpha + size / (self.rate * BYTES_PER_US)


def fit(sizes: Sequence[int], times: Sequence[float]) -> Line:
    """Fits a line to times in µs, sizes ascending: through the largest call, and as near as it can,
    by relative errors, to small ones. Both are not negative.

    What lies between is left to r2: a line that shapes what goes over it lets bursts pass faster
    than it goes on, and one fit to all sizes would take them for its rate.
    """
    s, t = np.asarray(sizes, np.float64), np.asarray(times, np.float64)
    small = (s <= SMALL) | (s == s[0])
    weights = 1 / t[small] ** 2
    took, bytes_each = (np.average(of[small], weights=weights) for of in (t, s))
    beta = max(0.0, (t[-1] - took) / (s[-1] - bytes_each)) if len(s) > 1 else 0.0
    alpha = took - beta * bytes_each
    if alpha < 0:
        alpha, beta = 0.0, t[-1] / s[-1]
    errors = (alpha + beta * s) / t - 1
    mean = (1 / t).sum() / (1 / t**2).sum()  # the constant that explains most
    differences = float(((mean / t - 1) ** 2).sum())
    r2 = max(0.0, 1 - float((errors**2).sum()) / differences) if differences > 0 else 1.0
    rate = min(FASTEST, 1 / (beta * BYTES_PER_US)) if beta > 0 else FASTEST
    return Line(float(alpha), float(rate), r2, float(np.abs(errors).max()))


def slope(sizes: Sequence[int], times: Sequence[float]) -> float:
    """Returns the GB/s between a smaller and a larger call, or, where the larger took no longer,
    those of the larger."""
    more, took = sizes[1] - sizes[0], times[1] - times[0]
    return more / took / BYTES_PER_US if took > 0 else sizes[1] / times[1] / BYTES_PER_US
