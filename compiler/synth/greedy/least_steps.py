"""least_steps: a lower bound of the steps of a schedule, in closed form: no solver is asked.

Around every node and every rank, in both directions, a *cut*: of `need` chunks that are on one
side only and wanted on the other, each crosses at least once, and at most `cap` transfers cross in
a step. Three things make that tighter than need / cap:

1. In the first step a rank sends no other chunks than it begins with: at most `first` cross.
2. A chunk that crosses for the first time in the last step must go to every rank that wants it
   directly, since no rank beyond the cut can forward it: of chunks that `width` ranks want,
   floor(cap / width) cross.
   So need <= first + (steps - 2) · cap + floor(cap / width), for two steps and more.
3. A rank that sends a chunk to one rank in a step (`CopyDemand.exclusive`) doubles its copies.

No chunk travels farther in a step than one hop. And all chunks that the ranks of a node lack, each
as often as ranks lack it, come over the links into these ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hccc.base.diagnostics import fail
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4, I8
from hccc.synth.greedy.chunked import Chunked
from hccc.synth.greedy.schedule import CopyDemand

NEVER = int(np.iinfo(np.int32).max)


def least_steps(c: Chunked, demand: CopyDemand) -> int:
    """Returns a lower bound of N_step. O(ranks² · longest route · resources of a cut) at worst.

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
    inside, linked = _sides(c), linked_ranks(c)
    held, wanted = (_among(table, inside) for table in (demand.pre, need))
    crosses = (held == 0) & (wanted > 0)
    supply = _among(crosses.T, demand.pre.T)
    for i in np.flatnonzero(crosses.any(axis=0)):
        widths = np.sort(wanted[crosses[:, i], i])
        most = max(most, _cut(c, _entering(c, linked, inside[i]), widths, supply[i]))
    return max(most, *(_volume(c, linked, need, node) for node in _nodes(c)))


def least_load(c: Chunked, parts: Sequence[tuple[CopyDemand, bool]]) -> float:
    """Returns the steps that the busiest resource is in use for, at least, over demands whose
    schedules run together, each with whether it is met backwards, over links turned round.

    What crosses a cut, or enters nodes, over the capacity that it does so through.
    """
    linked, sides, nodes = linked_ranks(c), _sides(c), _nodes(c)
    each = [_crossing(demand, ~sides if back else sides) for demand, back in parts]
    crossing: I8 = np.sum(each, axis=0)
    entering = sum(int(_crossing(demand, nodes).sum()) for demand, _ in parts)
    far = np.flatnonzero(linked & (c.node[:, None] != c.node))
    cuts = [(crossing[i], _entering(c, linked, sides[i])) for i in np.flatnonzero(crossing)]
    over = [(int(count), pairs) for count, pairs in [*cuts, (entering, far)] if len(pairs)]
    shares = [count / _at_once(c, pairs) for count, pairs in over]
    return float(max(shares, default=0.0))


def missing_at_most(c: Chunked, demand: CopyDemand, steps: int) -> tuple[I8, I8]:
    """Returns how many chunks may have yet to come into each node, and how many its ranks may lack
    together, if all are there after so many steps, one or more: i8[nodes] each."""
    linked, nodes = linked_ranks(c), _nodes(c)
    into = np.array([_at_once(c, _entering(c, linked, node)) for node in nodes])
    within = [_at_once(c, u * c.n + v) for u, v in (np.nonzero(linked & node) for node in nodes)]
    wanted = _among(demand.post & ~demand.pre, nodes)
    fewest = np.where(wanted > 0, wanted, c.n).min(axis=0)
    return (steps - 1) * into + into // fewest, steps * np.array(within)


def _crossing(demand: CopyDemand, inside: B1) -> I8:
    """Returns how many chunks must come into each set of ranks: i8[sets]."""
    held, wanted = (_among(table, inside) for table in (demand.pre, demand.post & ~demand.pre))
    found: I8 = np.count_nonzero((held == 0) & (wanted > 0), axis=0)
    return found


def distance(c: Chunked, pre: B1) -> I4:
    """Returns the hops to each rank from the nearest that has each chunk: i4[chunks, ranks], or
    NEVER."""
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
    """Tells which ranks can send to which: b1[ranks, ranks]."""
    linked: B1 = (c.use[:, 0] != -2).reshape(c.n, c.n) & ~np.eye(c.n, dtype=np.bool_)
    return linked


def _unreachable(c: Chunked, demand: CopyDemand, need: B1) -> Exception:
    chunk, rank = np.argwhere(need & (distance(c, demand.pre) == NEVER))[0]
    owner = int(np.flatnonzero(demand.pre[chunk])[0]) if demand.pre[chunk].any() else None
    source = "which no rank has" if owner is None else f"which rank {owner} has"
    return fail(
        "E135",
        f"rank {rank} cannot get chunk {chunk}, {source}: no links lead there",
        help="give the cluster links to that rank, or leave the rank out",
    )


