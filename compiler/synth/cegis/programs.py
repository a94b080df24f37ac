"""programs: Programs of schedules that a solver finds, for all collectives of copies or sums.

"repair" begins with greedy's schedule and shortens it where it is longer than it must be; "cegis"
is HeteCCL's Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.base.diagnostics import fail
from hccc.base.interruptible import interruptible
from hccc.ir.collective import OpType
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.synth.cegis.search import SearchOutcome, SolverCall
from hccc.synth.cegis.synthesize import Mode, synthesize
from hccc.synth.common.collectives import BOTH, COPIES, SUMS
from hccc.synth.greedy.chunked import chunked
from hccc.synth.greedy.programs import best_greedy, from_schedules, owners
from hccc.synth.greedy.schedule import gather_all

METHODS: dict[str, Mode] = {"repair": "fast", "cegis": "faithful"}


@dataclass(frozen=True, slots=True, eq=False)
class SolvedProgram:
    """A Program of schedules that a solver found. chunks: of a rank; steps: of all its schedules;
    bound: the least steps that these can have; method: one of METHODS; trace: the calls of the
    solver; interrupted: whether Ctrl-C ended the search."""

    program: Program
    chunks: int
    steps: int
    bound: int
    method: str
    trace: tuple[SolverCall, ...]
    interrupted: bool

    @property
    def name(self) -> str:
        """The name for people: `cegis, 1 chunk a rank`."""
        return f"{self.method}, {self.chunks} chunk{'s' if self.chunks > 1 else ''} a rank"


def solved_program(
    method: str,
    t: Topology,
    op: OpType,
    root: int,
    seed: int,
    *,
    chunks: int = 1,
    time_limit: float = 60.0,
) -> SolvedProgram:
    """Returns the Program of a schedule with as few steps as a solver finds in `time_limit` s.

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
    outcomes = list[SearchOutcome]()
    for model, turned in models:
        demand = gather_all(owner, len(t), exclusive=faithful and turned)
        start = None if faithful else interruptible(best_greedy)(model, demand, seed)
        left = 0.0 if any(outcome.interrupted for outcome in outcomes) else time_limit / len(models)
        outcomes.append(
            synthesize(
                model,
                demand,
                mode=METHODS[method],
                time_limit=left,
                seed=seed,
                start=start,
            )
        )
    schedules = [outcome.schedule for outcome in outcomes]
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
