"""ResCCL Fig. 7 and 9: synthesised algorithms on ResCCL over the same on MSCCL."""

from __future__ import annotations

from functools import partial

from benchmarks.paper.backends import CHANNELS, PaperBench, PaperCase
from benchmarks.paper.reasons import limit
from benchmarks.paper.side_by_side import FigureRow, FigureTable, human, span

# (collective, topology, TACCL, TE-CCL), speed-ups over MSCCL in the text of §5.2.
FIGURES = {
    "fig7": (
        "Fig. 7: synthesised algorithms on A100, 8 GPUs a server",
        (
            ("AllGather", 2, "to 1.4×; 0.92× below 8 MB", "1.05–1.5×"),
            ("AllGather", 4, "1.13–1.4× above 16 MB", "1.05–1.5×"),
            ("AllReduce", 2, "to 1.4×; 0.92× below 8 MB", "1.05–1.5×"),
            ("AllReduce", 4, "1.13–1.4× above 16 MB", "1.05–1.5×"),
        ),
    ),
    "fig9": (
        "Fig. 9: synthesised algorithms on A100, 4 GPUs a server",
        (
            ("AllGather", 1, "1.10–1.31×", "1.10–1.31×"),
            ("AllGather", 3, "1.10–1.31×", "1.10–1.31×"),
            ("AllReduce", 1, "to 1.50×", "to 1.50×"),
            ("AllReduce", 3, "to 1.50×", "to 1.50×"),
        ),
    ),
}
NOTE = """Times on MSCCL (algorithm-level) over times of ours, least to most over {first}–{last}.
The schedules of TACCL and TE-CCL for these clusters, and the sketches they came of, are not
published: what both backends run here are rings that hccc finds for the cluster, in {channels}
channels; rings over one connection share its thread block. *hccc* cuts by the size of the message,
the others into micro-batches of {micro}. They compare backends, not synthesisers; rings are
regular, so there is less for a scheduler to win than in a solver's schedule."""


def table(bench: PaperBench, name: str) -> FigureTable:
    """Makes the table of one figure."""
    title, claims = FIGURES[name]
    s = bench.setting
    note = NOTE.format(
        first=human(s.sizes[0]),
        last=human(s.sizes[-1]),
        channels=CHANNELS,
        micro=human(s.micro_batch),
    )
    columns = (
        "collective",
        "topology",
        "TACCL, published",
        "TE-CCL, published",
        "ring on ResCCL",
        "on hccc",
        "on hccc, best",
    )
    rows = [_row(bench, op, f"resccl-topo{n}", ta, te) for op, n, ta, te in claims]
    return FigureTable(name, title, note, columns, tuple(rows))


def _row(bench: PaperBench, op: str, cluster: str, taccl: str, teccl: str) -> FigureRow:
    case, sizes = PaperCase("ring", op, cluster), bench.setting.sizes
    theirs = [bench.run(case, "MSCCL", size) for size in sizes]
    over = partial(bench.times_over, case, theirs)
    found = {"ResCCL": over("ResCCL"), "hccc": over("hccc"), "best": over("hccc", free=True)}
    place = cluster.removeprefix("resccl-")
    cells = (op, place, taccl, teccl, *(span(v) for v in found.values()))
    ours = bench.run(case, "ResCCL", sizes[-1])
    why = f"a ring; MSCCL: {limit(theirs[-1])}; ResCCL: {limit(ours)}"
    return FigureRow(cells, {"sizes": sizes, "speed-ups": found}, why)
