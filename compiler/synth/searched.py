"""searched: the best of several greedy schedules, and Programs of them for every collective."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hccc.diagnostics import fail
from hccc.ir.collective import OpType
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.synth.chunked import Chunked, chunked
from hccc.synth.greedy import greedy
from hccc.synth.least_steps import least_steps
from hccc.synth.programs import COPIES, OPS, SUMS, from_schedules, owners
from hccc.synth.schedule import Demand, Schedule, gather_all

SEEDS = 16
WORK = 1 << 20  # transfers of all seeds together; one seed is always tried
MOST_TRANSFERS = 1 << 18  # of a program of several chunks a rank
CHUNKS = (1, 2, 4)
ROOTED_CHUNKS = (4, 16)  # of a Broadcast or a Reduce, which have one owner


@dataclass(frozen=True, slots=True, eq=False)
class Searched:
    """A Program and how it was found. chunks: of a rank; again: whether chunks enter nodes more
    than once; steps, bound: of its schedule, or of both of an Allreduce together."""

    program: Program
    chunks: int
    again: bool
    steps: int
    bound: int

    @property
    def name(self) -> str:
        """For people: `greedy, 2 chunks a rank, again into nodes`."""
        plural = "s" if self.chunks > 1 else ""
        twice = ", again into nodes" if self.again else ""
        return f"greedy, {self.chunks} chunk{plural} a rank{twice}"


def search(t: Topology, op: OpType, root: int, seed: int) -> Iterator[Searched]:
    """Programs of greedy schedules with different numbers of chunks, fewest first.

    Raises:
        UserError: E451 there are none for `op`, or a rank cannot be reached.
    """
    if op not in OPS:
        raise fail("E451", f"greedy schedules nothing for {op.value}", help="built-ins do")
    c = chunked(t, fine=True)
    models = [*([] if op in SUMS else [c]), *([] if op in COPIES else [c.reversed()])]
    several = len(np.unique(c.node)) > 1
    found = False
    for chunks in ROOTED_CHUNKS if op in (OpType.BROADCAST, OpType.REDUCE) else CHUNKS:
        owner = owners(t, op, root, chunks)
        transfers = len(owner) * (len(t) - 1)
        if chunks > 1 and transfers > MOST_TRANSFERS:
            break
        demand = gather_all(owner, len(t))
        bound = sum(least_steps(m, demand) for m in models)  # says what cannot be reached
        for again in (False, True) if several else (False,):
            made = [s for m in models if (s := _best(m, demand, seed, again)) is not None]
            if len(made) < len(models):
                continue  # ranks of a node that reach each other only over others need `again`
            found = True
            copies = None if op in SUMS else made[0]
            sums = None if op in COPIES else made[-1]
            program = from_schedules("Greedy", t, op, root, owner, copies, sums)
            yield Searched(program, chunks, again, sum(s.steps for s in made), bound)
    if not found:
        raise fail("E451", "greedy finds no schedule: some rank is reached by nobody who has data")


def _best(c: Chunked, demand: Demand, seed: int, again: bool) -> Schedule | None:
    """Of several seeds the schedule that loads the busiest resource least, of these the one of
    fewest steps; None where no seed finds any."""
    transfers = int(np.count_nonzero(demand.post & ~demand.pre))
    seeds = max(1, min(SEEDS, WORK // max(1, transfers)))
    found = [greedy(c, demand, seed * SEEDS + k, again=again) for k in range(seeds)]
    made = [s for s in found if s is not None]
    return min(made, key=lambda s: (load(c, s), s.steps), default=None)


def load(c: Chunked, s: Schedule) -> float:
    """Steps that the busiest resource needs for what it carries."""
    row = c.use[s.src.astype(np.int64) * c.n + s.dst]
    count = np.bincount(row[row >= 0], minlength=len(c.capacity))
    return float((count / c.capacity).max(initial=0.0))
