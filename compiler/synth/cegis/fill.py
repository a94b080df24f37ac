"""fill: transfers added to the steps of a schedule as far as capacities allow (REVISEFULL, App. H).

Added transfers harm nothing: a rank that gets a chunk earlier need not get it later. Filling an
empty schedule to its end gives a valid schedule at once, deterministic and seldom of fewest steps:
a search falls back on it.

In a step, transfers between nodes of chunks that the receiver's node lacks go first; then transfers
inside nodes; then transfers over the capacity that is left between nodes. A rank gets the chunk
that fewest ranks have of those it lacks.
"""

from __future__ import annotations

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4, I8
from hccc.synth.greedy.chunked import Chunked
from hccc.synth.greedy.least_steps import distance
from hccc.synth.greedy.schedule import CopyDemand, Schedule


def fill(c: Chunked, demand: CopyDemand, s: Schedule, steps: int | None = None) -> Schedule:
    """Returns `s`, valid as far as it goes, with its first `steps` steps filled; with None, up to
    the end of the demand. O(transfers · chunks · ranks) at worst, in a compiled loop."""
    has = demand.pre.copy()
    parts: list[I4] = []
    step = 0
    while (demand.post & ~has).any() if steps is None else step < steps:
        now = s.step == step
        given = np.stack([s.chunk[now], s.src[now], s.dst[now]], axis=1)
        useful = given[~has[given[:, 0], given[:, 2]]]  # it came earlier than it was meant to
        wanted = _wanted(c, demand, has)
        added = _fill_step(
            c.use, c.capacity, c.node, has, wanted, useful.astype(np.int32), demand.exclusive
        )
        has[added[:, 0], added[:, 2]] = True
        parts.append(np.column_stack([added, np.full(len(added), step)]))
        step += 1
    rows = np.concatenate(parts) if parts else np.zeros((0, 4), np.int32)
    return Schedule(*rows.T)


def _wanted(c: Chunked, demand: CopyDemand, has: B1) -> B1:
    """Returns the ranks to send each chunk to: ranks that need it, and ranks closer to one of those
    than any current holder: b1[chunks, ranks]."""
    need = demand.post & ~has
    if demand.post.all():
        return need
    left = distance(c.reversed(), need)
    nearest = np.where(has, left, np.iinfo(np.int32).max).min(axis=1)
    wanted: B1 = ~has & (need | (left < nearest[:, None]))
    return wanted


@njit
def _fill_step(
    use: I4, capacity: I8, node: I4, has: B1, wanted: B1, given: I4, exclusive: bool
) -> I4:
    """Returns the transfers given and those added: i4[m, 3] chunk, src, dst."""
    chunks, n = has.shape
    left = capacity.copy()
    lacks = wanted.copy()
    sent = np.zeros((chunks, n), np.bool_)
    copies = np.zeros(chunks, np.int64)
    inside = np.zeros((chunks, node.max() + 1), np.int64)
    for k in range(chunks):
        for v in range(n):
            if has[k, v]:
                copies[k] += 1
                inside[k, node[v]] += 1
    made = np.empty((len(given) + lacks.sum(), 3), np.int32)
    count = 0
    for i in range(len(given)):
        k, u, v = given[i]
        made[count] = given[i]
        count += 1
        sent[k, u] = True
        lacks[k, v] = False
        copies[k] += 1
        inside[k, node[v]] += 1
        for r in use[u * n + v]:
            if r >= 0:
                left[r] -= 1
    for phase in range(3):
        busy = True
        while busy:
            busy = False
            for v in range(n):
                best, source = -1, -1
                for shift in range(chunks):
                    k = (v + shift) % chunks
                    if not lacks[k, v] or (phase == 0 and inside[k, node[v]]):
                        continue
                    if best >= 0 and copies[k] >= copies[best]:
                        continue
                    u = _source(use, left, node, has, sent, k, v, phase == 1, exclusive)
                    if u >= 0:
                        best, source = k, u
                if best < 0:
                    continue
                busy = True
                made[count, 0], made[count, 1], made[count, 2] = best, source, v
                count += 1
                sent[best, source] = True
                lacks[best, v] = False
                copies[best] += 1
                inside[best, node[v]] += 1
                for r in use[source * n + v]:
                    if r >= 0:
                        left[r] -= 1
    return made[:count]


@njit
def _source(
    use: I4, left: I8, node: I4, has: B1, sent: B1, k: int, v: int, near: bool, exclusive: bool
) -> int:
    """Returns the rank, of v's node (near) or of others, that can send k to v with most capacity
    left; -1 where there is none."""
    n = len(node)
    best, most = -1, 0
    for u in range(n):
        if not has[k, u] or u == v or (node[u] == node[v]) != near or (exclusive and sent[k, u]):
            continue
        spare = np.iinfo(np.int64).max
        for r in use[u * n + v]:
            if r == -2:
                spare = 0
            elif r >= 0:
                spare = min(spare, left[r])
        if spare > most:
            best, most = u, spare
    return best
