"""critical: the chain of instances that the end of a Run waited for.

From the instance that ended last, back to what let it go: the one that it waited for, or else
the one before it in its thread block.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hccc.ir.arrays import I4, I8
from hccc.sim.simulate import Run


def critical_path(run: Run) -> I8:
    """The instances (p · batches + m) of the critical path, first to last. O(its length)."""
    if not len(run.end):
        return np.zeros(0, np.int64)
    plan = run.machine.plan
    last = int(np.argmax(run.end))
    block = plan.block_of()
    first, stop = plan.tb_ptr[:-1][block], plan.tb_ptr[1:][block]
    return _back(last, run.cause, first, stop, run.batches, run.window)[::-1]


@njit(cache=True)
def _back(last: int, cause: I4, first: I8, stop: I8, batches: int, window: int) -> I8:
    path = np.zeros(len(cause), np.int64)
    n, i = 0, last
    while i >= 0:
        path[n] = i
        n += 1
        i = cause[i] if cause[i] >= 0 else _before(i, first, stop, batches, window)
    return path[:n].copy()


@njit(cache=True)
def _before(i: int, first: I8, stop: I8, batches: int, window: int) -> int:
    """The instance that its block did before instance i, or -1 for its first."""
    p, m = i // batches, i % batches
    begin = m // window * window  # of its window
    if m > begin:
        return i - 1
    if p > first[p]:
        return int((p - 1) * batches + min(begin + window, batches) - 1)
    return int((stop[p] - 1) * batches + begin - 1) if begin > 0 else -1
