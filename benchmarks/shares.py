"""What part of the optimum the programs of `hccc synth` reach, simulated, on shipped clusters.

Run by `python -m benchmarks.synthesis --shares`. *The optimum*: of Allgather, Reducescatter and
Allreduce the most that schedules over trees reach (`rooted_trees`: a linear program, roots free),
of Alltoall, Gather and Scatter that over paths (`best_paths`), of the others the narrowest cut;
with the latency that every schedule has. 1 is the most there is.
What falls short of LEAST within the default budget of thread blocks is made again with MORE of
them: then they were what was short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from rich.table import Table

import hccc
from benchmarks.programs import EXAMPLES
from hccc.driver.options import Options
from hccc.ir.collective import OpType
from hccc.ir.topology import BYTES_PER_US, Topology
from hccc.predict.bounds import bounds

OPS = ("allgather", "reducescatter", "allreduce", "alltoall")
LEAST = 0.97
MORE = 64
Case = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class ShareRow:
    """One synthesis. share: of the optimum, more: the same with MORE thread blocks a rank, 0 where
    nobody asked; less: whether the optimum is less than the cut has; seconds: of the first."""

    cluster: str
    collective: str
    size: int
    method: str = ""
    share: float = 0.0
    more: float = 0.0
    less: bool = False
    seconds: float = 0.0
    refused: str = ""


class ReachedShare(NamedTuple):
    """The `method`, `share`, `more`, `less` and `seconds` of a ShareRow."""

    method: str
    share: float
    more: float
    less: bool
    seconds: float


def reached(t: Topology, op: str, size: int) -> ReachedShare:
    """Synthesizes a collective, and again with MORE thread blocks where it falls short of LEAST.

    Raises:
        UserError: nothing serves the collective on this cluster.
    """
    made = hccc.synthesize(t, op, size)
    found = bounds(t, t.name, size, [one for one in OpType if one.value.lower() == op]).found[0]
    optimum = found.bound.time
    if found.best is not None:
        optimum = max(optimum, found.bound.head + size / (found.best.algbw * BYTES_PER_US))
    share, more = optimum / (made.best.time or float("nan")), 0.0
    if share < LEAST:
        again = hccc.synthesize(t, op, size, options=Options(max_sms=MORE))
        more = optimum / (again.best.time or float("nan"))
    cut = found.bound.head + found.bound.bandwidth
    lower = optimum > max(found.bound.latency, cut) * (1 + 1e-6)
    return ReachedShare(made.best.name, share, more, lower, made.seconds)


def row(case: Case) -> ShareRow:
    """Synthesizes a collective for one cluster that ships."""
    name, op, size = case
    try:
        found = reached(hccc.load_cluster(EXAMPLES / "clusters" / f"{name}.cluster"), op, size)
    except hccc.UserError as error:
        return ShareRow(name, op, size, refused=error.problem.message)
    return ShareRow(name, op, size, *found)


def table(rows: list[ShareRow]) -> Table:
    """Makes the table: a line for each cluster and size, a column for each collective."""
    ops = list(dict.fromkeys(one.collective for one in rows))
    found = Table("cluster", "bytes", title=f"Share of the optimum (with {MORE} thread blocks)")
    for op in ops:
        found.add_column(op, justify="right")
    at = {(one.cluster, one.size, one.collective): one for one in rows}
    for name, size in dict.fromkeys((one.cluster, one.size) for one in rows):
        cells = [cell(at[name, size, op]) for op in ops if (name, size, op) in at]
        found.add_row(name, f"{size:,}", *cells)
    return found


def cell(one: ShareRow) -> str:
    """Writes a share as `0.986`, with that of more thread blocks in parentheses."""
    if one.refused:
        return "none"
    more = f" ({one.more:.3f})" if one.more else ""
    return f"{one.share:.3f}{more}"


def summary(rows: Sequence[ShareRow]) -> str:
    """Says how many rows reach LEAST."""
    found = [one for one in rows if not one.refused]
    short = [one for one in found if one.share < LEAST]
    enough = sum(one.more >= LEAST for one in short)
    return (
        f"{len(found) - len(short)} of {len(found)} reach {LEAST}, {enough} more with {MORE} "
        f"thread blocks; median {np.median([one.share for one in found]):.3f}"
    )
