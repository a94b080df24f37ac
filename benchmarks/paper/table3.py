"""ResCCL Table 3: thread blocks and how idle they are."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.paper.backends import CHANNELS, PaperBench, PaperCase
from benchmarks.paper.reasons import idlest, limit
from benchmarks.paper.side_by_side import FigureRow, FigureTable, human
from hccc.sim import usage

# Thread blocks; then % of communication time, average idle, maximum idle, on Topo1 to Topo4.
Published = tuple[tuple[int, float, float, float], ...]
PUBLISHED: dict[tuple[str, str, str], Published] = {
    ("MSCCL", "HM", "AllReduce"): (
        (14, 71.6, 28.4, 72.38),
        (30, 66.2, 33.8, 99.5),
        (14, 63.7, 36.3, 99.0),
        (30, 63.7, 36.3, 99.0),
    ),
    ("MSCCL", "HM", "AllGather"): (
        (14, 95.2, 4.8, 19.2),
        (30, 82.3, 17.7, 99.1),
        (14, 67.9, 32.1, 99.5),
        (30, 66.1, 33.9, 99.0),
    ),
    ("MSCCL", "ring", "AllReduce"): (
        (10, 33.1, 66.9, 90.2),
        (18, 23.9, 76.1, 99.9),
        (9, 50.9, 49.2, 99.9),
        (8, 34.9, 65.1, 99.9),
    ),
    ("MSCCL", "ring", "AllGather"): (
        (10, 96.3, 3.7, 36.6),
        (18, 97.8, 2.2, 87.3),
        (5, 47.1, 52.9, 90.2),
        (5, 60.4, 39.6, 98.1),
    ),
    ("ResCCL", "HM", "AllReduce"): (
        (8, 95.7, 4.3, 19.6),
        (16, 95.8, 4.2, 20.2),
        (8, 85.7, 14.3, 22.5),
        (16, 85.0, 15.0, 21.4),
    ),
    ("ResCCL", "HM", "AllGather"): (
        (8, 98.3, 1.7, 5.6),
        (16, 98.2, 1.8, 7.4),
        (8, 93.1, 6.9, 21.4),
        (16, 92.3, 7.7, 20.8),
    ),
    ("ResCCL", "ring", "AllReduce"): (
        (6, 67.6, 32.4, 56.4),
        (6, 58.4, 41.6, 69.8),
        (6, 66.5, 33.5, 60.8),
        (6, 61.1, 38.9, 62.8),
    ),
    ("ResCCL", "ring", "AllGather"): (
        (4, 99.4, 0.6, 4.9),
        (4, 99.2, 0.8, 8.9),
        (4, 88.7, 11.3, 28.3),
        (4, 83.8, 16.2, 30.7),
    ),
}
NOTE = """Published / ours. Blocks are a rank's, of one channel; shares in % of a block's life, at
{last} (the paper names no size). Moving bytes counts as busy, however slowly a shared link moves
them; waiting for a peer or a slot is idle. MSCCL runs the expert algorithms stage-level, rings
algorithm-level. The paper's idlest MSCCL blocks are those of extra channels that carry next to
nothing (ResCCL §5.4, Fig. 2a); here all of a stage's blocks carry their share. *synthesised* is
the paper's TACCL and TE-CCL, whose schedules are not published: ours there are rings that hccc
finds for the cluster."""


def table(bench: PaperBench) -> FigureTable:
    """Makes Table 3."""
    note = NOTE.format(last=human(bench.setting.sizes[-1]))
    columns = ("backend", "algorithm", "topology", "blocks", "comm. time", "avg idle", "max idle")
    return FigureTable("3", "Table 3: thread blocks", note, columns, tuple(rows(bench)))


def rows(bench: PaperBench, topologies: tuple[int, ...] = (1, 2, 3, 4)) -> Iterator[FigureRow]:
    """Yields every backend and algorithm on these topologies."""
    for (backend, algorithm, op), published in PUBLISHED.items():
        for n in topologies:
            yield _row(
                bench, backend, PaperCase(algorithm, op, f"resccl-topo{n}"), published[n - 1]
            )


def _row(
    bench: PaperBench, backend: str, case: PaperCase, published: tuple[int, float, float, float]
) -> FigureRow:
    staged = backend == "MSCCL" and case.algorithm == "HM"
    run = bench.run(case, "stage-level" if staged else backend, bench.setting.sizes[-1])
    b = usage.blocks(run)
    ours = (b.per_rank // CHANNELS, 100 * b.busy, 100 * b.idle, 100 * b.most_idle)
    shown = [f"{published[0]} / {ours[0]}"]
    shown += [f"{p:.1f} / {o:.1f}" for p, o in zip(published[1:], ours[1:], strict=True)]
    kind = "expert" if case.algorithm == "HM" else "synthesised"
    cells = (backend, f"{kind} {case.op}", case.cluster.removeprefix("resccl-"), *shown)
    facts = {"algorithm run": case.algorithm, "published": published, "ours": ours}
    substitute = "" if case.algorithm == "HM" else "a ring, not their schedule; "
    return FigureRow(cells, facts, f"{substitute}{limit(run)}; {idlest(run)}")
