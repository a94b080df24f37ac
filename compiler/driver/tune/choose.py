"""choose: which few of many candidates serve all sizes almost as well as the best of each.

A candidate is a kernel (one structure with so many channels) and how its calls are cut. Times are
f8[kinds, candidates, sizes] µs, kinds: calls out of place and in place; inf where it cannot run.
What counts is the regret, log(time / least time of that kind and size), to which `SMS` is added for
each doubling of a candidate's thread blocks: a hair less time is not worth twice the SMs.
"""

from __future__ import annotations

import numpy as np

from hccc.ir.arrays import I8
from hccc.ir.topology import F8

SMS = 0.003  # log of time, for twice the thread blocks
KERNEL = 0.01  # what one kernel more in a catalogue must save, mean and worst together
WORST = 0.25  # weight of the worst size beside the mean of all
SAME = 0.01  # what another way to cut calls must save
NEVER = 1e6  # regret of what cannot run


def regrets(times: F8, blocks: I8) -> F8:
    """The regret of each candidate: f8[kinds, candidates, sizes].

    blocks: i8[candidates], thread blocks of a rank. Kinds that nobody serves have no regret.
    """
    least = times.min(1, keepdims=True)
    with np.errstate(invalid="ignore"):
        found: F8 = np.log(times / least)
    found = np.where(np.isinf(least), 0.0, np.nan_to_num(found, nan=NEVER, posinf=NEVER))
    more: F8 = np.log2(blocks / blocks.min())[:, None]
    return found + SMS * more


def one(regret: F8) -> int:
    """The candidate for all sizes: the least mean regret. O(size of regret)."""
    return int(regret.mean((0, 2)).argmin())


def kernels(regret: F8, kernel: I8, most: int) -> list[int]:
    """The kernels of a catalogue, at most `most`: the best alone, and others, each of which saves
    more than `KERNEL`. kernel: i8[candidates], numbered from 0.

    Greedy: the one that saves most comes next. O(most · size of regret).
    """
    n = int(kernel.max()) + 1
    each = np.stack([regret[:, kernel == k].min(1) for k in range(n)])  # [kernels, kinds, sizes]
    chosen: list[int] = []
    least, cost = np.full(each.shape[1:], NEVER), np.inf
    while len(chosen) < min(most, n):
        costs = [_cost(np.minimum(least, one)) for one in each]
        best = int(np.argmin(costs))
        if costs[best] > cost - KERNEL:
            break
        chosen.append(best)
        least, cost = np.minimum(least, each[best]), costs[best]
    return chosen


def assigned(regret: F8, kernel: I8, chosen: list[int]) -> I8:
    """The candidate of each kind and size, of the chosen kernels only: i8[kinds, sizes]. Where the
    one of the last size is as good, it stays."""
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
