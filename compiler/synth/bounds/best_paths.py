"""best_paths: the best that an Alltoall, a Gather or a Scatter can do, over any paths.

What these move has one destination and is never reduced, so every schedule is a flow from each
rank to each other, over links and relays, and the fastest one as sizes grow is a linear program
(concurrent multicommodity flow: Shahrokhi, Matula 1990; for Alltoall Basu et al. 2024):

- λ, GB/s of the call, is to be as large as can be;
- for every destination a flow f(e) over arcs, to which each other rank adds λ / ranks;
- what all flows take of each link and each shared group is at most its capacity.

Cuts are what its dual has at its simplest: where several cuts bind together, as two between three
sockets do, it is tighter than each.

Arcs are those of `network`, but for ranks that only SWITCH groups join: each such pair has one arc,
which takes of all the groups of its route. The chains of a flow network cannot tell which pair a
flow through a group belongs to, and would let it end at other ranks.

Ranks, arcs and resources of one colour are tied (`rooted_trees`), with one destination of each
sort: 1,024 alike ranks are one destination and a few kinds of arcs. Tied rows are sums of rows, so
the bound holds also where colours tie what is not alike, but for destinations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linprog  # type: ignore[import-untyped]

from hccc.ir.arrays import I8
from hccc.ir.collective import OpType
from hccc.ir.topology import F8, Topology
from hccc.network.flow import (
    FlowNetwork,
    arc_colours,
    chains,
    lists_switch_pairs,
    network,
    switch_pairs,
    vertex_colours,
)
from hccc.synth.bounds.rooted_trees import MOST_VARIABLES, SOLVER, Rows, priced

SOLVED = (OpType.ALLTOALL, OpType.GATHER, OpType.SCATTER)


@dataclass(frozen=True, slots=True, eq=False)
class BestPaths:
    """algbw: GB/s of the call, as sizes grow; resource: i8[R] those that bind, numbered as in
    `routes`; weight: f8[R] the part of the time that each accounts for."""

    algbw: float
    resource: I8
    weight: F8


@dataclass(frozen=True, slots=True, eq=False)
class _RoutedArcs:
    """Arcs, of which each takes of several resources, and their kinds.

    tail, head: i8[m] vertices; kind: i8[m] equal for arcs that take of the same kinds of
    resources; arc, held: i8[u] each arc's resources, by their kinds; number: i8[R] resources, -1
    for one without a number; of: i8[R] the kind of each; capacity: f8[kinds] of all together.
    """

    tail: I8
    head: I8
    kind: I8
    arc: I8
    held: I8
    number: I8
    of: I8
    capacity: F8


def best_paths(
    t: Topology, op: OpType, root: int, bound: float, most_variables: int | None = None
) -> BestPaths | None:
    """Returns the best that `op` can do; None where it is none of SOLVED, where there is one rank,
    or where the linear program is too large.

    bound: GB/s that it does not exceed, the scale of the program; most_variables: of a program that
    is not too large, MOST_VARIABLES where left out. O(sorts of ranks · arcs) variables at most:
    milliseconds for 16 irregular ranks, and for any number of alike ones.
    """
    if op not in SOLVED or len(t) < 2 or not 0 < bound < np.inf:
        return None
    net = network(t)
    vertex, kinds = arc_colours(net)
    first, count = np.unique(vertex[: net.ranks], return_index=True, return_counts=True)[1:]
    if op is not OpType.ALLTOALL:
        first, count = np.array([root]), np.array([1])
        kinds = _marked(net, root)
    arcs = _arcs(t, net, kinds)
    if op is OpType.SCATTER:
        arcs = replace(arcs, tail=arcs.head, head=arcs.tail)
    program = _PathProgram(net.ranks, arcs, bound)
    for target, times in zip(first.tolist(), count.tolist(), strict=True):
        own = (np.arange(net.ranks) == target).astype(np.int64)
        program.add(vertex_colours(net, own), target, times)
        if program.columns > (MOST_VARIABLES if most_variables is None else most_variables):
            return None
    return program.solve()


def demanded_paths(
    t: Topology, need: F8, bound: float, most_variables: int | None = None
) -> BestPaths | None:
    """Returns the best that any transfers can do; None where the linear program is too large.

    need: f8[ranks, ranks] the bytes from each rank to each, for a byte of the call; bound,
    most_variables: as of `best_paths`. No ranks are taken for alike: O(ranks · arcs) variables.
    """
    if not 0 < bound < np.inf:
        return None
    net = network(t)
    vertices = max(net.vertices, net.ranks)
    arcs = _arcs(t, net, np.arange(len(net.tail)))
    program = _PathProgram(net.ranks, arcs, bound)
    for target in np.flatnonzero(need.any(0)).tolist():
        program.add(np.arange(vertices), target, 1, need[:, target])
        if program.columns > (MOST_VARIABLES if most_variables is None else most_variables):
            return None
    return program.solve()


def _marked(net: FlowNetwork, root: int) -> I8:
    """Returns the colours of arcs where one rank is marked: i8[m]."""
    colour = vertex_colours(net, (np.arange(net.ranks) == root).astype(np.int64))
    ends = np.stack([colour[net.tail], colour[net.head], net.capacity.view(np.int64)])
    return np.unique(ends, axis=1, return_inverse=True)[1].ravel()


def _arcs(t: Topology, net: FlowNetwork, of: I8) -> _RoutedArcs:
    """Lists the arcs, with pairs in place of the chains of SWITCH groups. of: i8[m] the colour of
    each arc of the network."""
    capacity = np.where(np.isfinite(net.capacity), net.capacity, -1.0)
    held = np.flatnonzero(capacity >= 0)
    number, row = net.resource[held], np.full(len(net.tail), -1)
    row[held] = np.arange(len(held))
    kept = np.ones(len(net.tail), np.bool_)
    src: I8 = np.zeros(0, np.int64)
    dst: I8 = np.zeros(0, np.int64)
    arc, use = held, row[held]
    if t.n_switches and lists_switch_pairs(t):
        src, dst, uses = switch_pairs(t)
        kept = ~chains(t, net)
        order = np.argsort(number)
        at = order[np.searchsorted(number, uses.index, sorter=order)]
        place = np.cumsum(kept) - 1
        mine = kept[held]
        arc = np.concatenate([place[held[mine]], uses.owner() + int(kept.sum())])
        use = np.concatenate([row[held[mine]], at])
    kinds = np.unique(of[held], return_inverse=True)[1].ravel()
    tail = np.concatenate([net.tail[kept], src]).astype(np.int64)
    head = np.concatenate([net.head[kept], dst]).astype(np.int64)
    every: F8 = np.bincount(kinds, capacity[held]).astype(np.float64)
    return _RoutedArcs(
        tail, head, _alike(arc, kinds[use], len(tail)), arc, kinds[use], number, kinds, every
    )


def _alike(arc: I8, kind: I8, arcs: int) -> I8:
    """Returns a number for each arc, equal where arcs have the same kinds equally often."""
    order = np.lexsort((kind, arc))
    arc, kind = arc[order], kind[order]
    count = np.bincount(arc, minlength=arcs)
    place = np.arange(len(arc)) - np.repeat(np.cumsum(count) - count, count)
    table = np.full((arcs, int(count.max(initial=0)) + 1), -1)
    table[arc, place] = kind
    return np.unique(table, axis=0, return_inverse=True)[1].ravel()


class _PathProgram:
    """The linear program. Columns: λ over the bound, then what the flows to each destination take
    of each kind of arcs, all arcs of a kind together."""

    def __init__(self, ranks: int, arcs: _RoutedArcs, unit: float) -> None:
        self.ranks, self.arcs, self.unit = ranks, arcs, unit
        self.columns = 1
        self.equal = Rows()
        self.held: list[I8] = []
        self.taken: list[I8] = []
        self.times: list[F8] = []

    def add(self, own: I8, target: int, times: int, sent: F8 | None = None) -> None:
        """Adds the flow to one destination, of which there are `times`. own: i8[vertices]
        colours, of which the destination has one of its own; sent: f8[ranks] what each rank adds
        for a byte of the call, its part of the ranks where left out."""
        arcs = self.arcs
        key = np.stack([own[arcs.tail], own[arcs.head], arcs.kind])
        ends, first = np.unique(key, axis=1, return_index=True)
        kinds = np.arange(len(first))
        column = self.columns + kinds
        self.columns += len(first)
        colours = int(own.max()) + 1
        size = np.bincount(own[: self.ranks], minlength=colours)
        if sent is None:
            sent = np.full(self.ranks, 1 / self.ranks)
        adds = np.bincount(own[: self.ranks], sent, minlength=colours)
        place = np.arange(len(size)) - (np.arange(len(size)) > own[target])
        place[own[target]] = -1
        rank = np.flatnonzero((size > 0) & (place >= 0))
        row = np.concatenate([place[ends[1]], place[ends[0]], place[rank]])
        to = np.concatenate([column, column, np.zeros(len(rank), np.int64)])
        one = np.ones(len(first))
        value = np.concatenate([one, -one, adds[rank]])
        at = row >= 0
        self.equal.add(row[at], to[at], value[at], np.zeros(len(size) - 1))
        of = np.full(len(arcs.tail), -1)
        of[first] = kinds
        mine = of[arcs.arc] >= 0  # one arc's resources stand for those of its kind
        self.held.append(arcs.held[mine])
        self.taken.append(column[of[arcs.arc[mine]]])
        self.times.append(np.full(int(mine.sum()), float(times)))

    def solve(self) -> BestPaths | None:
        """Returns the largest λ and what binds; None where the solver fails."""
        arcs, most = self.arcs, Rows()
        held, taken = np.concatenate(self.held), np.concatenate(self.taken)
        most.add(held, taken, np.concatenate(self.times), arcs.capacity / self.unit)
        gain = np.zeros(self.columns)
        gain[0] = -1.0
        found = linprog(
            gain,
            A_ub=most.matrix(self.columns),
            b_ub=np.array(most.right),
            A_eq=self.equal.matrix(self.columns),
            b_eq=np.array(self.equal.right),
            bounds=(0, None),
            method=SOLVER,
        )
        if found.status != 0 or found.fun >= 0:
            return None
        price = np.maximum(-found.ineqlin.marginals, 0.0) * arcs.capacity
        weight = (price / np.bincount(arcs.of))[arcs.of]
        return BestPaths(-float(found.fun) * self.unit, *priced(arcs.number, weight))
