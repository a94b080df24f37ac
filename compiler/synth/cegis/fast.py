"""fast: a solver shortens a greedy schedule that has too many steps.

The solver is asked for as many steps as the bound, then for 1, 2, 4, … more, each time with half of
the time left. The first steps of the greedy schedule are kept: a quarter of them, then half as
many, then none; HiGHS or Z3 looks for the rest in the smallest encoding. A deeper prefix makes the
rest easier to find, or impossible. A prefix that cannot end in time by `least_steps` is skipped.
"""

from __future__ import annotations

from hccc.synth.cegis.fill import fill
from hccc.synth.cegis.search import Encoder, ScheduleSearch, before, remaining, smallest
from hccc.synth.cegis.solvers import Verdict
from hccc.synth.greedy.least_steps import least_steps

SHARE = 0.5  # of the time left, for what may come to nothing
DEEPEST = 4  # at most one step in so many is frozen


def run(search: ScheduleSearch) -> None:
    """Searches until a schedule is found or time is up."""
    if search.best.steps <= search.bound:
        return
    encoder = smallest(search.c)
    steps, more, proven = search.bound, 1, True
    while steps < search.best.steps and search.left > 0:
        verdict = _of_steps(search, encoder, steps)
        if verdict in (Verdict.FOUND, Verdict.LARGE):
            return
        proven = proven and verdict is Verdict.NONE
        if proven:
            search.bound, steps = steps + 1, steps + 1
        else:
            steps, more = steps + more, 2 * more


def _of_steps(search: ScheduleSearch, encoder: Encoder, steps: int) -> Verdict:
    """Looks for a schedule of `steps` steps, which becomes the best, and returns the verdict."""
    until = search.left * SHARE if steps + 1 < search.best.steps else 0.0
    verdict = Verdict.UNKNOWN
    for frozen in _depths(search, steps):
        prefix = fill(search.c, search.demand, before(search.best, frozen), frozen)
        seconds = (search.left - until) * (SHARE if frozen else 1)
        verdict, made = search.attempt(steps, prefix, frozen, encoder, seconds)
        if made is not None:
            search.accept(made)
            break
    return verdict


def _depths(search: ScheduleSearch, steps: int) -> list[int]:
    """Returns how many steps to freeze, in turn, ending with none."""
    depths = []
    frozen = steps // DEEPEST
    while frozen:
        rest = remaining(search.demand, before(search.best, frozen))
        if frozen + least_steps(search.c, rest) <= steps:
            depths.append(frozen)
        frozen //= 2
    return [*depths, 0]
