"""rooted_trees: the best that an Allgather, a Reducescatter or an Allreduce over trees can do.

An Allreduce here reduces each byte to a root, then broadcasts it.

Roots are free: every rank is root of a share of the bytes, and no share need be as large as
another; reducing and broadcasting go on at the same time, over any trees, in any chunks. The
optimum of that class is a linear program (ForestColl, Zhao et al. 2024, has it for equal shares):

- w(r), the share of root r; λ = Σ w(r), GB/s of the call, is to be as large as can be;
- b(e), a(e): what broadcasts and what reductions take of arc e; b(e) + a(e) is at most its
  capacity;
- for every rank v a flow within b that brings w(r) from each r to v, and one within a that brings
  w(r) from v to each r. Then trees exist (Edmonds 1973: as many as the narrowest cut allows);
- at a vertex that is no rank as much b comes in as goes out, and a likewise. Without that a switch
  could send one copy on to several ports: in-network multicast, or a sum within it.

Vertices of one colour (`flow.vertex_colours`) are tied: the mean of an optimum over them is one,
too, as colours are an equitable partition (Grohe et al., ESA 2014). Of 512 alike ranks one flow
each way is left, over a few kinds of arcs.

An Allgather is the half of it with equal shares and broadcasts only, a Reducescatter that with all
arcs turned round. Both are over trees whatever they do, so for them this is what no schedule beats;
a cut may promise more where GPUs share a NIC: it does not see that what goes to one of them does
not go to the other.

For an Allreduce what this gives is *reachable*, as sizes grow, and no schedule of the class is
faster. It is no bound for schedules that do otherwise, which `bound`'s partitions are; where both
are equal, neither can be improved. Equal they are on networks without switches that are alike in
both directions: the trees are spanning trees, packed as densely as a partition allows (Tutte,
Nash-Williams 1961).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog  # type: ignore[import-untyped]
from scipy.sparse import coo_array  # type: ignore[import-untyped]

from hccc.ir.arrays import I8, frozen
from hccc.ir.collective import OpType
from hccc.ir.topology import F8, Topology
from hccc.network.flow import FlowNetwork, network, vertex_colours

SOLVER = "highs-ipm"  # on irregular networks four times as fast as HiGHS' simplex
SOLVED = (OpType.ALLGATHER, OpType.REDUCESCATTER, OpType.ALLREDUCE)
PRICED = 1e-6  # part of all weight that a resource which binds has at least
MOST_VARIABLES = 20_000  # a few seconds


@dataclass(frozen=True, slots=True, eq=False)
class RootedTrees:
    """algbw: GB/s of the call, as sizes grow; share: f8[ranks] each root's part of it; resource:
    i8[R] those that bind, numbered as in `routes`; weight: f8[R] the part of the time that each
    accounts for."""

    algbw: float
    share: F8
    resource: I8
    weight: F8


@dataclass(frozen=True, slots=True, eq=False)
class _Quotient:
    """A network of colours, joined by kinds of arcs. size: vertices of each
    colour; tail, head: colours; count: arcs of each kind; capacity: of one arc of each kind; first:
    i8[kinds] an arc of each kind; vertex: i8[colours] one of each colour."""

    size: I8
    tail: I8
    head: I8
    count: I8
    capacity: F8
    first: I8
    vertex: I8


def rooted_trees(
    t: Topology, op: OpType, bound: float, most_variables: int | None = None
) -> RootedTrees | None:
    """Returns the optimum of the class; None where the linear program is too large, or there is one
    rank.

    op: one of SOLVED; bound: GB/s that it does not exceed, the scale of the program;
    most_variables: of a program that is not too large, MOST_VARIABLES where left out.

    Takes milliseconds where ranks are alike; a second where 64 ranks are of 16 sorts.
    """
    net = network(t)
    if net.ranks < 2 or op not in SOLVED:
        return None
    if op is OpType.REDUCESCATTER:
        net = net.reversed()
    colour = vertex_colours(net)
    whole = _quotient(net, colour)
    kind = _kinds(net, colour)[1]
    targets = [int(v) for v in whole.vertex if v < net.ranks]
    flows, variables, reduces = [], 0, op is OpType.ALLREDUCE
    for v in targets:
        own = vertex_colours(net, (np.arange(net.ranks) == v).astype(np.int64))
        flows.append((own[v], own, _quotient(net, own)))
        variables += (1 + reduces) * len(flows[-1][2].tail)
        if variables > (MOST_VARIABLES if most_variables is None else most_variables):
            return None
    return _Program(net, whole, kind, colour).solve(flows, bound, reduces=reduces)


class _Program:
    """The linear program. Columns: w of each colour, b and a of each kind of arc, then flows."""

    def __init__(self, net: FlowNetwork, whole: _Quotient, kind: I8, colour: I8) -> None:
        self.net, self.whole, self.kind, self.colour = net, whole, kind, colour
        self.roots = np.flatnonzero(whole.vertex < net.ranks)
        self.arcs = len(whole.tail)
        self.held = np.flatnonzero(np.isfinite(whole.capacity))
        self.b, self.a = len(self.roots), len(self.roots) + self.arcs
        self.columns = self.a + self.arcs
        self.equal, self.most = Rows(), Rows()

    def solve(
        self, flows: list[tuple[int, I8, _Quotient]], unit: float, *, reduces: bool
    ) -> RootedTrees | None:
        """Returns λ and the shares at its largest; None where the solver fails. reduces: whether
        there are reductions, and roots are free."""
        self._capacities(4 * self.net.ranks * unit)
        self._switches()
        for target, own, small in flows:
            self._flow(self.b, 1.0, target, own, small)
            if reduces:
                self._flow(self.a, -1.0, target, own, small)
        if not reduces:
            self._equal_shares()
        size = self.whole.size[self.roots].astype(np.float64)
        gain = np.zeros(self.columns)
        gain[: len(self.roots)] = -size
        found = linprog(
            gain,
            A_ub=self.most.matrix(self.columns),
            b_ub=np.array(self.most.right) / unit,
            A_eq=self.equal.matrix(self.columns),
            b_eq=np.array(self.equal.right) / unit,
            bounds=(0, None),
            method=SOLVER,
        )
        if found.status != 0 or found.fun >= 0:
            return None
        best = -float(found.fun) * unit
        each = np.zeros(len(self.whole.size))
        each[self.roots] = np.maximum(found.x[: len(self.roots)], 0.0) * unit
        share = frozen(each[self.colour[: self.net.ranks]] / best, np.float64)
        price = -found.ineqlin.marginals[: len(self.held)]
        return RootedTrees(best, share, *self._binding(price * self.whole.capacity[self.held]))

    def _binding(self, weight: F8) -> tuple[I8, F8]:
        """Returns the resources that bind and their weights. weight: f8[held] of each kind."""
        kinds = np.zeros(self.arcs)
        kinds[self.held] = np.maximum(weight, 0.0)
        arc = (kinds / self.whole.count)[self.kind]
        return priced(self.net.resource, arc)

    def _capacities(self, enough: float) -> None:
        """Adds the arcs' capacities, at most `enough` GB/s: every rank sends the others all there
        is, both ways."""
        held = self.held
        row, capacity = np.arange(len(held)), np.minimum(self.whole.capacity[held], enough)
        self.most.add(
            np.tile(row, 2),
            np.concatenate([self.b + held, self.a + held]),
            np.ones(2 * len(held)),
            capacity,
        )

    def _equal_shares(self) -> None:
        row = np.arange(len(self.roots) - 1)
        one = np.ones(len(row))
        self.equal.add(
            np.tile(row, 2),
            np.concatenate([row, row + 1]),
            np.concatenate([one, -one]),
            np.zeros(len(row)),
        )

    def _switches(self) -> None:
        """Adds that as much enters a switch as leaves it, for broadcasts and for reductions."""
        hub = np.flatnonzero(self.whole.vertex >= self.net.ranks)
        place = np.full(len(self.whole.size), -1)
        place[hub] = np.arange(len(hub))
        arcs = np.arange(self.arcs)
        for base in (self.b, self.a):
            row = np.concatenate([place[self.whole.head], place[self.whole.tail]])
            column = np.tile(base + arcs, 2)
            value = np.concatenate([self.whole.count, -self.whole.count]).astype(np.float64)
            at = row >= 0
            self.equal.add(row[at], column[at], value[at], np.zeros(len(hub)))

    def _flow(self, base: int, sign: float, target: int, own: I8, small: _Quotient) -> None:
        """Adds the flow from every root to a rank (sign 1) within b, or from a rank to every root
        (-1) within a."""
        first, arcs = self.columns, np.arange(len(small.tail))
        self.columns += len(arcs)
        place = np.cumsum(np.arange(len(small.size)) != target) - 1
        place[target] = -1
        rank = np.flatnonzero((small.vertex < self.net.ranks) & (place >= 0))
        root = np.searchsorted(self.roots, self.colour[small.vertex[rank]])
        row = np.concatenate([place[small.head], place[small.tail], place[rank]])
        column = np.concatenate([first + arcs, first + arcs, root])
        one = np.ones(len(arcs))
        value = np.concatenate([one, -one, sign * small.size[rank]])
        at = row >= 0
        self.equal.add(row[at], column[at], value[at], np.zeros(len(small.size) - 1))
        wide = base + self.kind[small.first]
        self.most.add(
            np.tile(arcs, 2),
            np.concatenate([first + arcs, wide]),
            np.concatenate([one, -small.count]),
            np.zeros(len(arcs)),
        )


class Rows:
    """Rows of a sparse matrix, and what stands to their right."""

    def __init__(self) -> None:
        self.row: list[I8] = []
        self.column: list[I8] = []
        self.value: list[F8] = []
        self.right: list[float] = []

    def add(self, row: I8, column: I8, value: F8, right: F8) -> None:
        """Adds rows; `row` counts from the first of them."""
        self.row.append(row + len(self.right))
        self.column.append(column)
        self.value.append(value)
        self.right += right.tolist()

    def matrix(self, columns: int) -> coo_array:
        """Returns all rows as a matrix."""
        where = (np.concatenate(self.row), np.concatenate(self.column))
        shape = (len(self.right), columns)
        return coo_array((np.concatenate(self.value), where), shape=shape).tocsr()


def priced(resource: I8, weight: F8) -> tuple[I8, F8]:
    """Returns the resources with more than PRICED of all weight, and their parts of it."""
    some = (resource >= 0) & (weight > PRICED * weight.sum())
    return frozen(resource[some], np.int64), frozen(weight[some] / weight.sum(), np.float64)


def _kinds(net: FlowNetwork, colour: I8) -> tuple[I8, I8, I8]:
    """Arcs between two colours with one capacity are a kind: an arc of each kind, the kind of each
    arc, and how many arcs a kind has."""
    key = np.stack([colour[net.tail], colour[net.head], net.capacity.view(np.int64)])
    _, first, kind, count = np.unique(
        key, axis=1, return_index=True, return_inverse=True, return_counts=True
    )
    return first, kind.ravel(), count


def _quotient(net: FlowNetwork, colour: I8) -> _Quotient:
    first, _, count = _kinds(net, colour)
    _, one, size = np.unique(colour, return_index=True, return_counts=True)
    tail, head = colour[net.tail[first]], colour[net.head[first]]
    return _Quotient(size, tail, head, count, net.capacity[first], first, one)
