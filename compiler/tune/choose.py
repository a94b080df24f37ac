"""choose: which few of many candidates serve all sizes almost as well as the best of each.

Times are a matrix: candidates × sizes. One candidate for all sizes is the one with the least mean
of log(time / best); a catalogue divides the sizes into ranges, as few as keep every size within
`CLOSE` of its best.
"""

from __future__ import annotations

import numpy as np

from hccc.ir.arrays import I8
from hccc.ir.topology import F8

CLOSE = 0.02  # of the best time: no range is begun for less


def one(times: F8) -> int:
    """The candidate for all sizes. times: f8[candidates, sizes] µs. O(size of times)."""
    return int(_regret(times).mean(1).argmin())


def ranges(times: F8, most: int) -> I8:
    """The candidate for each size: i8[sizes], in at most `most` runs, as few as are close.

    times: f8[candidates, sizes] µs. Each range costs as much as `CLOSE` at every size would, so a
    range must save more than that. O(candidates · sizes² · most).
    """
    regret = _regret(times)
    n = regret.shape[1]
    sums = np.concatenate([np.zeros((len(regret), 1)), regret.cumsum(1)], 1)
    cost, best = _runs(sums)
    least = np.full((most + 1, n + 1), np.inf)
    least[0, 0] = 0.0
    cut = np.zeros((most + 1, n + 1), np.int64)
    for k in range(1, most + 1):
        for end in range(1, n + 1):
            total = least[k - 1, :end] + cost[:end, end]
            cut[k, end] = total.argmin()
            least[k, end] = total[cut[k, end]]
    k = int((least[1:, n] + np.log1p(CLOSE) * np.arange(1, most + 1)).argmin()) + 1
    return _assigned(cut, best, k, n)


def _regret(times: F8) -> F8:
    """log(time / best of its size): f8[candidates, sizes], large where it cannot run."""
    with np.errstate(invalid="ignore"):
        found: F8 = np.log(times / times.min(0))
    return np.nan_to_num(found, nan=1e6, posinf=1e6)


def _runs(sums: F8) -> tuple[F8, I8]:
    """The least sum of regrets over sizes [begin, end), and whose: f8, i8 [n + 1, n + 1]."""
    n = sums.shape[1]
    cost, best = np.zeros((n, n)), np.zeros((n, n), np.int64)
    for end in range(1, n):
        over = sums[:, end, None] - sums[:, :end]
        best[:end, end] = over.argmin(0)
        cost[:end, end] = over.min(0)
    return cost, best


def _assigned(cut: I8, best: I8, k: int, n: int) -> I8:
    """The candidates of k ranges over n sizes, traced back from the last."""
    found, end = np.zeros(n, np.int64), n
    while end:
        begin = int(cut[k, end])
        found[begin:end] = best[begin, end]
        end, k = begin, k - 1
    return found
