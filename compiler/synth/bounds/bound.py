"""bound: what no schedule can beat on a Topology: its latency, and its narrowest cut.

A bound on the network: thread blocks, reductions (γ) and launches only add to it. It holds for
every schedule whose switches neither reduce nor multicast, with any chunking and any overlap.

*Latency.* The last rank to get what it needs is no nearer, over paths of least α, than `latency`.
Where values are reduced, one primitive gets from a peer and puts to another, and pays for both
links the larger α: those are paths, too (`through_one_block`).

The first byte over a cut may have to wait for the least latency over it (`head`), or the last one
be followed by it; where a cut is crossed within memory domains and between them, neither holds.

*Bytes.* Of a call of N bytes every rank has as many as blocks of equal size allow, at most N.

*Cuts.* Of a call of N bytes on n ranks, these must cross every cut of this kind; the time is at
least the bytes over the cut's capacity, for the cut where that is most (`share` · N bytes):

| collective    | cut                            | share          | found               |
|---------------|--------------------------------|----------------|---------------------|
| Allgather     | into C, which has a rank       | (n − |C|) / n  | exactly (ForestColl)|
| Reducescatter | out of C, which has a rank     | (n − |C|) / n  | exactly             |
| Gather        | into C, which has the root     | (n − |C|) / n  | exactly             |
| Scatter       | out of C, which has the root   | (n − |C|) / n  | exactly             |
| Broadcast     | into C, which lacks the root   | 1              | exactly (Edmonds)   |
| Reduce        | out of C, which lacks the root | 1              | exactly             |
| Allreduce     | into C, any                    | 1              | exactly             |
| Allreduce     | between the m parts of any     | 2 (m − 1)      | `partitions`        |
| Alltoall      | into or out of C               | |C| (n−|C|) / n| C of `_sets`        |
| SendRecv      | into or out of C               | ranks s in C with s + 1 not in it | the same |

Those of Reducescatter and Reduce hold though sums are smaller than their addends: each byte of a
result needs a byte from every side where a rank contributes to it.

*Why an Allreduce moves 2 (m − 1) N bytes between m parts.* Take one byte and order its transfers
as they end. A part *knows* when values at its ranks together have contributions of all ranks. Let P
be the first part to know, by transfer t. Until then, t included, each of the other m − 1 parts sent
something to another part, or its contributions would not be in P. After t each of them receives
something from another part: t went into P, so none of them knew yet, and what its own ranks send
each other adds nothing. Transfers up to t are told apart by the part they leave and those after it
by the part they enter, so they are 2 (m − 1). The parts may be chosen freely, so this holds for
all; it is also why equal roots are not optimal on unequal nodes.

Before the first byte crosses a cut, the shortest path across takes its α: `head`.

`rooted_trees` has what can be reached: for Allgather and Reducescatter the optimum, which is the
cut's unless GPUs share a narrow NIC or bus, and for Allreduce the optimum of a class. `best_paths`
has the optimum of Alltoall, Gather and Scatter.

All of it is on the flow network of `network`, a relaxation: weaker where that says so, never wrong.
Ranks that colour refinement cannot tell apart are taken for each other when cuts are looked for:
512 ranks in a rail network are one sort. Were they not alike, a narrower cut could be missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from hccc.ir.arrays import B1, I8, frozen
from hccc.ir.collective import Collective, OpType, block_count
from hccc.ir.topology import BYTES_PER_US, F8, Topology
from hccc.network.cuts import Flows, gather_cut, narrowest_cut
from hccc.network.flow import FlowNetwork, colours, network
from hccc.network.latency import Distances, through_one_block
from hccc.network.partitions import Partition, structural_partitions, weakest
from hccc.network.resource_names import leading_kinds
from hccc.network.routes import router_of
from hccc.network.set_names import partition_name, set_name
from hccc.sim.costs import SIMPLE, Costs

OUTWARD = frozenset({OpType.REDUCESCATTER, OpType.SCATTER, OpType.REDUCE})
SPREAD = frozenset({OpType.ALLGATHER, OpType.REDUCESCATTER})
FUNNEL = frozenset({OpType.GATHER, OpType.SCATTER})
WHOLE = frozenset({OpType.BROADCAST, OpType.REDUCE})
REDUCING = frozenset({OpType.ALLREDUCE, OpType.REDUCESCATTER, OpType.REDUCE})
MOST_DENOMINATOR = 1_000_000
ROUNDED = 1e-14


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A cut, and what crosses it. parts: the ranks of C, or of each part; name: as the topology
    names ranks, `into node2`; share: bytes that must cross for each byte of the call; capacity:
    GB/s; resources: i8 the shared groups and links that cross it, numbered as in `routes`;
    limited_by: their kinds, `NICs`."""

    name: str
    parts: tuple[tuple[int, ...], ...]
    share: float
    capacity: float
    resources: I8
    limited_by: str

    @property
    def algbw(self) -> Fraction:
        """GB/s of a call that the cut lets through as sizes grow: capacity over share, both as the
        fractions that they are (`rational`)."""
        return rational(self.capacity) / rational(self.share)

    @property
    def ranks(self) -> tuple[int, ...]:
        """C; the first part of several."""
        return self.parts[0]


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """What no schedule beats where several cuts bind together. over: `trees` or `paths`, of which
    every schedule consists; algbw: GB/s of a call as sizes grow; limited_by: as of a Cut."""

    over: str
    algbw: float
    limited_by: str


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """The bound of one collective on one Topology, for any size. latency, head: µs; blocks: of
    equal size that a call is divided into; optimum: where it is known and less than the cut lets
    through (`certificate`)."""

    latency: float
    head: float
    cut: Cut | None
    blocks: int = 1
    optimum: Optimum | None = None

    def at(self, size: int, costs: Costs = SIMPLE) -> Bound:
        """Returns the bound for `size` bytes, as nccl-tests counts them. Only the factors of
        `costs` for α and for bytes on a link count."""
        bandwidth, moved = 0.0, size // self.blocks * self.blocks / costs.efficiency
        if self.cut is not None:
            wire = moved * self.cut.share
            bandwidth = wire / (self.cut.capacity * BYTES_PER_US) if self.cut.capacity else np.inf
        latency, head = self.latency * costs.latency, self.head * costs.latency
        together = moved / (self.optimum.algbw * BYTES_PER_US) if self.optimum else 0.0
        return Bound(size, latency, head, bandwidth, self.cut, self.optimum, together)


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """The least time of any schedule, in µs: `latency`; `bandwidth` of `cut` (None where nothing
    has to move), which begins at `head`; and `together`, of the `optimum`."""

    size: int
    latency: float
    head: float
    bandwidth: float
    cut: Cut | None
    optimum: Optimum | None = None
    together: float = 0.0

    @property
    def time(self) -> float:
        """µs that every schedule takes at least."""
        return max(self.latency, self.head + self.bandwidth, self.together)

    @property
    def algbw(self) -> float:
        """GB/s: size over time."""
        return self.size / (self.time * BYTES_PER_US) if self.time else np.inf

    @property
    def binding(self) -> str:
        """`latency`, the cut's name, `over trees` or `over paths`."""
        if self.cut is None or self.latency >= self.time:
            return "latency"
        joint = self._joint()
        return f"over {joint.over}" if joint else self.cut.name

    @property
    def limited_by(self) -> str:
        """`latency`, or the kinds of resources that bind: `NICs`, `links and switches`."""
        if self.cut is None or self.latency >= self.time:
            return "latency"
        return (self._joint() or self.cut).limited_by

    @property
    def reason(self) -> str:
        """The limit and its kind, for people: `into node1 (NICs)`."""
        kinds = "" if self.binding == self.limited_by else f" ({self.limited_by})"
        return f"{self.binding}{kinds}"

    def _joint(self) -> Optimum | None:
        """Returns the optimum where it is what binds."""
        return None if self.head + self.bandwidth >= self.time else self.optimum


