"""ResCCL Table 1: link utilisation of algorithms as MSCCL runs them."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.paper.backends import ONE_SERVER, PaperBench, PaperCase
from benchmarks.paper.reasons import limit
from benchmarks.paper.side_by_side import FigureRow, FigureTable, human, shares
from hccc.sim import usage
from hccc.sim.simulate import Run

SCALES = {
    "1 server, 8 GPUs": ONE_SERVER,
    "2 servers, 16 GPUs": "resccl-topo2",
    "4 servers, 32 GPUs": "resccl-topo4",
}
EXPERT = {"MS-AG": ("AllGather", (76.7, 67.5, 66.8)), "MS-AR": ("AllReduce", (71.0, 61.8, 46.1))}
SYNTHESISED = {
    "TA-AG": ("AllGather", (51.6, 34.3, 44.6)),
    "TA-AR": ("AllReduce", (45.7, 31.8, 41.9)),
    "TE-AG": ("AllGather", (52.7, 33.2, 38.1)),
}
NOTE = """Utilisation in %, at {last} (and over {first}–{last}; the paper names no size and no
definition). *time*: the share of the time that a link which is used at all carries something, on
average; it is the one nearest to the text ("idle link time", ResCCL §2.2). *capacity*: bytes over
what these links could carry, which `usage.utilisation` has; NVLink, 12 times a NIC, weighs most.
*busiest kind*: the same for the busiest kind of link alone. MS: hierarchical mesh, stage-level.
TA, TE: the schedules that TACCL and TE-CCL made are not published, so what stands here are rings
that hccc finds for the cluster, algorithm-level: another algorithm on the same backend. A stage
ends where data enters or leaves a server, so AllReduce on one server is a single stage and waits
like an algorithm-level one."""


def active(run: Run) -> float:
    """Returns the part of the time that a link which is used carries something, on average."""
    used = run.machine.links & (run.carried > 0)
    return float(run.active[used].mean()) / run.time


def table(bench: PaperBench) -> FigureTable:
    """Makes Table 1."""
    sizes = bench.setting.sizes
    note = NOTE.format(first=human(sizes[0]), last=human(sizes[-1]))
    columns = ("scale", "algorithm", "published", "time", "capacity", "busiest kind")
    return FigureTable(
        "1", "Table 1: link utilisation under MSCCL", note, columns, tuple(_rows(bench))
    )


def _rows(bench: PaperBench) -> Iterator[FigureRow]:
    for at, (scale, cluster) in enumerate(SCALES.items()):
        for name, (op, published) in EXPERT.items():
            case = PaperCase("HM", op, cluster)
            yield _row(bench, case, "stage-level", scale, name, published[at])
        for name, (op, published) in SYNTHESISED.items():
            case = PaperCase("ring", op, cluster)
            yield _row(bench, case, "MSCCL", scale, name, published[at])


def _row(
    bench: PaperBench, case: PaperCase, backend: str, scale: str, name: str, published: float
) -> FigureRow:
    runs = [bench.run(case, backend, size) for size in bench.setting.sizes]
    found = {
        "time": [active(run) for run in runs],
        "capacity": [usage.utilisation(run) for run in runs],
        "busiest kind": [usage.links(run)[0].mean for run in runs],
    }
    cells = (scale, name, f"{published:.1f}", *(shares(v[-1], v) for v in found.values()))
    facts = {"algorithm run": case.algorithm, "backend": backend, "utilisation": found}
    substitute = "" if case.algorithm == "HM" else "a ring, not their schedule; "
    return FigureRow(cells, facts, substitute + limit(runs[-1]))
