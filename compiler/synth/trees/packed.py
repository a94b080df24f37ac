"""packed: Programs whose chunks follow packed trees, for every collective that is copies or sums.

Of many packings (styles, seeds, chunks a rank) those are kept that load the network least, of
these those of low trees between few ranks. `synthesis` simulates the best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hccc.base.diagnostics import fail
from hccc.ir.arrays import I4, I8
from hccc.ir.collective import Collective, OpType
from hccc.ir.program import Op, Program
from hccc.ir.topology import F8, Level, Topology
from hccc.synth.bounds.bound import Limits
from hccc.synth.bounds.rooted_trees import rooted_trees
from hccc.synth.builtin.table import program
from hccc.synth.greedy.programs import COPIES, OPS, SUMS
from hccc.synth.trees.pack import Packing, Roots, pack
from hccc.synth.trees.repack import repacked
from hccc.synth.trees.route_table import RouteTable, route_table
from hccc.synth.trees.tree_growth import Taste, near

STYLES = {  # the first that loads nothing more than must be is best
    "stars": Taste(True, True, 0.05, 0.02, 0.8, 0),
    "stars with relays": Taste(True, False, 0.1, 0.02, 0.8, 0),
    "trees": Taste(False, False, 0.05, 0.02, 1.0, 0),
}
SEEDS = 12
CHUNKS = (1, 2, 3, 4, 6, 8)  # of a rank
ROOTED_CHUNKS = (4, 8, 16, 32)  # of a Broadcast or a Reduce, which have one owner
MOST_OWNED = 3  # chunks a rank of an Allreduce, on average
TOTALS = 5  # numbers of chunks of an Allreduce that are tried, of each way to share
GROWTH = 1.5  # of a number of chunks to the next, but for the first two
MOST_TRANSFERS = 1 << 13  # of a program of several chunks a rank: more are not tuned as well
WORK = 1 << 19  # trees times ranks², of all packings of one number of chunks; one is always tried
LARGEST = 1 << 23  # ranks³, of which there is none at all
ENOUGH = 5  # packings that load nothing more than must be
TRIED = 4  # numbers of chunks, first those of which NICs carry whole chunks; half as many more
# of an Allreduce, whose nodes need not own alike
NUMBERS = 2  # of chunks that are enough
KEPT = 2  # packings of a style and a number of chunks
REPAIRED = 1.35  # times the target: packings that load something more are not repaired
STUCK = 1.15  # times the target: a style that more chunks hardly help is given up
HOPELESS = 1.5  # times the target within nodes
ROUGH, COARSE = 0.01, 0.05  # loads, and those within nodes, that differ by less are equal
NEARLY = 1.02  # times the target: with latency and thread blocks no less is noticed
FULL = 0.9  # of what links within nodes can carry
LARGE = 1 << 34  # bytes, of which latency is no part


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """A Program, the style of its trees, its number among those of a style and as many chunks,
    how deep they are, and how many times as long as the bound the busiest resource is busy."""

    program: Program
    style: str
    number: int
    depth: int
    load: float

    @property
    def name(self) -> str:
        """For people: `pack, stars, 16 chunks, 1`."""
        chunks = self.program.collective.n_chunks
        return f"pack, {self.style}, {chunks} chunk{'s' if chunks > 1 else ''}, {self.number}"


class _Found(NamedTuple):
    """A packing, and what it is judged by, less is better: what the busiest resource carries, and
    the busiest within nodes, over what must be carried; hops; pairs of ranks."""

    load: float
    inside: float
    depth: int
    pairs: int
    packing: Packing

    @property
    def order(self) -> tuple[int, int, int, int]:
        return round(self.load / ROUGH), round(self.inside / COARSE), self.depth, self.pairs

    @property
    def enough(self) -> bool:
        """Whether more chunks would hardly be better."""
        return self.load < NEARLY and self.inside < FULL


def packed(t: Topology, op: OpType, root: int, seed: int, limits: Limits) -> Iterator[Packed]:
    """Programs of packed trees, fewest chunks first, of the first style that loads nothing more
    than must be, and of those before it that do not.

    Raises:
        UserError: E451 there are none for `op`, or a rank cannot be reached.
    """
    if op not in OPS:
        raise fail("E451", f"trees are no way to do {op.value}", help="built-ins do")
    if len(t) ** 3 > LARGEST:
        raise fail("E451", f"{len(t)} ranks are too many to pack trees for", help="compose does")
    table, best = route_table(t), limits.at(LARGE)
    algbw, shares = best.algbw, list[F8]()
    if op is OpType.ALLREDUCE:
        algbw, shares = _shares(t, algbw)
    found = list[_Found]()
    owners = sorted(_owners(t, op, root, shares), key=lambda one: _rough(table, len(one) / algbw))[
        : TRIED + TRIED // 2 * (op is OpType.ALLREDUCE)
    ]
    for style, taste in STYLES.items():
        enough, least, number = 0, np.inf, Counter[int]()
        for owner in owners:
            taste = taste._replace(seed=seed * SEEDS)
            found = _packings(table, op, owner, len(owner) / algbw, taste)
            if not found:
                break
            for one in found:
                made = _program(t, op, root, owner, one.packing)
                number[len(owner)] += 1
                yield Packed(made, style, number[len(owner)], one.depth, one.load)
            enough += found[0].enough
            alike = found[0].load > max(STUCK, least - ROUGH)
            if enough == NUMBERS or found[0].inside > HOPELESS or alike:  # more chunks do not help
                break
            least = found[0].load
        if enough:
            return
    if not found:
        raise fail("E451", "no trees: some rank is reached by nobody who has data")


def _rough(table: RouteTable, target: float) -> bool:
    """Whether NICs cannot carry what they must in whole chunks: `target` times their GB/s."""
    most = target * table.capacity[~near(table)]
    most = most[most >= ROUGH]
    return bool((np.ceil(most - ROUGH) > most * (1 + ROUGH)).any())


def _shares(t: Topology, algbw: float) -> tuple[float, list[F8]]:
    """Of an Allreduce over trees: GB/s, and what part of the chunks each node owns: as much as its
    NICs carry of what all do, the same for every node, or what a linear program says."""
    node = t.dense_memory_domain()
    nodes = int(node.max()) + 1
    carried = _carried(t)
    shares = [np.full(nodes, 1 / nodes)]
    if (carried > 0).all():
        shares = [carried / carried.sum(), *shares]
    trees = rooted_trees(t, OpType.ALLREDUCE, algbw)
    if trees is None:
        return algbw, shares
    return trees.algbw, [*shares, np.bincount(node, trees.share)]


def _owners(t: Topology, op: OpType, root: int, shares: list[F8]) -> Iterator[I4]:
    """Who has each chunk before it is copied, or in the end of its sum: i4[K], fewest first."""
    n = len(t)
    most = max(n, MOST_TRANSFERS // max(1, n - 1))
    if op in (OpType.BROADCAST, OpType.REDUCE):
        yield from (np.full(k, root, np.int32) for k in ROOTED_CHUNKS if k <= most)
    elif op is OpType.ALLREDUCE:
        totals = [counts for share in shares for counts in _totals(t, share)]
        kept = {counts.tobytes(): counts for counts in totals if counts.sum() <= max(n, most // 2)}
        yield from (_dealt(t, counts) for counts in kept.values())
    else:
        for k in CHUNKS:
            if k * n <= most:
                yield np.repeat(np.arange(n, dtype=np.int32), k)


def _totals(t: Topology, share: F8) -> list[I8]:
    """How many chunks each node owns: the few smallest that keep to `share`, and that the ranks, or
    the NICs, of each node can own alike."""
    size = np.bincount(t.dense_memory_domain())
    found = list[I8]()
    nics = _nics(t)
    for total in range(len(size), MOST_OWNED * len(t) + 1):
        counts = _rounded(share, total)
        if (counts < np.minimum(nics, size))[share > 0].any():
            continue
        off = counts / np.maximum(share * total, 1e-9)
        alike = (counts % size == 0) | (counts % np.maximum(nics, 1) == 0)
        if off.max() < 1 + ROUGH and alike.all():
            found.append(counts)
    return _spread(found) or [_rounded(share, len(t))]


def _spread(found: list[I8]) -> list[I8]:
    """At most TOTALS of these numbers of chunks, the first two and then ever more apart."""
    kept = found[:2]
    for counts in found[2:]:
        if counts.sum() >= kept[-1].sum() * GROWTH:
            kept.append(counts)
    return kept[:TOTALS]


def _nics(t: Topology) -> I8:
    """How many NICs each node has, as far as its ranks use them."""
    node, nic = t.dense_memory_domain(), t.port[Level.NIC]
    pairs = np.unique(np.stack([node, nic])[:, nic >= 0], axis=1)
    return np.bincount(pairs[0], minlength=int(node.max()) + 1)


def _carried(t: Topology) -> F8:
    """GB/s of the NICs of each node."""
    node, nic = t.dense_memory_domain(), t.port[Level.NIC]
    pairs = np.unique(np.stack([node, nic])[:, nic >= 0], axis=1)
    found = np.zeros(int(node.max()) + 1)
    np.add.at(found, pairs[0], t.shared.capacity[pairs[1]])
    return found


def _dealt(t: Topology, counts: I8) -> I4:
    """The owners of chunks, `counts` of them in each node: in turn, NIC by NIC."""
    node, nic = t.dense_memory_domain(), t.port[Level.NIC]
    owner = list[np.ndarray]()
    for x, count in enumerate(counts.tolist()):
        ranks = np.flatnonzero(node == x)
        at = nic[ranks]
        turn = np.array([np.sum(at[:k] == at[k]) for k in range(len(at))])
        owner.append(ranks[np.argsort(turn, kind="stable")][np.arange(count) % len(ranks)])
    return np.concatenate(owner).astype(np.int32)


def _rounded(wanted: F8, total: int) -> I8:
    """`wanted` parts of a total in whole numbers: largest remainders."""
    exact = wanted / wanted.sum() * total
    counts: I8 = np.floor(exact + 1e-9).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - counts.sum()]] += 1
    return counts


def _packings(
    table: RouteTable, op: OpType, owner: I4, target: float, taste: Taste
) -> list[_Found]:
    """The best few packings of a style, best first; none where the style has none."""
    chunk = np.arange(len(owner), dtype=np.int32)
    sums = [*([] if op in SUMS else [False]), *([] if op in COPIES else [True])]
    roots = Roots(
        np.tile(chunk, len(sums)), np.tile(owner, len(sums)), np.repeat(np.array(sums), len(owner))
    )
    found = dict[bytes, _Found]()
    for k in range(min(SEEDS, max(1, WORK // (len(roots.root) * table.n**2)))):
        made = pack(table, roots, target, taste._replace(seed=taste.seed + k))
        if made is None:  # no way within a node, which trees may do without
            return []
        found[made.parent.tobytes()] = _judged(table, made, target)
        if sum(one.enough for one in found.values()) == ENOUGH:
            break
    best = sorted(found.values(), key=lambda one: one.order)[:KEPT]
    for k, one in enumerate(best):
        if 1 + ROUGH < one.load < REPAIRED:
            mended = repacked(table, roots, target, taste, one.packing)
            best[k] = _judged(table, mended, target)
            if best[k].load > 1 + ROUGH:  # the next would hardly be better
                break
    best.sort(key=lambda one: one.order)
    return best


def _judged(table: RouteTable, made: Packing, target: float) -> _Found:
    k, v = np.nonzero(made.parent >= 0)
    pairs = len(np.unique(made.parent[k, v].astype(np.int64) * table.n + v))
    inside = near(table)
    load = float(made.load.max(initial=0.0)) / target
    most = float(made.load[inside].max(initial=0.0)) / target
    return _Found(load, most, int(made.depth.max(initial=0)), pairs, made)


def _program(t: Topology, op: OpType, root: int, owner: I4, made: Packing) -> Program:
    k, v = np.nonzero(made.parent >= 0)
    u, depth = made.parent[k, v], made.depth[k, v]
    copies = 0 if op in SUMS else len(owner)  # the trees of copies come first
    adds = k >= copies
    last = int(depth[adds].max(initial=0))
    step = np.where(adds, last - depth, depth - 1 + last)
    columns: dict[str, I8 | int] = {
        "src": np.where(adds, v, u),
        "dst": np.where(adds, u, v),
        "step": step,
        "chunk": k % len(owner),
        "op": np.where(adds, int(Op.RRC), int(Op.RECV)),
    }
    return program("Packed", Collective(op, len(t), len(owner), root), t, 1, columns)
