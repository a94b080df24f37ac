"""compose: schedules of large clusters, from one of each kind of pod and one between pods.

HeteCCL §7. Every chunk enters each pod once, over a plane (`pods`), and is spread there over a tree
that was found for that kind of pod (`pod_trees`); chunks that a pod's links are too slow for come
over the network again (`duplicates`). Pods may differ in size and links: the planes that a pod is
on share its chunks, and a pod that is not on a chunk's plane is entered over another that both
pods are on. No search grows with the number of pods; transfers do.

Between pods each chunk goes straight from its pod to every other, the next pod first; where its pod
is too slow for that, by way of a pod that has it (`relays`).
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
from hccc.synth.pods.duplicates import Moves, duplicated
from hccc.synth.pods.pod_trees import PodTrees, pod_trees
from hccc.synth.pods.pods import Pods, pods
from hccc.synth.pods.relays import senders

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
    """A table of how every chunk enters every pod: K · N rows, the chunk's own pod first.

    pods: N; owner: i8[K] the rank that has each chunk; ring: whether pods send to the next one
    only. Columns, i8[K · N] each: chunk; pod; away: how many pods it is after the chunk's own;
    root: the rank where the chunk enters, in its own pod the owner; src: the rank that sends it
    there, -1 in its own pod; source_row: the row by which `src` has the chunk, -1 where it has it
    from its own pod; tree: the number of the tree from `root`.
    """

    pods: Pods
    owner: I8
    ring: bool
    chunk: I8
    pod: I8
    away: I8
    root: I8
    src: I8
    source_row: I8
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
    """Returns a schedule that brings every chunk to all ranks; None where there is no ring of pods,
    as these differ.

    owner: i4[K] the rank that has each chunk, ascending; turned: over `t` with every link turned
    round; ring: pods send to the next one only, which needs few connections and takes long for
    little data.

    O(transfers), after O(ranks · ranks of a pod) to find out which pods are alike.

    Raises:
        UserError: E451 there is one pod, or pods or ranks of one do not reach each other.
    """
    p = pods(t)
    if len(p) < 2:
        raise fail("E451", "compose joins pods, and there is one", help="greedy schedules one pod")
    if ring and (len(p) < 3 or (p.gateway < 0).any() or len(np.unique(p.kind)) > 1):
        return None
    e = _entries(t, p, owner.astype(np.int64), ring)
    _check_routes(t, e, turned)
    trees = _trees(t, e, turned)
    m, time = duplicated(t, _moves(e, trees), p.pod, turned)
    made = Schedule(*(a.astype(np.int32) for a in (m.chunk, m.src, m.dst, m.step)))
    return Composed(made, 1 / time if time else np.inf)


def _entries(t: Topology, p: Pods, owner: I8, ring: bool) -> _Entries:
    """Returns the gateways by which every chunk leaves its pod and enters the others."""
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
    source_row = np.full(len(chunk), -1)
    if ring:
        source_row = np.where(away > 1, np.arange(len(chunk)) - chunks, -1)
        src = np.where(away > 1, root[source_row], src)
    elif p.joined:
        by = senders(t, p, home).ravel()
        relayed = np.flatnonzero(by != home[chunk])
        source_row[relayed] = (by - home[chunk])[relayed] % count * chunks + chunk[relayed]
        src[relayed] = root[source_row[relayed]]
    tree = places_among(root)
    return _Entries(p, owner, ring, chunk, pod, away, root, src, source_row, tree)


def _check_routes(t: Topology, e: _Entries, turned: bool) -> None:
    """Raises UserError E451 where a chunk enters a pod over a pair of ranks without a route."""
    far = e.away > 0
    pairs = np.unique((e.src * len(t) + e.root)[far])
    ends = [a.astype(np.int32) for a in np.divmod(pairs, len(t))]
    ends = ends[::-1] if turned else ends
    if len(bad := unreachable(t, *ends)):
        u, v = (t.describe(int(end[bad[0]])) for end in ends)
        raise fail(
            "E451",
            f"compose over this cluster needs a route from {u} to {v}",
            help="greedy may do without",
        )


def _plane(p: Pods, home: I8) -> I8:
    """Returns the plane of each chunk: the planes that a pod is on share its chunks evenly.
    home: i8[K] pods."""
    place, count = places_among(home), np.bincount(home)
    plane = np.empty(len(home), np.int64)
    for x in np.unique(home).tolist():
        own = np.flatnonzero(p.gateway[x] >= 0)
        mine = home == x
        plane[mine] = own[place[mine] * len(own) // count[x]]
    return plane


def _evenly(p: Pods, home: I8, pod: I8, place: I8, far: B1) -> I8:
    """Returns the plane by which each chunk enters a pod, where all planes are joined: its own
    where the pod's gateways divide the chunks of its home, else the next in turn. place: of the
    chunk in its home."""
    planes = p.gateway.shape[1]
    gateways = np.array([len(np.unique(row)) for row in p.gateway])[pod]
    count = np.bincount(home[~far], minlength=len(p))[home]
    at = place * gateways // count
    uneven = np.flatnonzero(far & (count % gateways > 0))
    at[uneven] = places_among(pod[uneven]) % gateways[uneven]
    found: I8 = -(-at * planes // gateways)
    return found


def _other_planes(p: Pods, home: I8, pod: I8, plane: I8) -> I8:
    """Returns `plane`, or where the pod that is entered is not on it, one that both pods are on, in
    turn."""
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


def _trees(t: Topology, e: _Entries, turned: bool) -> list[PodTrees]:
    """Returns the trees of each kind of pod, found for the chunks that enter the first pod of the
    kind."""
    p, found = e.pods, list[PodTrees]()
    far = e.away > 0
    enough = _busiest(t, e.src[far], e.root[far], turned)
    weight = np.bincount(e.root, minlength=len(t)).astype(np.float64)
    for x in np.unique(p.kind, return_index=True)[1].tolist():
        own = p.of(x)
        c = chunked(t, fine=True, ranks=own)
        trees = pod_trees(c.reversed() if turned else c, weight[own], enough)
        if trees is None:
            u, v = t.describe(int(own[0])), t.describe(int(own[-1]))
            raise fail(
                "E451",
                f"compose needs ways between all ranks of a node: {u} to {v}",
                help="greedy may do without",
            )
        found.append(trees)
    return found


def _busiest(t: Topology, src: I8, dst: I8, turned: bool) -> float:
    """Returns the load of the busiest resource of these transfers: chunks over GB/s."""
    pairs, count = np.unique(src * len(t) + dst, return_counts=True)
    ends = [a.astype(np.int32) for a in np.divmod(pairs, len(t))]
    found = routes(t, *(ends[::-1] if turned else ends))
    used = np.bincount(found.uses.index, count[found.uses.owner()], len(found.capacity))
    return float((used / found.capacity).max(initial=0.0))


def _moves(e: _Entries, trees: list[PodTrees]) -> Moves:
    """Returns the transfers of all chunks into all pods, and along the trees within them."""
    have = _first_steps(e, trees)
    step = _entry_steps(e, have)
    far = np.flatnonzero(e.away > 0)
    none = np.full(len(far), -1)
    parts = [Moves(e.chunk[far], e.src[far], e.root[far], step[far], none, none, none)]
    parts += [_tree_moves(e, kind, s, have, step) for kind, s in enumerate(trees)]
    columns = ([getattr(part, name) for part in parts] for name in Moves.__dataclass_fields__)
    return Moves(*(np.concatenate(column) for column in columns))


def _first_steps(e: _Entries, trees: list[PodTrees]) -> I8:
    """Returns the step from which on each rank of a chunk's own pod has it: i8[K, ranks of the
    largest pod]."""
    p, chunks = e.pods, len(e.owner)
    have = np.zeros((chunks, int(p.size.max())), np.int64)
    for kind, s in enumerate(trees):
        k = np.flatnonzero(p.kind[p.pod[e.owner]] == kind)
        tree = e.tree[:chunks][k] % s.parent.shape[1]
        have[k, : s.step.shape[2]] = s.step[p.local[e.owner[k]], tree] + 1
    return have


def _entry_steps(e: _Entries, have: I8) -> I8:
    """Returns the step of each transfer into a pod, -1 into a chunk's own: i8[K · N]."""
    step = have[e.chunk, e.pods.local[e.src]] + e.away - 1
    if e.ring:
        step = step[len(e.owner) + e.chunk] + e.away - 1
    else:
        relayed = np.flatnonzero(e.source_row >= 0)
        step[relayed] = step[e.source_row[relayed]] + e.away[relayed]
    step[e.away == 0] = -1
    return step