def _doublings(demand: CopyDemand, need: B1) -> int:
    has, lack = np.count_nonzero(demand.pre, axis=1), np.count_nonzero(need, axis=1)
    return int(np.ceil(np.log2(1 + lack[lack > 0] / has[lack > 0]) - 1e-9).max())


def _nodes(c: Chunked) -> B1:
    """Returns the ranks of each node: b1[nodes, ranks]."""
    nodes: B1 = c.node == np.arange(c.node.max() + 1)[:, None]
    return nodes


def _sides(c: Chunked) -> B1:
    """Returns nodes, ranks, and the complement of each: b1[sets, ranks], every set once."""
    sets = np.concatenate([_nodes(c), np.eye(c.n, dtype=np.bool_)])
    both = np.unique(np.concatenate([sets, ~sets]), axis=0)
    return both[both.any(axis=1) & ~both.all(axis=1)]


def _among(table: B1, inside: B1) -> I8:
    """Returns how many columns each row of one table has set in common with each of the other."""
    return np.rint(table.astype(np.float32) @ inside.T.astype(np.float32)).astype(np.int64)


def _entering(c: Chunked, linked: B1, inside: B1) -> I8:
    """Returns the rows of `c.use` whose transfers enter a set."""
    u, v = np.flatnonzero(~inside), np.flatnonzero(inside)
    i, j = np.nonzero(linked[np.ix_(u, v)])
    return u[i] * c.n + v[j]


def _cut(c: Chunked, pairs: I8, widths: I8, supply: I8) -> int:
    """Returns the steps of one cut that `pairs` cross, rows of `c.use`. widths: how many ranks want
    each chunk that crosses, ascending; supply: how many of these chunks each rank begins with."""
    cap, need = _at_once(c, pairs), len(widths)
    first = min(cap, _at_once(c, pairs, supply))
    last = int(np.searchsorted(np.cumsum(widths), cap, side="right"))
    if need <= min(first, last):
        return 1
    return 2 + max(0, -(-(need - first - last) // cap))


def _volume(c: Chunked, linked: B1, need: B1, node: B1) -> int:
    """Returns the steps that the ranks of a node need to receive all they lack."""
    u, v = np.nonzero(linked & node)
    cap = _at_once(c, u * c.n + v)
    return -(-int(np.count_nonzero(need[:, node])) // cap) if cap else 0


def _at_once(c: Chunked, pairs: I8, supply: I8 | None = None) -> int:
    """Returns a bound on the transfers in a step of `pairs`, rows of `c.use`. With `supply`,
    i8[ranks], a rank sends at most so many."""
    use, weight = c.use[pairs], c.capacity.copy()
    if supply is not None:
        sender = (len(weight) + pairs // c.n).astype(np.int32)
        use, weight = np.column_stack([use, sender]), np.append(weight, supply)
    # Of equals those of fewest receivers first: either end's ports do, a mixture does not.
    received = np.unique(np.where(use >= 0, use * c.n + pairs[:, None] % c.n, -1))
    receivers = np.bincount(received[received >= 0] // c.n, minlength=len(weight))
    return int(_cover(use, weight, np.argsort(receivers, kind="stable")))


@njit
def _cover(pairs: I4, weight: I8, order: I8) -> int:
    """Returns the sum of the capacities, `weight`, of resources of which every row of `pairs` uses
    one. They are chosen greedily, in `order` where they are equal; resources that others make
    needless are left out again."""
    resources, width = len(weight), pairs.shape[1]
    gain = np.zeros(resources, np.int64)
    for i in range(len(pairs)):
        for j in range(width):
            if pairs[i, j] >= 0:
                gain[pairs[i, j]] += 1
    covered = np.zeros(len(pairs), np.int64)
    chosen = np.zeros(resources, np.bool_)
    left, total = len(pairs), 0
    while left:
        best = -1
        for r in order:
            if gain[r] and (best < 0 or weight[r] * gain[best] < weight[best] * gain[r]):
                best = r
        if best < 0:
            return NEVER  # some need nothing that is limited
        chosen[best] = True
        total += int(weight[best])
        for i in range(len(pairs)):
            if not _has(pairs, i, best):
                continue
            if not covered[i]:
                left -= 1
                for j in range(width):
                    if pairs[i, j] >= 0:
                        gain[pairs[i, j]] -= 1
            covered[i] += 1
    for r in range(resources):
        if not chosen[r]:
            continue
        needless = True
        for i in range(len(pairs)):
            needless = needless and (covered[i] > 1 or not _has(pairs, i, r))
        if needless:
            total -= int(weight[r])
            for i in range(len(pairs)):
                covered[i] -= _has(pairs, i, r)
    return total


@njit
def _has(pairs: I4, i: int, resource: int) -> bool:
    for j in range(pairs.shape[1]):  # noqa: SIM110 (as compiled loops are written)
        if pairs[i, j] == resource:
            return True
    return False
