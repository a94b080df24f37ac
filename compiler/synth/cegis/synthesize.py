"""synthesize: schedules of few steps, by solver (HeteCCL §5)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hccc.base.diagnostics import InternalError
from hccc.base.progress import tell
from hccc.synth.cegis import faithful, fast
from hccc.synth.cegis.cost import Cost
from hccc.synth.cegis.fill import fill
from hccc.synth.cegis.search import ScheduleSearch, SearchOutcome
from hccc.synth.greedy.chunked import Chunked
from hccc.synth.greedy.least_steps import least_steps
from hccc.synth.greedy.schedule import CopyDemand, Schedule, gather_all, violations

Mode = Literal["faithful", "fast"]
Solver = Literal["z3", "highs"]
EMPTY = Schedule(*np.zeros((4, 0), np.int32))


def synthesize(
    c: Chunked,
    demand: CopyDemand,
    *,
    mode: Mode = "fast",
    solver: Solver | None = None,
    time_limit: float = 60.0,
    seed: int = 0,
    start: Schedule | None = None,
) -> SearchOutcome:
    """Finds the best valid schedule in `time_limit` seconds, or until Ctrl-C.

    mode: "faithful" is HeteCCL's Algorithm 1, "fast" repairs `start`; solver: as in the paper, or
    HiGHS for "fast"; start: a valid schedule, returned if nothing better is found.

    Raises:
        UserError: some rank cannot be reached by what it needs.
        InternalError: `start` is not valid.
    """
    bound = least_steps(c, demand)
    best = fill(c, demand, EMPTY) if start is None else start
    if wrong := violations(best, c, demand):
        raise InternalError(f"the schedule that a search starts from is not valid: {wrong[0]}")
    chosen = solver or ("z3" if mode == "faithful" else "highs")
    search = ScheduleSearch(c, demand, best, bound, chosen, seed, time.monotonic() + time_limit)
    try:
        (faithful if mode == "faithful" else fast).run(search)
    except KeyboardInterrupt:
        search.interrupted = True
        tell("interrupted: the best so far")
    return search.outcome()


@dataclass(frozen=True, slots=True, eq=False)
class AllReduce:
    """A ReduceScatter and then an Allgather, of the same roots. `gather.schedule` and
    `reduce.schedule` are of copies: `sums` is the latter as it runs."""

    reduce: SearchOutcome
    gather: SearchOutcome

    @property
    def sums(self) -> Schedule:
        """The ReduceScatter as it runs: sums from rank to rank."""
        return self.reduce.schedule.reversed()

    def time(self, cost: Cost, chunk: int) -> float:
        """Returns the µs of one phase after the other, with γ in the first."""
        summed = cost.time(self.reduce.schedule, chunk, sums=True)
        return summed + cost.time(self.gather.schedule, chunk)


def allreduce(
    c: Chunked,
    chunks: int,
    *,
    mode: Mode = "fast",
    solver: Solver | None = None,
    time_limit: float = 60.0,
    seed: int = 0,
) -> AllReduce:
    """Finds an Allreduce as of HeteCCL App. I: chunk k is reduced at rank k mod n (Eq. 7), by an
    Allgather backwards over links turned round in which no rank adds two things to one place in a
    step (Eq. 8)."""
    owner = np.arange(chunks) % c.n
    begin = time.monotonic()
    gather = synthesize(
        c,
        gather_all(owner, c.n),
        mode=mode,
        solver=solver,
        time_limit=time_limit / 2,
        seed=seed,
    )
    left = time_limit - (time.monotonic() - begin)
    backwards = gather_all(owner, c.n, exclusive=True)
    reduced = synthesize(
        c.reversed(),
        backwards,
        mode=mode,
        solver=solver,
        time_limit=left,
        seed=seed,
    )
    return AllReduce(reduced, gather)
