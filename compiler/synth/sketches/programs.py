"""programs: Programs of sketches, for the collectives in which every rank is a root alike.

The sketches of one root are enumerated, solved, and moved to all others. An Allgather has them as
they are, a Reducescatter backwards, an Allreduce both; in an Alltoall each chunk takes the way of
its sketch to its one rank (SyCCL §4.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from math import lcm

import numpy as np

from hccc.base.diagnostics import fail
from hccc.ir.arrays import I8
from hccc.ir.collective import Collective, OpType
from hccc.ir.program import Op, Program
from hccc.ir.sketch import Allotment, Sketch
from hccc.ir.topology import BYTES_PER_US, F8, Topology
from hccc.network.dimensions import dimensions
from hccc.synth.bounds.estimate import PIPELINED
from hccc.synth.common.transfer_table import backward, check_size, followed, joined, transfers
from hccc.synth.sketches.allot import counts, rounded, shares
from hccc.synth.sketches.enumerate import ALL_PRUNINGS, Prunings, sketches
from hccc.synth.sketches.loads import Loads, loads
from hccc.synth.sketches.solve import Mix, Solver, Tree
from hccc.synth.sketches.symmetry import Symmetry, symmetry

NAME = "sketch"
OPS = frozenset({OpType.ALLGATHER, OpType.REDUCESCATTER, OpType.ALLREDUCE, OpType.ALLTOALL})
MOST_SKETCHES = 1 << 8  # to weigh, those of few stages first
MOST_RANKS = 1 << 10  # loads are of all pairs
CHUNKS = (2, 4, 8)  # of a block that several sketches share
MOST_CHUNKS = 64  # the same of a user's sketches
MOST_TRANSFERS = 1 << 16  # of a program of several chunks a block
PIECES = 4  # chunks of a block of a large Alltoall; by trial
TOGETHER = 0.97  # part of the least load of one sketch to which several must bring it
COARSE, FINE = 3.0, 0.5  # SyCCL's E1 and E2: the lengths of epochs (`epochs`)
NEAR, KEPT = 1.2, 8  # R1 and R2: times the least time, and of how many mixes, to solve finely


@dataclass(frozen=True, slots=True, eq=False)
class SketchProgram:
    """A Program of an allotment. chunks: of a block; load: of the busiest resource, blocks over
    GB/s; number: among those of the same name."""

    program: Program
    allotment: Allotment
    chunks: int
    load: float
    number: int = 1

    @property
    def name(self) -> str:
        """The name for people: `sketch, rail then node`, `sketch, 7 + 1 of 8 chunks, 2`."""
        if self.chunks > 1:
            parts = " + ".join(str(share * self.chunks) for share in self.allotment.shares)
            said = f"{parts} of {self.chunks} chunks"
        else:
            stages = dict[int, list[str]]()
            for number, name in _crossings(self.allotment.sketches[0]):
                stages.setdefault(number, []).append(name)
            said = " then ".join("+".join(names) for names in stages.values())
        return f"{NAME}, {said}{f', {self.number}' if self.number > 1 else ''}"


@dataclass(frozen=True, slots=True, eq=False)
class _Solved:
    """A mix, its trees, what they load (f8[kinds of resources], blocks over GB/s), and the µs that
    a call takes at the least."""

    mix: Mix
    trees: Sequence[Tree]
    load: F8
    time: float


def sketch_programs(
    t: Topology, op: OpType, sizes: Sequence[int], prunings: Prunings = ALL_PRUNINGS
) -> Iterator[SketchProgram]:
    """Yields Programs of sketches, alone and together, for calls of each of `sizes`.

    SyCCL §5.3: all are solved in long epochs; those whose time is near the least, in short ones.

    Raises:
        UserError: E451 there are none for `op`, or on this cluster; E452 they are too large.
    """
    s = _symmetry(t, op)
    if len(s.dimensions) < 2:
        help = "with one, direct is the only sketch"
        raise fail("E451", "sketches join dimensions, and there is one", help=help)
    found, each = list(islice(sketches(s, prunings), MOST_SKETCHES)), loads(t, s)
    if not found:
        help = "leave out fewer prunings"
        raise fail("E451", "no sketch reaches all ranks among the choices tried", help=help)
    alone: list[Mix] = [((sketch, 1),) for sketch in found]
    made, names = set[tuple[tuple[bytes, bytes, int], ...]](), Counter[str]()
    for size in sizes:
        coarse = _solved(s, each, op, alone, size, COARSE)
        mixes = [*alone, *_together(t, found, coarse)]
        coarse += _solved(s, each, op, mixes[len(alone) :], size, COARSE)
        most = max(1, KEPT // len(sizes))
        kept = [mixes[row] for row in _kept(coarse, most)]
        if op is OpType.ALLTOALL and size / len(s) >= PIECES * PIPELINED:
            kept = _in_pieces(s, kept, most)
        for one in _solved(s, each, op, kept, size, FINE):
            counted = zip(one.trees, one.mix, strict=True)
            key = tuple((tree.parent.tobytes(), tree.step.tobytes(), k) for tree, (_, k) in counted)
            if key not in made:
                made.add(key)
                program = _program(t, s, op, one)
                names[program.name] += 1
                yield replace(program, number=names[program.name])


def allotted_program(t: Topology, op: OpType, allotment: Allotment, size: int) -> SketchProgram:
    """Returns the Program of a user's sketches for calls of `size` bytes.

    Raises:
        UserError: E451 there is none for `op`, or on this cluster; E452 it is too large; E019 the
            shares are too fine.
    """
    s = _symmetry(t, op)
    chunks = lcm(*(share.denominator for share in allotment.shares))
    if chunks > MOST_CHUNKS:
        message = f"these shares need {chunks} chunks of a block"
        raise fail("E019", message, help=f"at most {MOST_CHUNKS}: shares such as 7/8 and 1/8")
    count = [int(share * chunks) for share in allotment.shares]
    mix = tuple(zip(allotment.sketches, count, strict=True))
    return _program(t, s, op, _solved(s, loads(t, s), op, [mix], size, FINE)[0])


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


def _solved(
    s: Symmetry, each: Loads, op: OpType, mixes: Sequence[Mix], size: int, e: float
) -> list[_Solved]:
    """Solves mixes for calls of `size` bytes, in epochs of E = `e`."""
    found = list[_Solved]()
    for chunks in sorted({_chunks(mix) for mix in mixes}):
        of = [mix for mix in mixes if _chunks(mix) == chunks]
        chunk = size / (len(s) * chunks)
        for mix, trees in zip(of, Solver(s, each, op, chunk).trees(of, e), strict=True):
            count = np.array([number for _, number in mix])
            load = count @ np.stack([counts(tree, s, op) for tree in trees]) @ each.each / chunks
            late = max(_latency(tree, s, each, chunk) for tree in trees)
            late *= 2 if op is OpType.ALLREDUCE else 1
            time = float(load.max()) * chunks * chunk / BYTES_PER_US + late
            found.append(_Solved(mix, trees, load, time))
    return found


def _latency(tree: Tree, s: Symmetry, each: Loads, chunk: float) -> float:
    """Returns the µs until the first bytes of a chunk reach the last rank, were all idle."""
    since = np.zeros(len(s))
    for k in np.unique(tree.step[tree.step >= 0]).tolist():
        at = np.flatnonzero(tree.step == k)
        difference = s.minus(at, tree.parent[at])
        piece = each.each[difference].max(1) * (min(chunk, PIPELINED) / BYTES_PER_US)
        since[at] = since[tree.parent[at]] + each.alpha[difference] + piece
    return float(since.max())


def _chunks(mix: Mix) -> int:
    """Returns the chunks of a block that a mix divides it into."""
    return sum(count for _, count in mix)


def _together(t: Topology, found: Sequence[Sketch], alone: Sequence[_Solved]) -> Iterator[Mix]:
    """Yields mixes of several sketches that load the busiest resource less than each alone, by
    shares from a linear program."""
    load = np.stack([one.load for one in alone])
    least, share = float(load.max(1).min()), shares(load)
    for chunks in CHUNKS:
        count = rounded(share, chunks)
        used = np.flatnonzero(count)
        busiest = float((count @ load).max()) / chunks
        if busiest < TOGETHER * least and len(t) * (len(t) - 1) * chunks <= MOST_TRANSFERS:
            least = busiest
            yield tuple((found[row], int(count[row])) for row in used.tolist())


def _in_pieces(s: Symmetry, mixes: Sequence[Mix], most: int) -> list[Mix]:
    """Returns first half of `most` mixes of one sketch with several chunks of a block, which go on
    to relays one by one, then mixes as they are."""
    alone = [mix[0][0] for mix in mixes if _chunks(mix) == 1]
    fits = len(s) ** 2 * PIECES <= MOST_TRANSFERS
    pieces: list[Mix] = [((sketch, PIECES),) for sketch in alone[: most // 2] if fits]
    return [*pieces, *mixes][:most]


def _kept(coarse: Sequence[_Solved], most: int) -> list[int]:
    """Returns the mixes to solve in short epochs, all within NEAR of the least time.

    First the fastest; then the plainest of each number of stages, with fewest dimensions in its
    stages, since it pipelines best; then others by time.
    """
    time = np.array([one.time for one in coarse])
    stages = np.array([max(len(sketch.stages) for sketch, _ in one.mix) for one in coarse])
    uses = np.array([sum(len(list(_crossings(sketch))) for sketch, _ in one.mix) for one in coarse])
    order = np.lexsort((uses, stages, (time / time.min()).round(3)))
    order = order[time[order] <= NEAR * time.min()]
    plain = [order[stages[order] == k] for k in np.unique(stages[order])]
    first = [int(rows[np.argmin(uses[rows])]) for rows in plain]
    return list(dict.fromkeys([int(order[0]), *first, *order.tolist()]))[:most]


def _crossings(sketch: Sketch) -> Iterator[tuple[int, str]]:
    """Yields the dimensions of each stage, with its number."""
    for number, stage in enumerate(sketch.stages):
        for name in dict.fromkeys(demand.dimension for demand in stage):
            yield number, name


def _program(t: Topology, s: Symmetry, op: OpType, one: _Solved) -> SketchProgram:
    """Returns the Program of a solved mix."""
    chunks = _chunks(one.mix)
    allotment = Allotment(
        tuple(sketch for sketch, _ in one.mix),
        tuple(Fraction(count, chunks) for _, count in one.mix),
    )
    pairs = zip(one.trees, one.mix, strict=True)
    trees = [tree for tree, (_, count) in pairs for _ in range(count)]
    return SketchProgram(program_of(t, s, op, trees), allotment, chunks, float(one.load.max()))


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
    step = np.broadcast_to(tree.step[to], src.shape)
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
        step = np.broadcast_to((tree.step[at] * n + goal)[:, None], src.shape)
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
