"""SyCCL's evaluation again: sketches beside the other methods, with all prunings and without one.

Run by `python -m benchmarks.synthesis --sketches [--unpruned relays]`. *sketch*: simulated µs of
`--method sketch`, its share of the bound, and the seconds of a processor that it took; *auto*: the
same of all methods together, of which the fastest may be a sketch. *sketch, published*: seconds of
SyCCL's Table 5, least, most and mean of all sizes, on 192 cores.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from rich.table import Table

import hccc
from benchmarks.programs import EXAMPLES

NAMES = ("syccl-a100-16", "syccl-a100-32", "syccl-h800-64", "syccl-h800-512")
OPS = ("allgather", "reducescatter", "allreduce", "alltoall")
SIZES = (1 << 10, 1 << 20, 64 << 20, 1 << 30)
PUBLISHED = {
    ("syccl-a100-16", "allgather"): "0.3-4.3, 0.8",
    ("syccl-a100-16", "alltoall"): "1.4-8.3, 3.6",
    ("syccl-a100-32", "allgather"): "6.2-19.1, 9.0",
    ("syccl-h800-64", "allgather"): "0.4-10.8, 1.6",
    ("syccl-h800-64", "alltoall"): "1.3-29.8, 5.7",
    ("syccl-h800-512", "allgather"): "85.5-14,146, 2,246",
}
Case = tuple[str, str, int, tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class SketchRow:
    """One case. share: of the bound; seconds: of a processor; other: the fastest of auto."""

    cluster: str
    collective: str
    size: int
    sketch: float = 0.0
    share: float = 0.0
    seconds: float = 0.0
    method: str = ""
    auto: float = 0.0
    auto_seconds: float = 0.0
    other: str = ""
    refused: str = ""


def row(case: Case) -> SketchRow:
    """Synthesizes one case by sketches, and, with all prunings, by all methods too."""
    name, op, size, unpruned, seconds = case
    t = hccc.load_cluster(EXAMPLES / "clusters" / f"{name}.cluster")
    begin = time.process_time()
    try:
        made = hccc.synthesize(t, op, size, method="sketch", unpruned=unpruned, seconds=seconds)
    except hccc.UserError as error:
        return SketchRow(name, op, size, refused=error.problem.message)
    middle = time.process_time()
    found = made.best.time or 0.0, made.share(), middle - begin, made.best.name
    if unpruned:
        return SketchRow(name, op, size, *found)
    every = hccc.synthesize(t, op, size, seconds=seconds)
    took = time.process_time() - middle
    return SketchRow(name, op, size, *found, every.best.time or 0.0, took, every.best.name)


def table(rows: list[SketchRow]) -> Table:
    """Makes the table: a line for each row."""
    found = Table("cluster", "collective", title="Sketches, simulated")
    for name in ("bytes", "sketch", "of the bound", "seconds", "published", "auto", "seconds"):
        found.add_column(name, justify="right")
    found.add_column("fastest of auto")
    for one in rows:
        cells = [one.refused, "", ""]
        if not one.refused:
            cells = [f"{one.sketch:,.1f}", f"{one.share:.3f}", f"{one.seconds:.1f}"]
        auto = [f"{one.auto:,.1f}", f"{one.auto_seconds:.1f}"] if one.other else ["", ""]
        published = PUBLISHED.get((one.cluster, one.collective), "")
        size = f"{one.size:,}"
        found.add_row(one.cluster, one.collective, size, *cells, published, *auto, one.other)
    return found
