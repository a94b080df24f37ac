"""ResCCL Fig. 10b: HPDS against round-robin."""

from __future__ import annotations

import math

from benchmarks.paper.backends import PaperBench, PaperCase
from benchmarks.paper.reasons import ceiling, limit
from benchmarks.paper.side_by_side import FigureRow, FigureTable, human, span

NOTE = """Times scheduled round-robin over times with HPDS, both as ResCCL runs them, least to
most over {first}–{last}. "An 8-GPU, two-server topology" may be Topo1 (8 GPUs in all) or Topo2 (8
a server): here are both, with Topo4, which is the largest. Rings stand for the synthesised
algorithms, which are not published. Round-robin is ours: chunks in turn, ascending, one task
each, as ResCCL §5.3 describes it. Where thread blocks or links are the limit with both, no order
helps. *any schedule*: round-robin's time over the bound."""
SAME = 0.005  # of the time


def table(bench: PaperBench) -> FigureTable:
    """Makes the table of the figure."""
    s = bench.setting
    note = NOTE.format(first=human(s.sizes[0]), last=human(s.sizes[-1]))
    columns = (
        "algorithm",
        "topology",
        "published",
        "HPDS over RR",
        "at the largest size",
        "any schedule over RR",
    )
    cases = [
        PaperCase(algorithm, op, f"resccl-topo{n}")
        for algorithm in ("HM", "ring")
        for op in ("AllGather", "AllReduce")
        for n in (1, 2, 4)
    ]
    title = "Fig. 10b: HPDS against round-robin"
    return FigureTable("fig10b", title, note, columns, tuple(_row(bench, case) for case in cases))


def _row(bench: PaperBench, case: PaperCase) -> FigureRow:
    sizes = bench.setting.sizes
    hpds = [bench.run(case, "ResCCL", size) for size in sizes]
    turns = [bench.run(case, "round-robin", size) for size in sizes]
    found = [t.time / h.time for t, h in zip(turns, hpds, strict=True)]
    place = case.cluster.removeprefix("resccl-")
    name = f"{case.algorithm} {case.op}"
    limits = bench.limits(case)
    most = span([ceiling(run, limits) for run in turns])
    cells = (name, place, "to 187 % faster", span(found), f"{found[-1]:.2f}×", most)
    apart = [abs(math.log(ratio)) for ratio in found]
    at = apart.index(max(apart)) if max(apart) > SAME else -1
    why = f"at {human(sizes[at])} HPDS: {limit(hpds[at])}; round-robin: {limit(turns[at])}"
    return FigureRow(cells, {"sizes": sizes, "speed-ups": found}, why)