def _tree_moves(e: _Entries, kind: int, s: PodTrees, have: I8, step: I8) -> Moves:
    """Returns the transfers along the trees of all pods of a kind. have, step: as of
    `_first_steps`, `_entry_steps`."""
    p, ranks = e.pods, s.parent.shape[2]
    row = np.flatnonzero(p.kind[e.pod] == kind)
    root, tree = p.local[e.root[row]], e.tree[row] % s.parent.shape[1]
    i, to = np.nonzero(s.parent[root, tree] >= 0)
    apart = (to - root[i]) % ranks
    order = np.argsort(apart, kind="stable")  # every rank sends to the next one first
    i, to, apart = i[order], to[order], apart[order]
    row, at = row[i], (root[i], tree[i], to)
    chunk, away, begin = e.chunk[row], e.away[row], p.first[e.pod[row]]
    dst = p.ranks[begin + to]
    other = _other_sources(e, row, dst, s.leaf[at])
    later = have[chunk, p.local[other]]
    if e.ring:
        later = np.full_like(later, have.max() + s.step.max())
    again = places_among(e.owner)
    group = apart - 1 + (away - 1) * (int(p.size.max()) - 1)
    return Moves(
        chunk,
        p.ranks[begin + s.parent[at]],
        dst,
        step[row] + 1 + s.step[at],
        other,
        later + len(p) - 1 + away,
        group * (int(again.max()) + 1) + again[chunk],
    )


def _other_sources(e: _Entries, row: I8, dst: I8, leaf: B1) -> I8:
    """Returns for each transfer of a tree the rank of another pod that could send instead, -1 for
    none: the gateway on the plane of `dst`. row: of the entry; leaf: whether `dst` passes on
    nothing."""
    p = e.pods
    plane = np.full(len(p.pod), -1)
    plane[p.gateway[p.gateway >= 0]] = np.nonzero(p.gateway >= 0)[1]
    home = (e.pod[row] - 1) % len(p) if e.ring else p.pod[e.owner[e.chunk[row]]]
    gateway = np.where(plane[dst] >= 0, p.gateway[home, plane[dst]], -1)
    found: I8 = np.where((e.away[row] > 0) & leaf, gateway, -1)
    return found
