"""searched: Programs of schedules that were searched, for every collective that is copies or sums.

`search` takes the best of several greedy schedules. `solve` asks a solver: "repair" begins with
greedy's and shortens it where it is longer than it must be, "cegis" is HeteCCL's Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hccc.base.diagnostics import fail
from hccc.base.interruptible import interruptible
from hccc.ir.collective import OpType
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.synth.cegis.search import Iteration, Outcome
from hccc.synth.cegis.synthesize import Mode, synthesize
from hccc.synth.common.collectives import BOTH, COPIES, SUMS
from hccc.synth.greedy.chunked import Chunked, chunked
from hccc.synth.greedy.greedy import greedy
from hccc.synth.greedy.least_steps import least_steps
from hccc.synth.greedy.programs import from_schedules, owners
from hccc.synth.greedy.schedule import Demand, Schedule, gather_all

SEEDS = 16
WORK = 1 << 20  # transfers of all seeds together; one seed is always tried
MOST_TRANSFERS = 1 << 18  # of a program of several chunks a rank
CHUNKS = (1, 2, 4)
ROOTED_CHUNKS = (4, 16)  # of a Broadcast or a Reduce, which have one owner


METHODS: dict[str, Mode] = {"repair": "fast", "cegis": "faithful"}  # of `solve`


@dataclass(frozen=True, slots=True, eq=False)
class Searched:
    """A Program and how it was found. chunks: of a rank; again: whether chunks enter nodes more
    than once; steps, bound: of its schedule, or of both of an Allreduce together; interrupted:
    whether Ctrl-C ended the search."""

    program: Program
    chunks: int
    again: bool
    steps: int
    bound: int
    method: str = "greedy"
    trace: tuple[Iteration, ...] = ()
    interrupted: bool = False

    @property
    def name(self) -> str:
        """For people: `greedy, 2 chunks a rank, again into nodes`, `cegis, 1 chunk a rank`."""
        plural = "s" if self.chunks > 1 else ""
        twice = ", again into nodes" if self.again else ""
        return f"{self.method}, {self.chunks} chunk{plural} a rank{twice}"


def search(
    t: Topology, op: OpType, root: int, seed: int, on_phase: Callable[[str], None] = lambda _: None
) -> Iterator[Searched]:
    """Programs of greedy schedules with different numbers of chunks, fewest first.

    on_phase: is told of each as its search begins.

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
            on_phase(f"Synthesis: greedy, chunks of a rank: {chunks}")
            copies = None if op in SUMS else _best(c, demand, seed, again)
            sums = None if op in COPIES else _best(c.reversed(), demand, seed, again)
            made = from_schedules("Greedy", t, op, root, owner, copies, sums)
            steps = sum(s.steps for s in (copies, sums) if s)
            turned = ((c, copies), (c.reversed(), sums))
            bound = sum(least_steps(m, demand) for m, s in turned if s)
            yield Searched(made, chunks, again, steps, bound)


def solve(
    method: str,
    t: Topology,
    op: OpType,
    root: int,
    seed: int,
    *,
    chunks: int = 1,
    time_limit: float = 60.0,
    on_phase: Callable[[str], None] = lambda _: None,
) -> Searched:
    """The Program of a schedule with as few steps as a solver finds in `time_limit` seconds.

    method: one of METHODS. HeteCCL's has its model (Eq. 1 rounds rates up) and, of an Allreduce,
    its roots and its rule that no rank adds two things to one place in a step (App. I).

    Raises:
        UserError: E451 there are none for `op`, or a rank cannot be reached.
    """
    if op not in BOTH:
        raise fail("E451", f"{method} schedules nothing for {op.value}", help="built-ins do")
    faithful = method == "cegis"
    c = chunked(t, fine=not faithful)
    owner = owners(t, op, root, chunks)
    if faithful and op is OpType.ALLREDUCE:
        owner = (np.arange(chunks * len(t)) % len(t)).astype(np.int32)
    models = [
        *([] if op in SUMS else [(c, False)]),
        *([] if op in COPIES else [(c.reversed(), True)]),
    ]
    outcomes = list[Outcome]()
    for model, turned in models:
        demand = gather_all(owner, len(t), exclusive=faithful and turned)
        start = None if faithful else interruptible(_best)(model, demand, seed, again=False)
        left = 0.0 if any(one.interrupted for one in outcomes) else time_limit / len(models)
        outcomes.append(
            synthesize(
                model,
                demand,
                mode=METHODS[method],
                time_limit=left,
                seed=seed,
                start=start,
                on_phase=on_phase,
            )
        )
    found = [outcome.schedule for outcome in outcomes]
    copies, sums = None if op in SUMS else found[0], None if op in COPIES else found[-1]
    made = from_schedules(method.capitalize(), t, op, root, owner, copies, sums)
    return Searched(
        made,
        chunks,
        False,
        sum(s.steps for s in found),
        sum(one.bound for one in outcomes),
        method,
        tuple(step for one in outcomes for step in one.trace),
        any(one.interrupted for one in outcomes),
    )


def _best(c: Chunked, demand: Demand, seed: int, again: bool) -> Schedule:
    """Of several seeds the schedule that loads the busiest resource least, of these the one of
    fewest steps."""
    transfers = int(np.count_nonzero(demand.post & ~demand.pre))
    seeds = max(1, min(SEEDS, WORK // max(1, transfers)))
    least_steps(c, demand)  # says what cannot be reached
    found = [greedy(c, demand, seed * SEEDS + k, again=again) for k in range(seeds)]
    made = [s for s in found if s is not None]
    if not made:
        raise fail("E451", "greedy finds no schedule: some rank is reached by nobody who has data")
    return min(made, key=lambda s: (load(c, s), s.steps))


def load(c: Chunked, s: Schedule) -> float:
    """Steps that the busiest resource needs for what it carries."""
    row = c.use[s.src.astype(np.int64) * c.n + s.dst]
    count = np.bincount(row[row >= 0], minlength=len(c.capacity))
    return float((count / c.capacity).max(initial=0.0))
