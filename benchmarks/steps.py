"""N_step of AllGather schedules over the integer bound, on HeteCCL's twelve clusters.

Run by `python -m benchmarks.synthesis --steps`. A step is one chunk over the slowest link (HeteCCL
Eq. 1); "bound" is `least_steps`, and no schedule takes fewer. *greedy*: the best of several seeds;
*repair*: what a solver makes of it in `seconds`. HeteCCL reports no step counts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from benchmarks.programs import EXAMPLES

MIXES = ("4+8", "4x3", "4x2+8", "4x3+8", "8x2+4", "4x2+8x2")
NAMES = tuple(f"{device}-{mix}" for device in ("h20", "v100") for mix in MIXES)
SEEDS = 32
Case = tuple[str, int, float]


@dataclass(frozen=True, slots=True)
class StepRow:
    """One cluster and number of chunks a rank. ended: why a solver stopped above the bound."""

    cluster: str
    ranks: int
    chunks: int
    bound: int
    greedy: int
    greedy_seconds: float
    repair: int
    repair_seconds: float
    ended: str = ""


def row(case: Case) -> StepRow:
    """Searches schedules for one case, greedily and then with a solver."""
    from hccc.driver.inputs import load_cluster
    from hccc.synth.cegis.synthesize import synthesize
    from hccc.synth.greedy.chunked import chunked
    from hccc.synth.greedy.greedy import greedy
    from hccc.synth.greedy.least_steps import least_steps
    from hccc.synth.greedy.schedule import gather_all, violations

    name, chunks, limit = case
    c = chunked(load_cluster(EXAMPLES / "clusters" / f"heteccl-{name}.cluster"))
    demand = gather_all(np.repeat(np.arange(c.n), chunks), c.n)
    bound = least_steps(c, demand)
    greedy(c, demand, 0)  # loops are compiled
    begin = time.perf_counter()
    made = (greedy(c, demand, seed) for seed in range(SEEDS))
    first = min((one for one in made if one is not None), key=lambda one: one.steps)
    middle = time.perf_counter()
    outcome = synthesize(c, demand, mode="fast", time_limit=limit, seed=0, start=first)
    end = time.perf_counter()
    for one in (first, outcome.schedule):
        if wrong := violations(one, c, demand):
            raise SystemExit(f"{name}, {chunks} chunks: not valid: {wrong[0]}")
    ended = outcome.trace[-1].verdict.value if outcome.gap and outcome.trace else ""
    return StepRow(
        name,
        c.n,
        chunks,
        bound,
        first.steps,
        middle - begin,
        outcome.schedule.steps,
        end - middle,
        ended,
    )


def table(rows: list[StepRow]) -> Table:
    """Makes the table: a line for each row."""
    shown = Table("cluster", title="N_step over the integer bound, AllGather")
    for name in ("GPUs", "chunks", "bound", "greedy", "s", "repair", "s", "over"):
        shown.add_column(name, justify="right")
    shown.add_column("ended")
    for one in rows:
        shown.add_row(
            one.cluster,
            f"{one.ranks}",
            f"{one.chunks}",
            f"{one.bound}",
            f"{one.greedy}",
            f"{one.greedy_seconds:.2f}",
            f"{one.repair}",
            f"{one.repair_seconds:.2f}",
            f"{min(one.greedy, one.repair) - one.bound}",
            one.ended,
        )
    return shown
