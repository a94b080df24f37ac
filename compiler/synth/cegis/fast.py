"""fast: a solver repairs what a greedy schedule has too many steps for.

First for as many steps as the bound, then 1, 2, 4, … more, for each with half of the time left: the
first steps of the given schedule are kept, a quarter of all, then half as many, then none, and
HiGHS or Z3 looks for the rest in the smallest encoding. A deeper prefix makes the rest easier to
find, or impossible. What cannot end in time by `least_steps` is not asked for.
"""

from __future__ import annotations

from hccc.synth.cegis.fill import fill
from hccc.synth.cegis.search import Encoder, Search, before, remaining, smallest
from hccc.synth.cegis.solvers import Verdict
from hccc.synth.greedy.least_steps import least_steps

SHARE = 0.5  # of the time left, for what may come to nothing
DEEPEST = 4  # at most one step in so many is frozen


def run(search: Search) -> None:
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


def _of_steps(search: Search, encoder: Encoder, steps: int) -> Verdict:
    """Whether there is a schedule of `steps` steps; the best is one then."""
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


def _depths(search: Search, steps: int) -> list[int]:
    """How deep to freeze, ending with not at all."""
    depths = []
    frozen = steps // DEEPEST
    while frozen:
        rest = remaining(search.demand, before(search.best, frozen))
        if frozen + least_steps(search.c, rest) <= steps:
            depths.append(frozen)
        frozen //= 2
    return [*depths, 0]