def bound(t: Topology, collective: Collective, size: int, costs: Costs = SIMPLE) -> Bound:
    """Returns the least time of any schedule of `collective` on `t`, for `size` bytes (the larger
    of a rank's buffers, as nccl-tests counts)."""
    return limits(t, collective.op, collective.root).at(size, costs)


@lru_cache(maxsize=4)  # a report asks several times
def limits(t: Topology, op: OpType, root: int = 0) -> Limits:
    """Returns the bound of `op` for all sizes. A flow, O(arcs · √vertices) in practice, for every
    sort of rank."""
    if len(t) < 2 or op is OpType.CUSTOM:
        return Limits(0.0, 0.0, None)
    net = network(t)
    directed = net.reversed() if op in OUTWARD else net
    distances = Distances(directed)
    if op is OpType.ALLREDUCE:
        head, cut = _allreduce(t, net, distances)
    elif op in SPREAD | FUNNEL | WHOLE:
        inside = _single(directed, op, root)
        head = distances.into(inside[: len(t)])
        cut = _cut(t, directed, inside, _share(op, inside[: len(t)]), op in OUTWARD)
    else:
        head, cut = narrowest(t, net, distances, lambda label, _: _crossing(label, op))
    if op in REDUCING:
        first, last, alpha = through_one_block(t)
        ends = (last, first) if op in OUTWARD else (first, last)
        distances = Distances(directed, (*ends, alpha))
    blocks = Collective(op, len(t), block_count(op, len(t)), root).most_blocks()
    head = 0.0 if mixed(t, cut) else head
    return Limits(_latency(directed, distances, op, root), head, cut, blocks)


