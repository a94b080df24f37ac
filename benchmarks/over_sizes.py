"""Simulated time from 1 KB to 4 GB over the best of what others would run.

Run by `python -m benchmarks.synthesis --over-sizes`. Rivals (`rivals.py`): NCCL or RCCL as
predicted, without in-switch reduction, by default and with registered buffers; direct, two-shot and
hierarchical algorithms; TACOS-like schedules. A figure is the time of the best of them over ours:
below 1 ours is slower.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table

import hccc
from benchmarks import rivals
from benchmarks.programs import EXAMPLES
from hccc.base.diagnostics import UserError
from hccc.driver.inputs import load_cluster

SIZES = tuple(1 << k for k in range(10, 33, 2))
Case = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class SizeRow:
    """One collective on one cluster at one size. time, best: µs of ours and of the best rival;
    refused: why there is none."""

    cluster: str
    collective: str
    size: int
    method: str = ""
    time: float = 0.0
    rival: str = ""
    best: float = 0.0
    refused: str = ""

    @property
    def gain(self) -> float:
        """Returns the rival's time over ours; 0 where there is none of ours."""
        return self.best / self.time if self.time else 0.0


def row(case: Case) -> SizeRow:
    """Synthesizes one case, and simulates all its rivals."""
    name, op, size = case
    t = load_cluster(EXAMPLES / "clusters" / f"{name}.cluster")
    try:
        made = hccc.synthesize(t, op, size)
    except UserError as error:
        return SizeRow(name, op, size, refused=error.problem.message)
    others = rivals.of(t, made.program.collective.op, size)
    if not others:
        return SizeRow(name, op, size, made.best.name, made.best.time or 0.0, refused="no rival")
    best = others[0]
    return SizeRow(name, op, size, made.best.name, made.best.time or 0.0, best.name, best.time)


def table(rows: list[SizeRow]) -> Table:
    """Makes the table: a line for each cluster and collective."""
    sizes = sorted({one.size for one in rows})
    shown = Table("cluster", "collective", title="Time of the best rival over ours")
    for size in sizes:
        shown.add_column(short(size), justify="right")
    shown.add_column("least against")
    pairs = dict.fromkeys((one.cluster, one.collective) for one in rows)
    for cluster, op in pairs:
        mine = {one.size: one for one in rows if (one.cluster, one.collective) == (cluster, op)}
        least = min(mine.values(), key=lambda one: one.gain)
        what = f"{least.rival}, {short(least.size)}" if not least.refused else least.refused
        cells = (f"{mine[size].gain:.2f}" if size in mine else "" for size in sizes)
        shown.add_row(cluster, op, *cells, what)
    return shown


def short(size: int) -> str:
    """Writes a size as `64K`."""
    for unit, shift in (("G", 30), ("M", 20), ("K", 10)):
        if size >= 1 << shift:
            return f"{size >> shift}{unit}"
    return f"{size}"
