"""programs: Programs whose chunks follow packed trees, for all collectives of copies or sums.

Of many packings (styles, seeds, chunks a rank) the few are kept that load the network least; of
equals, those of low trees between few pairs of ranks. `synthesis` simulates the best.
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
from hccc.synth.common.collectives import BOTH, COPIES, SUMS
from hccc.synth.common.nics import nic_counts, nic_rates
from hccc.synth.common.route_table import RouteTable, route_table
from hccc.synth.common.transfer_table import program
from hccc.synth.trees.pack import Packing, Roots, pack, repack
from hccc.synth.trees.tree_growth import Style

# The *target* is the load of the busiest resource if the bound is met, in chunks over GB/s; loads
# below are in parts of it. Numbers without a reason of their own were set by trial on the clusters
# of examples/: `benchmarks/synthesis.py` shows the share of the bound and the seconds.
STYLES = {  # simple trees, which have few peers a rank, first: later styles only where they fail
    "stars": Style(True, True, 0.05, 0.02, 0.8, 0),
    "stars with relays": Style(True, False, 0.1, 0.02, 0.8, 0),
    "trees": Style(False, False, 0.05, 0.02, 1.0, 0),
}
LARGEST = 1 << 23  # ranks³ up to which trees are packed: 203 ranks; beyond, `compose` takes over
LARGE = 1 << 34  # bytes of the call that the target is for: so many that latency is no part of it

# Numbers of chunks. More chunks share NICs more evenly and make larger programs; by trial.
CHUNKS = (1, 2, 3, 4, 6, 8)  # chunks of a rank
FINE = (16, 32)  # chunks of a rank where links are unequal: few chunks fill these unevenly
UNEQUAL = 1.5  # times as wide
ROOTED_CHUNKS = (4, 8, 16, 32)  # chunks in all of a Broadcast or a Reduce, which have one owner
MOST_OWNED = 3  # chunks of a rank of an Allreduce, on average, at most
TOTALS = 5  # numbers of chunks of an Allreduce to try, for each way to share them among nodes
GROWTH = 1.5  # factor from one of TOTALS to the next, but for the first two
MOST_TRANSFERS = 1 << 13  # transfers of a program of several chunks a rank: tuning tries less of
# larger ones (`structures.MOST_TRIED`)
MOST_FINE = 1 << 12  # the same of FINE chunks a rank: calls of more are seldom cut finely
TRIED = 4  # numbers of chunks to pack, those that fill NICs with whole chunks first; half as many
# more of an Allreduce, whose nodes need not own alike
NUMBERS = 2  # numbers of chunks with a good enough packing, after which no more are packed

# Packings of one style and number of chunks; by trial.
SEEDS = 12  # packings to make, at most
WORK = 1 << 19  # trees times ranks² of them all, at most, except that one is always made
ENOUGH = 5  # good enough packings, after which no more are made
KEPT = 2  # packings that become Programs

# Loads, in parts of the target; by trial.
ROUGH = 0.01  # difference up to which two loads are equal
COARSE = 0.05  # the same of loads within nodes, which are less often what limits
NEARLY = 1.02  # load that is good enough: latency and thread blocks hide what is above 1
FULL = 0.9  # load within nodes that is good enough, in parts of the links' rates
REPAIRED = 1.35  # load up to which a packing is repaired: from there on repairs seldom help
STUCK = 1.15  # load above which a style that more chunks do not help by ROUGH is given up
COARSELY = 2.0  # load of few chunks above which many are not tried
HOPELESS = 1.5  # load within nodes above which a style is given up


@dataclass(frozen=True, slots=True, eq=False)
class TreeProgram:
    """A Program over packed trees. style: of the trees; number: among the Programs of that style
    and as many chunks, from 1; depth: hops of the deepest tree; load: of the busiest resource, in
    parts of the target."""

    program: Program
    style: str
    number: int
    depth: int
    load: float

    @property
    def name(self) -> str:
        """The name for people: `pack, stars, 16 chunks, 1`."""
        chunks = self.program.collective.n_chunks
        return f"pack, {self.style}, {chunks} chunk{'s' if chunks > 1 else ''}, {self.number}"


class _Judged(NamedTuple):
    """A packing and its measures, of which less is better: load of the busiest resource and of the
    busiest within nodes, in parts of the target; hops; pairs of ranks with a route in a tree."""

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


def tree_programs(
    t: Topology, op: OpType, root: int, seed: int, limits: Limits
) -> Iterator[TreeProgram]:
    """Yields Programs over packed trees, fewest chunks first, style by style; no style follows one
    whose load is good enough.

    Raises:
        UserError: E451 there are none for `op`, or a rank cannot be reached.
    """
    if op not in BOTH:
        raise fail("E451", f"trees are no way to do {op.value}", help="built-ins do")
    if len(t) ** 3 > LARGEST:
        raise fail("E451", f"{len(t)} ranks are too many to pack trees for", help="compose does")
    table, best = route_table(t), limits.at(LARGE)
    algbw, shares, each = best.algbw, list[F8](), np.full(len(t), 1 / len(t))
    if op is OpType.ALLREDUCE:
        algbw, shares, each = _shares(t, algbw)
    owners = sorted(_owners(t, op, root, shares), key=lambda k: _uneven(table, len(k) / algbw))
    owners = owners[: TRIED + TRIED // 2 * (op is OpType.ALLREDUCE)]
    owners += _fine_owners(op, each) if _unequal(table) else []
    kept = list[_Judged]()
    for name, style in STYLES.items():
        style = style._replace(seed=seed * SEEDS)
        enough, least, number = 0, np.inf, Counter[int]()
        stuck = False
        for owner in owners:
            chunks = len(owner)
            finer = chunks >= FINE[0] * len(t)
            if least > COARSELY if finer else stuck:
                continue
            kept = _packings(table, op, owner, chunks / algbw, style)
            if not kept:
                break
            for judged in kept:
                made = _program(t, op, root, owner, judged.packing)
                number[chunks] += 1
                yield TreeProgram(made, name, number[chunks], judged.depth, judged.load)
            best_one = kept[0]
            enough += best_one.enough
            stuck = enough == NUMBERS or best_one.load > max(STUCK, least - ROUGH)
            least = min(least, best_one.load)
            if best_one.inside > HOPELESS:
                break
        if enough:
            return
    if not kept:
        raise fail("E451", "no trees: some rank is reached by nobody who has data")


def _uneven(table: RouteTable, target: float) -> bool:
    """Tells whether whole chunks load NICs more than `target`, chunks over GB/s, asks."""
    chunks = target * table.capacity[~table.inside_nodes()]
    chunks = chunks[chunks >= ROUGH]
    return bool((np.ceil(chunks - ROUGH) > chunks * (1 + ROUGH)).any())


def _shares(t: Topology, algbw: float) -> tuple[float, list[F8], F8]:
    """Returns GB/s of an Allreduce over trees, ways to share the chunks among nodes, each
    f8[N]: by the rates of their NICs, equally, and by a linear program; and among ranks, f8[n]."""
    node = t.dense_memory_domain()
    nodes = int(node.max()) + 1
    rate = nic_rates(t)
    shares = [np.full(nodes, 1 / nodes)]
    if (rate > 0).all():
        shares = [rate / rate.sum(), *shares]
    trees = rooted_trees(t, OpType.ALLREDUCE, algbw)
    if trees is None:
        return algbw, shares, np.full(len(t), 1 / len(t))
    return trees.algbw, [*shares, np.bincount(node, trees.share)], trees.share


def _unequal(table: RouteTable) -> bool:
    """Tells whether a route within a node is UNEQUAL times as wide as another."""
    src, dst = np.divmod(np.arange(table.n**2), table.n)
    rows = table.use[(table.node[src] == table.node[dst]) & (table.use[:, 0] >= 0)]
    width = np.where(rows >= 0, table.capacity[rows], np.inf).min(1)
    return bool((width >= UNEQUAL * width.min(initial=np.inf)).any())


def _fine_owners(op: OpType, share: F8) -> Iterator[I4]:
    """Yields the ranks that own many chunks, i4[K], fewest chunks first: blocks get them in finer
    proportions. share: of each rank."""
    n = len(share)
    if op in (OpType.BROADCAST, OpType.REDUCE):
        return
    for k in FINE:
        if k * n * (n - 1) * (1 + (op is OpType.ALLREDUCE)) <= MOST_FINE:
            yield np.repeat(np.arange(n, dtype=np.int32), _rounded(share, k * n))


def _owners(t: Topology, op: OpType, root: int, shares: list[F8]) -> Iterator[I4]:
    """Yields the ranks that own the chunks, i4[K], fewest chunks first. The owner has a chunk
    before it is copied, and its sum in the end."""
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
    """Returns numbers of chunks that each node owns, i8[N], fewest first: those close to `share`
    that the ranks, or the NICs, of each node can own alike."""
    size = np.bincount(t.dense_memory_domain())
    found = list[I8]()
    nics = nic_counts(t)
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
    """Returns at most TOTALS of `found`: the first two, then each by GROWTH larger."""
    kept = found[:2]
    for counts in found[2:]:
        if counts.sum() >= kept[-1].sum() * GROWTH:
            kept.append(counts)
    return kept[:TOTALS]


def _dealt(t: Topology, counts: I8) -> I4:
    """Returns the owners of chunks, i4[K], `counts` of them in each node: in turn, NIC by NIC."""
    node, nic = t.dense_memory_domain(), t.port[Level.NIC]
    owner = list[np.ndarray]()
    for x, count in enumerate(counts.tolist()):
        ranks = np.flatnonzero(node == x)
        at = nic[ranks]
        turn = np.array([np.sum(at[:k] == at[k]) for k in range(len(at))])
        owner.append(ranks[np.argsort(turn, kind="stable")][np.arange(count) % len(ranks)])
    return np.concatenate(owner).astype(np.int32)


def _rounded(wanted: F8, total: int) -> I8:
    """Divides a total in the proportions `wanted` into whole numbers, by largest remainders."""
    exact = wanted / wanted.sum() * total
    counts: I8 = np.floor(exact + 1e-9).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - counts.sum()]] += 1
    return counts


def _packings(
    table: RouteTable, op: OpType, owner: I4, target: float, style: Style
) -> list[_Judged]:
    """Returns the best few packings of a style, best first; none where the style has none."""
    sums = [*([] if op in SUMS else [False]), *([] if op in COPIES else [True])]
    roots = Roots(np.tile(owner, len(sums)), np.repeat(np.array(sums), len(owner)))
    found = dict[bytes, _Judged]()
    for k in range(min(SEEDS, max(1, WORK // (len(roots.root) * table.n**2)))):
        made = pack(table, roots, target, style._replace(seed=style.seed + k))
        if made is None:  # no way within a node, which trees may do without
            return []
        found[made.parent.tobytes()] = _judge(table, made, target)
        if sum(one.enough for one in found.values()) == ENOUGH:
            break
    best = sorted(found.values(), key=lambda one: one.order)[:KEPT]
    for k, one in enumerate(best):
        if 1 + ROUGH < one.load < REPAIRED:
            mended = repack(table, roots, target, style, one.packing)
            best[k] = _judge(table, mended, target)
            if best[k].load > 1 + ROUGH:  # the next would hardly be better
                break
    best.sort(key=lambda one: one.order)
    return best


def _judge(table: RouteTable, made: Packing, target: float) -> _Judged:
    """Measures a packing."""
    k, v = np.nonzero(made.parent >= 0)
    pairs = len(np.unique(made.parent[k, v].astype(np.int64) * table.n + v))
    inside = table.inside_nodes()
    load = float(made.load.max(initial=0.0)) / target
    most = float(made.load[inside].max(initial=0.0)) / target
    return _Judged(load, most, int(made.depth.max(initial=0)), pairs, made)


def _program(t: Topology, op: OpType, root: int, owner: I4, made: Packing) -> Program:
    """Returns the Program of a packing: sums up the trees, level by level, then copies down."""
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
