"""compose: schedules of large clusters, from one of each kind of pod and one between pods.

HeteCCL §7. Every chunk enters each pod once, over a plane (`pods`), and is spread there over a tree
that was found for that kind of pod (`spread`); what a pod's links are too slow for comes over the
network again (`duplicates`). Pods may differ in size and links: chunks of a pod are shared out
among its planes, and what lacks a plane is entered over another that both ends have. No search
grows with the number of pods; transfers do.

Between pods each chunk goes straight from its pod to every other, the next pod first; where its pod
is too slow for that, by way of one that has it (`relays`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from hccc.base.diagnostics import fail
from hccc.ir.arrays import B1, I4, I8, places_among
from hccc.ir.collective import OpType
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.network.routes import routes, unreachable
from hccc.synth.common.collectives import COPIES, SUMS
from hccc.synth.common.transfer_table import check_size
from hccc.synth.greedy.chunked import chunked
from hccc.synth.greedy.programs import from_schedules, owners
from hccc.synth.greedy.schedule import Schedule
from hccc.synth.pods.duplicates import Transfers, duplicated
from hccc.synth.pods.pods import Pods, pods
from hccc.synth.pods.relays import senders
from hccc.synth.pods.spread import Spread, spread

NAME = "compose"
OPS = frozenset({OpType.ALLGATHER, OpType.REDUCESCATTER, OpType.ALLREDUCE})
CHUNKS = (1, 2, 4)  # of a rank
MOST_TRANSFERS = 1 << 18  # of a program of several chunks a rank
BETTER = 1.003  # times the rate of fewer chunks: what more chunks must bring


@dataclass(frozen=True, slots=True, eq=False)
class ComposedProgram:
    """A Program. chunks: of a rank; ring: whether nodes send to the next one only; algbw: GB/s of a
    call at which its busiest resource is busy all the time."""

    program: Program
    chunks: int
    ring: bool
    algbw: float

    @property
    def name(self) -> str:
        """The name for people: `compose, 2 chunks a rank, nodes in a ring`."""
        ring = ", nodes in a ring" if self.ring else ""
        return f"{NAME}, {self.chunks} chunk{'s' if self.chunks > 1 else ''} a rank{ring}"


@dataclass(frozen=True, slots=True, eq=False)
class Composed:
    """A schedule, and the rate of its busiest resource, GB/s over its chunks: the schedule takes no
    less than the bytes of a chunk over that."""

    schedule: Schedule
    rate: float


@dataclass(frozen=True, slots=True, eq=False)
class _Entries:
    """Every chunk into every pod, K · N rows, the chunk's own pod first: chunk, pod, and how many
    pods `away`; root: the rank where it enters, or its owner; src: who sends it there, -1 in its
    own pod; after: the row by which that rank has it, where it is of another pod, else -1; tree: of
    the root, which."""

    chunk: I8
    pod: I8
    away: I8
    root: I8
    src: I8
    after: I8
    tree: I8


def composed_programs(t: Topology, op: OpType) -> Iterator[ComposedProgram]:
    """Yields Programs of composed schedules, fewest chunks first; of more chunks those that load
    the busiest resource less.

    Raises:
        UserError: E451 there are none for `op`, or on this cluster; E452 they are too large.
    """
    if op not in OPS:
        raise fail("E451", f"compose schedules nothing for {op.value}", help="built-ins do")
    best = [0.0, 0.0]
    for chunks, ring in product(CHUNKS, (False, True)):
        owner = owners(t, op, 0, chunks)
        size = len(owner) * (len(t) - 1) * (2 if op is OpType.ALLREDUCE else 1)
        if chunks > 1 and size > MOST_TRANSFERS:
            return
        check_size(NAME, len(t), size)
        copies = None if op in SUMS else compose(t, owner, ring=ring)
        sums = None if op in COPIES else compose(t, owner, turned=True, ring=ring)
        parts = [part for part in (copies, sums) if part]
        if not parts:
            continue
        algbw = len(owner) / sum(1 / part.rate for part in parts)
        if algbw > BETTER * best[ring]:
            best[ring] = algbw
            there, back = (part.schedule if part else None for part in (copies, sums))
            made = from_schedules("Compose", t, op, 0, owner, there, back)
            yield ComposedProgram(made, chunks, ring, algbw)


def compose(t: Topology, owner: I4, *, turned: bool = False, ring: bool = False) -> Composed | None:
    """Everybody gets every chunk. owner: i4[K] the rank that has each, ascending; turned: over `t`
    with every link turned round; ring: pods send to the next one only, which needs few connections
    and takes long for little data. None where there is no ring: pods differ.

    O(transfers), after O(ranks · ranks of a pod) to find out which pods are alike.

    Raises:
        UserError: E451 there is one pod, or pods or ranks of one do not reach each other.
    """
    p = pods(t)
    if len(p) < 2:
        raise fail("E451", "compose joins pods, and there is one", help="greedy schedules one pod")
    if ring and (len(p) < 3 or (p.gateway < 0).any() or len(np.unique(p.kind)) > 1):
        return None
    first = owner.astype(np.int64)
    e = _entries(t, p, first, turned, ring)
    trees = _trees(t, p, e, turned)
    moves, time = duplicated(t, _transfers(p, e, trees, first, ring), p.pod, turned)
    made = Schedule(*(a.astype(np.int32) for a in (moves.chunk, moves.src, moves.dst, moves.step)))
    return Composed(made, 1 / time if time else np.inf)


def _entries(t: Topology, p: Pods, owner: I8, turned: bool, ring: bool) -> _Entries:
    chunks, count = len(owner), len(p)
    home = p.pod[owner]
    away, chunk = (a.ravel() for a in np.divmod(np.arange(count * chunks), chunks))
    pod = (home[chunk] + away) % count
    plane = _plane(p, home)[chunk]
    far = away > 0
    if p.joined:
        enter = _evenly(p, home[chunk], pod, places_among(home)[chunk], far)
    else:
        enter = plane = _other_planes(p, home[chunk], pod, plane)
    root = np.where(far, p.gateway[pod, enter], owner[chunk])
    src = np.where(far, p.gateway[home[chunk], plane], -1)
    after = np.full(len(chunk), -1)
    if ring:
        after = np.where(away > 1, np.arange(len(chunk)) - chunks, -1)
        src = np.where(away > 1, root[after], src)
    elif p.joined:
        by = senders(t, p, home).ravel()
        relayed = np.flatnonzero(by != home[chunk])
        after[relayed] = (by - home[chunk])[relayed] % count * chunks + chunk[relayed]
        src[relayed] = root[after[relayed]]
    pairs = np.unique((src * len(t) + root)[far])
    ends = [a.astype(np.int32) for a in np.divmod(pairs, len(t))]
    ends = ends[::-1] if turned else ends
    if len(bad := unreachable(t, *ends)):
        u, v = (t.describe(int(end[bad[0]])) for end in ends)
        raise fail(
            "E451",
            f"compose over this cluster needs a route from {u} to {v}",
            help="greedy may do without",
        )
    return _Entries(chunk, pod, away, root, src, after, places_among(root))


def _plane(p: Pods, home: I8) -> I8:
    """The plane of each chunk: those of a pod shared out evenly among the planes that it is on.
    home: i8[K] pods."""
    place, count = places_among(home), np.bincount(home)
    plane = np.empty(len(home), np.int64)
    for x in np.unique(home).tolist():
        own = np.flatnonzero(p.gateway[x] >= 0)
        mine = home == x
        plane[mine] = own[place[mine] * len(own) // count[x]]
    return plane


def _evenly(p: Pods, home: I8, pod: I8, place: I8, far: B1) -> I8:
    """The plane by which each chunk enters a pod, where any does: its own where the gateways that
    are entered divide the chunks of its pod, else the next in turn. place: in its pod."""
    planes = p.gateway.shape[1]
    gateways = np.array([len(np.unique(row)) for row in p.gateway])[pod]
    count = np.bincount(home[~far], minlength=len(p))[home]
    at = place * gateways // count
    uneven = np.flatnonzero(far & (count % gateways > 0))
    at[uneven] = places_among(pod[uneven]) % gateways[uneven]
    found: I8 = -(-at * planes // gateways)
    return found


def _other_planes(p: Pods, home: I8, pod: I8, plane: I8) -> I8:
    """`plane`, or where the pod that is entered is not on it one that both are on, in turn."""
    found = plane.copy()
    lacking = np.flatnonzero(p.gateway[pod, plane] < 0)
    keys, at = np.unique(home[lacking] * len(p) + pod[lacking], return_inverse=True)
    for i, key in enumerate(keys.tolist()):
        x, y = divmod(key, len(p))
        common = np.flatnonzero((p.gateway[x] >= 0) & (p.gateway[y] >= 0))
        if not len(common):
            raise fail(
                "E451",
                "compose needs a leaf that every two nodes have a NIC on",
                help="greedy may do without",
            )
        rows = lacking[at == i]
        found[rows] = common[(np.arange(len(rows)) + i) % len(common)]
    return found


def _trees(t: Topology, p: Pods, e: _Entries, turned: bool) -> list[Spread]:
    """The trees of each kind of pod, for what enters the first that is of it."""
    found = list[Spread]()
    far = e.away > 0
    enough = _time(t, e.src[far], e.root[far], turned)
    weight = np.bincount(e.root, minlength=len(t)).astype(np.float64)
    for x in np.unique(p.kind, return_index=True)[1].tolist():
        own = p.of(x)
        c = chunked(t, fine=True, ranks=own)
        trees = spread(c.reversed() if turned else c, weight[own], enough)
        if trees is None:
            u, v = t.describe(int(own[0])), t.describe(int(own[-1]))
            raise fail(
                "E451",
                f"compose needs ways between all ranks of a node: {u} to {v}",
                help="greedy may do without",
            )
        found.append(trees)
    return found


def _time(t: Topology, src: I8, dst: I8, turned: bool) -> float:
    """Chunks over GB/s of the busiest resource of these transfers."""
    pairs, count = np.unique(src * len(t) + dst, return_counts=True)
    ends = [a.astype(np.int32) for a in np.divmod(pairs, len(t))]
    found = routes(t, *(ends[::-1] if turned else ends))
    used = np.bincount(found.uses.index, count[found.uses.owner()], len(found.capacity))
    return float((used / found.capacity).max(initial=0.0))


def _transfers(p: Pods, e: _Entries, trees: list[Spread], owner: I8, ring: bool) -> Transfers:
    """All entries, and what trees make of them."""
    have = _since(p, e, trees, owner)
    far = np.flatnonzero(e.away > 0)
    step = have[e.chunk, p.local[e.src]] + e.away - 1
    if ring:
        step = step[len(owner) + e.chunk] + e.away - 1
    relayed = np.flatnonzero((e.after >= 0) & (not ring))
    step[relayed] = step[e.after[relayed]] + e.away[relayed]
    entered = np.where(e.away > 0, step + 1, 0)
    none = np.full(len(far), -1)
    parts = [Transfers(e.chunk[far], e.src[far], e.root[far], step[far], none, none, none)]
    plane = np.full(len(p.pod), -1)
    plane[p.gateway[p.gateway >= 0]] = np.nonzero(p.gateway >= 0)[1]
    widest, again = int(p.size.max()), places_among(owner)
    for kind, s in enumerate(trees):
        row = np.flatnonzero(p.kind[e.pod] == kind)
        tree = (p.local[e.root[row]], e.tree[row] % s.parent.shape[1])
        i, to = np.nonzero(s.parent[tree] >= 0)
        apart = (to - tree[0][i]) % s.parent.shape[2]
        order = np.argsort(apart, kind="stable")  # as loops over ranks would have them
        i, to, apart = i[order], to[order], apart[order]
        row, at = row[i], (tree[0][i], tree[1][i], to)
        begin = p.first[e.pod[row]]
        dst = p.ranks[begin + to]
        chunk = e.chunk[row]
        home = (e.pod[row] - 1) % len(p) if ring else p.pod[owner[chunk]]
        other = np.where(plane[dst] >= 0, p.gateway[home, plane[dst]], -1)
        other = np.where((e.away[row] > 0) & s.leaf[at], other, -1)
        group = apart - 1 + (e.away[row] - 1) * (widest - 1)
        had = have[chunk, p.local[other]]
        had = np.full_like(had, have.max() + s.step.max()) if ring else had
        parts.append(
            Transfers(
                chunk,
                p.ranks[begin + s.parent[at]],
                dst,
                entered[row] + s.step[at],
                other,
                had + len(p) - 1 + e.away[row],
                group * (int(again.max()) + 1) + again[chunk],
            )
        )
    columns = ([getattr(one, name) for one in parts] for name in Transfers.__dataclass_fields__)
    return Transfers(*(np.concatenate(column) for column in columns))


def _since(p: Pods, e: _Entries, trees: list[Spread], owner: I8) -> I8:
    """From which step on each rank of a chunk's own pod has it: i8[K, ranks of the largest pod]."""
    chunks = len(owner)
    have = np.zeros((chunks, int(p.size.max())), np.int64)
    for kind, s in enumerate(trees):
        k = np.flatnonzero(p.kind[p.pod[owner]] == kind)
        tree = e.tree[:chunks][k] % s.parent.shape[1]
        have[k, : s.step.shape[2]] = s.step[p.local[owner[k]], tree] + 1
    return have