def mixed(t: Topology, cut: Cut) -> bool:
    """Tells whether a cut is crossed both within memory domains, where bytes follow the latency,
    and between them, where a proxy's bytes precede it: then some may cross at any time."""
    part = np.zeros(len(t), np.int64)
    for number, ranks in enumerate(cut.parts):
        part[list(ranks)] = number + 1
    domain = t.dense_memory_domain()
    domains = int(domain.max()) + 1
    divided = len(np.unique(domain * (len(cut.parts) + 1) + part)) > domains
    return divided and domains > 1


def _sorts(net: FlowNetwork, root: int | None = None) -> I8:
    """Returns one rank of every sort, except the root's."""
    marked = None if root is None else (np.arange(net.ranks) == root).astype(np.int64)
    ranks = np.unique(colours(net, marked), return_index=True)[1]
    return ranks if root is None else ranks[ranks != root]


def _latency(net: FlowNetwork, distances: Distances, op: OpType, root: int) -> float:
    if op is OpType.SENDRECV:
        return distances.ring()
    if op in WHOLE | FUNNEL:
        # Gather's cuts are into its root, but its data comes from the others.
        toward = distances if op in WHOLE else Distances(net.reversed())
        return toward.farthest(np.array([root]))
    return distances.farthest(_sorts(net))


def _single(net: FlowNetwork, op: OpType, root: int) -> B1:
    if op in SPREAD:
        return gather_cut(net, _sorts(net))
    if op in FUNNEL:
        return gather_cut(net, np.array([root]))
    return narrowest_cut(net, root, _sorts(net, root))


def _share(op: OpType, inside: B1) -> float:
    n = len(inside)
    return 1.0 if op in WHOLE else (n - int(np.count_nonzero(inside))) / n


def _cut(t: Topology, net: FlowNetwork, inside: B1, share: float, out: bool) -> Cut:
    """Returns the cut around `inside`, named by its smaller side."""
    arcs = net.crossing(inside)
    side = inside[: net.ranks]
    if 2 * np.count_nonzero(side) > net.ranks:
        side, out = ~side, not out
    ranks = np.flatnonzero(side)
    name = f"{'out of' if out else 'into'} {set_name(t, ranks)}"
    capacity = float(net.capacity[arcs].sum())
    return _made(t, name, [ranks], share, capacity, net.resource[arcs])


