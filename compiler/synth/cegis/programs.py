"""programs: Programs of schedules that a solver finds, for all collectives of copies or sums.

"repair" begins with greedy's schedule and shortens it where it is longer than it must be; "cegis"
is HeteCCL's Algorithm 1, and beside it, for long calls of all ranks alike, schedules of as few
steps that load links evenly (`balance`, `images`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from hccc.base.diagnostics import fail
from hccc.base.interruptible import interruptible
from hccc.base.progress import tell
from hccc.ir.arrays import I4
from hccc.ir.collective import ROOTED, OpType
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.synth.cegis.balance import Balance, ScheduledPart
from hccc.synth.cegis.images import images, moves
from hccc.synth.cegis.search import SearchOutcome, SolverCall
from hccc.synth.cegis.synthesize import Mode, synthesize
from hccc.synth.common.collectives import BOTH, COPIES, SUMS
from hccc.synth.greedy.chunked import Chunked, chunked
from hccc.synth.greedy.programs import best_greedy, from_schedules, owners
from hccc.synth.greedy.schedule import Schedule, gather_all

METHODS: dict[str, Mode] = {"repair": "fast", "cegis": "faithful"}


@dataclass(frozen=True, slots=True, eq=False)
class SolvedProgram:
    """A Program of schedules that a solver found. chunks: of a rank; steps: of all its schedules;
    bound: the least steps that these can have; method: one of METHODS; trace: the calls of the
    solver; interrupted: whether Ctrl-C ended the search; balanced: whether links are loaded
    evenly."""

    program: Program
    chunks: int
    steps: int
    bound: int
    method: str
    trace: tuple[SolverCall, ...]
    interrupted: bool
    balanced: bool = False

    @property
    def name(self) -> str:
        """The name for people: `cegis, balanced, 4 chunks a rank`."""
        how = ", balanced" if self.balanced else ""
        return f"{self.method}{how}, {self.chunks} chunk{'s' if self.chunks > 1 else ''} a rank"


def solved_programs(
    method: str,
    t: Topology,
    op: OpType,
    root: int,
    seed: int,
    *,
    time_limit: float = 60.0,
) -> Iterator[SolvedProgram]:
    """Yields the Program of a schedule of a chunk a rank with as few steps as a solver finds; by
    HeteCCL's method also, where time is left, one that loads links more evenly.

    method: one of METHODS. HeteCCL's has its model (Eq. 1 rounds rates up) and, of an Allreduce,
    its roots and its rule that no rank adds two things to one place in a step (App. I). A balanced
    schedule may break that rule: a primitive here adds up several sources at once.

    Raises:
        UserError: E451 there are none for `op`, or a rank cannot be reached.
    """
    if op not in BOTH:
        raise fail("E451", f"{method} schedules nothing for {op.value}", help="built-ins do")
    faithful = method == "cegis"
    c = chunked(t, fine=not faithful)
    owner = _owners(t, op, root, 1, faithful)
    models = [
        *([] if op in SUMS else [(c, False)]),
        *([] if op in COPIES else [(c.reversed(), True)]),
    ]
    outcomes = list[SearchOutcome]()
    deadline = time.monotonic() + time_limit
    even = faithful and op not in ROOTED
    share = time_limit / (len(models) + even)
    for model, turned in models:
        demand = gather_all(owner, len(t), exclusive=faithful and turned)
        start = None if faithful else interruptible(best_greedy)(model, demand, seed)
        left = 0.0 if any(outcome.interrupted for outcome in outcomes) else share
        outcomes.append(
            synthesize(model, demand, mode=METHODS[method], time_limit=left, seed=seed, start=start)
        )
    yield _solved(method, t, op, root, owner, 1, outcomes, [o.schedule for o in outcomes])
    interrupted = any(outcome.interrupted for outcome in outcomes)
    if even and not interrupted and time.monotonic() < deadline:
        yield from _balanced(method, t, op, models, owner, outcomes, deadline, seed)


def _owners(t: Topology, op: OpType, root: int, chunks: int, faithful: bool) -> I4:
    """Returns the rank that owns each chunk; of HeteCCL's Allreduce as of Eq. 7."""
    if faithful and op is OpType.ALLREDUCE:
        return (np.arange(chunks * len(t)) % len(t)).astype(np.int32)
    return owners(t, op, root, chunks)


def _balanced(
    method: str,
    t: Topology,
    op: OpType,
    models: list[tuple[Chunked, bool]],
    owner: I4,
    found: list[SearchOutcome],
    deadline: float,
    seed: int,
) -> Iterator[SolvedProgram]:
    """Yields the Program of balanced schedules, if there are any."""
    demand, outcomes = gather_all(owner, len(t)), list[SearchOutcome]()
    for (model, turned), outcome in zip(models, found, strict=True):
        if turned:  # in fewer steps without the rule
            outcome = synthesize(
                model,
                demand,
                mode=METHODS[method],
                time_limit=(deadline - time.monotonic()) / 2,
                seed=seed,
                start=outcome.schedule,
            )
        outcomes.append(outcome)
    parts = [
        ScheduledPart(model, demand, outcome.schedule, turned)
        for (model, turned), outcome in zip(models, outcomes, strict=True)
    ]
    interrupted = any(outcome.interrupted for outcome in outcomes)
    search = Balance(parts, 0.0 if interrupted else deadline)
    try:
        search.run()
    except KeyboardInterrupt:
        interrupted = True
        tell("interrupted: the best so far")
    to = moves(models[0][0])
    target = _owners(t, op, 0, len(to), True)
    chunk = np.argsort(target, kind="stable").reshape(len(t), len(to)).T
    schedules = [images(part.schedule, owner, to, chunk) for part in search.parts]
    made = _solved(method, t, op, 0, target, len(to), outcomes, schedules)
    yield replace(
        made,
        trace=(*made.trace, *search.trace),
        interrupted=interrupted,
        balanced=True,
    )


def _solved(
    method: str,
    t: Topology,
    op: OpType,
    root: int,
    owner: I4,
    chunks: int,
    outcomes: list[SearchOutcome],
    schedules: list[Schedule],
) -> SolvedProgram:
    """Returns the Program of `schedules`, which were made of those of `outcomes`."""
    copies, sums = None if op in SUMS else schedules[0], None if op in COPIES else schedules[-1]
    return SolvedProgram(
        from_schedules(method.capitalize(), t, op, root, owner, copies, sums),
        chunks,
        sum(s.steps for s in schedules),
        sum(outcome.bound for outcome in outcomes),
        method,
        tuple(call for outcome in outcomes for call in outcome.trace),
        any(outcome.interrupted for outcome in outcomes),
    )
