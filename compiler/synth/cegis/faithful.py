"""faithful: HeteCCL's Algorithm 1 (App. H), counterexample-guided and with a frozen prefix.

    candidate := saturate                                   GREEDYHEURISTIC
    until VERIFY finds nothing wrong with the candidate:
        checkpoint := the earliest step with a violation
        keep, for good, the constraints violated there      the counterexamples
        prefix := the steps before it, spare capacity filled    REVISEFULL
        candidate := prefix, and what Z3 makes of the rest under the kept constraints

Of a schedule too long for Z3 (32 GPUs and more) Z3 makes the next step alone, such that what is
missing then can come in time by `missing_at_most`, and `saturate` the rest: its faults at the step
after are the next counterexamples, and the checkpoint moves on by a step.

The model has Eq. 2-3, and the constraints of Eq. 4-6 that are kept. A counterexample names a
resource, and rules out too many transfers over it at every step; or a rank that gets a chunk twice.

Beyond the paper, which says only "failure": if no schedule continues a prefix, it is frozen half as
deep, and never deeper again for that number of steps. If there is none without a prefix, no
schedule has so few steps, since all kept constraints are necessary, and the search goes on with one
step more. So it ends, with the fewest steps, given time.
"""

from __future__ import annotations

import numpy as np

from hccc.synth.cegis.encode import KeptConstraints
from hccc.synth.cegis.fill import fill
from hccc.synth.cegis.saturate import saturate
from hccc.synth.cegis.search import ScheduleSearch, before, per_link
from hccc.synth.cegis.solvers import Verdict
from hccc.synth.greedy.schedule import Schedule, Violation, violations

SHARE = 0.5  # of the time left, for each number of steps: a proof that there is none may be long


def run(search: ScheduleSearch) -> None:
    """Searches until nothing is wrong, or time is up."""
    c, demand = search.c, search.demand
    kept = KeptConstraints(
        np.zeros(len(c.capacity), np.bool_), np.zeros(demand.pre.shape, np.bool_)
    )
    candidate = saturate(c, demand)
    proven = True
    for steps in range(search.bound, search.best.steps + 1):
        verdict, made = of_steps(search, candidate, steps, kept)
        if made is not None:
            search.accept(made)
            return
        proven = proven and verdict is Verdict.NONE
        if proven:
            search.bound = steps + 1
        if search.left <= 0 or verdict is Verdict.LARGE:
            return


def of_steps(
    search: ScheduleSearch, candidate: Schedule, steps: int, kept: KeptConstraints
) -> tuple[Verdict, Schedule | None]:
    """Returns FOUND and a valid schedule of at most `steps` steps, or why there is none."""
    c, demand = search.c, search.demand
    deepest, encoder = steps, per_link(c, kept)
    budget = search.left * SHARE
    until = search.left - budget if steps < search.best.steps else 0.0
    while True:
        wrong = violations(candidate, c, demand)
        if not wrong and candidate.steps <= steps:
            return Verdict.FOUND, candidate
        checkpoint = wrong[0].step if wrong else 0  # of a valid one that is too long, all is open
        _keep(kept, wrong, checkpoint)
        frozen = min(checkpoint, deepest)
        while True:
            prefix = fill(c, demand, before(candidate, frozen), frozen)
            verdict, made = search.attempt(
                steps, prefix, frozen, encoder, search.left - until, wrong=wrong, kept=len(kept)
            )
            if made is not None:
                candidate = made
                break
            if verdict is not Verdict.NONE or not frozen:
                return verdict, None
            deepest = frozen = frozen // 2


def _keep(kept: KeptConstraints, wrong: list[Violation], checkpoint: int) -> None:
    """Adds the constraints that are violated at the checkpoint."""
    for violation in wrong:
        if violation.step == checkpoint:
            if violation.equation == 6:
                kept.receivers[violation.chunk, violation.rank] = True
            elif violation.resource >= 0:
                kept.resources[violation.resource] = True