def _made(
    t: Topology, name: str, parts: Sequence[I8], share: float, capacity: float, numbers: I8
) -> Cut:
    """Makes a Cut. numbers: of the resources that cross it, -1 for an arc without one."""
    crossing = frozen(np.unique(numbers[numbers >= 0]), np.int64)
    kinds = leading_kinds(t, crossing, router_of(t).capacities(crossing))
    return Cut(name, tuple(tuple(p.tolist()) for p in parts), share, capacity, crossing, kinds)


def _allreduce(t: Topology, net: FlowNetwork, distances: Distances) -> tuple[float, Cut]:
    """Returns the head and the narrowest cut, or the partition of least ratio where that is
    tighter."""
    both = (net, net.reversed())
    inside = [narrowest_cut(directed, 0, _sorts(directed, 0)) for directed in both]
    each = [_cut(t, w, i, 1.0, d) for w, i, d in zip(both, inside, (False, True), strict=True)]
    partition = weakest(t, net)
    if min(cut.capacity for cut in each) <= partition.ratio / 2:
        i = int(each[1].capacity < each[0].capacity)
        aside = inside[i][: len(t)]
        return distances.into(~aside if i else aside), each[i]
    return distances.between(partition.label), _between(t, partition)


def _between(t: Topology, partition: Partition) -> Cut:
    rows = [np.flatnonzero(partition.label == part) for part in range(partition.count)]
    name = f"between {partition_name(t, partition.label)}"
    share = 2.0 * (partition.count - 1)
    return _made(t, name, rows, share, partition.capacity, partition.resources)


def narrowest(
    t: Topology, net: FlowNetwork, distances: Distances, crossing: Callable[[I8, bool], F8]
) -> tuple[float, Cut]:
    """Returns the head and the tightest cut of the sets of `_sets`, in each direction.

    crossing: tells of a label i8[ranks] the bytes into each part, or out of it, for a byte of the
    call: f8[parts].
    """
    best, most = np.zeros(len(t), np.bool_), -1.0
    backward, share = False, 0.0
    for label in _sets(t, net):
        small = net.contracted(label)
        for back, directed in ((False, small), (True, small.reversed())):
            crosses = crossing(label, back)
            kinds = np.unique(crosses, return_inverse=True)[1]
            flows, supply = Flows(directed), np.full(small.ranks, np.inf)
            for part in np.unique(colours(directed, kinds), return_index=True)[1].tolist():
                least = flows.to(part, supply)[0]
                if (ratio := float(crosses[part]) / least if least else np.inf) > most:
                    most, backward, best, share = ratio, back, label == part, float(crosses[part])
    directed = net.reversed() if backward else net
    pair = directed.contracted(best.astype(np.int64))
    ends = np.array([np.inf, 0.0])
    hubs = Flows(pair).cut(ends, ends[::-1].copy())[1][2:]
    inside = np.concatenate([best, hubs])
    cut = _cut(t, directed, inside, share, backward)
    return distances.into(~best if backward else best), cut


def _sets(t: Topology, net: FlowNetwork) -> Iterator[I8]:
    """Yields sets of ranks with narrow cuts: the partitions that the topology shows, the narrowest
    cut of all, and the narrowest for Allgather. Labels i8[ranks]."""
    yield from structural_partitions(t)
    for directed in (net, net.reversed()):
        for inside in (
            narrowest_cut(directed, 0, _sorts(directed, 0)),
            gather_cut(directed, _sorts(directed)),
        ):
            yield inside[: len(t)].astype(np.int64)


def rational(value: float) -> Fraction:
    """Returns the fraction with a denominator up to a million that differs from `value` in the last
    digits only, which sums of rates round: 200/3 for 66.666...; else `value` as it is."""
    near = Fraction(value).limit_denominator(MOST_DENOMINATOR)
    return near if abs(float(near) - value) <= ROUNDED * abs(value) else Fraction(value)


def _crossing(label: I8, op: OpType) -> F8:
    """Returns the bytes into (and as many out of) each part for a byte of the call: f8[parts]."""
    n = len(label)
    if op is OpType.ALLTOALL:
        count = np.bincount(label)
        return count * (n - count) / n
    after = np.roll(label, -1)
    return np.bincount(after[label != after], minlength=int(label.max()) + 1).astype(np.float64)
