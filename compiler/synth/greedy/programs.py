"""programs: Programs of schedules of copies, for all collectives of copies or sums.

An Allgather and a Broadcast are copies. A Reducescatter and a Reduce are those of the turned
cluster, backwards. An Allreduce is a Reducescatter to roots and an Allgather from them, the roots
being the owners of the chunks (HeteCCL App. I).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hccc.base.diagnostics import fail
from hccc.base.progress import tell
from hccc.ir.arrays import I4, I8
from hccc.ir.collective import Collective, OpType
from hccc.ir.program import Op, Program
from hccc.ir.topology import Topology
from hccc.synth.common.collectives import BOTH, COPIES, SUMS
from hccc.synth.common.transfer_table import program
from hccc.synth.greedy.chunked import Chunked, chunked
from hccc.synth.greedy.greedy import greedy
from hccc.synth.greedy.least_steps import least_steps
from hccc.synth.greedy.schedule import CopyDemand, Schedule, busiest, gather_all

SEEDS = 16  # schedules of one demand, at most
WORK = 1 << 20  # transfers of them all, at most, except that one is always made
MOST_TRANSFERS = 1 << 18  # of a program of several chunks a rank
CHUNKS = (1, 2, 4)  # of a rank
ROOTED_CHUNKS = (4, 16)  # of a Broadcast or a Reduce, which have one owner
Columns = dict[str, I8 | int]


@dataclass(frozen=True, slots=True, eq=False)
class GreedyProgram:
    """A Program of greedy schedules. chunks: of a rank, or what `of` says; again: whether chunks
    enter nodes more than once; steps: of all its schedules; bound: the least steps that these can
    have."""

    program: Program
    chunks: int
    again: bool
    steps: int
    bound: int
    of: str = "rank"

    @property
    def name(self) -> str:
        """The name for people: `greedy, 2 chunks a rank, again into nodes`."""
        plural = "s" if self.chunks > 1 else ""
        again = ", again into nodes" if self.again else ""
        return f"greedy, {self.chunks} chunk{plural} a {self.of}{again}"


def greedy_programs(t: Topology, op: OpType, root: int, seed: int) -> Iterator[GreedyProgram]:
    """Yields Programs of greedy schedules with different numbers of chunks, fewest first.

    Raises:
        UserError: E451 there are none for `op`, or a rank cannot be reached.
    """
    if op not in BOTH:
        raise fail("E451", f"greedy schedules nothing for {op.value}", help="built-ins do")
    c = chunked(t, fine=True)
    several = len(np.unique(c.node)) > 1
    for chunks in ROOTED_CHUNKS if op in (OpType.BROADCAST, OpType.REDUCE) else CHUNKS:
        owner = owners(t, op, root, chunks)
        transfers = len(owner) * (len(t) - 1)
        if chunks > 1 and transfers > MOST_TRANSFERS:
            return
        demand = gather_all(owner, len(t))
        for again in (False, True) if several else (False,):
            tell(f"Synthesis: greedy, chunks of a rank: {chunks}")
            copies = None if op in SUMS else best_greedy(c, demand, seed, again)
            sums = None if op in COPIES else best_greedy(c.reversed(), demand, seed, again)
            made = from_schedules("Greedy", t, op, root, owner, copies, sums)
            steps = sum(s.steps for s in (copies, sums) if s)
            turned = ((c, copies), (c.reversed(), sums))
            bound = sum(least_steps(m, demand) for m, s in turned if s)
            yield GreedyProgram(made, chunks, again, steps, bound)


def best_greedy(c: Chunked, demand: CopyDemand, seed: int, again: bool = False) -> Schedule:
    """Returns the schedule, of those of several seeds, that loads the busiest resource least; of
    equals, that of fewest steps.

    Raises:
        UserError: E451 or E135 a rank cannot be reached.
    """
    transfers = int(np.count_nonzero(demand.post & ~demand.pre))
    seeds = max(1, min(SEEDS, WORK // max(1, transfers)))
    least_steps(c, demand)  # raises E135
    found = [greedy(c, demand, seed * SEEDS + k, again=again) for k in range(seeds)]
    made = [s for s in found if s is not None]
    if not made:
        raise fail("E451", "greedy finds no schedule: some rank is reached by nobody who has data")
    return min(made, key=lambda s: (busiest(s, c), s.steps))


def owners(t: Topology, op: OpType, root: int, chunks: int) -> I4:
    """Returns the rank that owns each chunk, i4[K]: it has the chunk before it is copied, and its
    sum in the end.

    chunks: of a rank, of the root, or, of an Allreduce, of the rank that has most: every node owns
    as much as any other, whatever its size, since every chunk enters every node over the network.
    Shares are rounded.
    """
    n = len(t)
    if op in (OpType.BROADCAST, OpType.REDUCE):
        return np.full(chunks, root, np.int32)
    if op is not OpType.ALLREDUCE:
        return np.repeat(np.arange(n, dtype=np.int32), chunks)
    node = t.dense_memory_domain()
    size = np.bincount(node)[node]
    share = np.maximum(1, np.rint(chunks * size.min() / size)).astype(np.int64)
    return np.repeat(np.arange(n, dtype=np.int32), share)


def from_schedules(
    name: str,
    t: Topology,
    op: OpType,
    root: int,
    owner: I4,
    copies: Schedule | None,
    sums: Schedule | None,
    channels: int = 1,
) -> Program:
    """Returns the Program of `op`. copies, sums: schedules of copies of chunks from their owners,
    sums over the turned cluster; `op` decides which there must be.

    Raises:
        UserError: E452 it is too large.
    """
    parts = list[Columns]()
    begin = 0
    if sums is not None:
        parts.append(_columns(sums.reversed(), 0, Op.RRC))
        begin = sums.steps
    if copies is not None:
        parts.append(_columns(copies, begin, Op.RECV))
    columns: Columns = {
        key: np.concatenate([np.broadcast_to(part[key], part["src"].shape) for part in parts])  # type: ignore[union-attr]
        for key in ("src", "dst", "step", "chunk", "op")
    }
    return program(name, Collective(op, len(t), len(owner), root), t, channels, columns)


def _columns(s: Schedule, begin: int, op: Op) -> Columns:
    """Returns the columns of a schedule whose first step is `begin`."""
    step = s.step.astype(np.int64) + begin
    return {"src": s.src, "dst": s.dst, "step": step, "chunk": s.chunk, "op": int(op)}
