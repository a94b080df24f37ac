"""choose: picks a few of many candidates that serve all sizes almost as well as the best of each.

A candidate is a kernel (one structure with a number of channels) and how its calls are cut. Times
are f8[kinds, candidates, sizes] µs, kinds: calls out of place and in place; inf if it cannot run.
The measure is the regret, log(time / least time of that kind and size), plus `SMS` for each
doubling of a candidate's thread blocks: hardly less time is not worth twice the SMs.
"""

from __future__ import annotations

import numpy as np

from hccc.ir.arrays import I8
from hccc.ir.topology import F8

SMS = 0.003  # log of time, for twice the thread blocks
KERNEL = 0.01  # the least saving of one kernel more in a catalogue, mean and worst together
WORST = 0.25  # weight of the worst size beside the mean of all
SAME = 0.01  # the least saving of another way to cut calls
NEVER = 1e6  # the regret of a candidate that cannot run


def regrets(times: F8, blocks: I8) -> F8:
    """Returns the regret of each candidate: f8[kinds, candidates, sizes].

    blocks: i8[candidates], thread blocks of a rank. Kinds that no candidate serves have no regret.
    """
    least = times.min(1, keepdims=True)
    with np.errstate(invalid="ignore"):
        found: F8 = np.log(times / least)
    found = np.where(np.isinf(least), 0.0, np.nan_to_num(found, nan=NEVER, posinf=NEVER))
    more: F8 = np.log2(blocks / blocks.min())[:, None]
    return found + SMS * more


def best_for_all(regret: F8) -> int:
    """Returns the candidate for all sizes: the least mean regret. O(size of regret)."""
    return int(regret.mean((0, 2)).argmin())


def kernels(regret: F8, kernel: I8, limit: int) -> list[int]:
    """Returns the kernels of a catalogue, at most `limit`: the best alone, and others, each of
    which saves more than `KERNEL`.

    kernel: i8[candidates], numbered from 0. Greedy: the kernel that saves most comes next. O(limit
    · size of regret).
    """
    n = int(kernel.max()) + 1
    each = np.stack([regret[:, kernel == k].min(1) for k in range(n)])  # [kernels, kinds, sizes]
    chosen: list[int] = []
    least, cost = np.full(each.shape[1:], NEVER), np.inf
    while len(chosen) < min(limit, n):
        costs = [_cost(np.minimum(least, regrets)) for regrets in each]
        best = int(np.argmin(costs))
        if costs[best] > cost - KERNEL:
            break
        chosen.append(best)
        least, cost = np.minimum(least, each[best]), costs[best]
    return chosen


def assigned(regret: F8, kernel: I8, chosen: list[int]) -> I8:
    """Returns the candidate for each kind and size, of the chosen kernels only: i8[kinds, sizes].
    The candidate of the previous size stays if it is as good."""
    allowed = np.where(np.isin(kernel, chosen)[:, None], regret, NEVER)
    found: I8 = allowed.argmin(1)
    for kind in range(len(found)):
        for s in range(1, found.shape[1]):
            last = found[kind, s - 1]
            if allowed[kind, last, s] <= allowed[kind, found[kind, s], s] + SAME:
                found[kind, s] = last
    return found


def _cost(regret: F8) -> float:
    return float(regret.mean() + WORST * regret.max())
