"""programs: Programs of sketches, for the collectives in which every rank is a root alike.

The sketches of one root are enumerated, solved, and moved to all others. An Allgather has them as
they are, a Reducescatter backwards, an Allreduce both; in an Alltoall each chunk takes the way of
its sketch to its one rank (SyCCL §4.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from math import lcm

import numpy as np

from hccc.base.diagnostics import fail
from hccc.ir.arrays import I8
from hccc.ir.collective import Collective, OpType
from hccc.ir.program import Op, Program
from hccc.ir.sketch import Allotment, Sketch
from hccc.ir.topology import F8, Topology
from hccc.network.dimensions import dimensions
from hccc.synth.common.transfer_table import backward, check_size, followed, joined, transfers
from hccc.synth.sketches.allot import counts, loads, rounded, shares
from hccc.synth.sketches.enumerate import ALL_PRUNINGS, Prunings, sketches
from hccc.synth.sketches.solve import Solver, Tree
from hccc.synth.sketches.symmetry import Symmetry, symmetry

NAME = "sketch"
OPS = frozenset({OpType.ALLGATHER, OpType.REDUCESCATTER, OpType.ALLREDUCE, OpType.ALLTOALL})
MOST_SKETCHES = 1 << 9  # to weigh, those of few stages first
MOST_RANKS = 1 << 10  # loads are of all pairs
CHUNKS = (2, 4, 8)  # of a block that several sketches share
MOST_CHUNKS = 64  # the same of a user's sketches
MOST_TRANSFERS = 1 << 16  # of a program of several chunks a block
BETTER = 0.99  # part of the load of fewer stages to which more must bring it
PLAIN = 1.25  # times the least load that a plainer sketch may have
TOGETHER = 0.97  # the same of several sketches, whose programs have more chunks


@dataclass(frozen=True, slots=True, eq=False)
class SketchProgram:
    """A Program of an allotment. chunks: of a block; load: of the busiest resource, blocks over
    GB/s."""

    program: Program
    allotment: Allotment
    chunks: int
    load: float

    @property
    def name(self) -> str:
        """The name for people: `sketch, rail then node`, `sketch, 7 + 1 of 8 chunks`."""
        if self.chunks > 1:
            parts = " + ".join(str(share * self.chunks) for share in self.allotment.shares)
            return f"{NAME}, {parts} of {self.chunks} chunks"
        stages = dict[int, list[str]]()
        for number, name in _crossings(self.allotment.sketches[0]):
            stages.setdefault(number, []).append(name)
        return f"{NAME}, {' then '.join('+'.join(names) for names in stages.values())}"


@dataclass(frozen=True, slots=True, eq=False)
class _Weighed:
    """Sketches, their trees, and what each loads: f8[sketches, kinds of resources]."""

    sketches: Sequence[Sketch]
    trees: Sequence[Tree]
    load: F8


def sketch_programs(
    t: Topology, op: OpType, prunings: Prunings = ALL_PRUNINGS
) -> Iterator[SketchProgram]:
    """Yields Programs of sketches: of one sketch for each number of stages that loads less than
    fewer stages do, and of a plainer one that loads hardly more, which pipelines better; then of
    several that together load less.

    Raises:
        UserError: E451 there are none for `op`, or on this cluster; E452 they are too large.
    """
    s = _symmetry(t, op)
    if len(s.dimensions) < 2:
        help = "with one, direct is the only sketch"
        raise fail("E451", "sketches join dimensions, and there is one", help=help)
    w = _weighed(t, s, op, list(islice(sketches(s, prunings), MOST_SKETCHES)))
    least = np.inf
    for row, plain in _fewest_stages(w):
        if (load := float(w.load[row].max())) < BETTER * least:
            least = load
            for one in dict.fromkeys((row, plain)):
                yield _program(t, s, op, w, np.array([one]), np.array([1]))
    share = shares(w.load)
    for chunks in CHUNKS:
        count = rounded(share, chunks)
        used = np.flatnonzero(count)
        load = float((count @ w.load).max()) / chunks
        if load < TOGETHER * least and len(t) * (len(t) - 1) * chunks <= MOST_TRANSFERS:
            least = load
            yield _program(t, s, op, w, used, count[used])


def allotted_program(t: Topology, op: OpType, allotment: Allotment) -> SketchProgram:
    """Returns the Program of a user's sketches.

    Raises:
        UserError: E451 there is none for `op`, or on this cluster; E452 it is too large; E019 the
            shares are too fine.
    """
    s = _symmetry(t, op)
    chunks = lcm(*(share.denominator for share in allotment.shares))
    if chunks > MOST_CHUNKS:
        message = f"these shares need {chunks} chunks of a block"
        raise fail("E019", message, help=f"at most {MOST_CHUNKS}: shares such as 7/8 and 1/8")
    count = np.array([int(share * chunks) for share in allotment.shares])
    w = _weighed(t, s, op, allotment.sketches)
    return _program(t, s, op, w, np.arange(len(count)), count)


def check_served(op: OpType) -> None:
    """Raises UserError E451 where no sketch is for `op`."""
    if op not in OPS:
        served = ", ".join(sorted(one.value for one in OPS))
        raise fail("E451", f"sketches do not serve {op.value}", help=f"they serve {served}")


def _symmetry(t: Topology, op: OpType) -> Symmetry:
    """Returns the symmetry of `t`. Raises UserError E451 where there are no sketches."""
    check_served(op)
    if len(t) > MOST_RANKS:
        raise fail("E451", f"{len(t):,} ranks are too many for sketches", help="compose does")
    return symmetry(t, dimensions(t))


def _weighed(t: Topology, s: Symmetry, op: OpType, found: Sequence[Sketch]) -> _Weighed:
    """Solves sketches, moves them to root 0, and finds what they load."""
    solver = Solver(s)
    trees = [solver.tree(sketch).moved(s) for sketch in found]
    count = np.stack([counts(tree, s, op) for tree in trees])
    return _Weighed(found, trees, count @ loads(t, s).each)


def _fewest_stages(w: _Weighed) -> list[tuple[int, int]]:
    """Returns for each number of stages the sketch that loads resources least, and of those with
    hardly more load the plainest: the one with fewest dimensions in its stages."""
    busiest, whole = w.load.max(1), w.load.sum(1)
    stages = np.array([len(sketch.stages) for sketch in w.sketches])
    uses = np.array([len(list(_crossings(sketch))) for sketch in w.sketches])
    found = list[tuple[int, int]]()
    for number in np.unique(stages).tolist():
        rows = np.flatnonzero(stages == number)
        best = rows[np.lexsort((rows, whole[rows], busiest[rows].round(9)))[0]]
        near = rows[busiest[rows] <= PLAIN * busiest[best]]
        plain = near[np.lexsort((near, busiest[near], uses[near]))[0]]
        found.append((int(best), int(plain)))
    return found


def _crossings(sketch: Sketch) -> Iterator[tuple[int, str]]:
    """Yields the dimensions of each stage, with its number."""
    for number, stage in enumerate(sketch.stages):
        for name in dict.fromkeys(demand.dimension for demand in stage):
            yield number, name


def _program(
    t: Topology, s: Symmetry, op: OpType, w: _Weighed, rows: I8, count: I8
) -> SketchProgram:
    """Returns the Program of some sketches, of which each carries `count` chunks of a block."""
    chunks = int(count.sum())
    allotment = Allotment(
        tuple(w.sketches[row] for row in rows.tolist()),
        tuple(Fraction(k, chunks) for k in count.tolist()),
    )
    trees = [w.trees[row] for row in np.repeat(rows, count).tolist()]
    load = float((count @ w.load[rows]).max()) / chunks
    return SketchProgram(program_of(t, s, op, trees), allotment, chunks, load)


def program_of(t: Topology, s: Symmetry, op: OpType, trees: Sequence[Tree]) -> Program:
    """Returns the Program in which each chunk of a block takes one of `trees`, moved to its root.

    Raises:
        UserError: E451 two ranks have no route; E452 it is too large.
    """
    n, per = len(s), len(trees)
    check_size(NAME, n, n * (n - 1) * per)
    if op is OpType.ALLTOALL:
        table = np.concatenate([_ways(s, tree, per, j) for j, tree in enumerate(trees)], axis=1)
        return joined("Sketch", Collective(op, n, n * n * per), t, _in_order(table))
    spread = np.concatenate([_spread(s, tree, per, j) for j, tree in enumerate(trees)], axis=1)
    spread = _in_order(spread)
    table = spread
    if op is OpType.REDUCESCATTER:
        table = backward(spread, Op.RRC)
    elif op is OpType.ALLREDUCE:
        table = followed(backward(spread, Op.RRC), spread)
    return joined("Sketch", Collective(op, n, n * per), t, table)


def _spread(s: Symmetry, tree: Tree, per: int, chunk: int) -> I8:
    """Returns the transfers of a tree at every root; of `per` chunks this is number `chunk`."""
    to = np.flatnonzero(tree.parent >= 0)[:, None]
    root = np.arange(len(s))[None, :]
    src, dst = s.plus(tree.parent[to], root), s.plus(to, root)
    step = np.broadcast_to(tree.stage[to], src.shape)
    return transfers(src, dst, step, root * per + chunk)


def _ways(s: Symmetry, tree: Tree, per: int, chunk: int) -> I8:
    """Returns the transfers of chunks that each go from a root to one rank by way of the tree."""
    n, parts = len(s), list[I8]()
    root = np.arange(n)[None, :]
    at: I8 = np.flatnonzero(tree.parent >= 0)
    goal = at
    while len(at):
        src, dst = s.plus(tree.parent[at][:, None], root), s.plus(at[:, None], root)
        end = s.plus(goal[:, None], root)
        step = np.broadcast_to((tree.stage[at] * n + goal)[:, None], src.shape)
        parts.append(transfers(src, dst, step, (root * n + end) * per + chunk))
        before = tree.parent[at]
        further = tree.parent[before] >= 0
        goal, at = goal[further], before[further]
    return np.concatenate(parts, axis=1)


def _in_order(table: I8) -> I8:
    """Returns transfers with their steps numbered from 0 without gaps."""
    found = table.copy()
    found[2] = np.unique(table[2], return_inverse=True)[1]
    return found
