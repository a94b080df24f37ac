"""least_steps: steps that no schedule does with less, in closed form (no solver is asked).

Around every node and every rank, in both directions, a *cut*: of `need` chunks that are on one
side only and wanted on the other, each crosses at least once, and at most `cap` transfers cross in
a step. Three things make that tighter than need / cap:

1. In the first step a rank sends no other chunks than it begins with: at most `first` cross.
2. What crosses for the first time in the last step goes to all who want it directly, since nobody
   beyond the cut has it to pass on: of chunks that `width` ranks want, floor(cap / width) cross.
   So need <= first + (steps - 2) · cap + floor(cap / width), for two steps and more.
3. A rank that sends a chunk to one rank in a step (`Demand.exclusive`) doubles its copies in it.

And no chunk travels farther in a step than one hop.
"""

from __future__ import annotations

import numpy as np

from hccc.diagnostics import fail
from hccc.ir.arrays import B1, I4, I8
from hccc.jit.compiled import njit
from hccc.synth.chunked import Chunked
from hccc.synth.schedule import Demand

NEVER = np.iinfo(np.int32).max


def least_steps(c: Chunked, demand: Demand) -> int:
    """A lower bound of N_step. O(ranks² · longest route · resources of a cut) at worst.

    Raises:
        UserError: some rank cannot be reached by what it needs.
    """
    need = demand.post & ~demand.pre
    if not need.any():
        return 0
    hops = int(distance(c, demand.pre)[need].max())
    if hops == NEVER:
        raise _unreachable(c, demand, need)
    most = max(hops, _doublings(demand, need)) if demand.exclusive else hops
    inside = _sides(c)
    held, wanted = (_among(table, inside) for table in (demand.pre, need))
    crosses = (held == 0) & (wanted > 0)
    for i in np.flatnonzero(crosses.any(axis=0)):
        widths = np.sort(wanted[crosses[:, i], i])
        supply = np.count_nonzero(demand.pre[crosses[:, i]], axis=0)
        most = max(most, _cut(c, inside[i], widths, supply))
    return most


def distance(c: Chunked, pre: B1) -> I4:
    """Hops to each rank from the nearest that has each chunk: i4[chunks, ranks], or NEVER."""
    found = np.where(pre, 0, NEVER).astype(np.int32)
    linked = linked_ranks(c).astype(np.float32)
    has, hop = pre, 0
    while True:
        hop += 1
        new = (has.astype(np.float32) @ linked > 0) & (found == NEVER)
        if not new.any():
            return found
        found[new] = hop
        has = new


def linked_ranks(c: Chunked) -> B1:
    """b1[ranks, ranks]: who can send to whom."""
    linked: B1 = (c.use[:, 0] != -2).reshape(c.n, c.n) & ~np.eye(c.n, dtype=np.bool_)
    return linked


def _unreachable(c: Chunked, demand: Demand, need: B1) -> Exception:
    chunk, rank = np.argwhere(need & (distance(c, demand.pre) == NEVER))[0]
    owner = int(np.flatnonzero(demand.pre[chunk])[0]) if demand.pre[chunk].any() else None
    source = "which no rank has" if owner is None else f"which rank {owner} has"
    return fail(
        "E454",
        f"rank {rank} cannot get chunk {chunk}, {source}: no links lead there",
        help="give the cluster links to that rank, or leave the rank out",
    )


def _doublings(demand: Demand, need: B1) -> int:
    has, lack = np.count_nonzero(demand.pre, axis=1), np.count_nonzero(need, axis=1)
    return int(np.ceil(np.log2(1 + lack[lack > 0] / has[lack > 0]) - 1e-9).max())


def _sides(c: Chunked) -> B1:
    """Nodes, ranks, and what lies outside each: b1[sets, ranks], every set once."""
    nodes = c.node[None, :] == np.arange(c.node.max() + 1)[:, None]
    sets = np.concatenate([nodes, np.eye(c.n, dtype=np.bool_)])
    both = np.unique(np.concatenate([sets, ~sets]), axis=0)
    return both[both.any(axis=1) & ~both.all(axis=1)]


def _among(table: B1, inside: B1) -> I8:
    """How many ranks of each set a chunk has in `table`: i8[chunks, sets]."""
    return np.rint(table.astype(np.float32) @ inside.T.astype(np.float32)).astype(np.int64)


def _cut(c: Chunked, inside: B1, widths: I8, supply: I8) -> int:
    """Steps of one cut. widths: how many want each chunk that crosses, ascending; supply: how many
    of these each rank begins with."""
    cap, need = _crossing(c.use, c.capacity, inside, np.empty(0, np.int64)), len(widths)
    first = min(cap, _crossing(c.use, c.capacity, inside, supply))
    last = int(np.searchsorted(np.cumsum(widths), cap, side="right"))
    if need <= min(first, last):
        return 1
    return 2 + max(0, -(-(need - first - last) // cap))


@njit
def _crossing(use: I4, capacity: I8, inside: B1, supply: I8) -> int:
    """At most so many transfers a step enter `inside`: resources that all of them use, chosen
    greedily, and their capacities. With `supply`, i8[ranks], a rank sends at most so many."""
    n, resources, width = len(inside), len(capacity), use.shape[1]
    weight = np.zeros(resources + n, np.int64)
    weight[:resources] = capacity
    weight[resources : resources + len(supply)] = supply
    outside, within = np.flatnonzero(~inside), np.flatnonzero(inside)
    columns = width + (1 if len(supply) else 0)
    pairs = np.full((len(outside) * len(within), columns), -1, np.int32)
    count, gain = 0, np.zeros(resources + n, np.int64)
    for u in outside:
        for v in within:
            if use[u * n + v, 0] == -2:
                continue
            pairs[count, :width] = use[u * n + v]
            if len(supply):
                pairs[count, width] = resources + u
            for r in pairs[count]:
                if r >= 0:
                    gain[r] += 1
            count += 1
    covered = np.zeros(count, np.int64)
    chosen = np.zeros(resources + n, np.bool_)
    left = count
    while left:
        best = -1
        for r in range(resources + n):
            if gain[r] and (best < 0 or weight[r] * gain[best] < weight[best] * gain[r]):
                best = r
        chosen[best] = True
        for i in range(count):
            if not (pairs[i] == best).any():
                continue
            if not covered[i]:
                left -= 1
                for r in pairs[i]:
                    if r >= 0:
                        gain[r] -= 1
            covered[i] += 1
    total = 0
    for r in np.argsort(-weight):
        if not chosen[r]:
            continue
        uses = np.array([(pairs[i] == r).any() for i in range(count)])
        if (covered[:count][uses] > 1).all():
            covered[uses] -= 1
        else:
            total += weight[r]
    return total
