"""fast: a solver repairs what a greedy schedule has too many steps for.

From the bound on, one step more each time: the first steps of the given schedule are kept, a
quarter of all, then half as many, then none, and HiGHS or Z3 looks for the rest in the smallest
encoding. A deeper prefix makes the rest easier to find, or impossible. What cannot end in time by
`least_steps` is not asked for.
"""

from __future__ import annotations

from hccc.synth.cegis.fill import fill
from hccc.synth.cegis.search import Search, before, remaining, smallest_encoding
from hccc.synth.cegis.solvers import Verdict
from hccc.synth.least_steps import least_steps

DEEPEST = 4  # at most one step in so many is frozen
LARGEST = 250_000  # Sends and arrivals; above, solvers found nothing in a quarter of an hour


def run(search: Search) -> None:
    """Searches until a schedule is found or time is up."""
    encode = smallest_encoding(search.c)
    proven = True
    for steps in range(search.bound, search.best.steps):
        if _size(search, steps) > LARGEST:
            return
        verdict = Verdict.UNKNOWN
        until = search.left / 2 if steps + 1 < search.best.steps else 0.0
        for frozen in _depths(search, steps):
            prefix = fill(search.c, search.demand, before(search.best, frozen), frozen)
            seconds = (search.left - until) / (2 if frozen else 1)
            verdict, made = search.attempt(steps, prefix, frozen, encode, seconds)
            if made is not None:
                search.accept(made)
                return
        proven = proven and verdict is Verdict.NONE
        if proven:
            search.bound = steps + 1
        if search.left <= 0:
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


def _size(search: Search, steps: int) -> int:
    """About as many variables as the smallest encoding has."""
    c = search.c
    node_ranks = sum(int((c.node == m).sum()) ** 2 for m in range(int(c.node.max()) + 1))
    between = c.n * (int(c.node.max()) + 2)
    return len(search.demand.pre) * steps * (node_ranks + between)
