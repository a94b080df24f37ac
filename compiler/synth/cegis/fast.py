"""fast: a solver repairs what a greedy schedule has too many steps for.

From the bound on, one step more each time: the first steps of the given schedule are kept, a
quarter of all, then half as many, then none, and HiGHS or Z3 looks for the rest in the smallest
encoding. A deeper prefix makes the rest easier to find, or impossible. What cannot end in time by
`least_steps` is not asked for.
"""

from __future__ import annotations

from hccc.synth.cegis.fill import fill
from hccc.synth.cegis.search import Search, before, remaining, smallest
from hccc.synth.cegis.solvers import Verdict
from hccc.synth.least_steps import least_steps

DEEPEST = 4  # at most one step in so many is frozen


def run(search: Search) -> None:
    """Searches until a schedule is found or time is up."""
    if search.best.steps <= search.bound:
        return
    encoder = smallest(search.c)
    proven = True
    for steps in range(search.bound, search.best.steps):
        verdict = Verdict.UNKNOWN
        until = search.left / 2 if steps + 1 < search.best.steps else 0.0
        for frozen in _depths(search, steps):
            prefix = fill(search.c, search.demand, before(search.best, frozen), frozen)
            seconds = (search.left - until) / (2 if frozen else 1)
            verdict, made = search.attempt(steps, prefix, frozen, encoder, seconds)
            if made is not None:
                search.accept(made)
                return
        proven = proven and verdict is Verdict.NONE
        if proven:
            search.bound = steps + 1
        if search.left <= 0 or verdict is Verdict.LARGE:
            return


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
