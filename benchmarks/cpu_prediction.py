"""How well the simulator predicts the CPU backend: six algorithms, 64 KiB to 64 MiB.

    python -m benchmarks.cpu_prediction [--seconds 10] [--workers 1] [--profile FILE] [--json]

They are measured, and predicted on this machine's own profile (`hccc profile`): how many are within
30 %, the median error, and the correlation of their ranks. Launches of all algorithms and sizes
take turns, out of place, float32; the lower decile counts, as in the profile, whose rates are from
copies and reductions, none of an algorithm that is predicted. What is measured on several cores
needs all of them: on a machine that is busy `--workers 1` is fairer; `--profile FILE` takes a
profile of a quiet moment.

What the model leaves out. A cache is known by what a call touches in all: an algorithm that comes
back to bytes soon finds them faster than predicted, one that comes late slower, where a call is
about as large as a cache (on 2 cores with 2 MiB each: 256 KiB; with the last cache, shared with
other machines: 4 and 8 MiB). A reduction of several sources in a core's cache is slower than copies
of as many bytes (64 KiB). Waking a core takes 15 to 60 µs, as long as it has slept.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.programs import hierarchical_mesh
from hccc.base.diagnostics import Source
from hccc.driver.compilation import compile_text
from hccc.driver.options import Options
from hccc.emit import directory
from hccc.emit.targets import TARGETS
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from hccc.ir.topology import Topology
from hccc.lang.cluster.load import load
from hccc.lang.cluster.printer import lines
from hccc.lang.transfer import load as transfer
from hccc.launch import measure as bench
from hccc.profile import calibrate
from hccc.profile.calibrate import LaunchCase, Work
from hccc.profile.measure import profile
from hccc.profile.probes import Pool
from hccc.runtime.cpu import SMALL_LAUNCH, CpuLauncher
from hccc.runtime.measure import perf
from hccc.runtime.request import LaunchRequest
from hccc.sim import simulate
from hccc.sim.machine import prepare

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ALGORITHMS = ("ring_allreduce", "rhd_allreduce", "direct_alltoall", "binomial_broadcast")
SIZES = tuple(1 << bits for bits in (16, 18, 20, 22, 23, 24, 26))
RANKS = 8
WITHIN = 1.3
F8 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PredictionRow:
    """One algorithm and size (bytes): µs measured and predicted."""

    algorithm: str
    size: int
    measured: float
    predicted: float


def plans() -> list[Plan]:
    """Compiles what is launched and simulated: examples, and hierarchical mesh on 2 nodes of 4."""
    made = [
        compile_text(transfer.read(EXAMPLES / f"{name}.rccl"), Options()) for name in ALGORITHMS
    ]
    for op in ("allreduce", "allgather"):
        text = hierarchical_mesh(op, 2, 4, channels=1)
        made.append(compile_text(Source(f"hm_{op}.rccl", text), Options()))
    return [stops.plan for stops in made]


def predict(node: Topology, plan: Plan, size: int, workers: int = 0) -> float:
    """Predicts one launch on the profiled machine: µs.

    workers: cores; 0 for as many as the runtime chooses.
    """
    if workers:
        launch = node.launch * (1, 1, 1, 0)  # no launch is small
        node = replace(node, cores=np.full(node.n_nodes, workers), launch=launch)
    return simulate.simulate(prepare(plan, node), simulate.Request(size)).time


def measure(
    chosen: Sequence[Plan], sizes: Sequence[int], seconds: float, workers: int = 0
) -> list[list[float]]:
    """Measures the µs of one launch of each plan (row) at each size (column)."""
    with tempfile.TemporaryDirectory(prefix="hccc-") as place:
        pool = Pool(RANKS, 2 * max(sizes))
        rows = [_cases(plan, sizes, Path(place) / plan.name, workers, pool) for plan in chosen]
        # By size: what one launch leaves in a cache the next finds there, as the profile has it.
        calibrate.measure([case for column in zip(*rows, strict=True) for case in column], seconds)
    return [[case.time for case in row] for row in rows]


def _cases(
    plan: Plan, sizes: Sequence[int], place: Path, workers: int, pool: Pool
) -> list[LaunchCase]:
    target = next(target for target in TARGETS if target.name == "cpu")
    directory.write(place, directory.files(Catalogue.of(plan), [target]))
    built = bench.communicator("cpu", place / f"{plan.name}{target.suffix}", plan)
    assert isinstance(built, CpuLauncher)
    cases = []
    for size in sizes:
        count = perf.count_of(plan.collective, size, 4)
        request = LaunchRequest(count, "float32", workers=workers)
        session = bench.bound(built, request, pool.memory(plan, count, False))
        small = count * 4 * plan.n_ranks <= SMALL_LAUNCH
        cores = workers or (1 if small else os.cpu_count() or 1)
        cases.append(LaunchCase(plan.name, Work(size, cores, 0, 0, 0, 0, 0), session))
    return cases


def compare(
    seconds: float, workers: int = 0, node: Topology | None = None
) -> tuple[Topology, list[PredictionRow]]:
    """Profiles the machine (without `node`), measures, predicts."""
    node, chosen = node or profile("cpu", RANKS, seconds).topology, plans()
    times = measure(chosen, SIZES, 2 * seconds, workers)
    return node, [
        PredictionRow(plan.name, size, time, predict(node, plan, size, workers))
        for plan, row in zip(chosen, times, strict=True)
        for size, time in zip(SIZES, row, strict=True)
    ]


def agreement(rows: Sequence[PredictionRow]) -> tuple[float, float]:
    """Returns the part of the rows predicted within 30 %, and the median error."""
    ratio = np.array([r.predicted / r.measured for r in rows])
    near = (ratio <= WITHIN) & (ratio >= 1 / WITHIN)
    return float(near.mean()), float(np.median(np.abs(ratio - 1)))


def ranks(x: Sequence[float]) -> F8:
    """Returns the rank of each value, equal ones sharing theirs."""
    values = np.asarray(x, np.float64)
    less, equal = values[:, None] > values, values[:, None] == values
    found: F8 = less.sum(1) + (equal.sum(1) - 1) / 2
    return found


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """Returns the correlation of the ranks, -1 to 1."""
    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def kendall(x: Sequence[float], y: Sequence[float]) -> float:
    """Returns Kendall's tau-b: pairs in the same order less pairs in the other, as a part of
    all."""
    a, b = (np.sign(np.subtract.outer(np.asarray(v), np.asarray(v))) for v in (x, y))
    return float((a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum()))


def correlations(rows: Sequence[PredictionRow]) -> dict[str, tuple[float, float]]:
    """Returns Spearman's and Kendall's correlation, over everything and within each size."""
    groups = {"all": list(rows)}
    groups |= {_size(size): [r for r in rows if r.size == size] for size in SIZES}
    found = {}
    for name, group in groups.items():
        x, y = [r.measured for r in group], [r.predicted for r in group]
        found[name] = spearman(x, y), kendall(x, y)
    return found


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >> 20 else f"{size >> 10} KiB"


def main() -> None:
    """Measures, and prints the table and the correlations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=10, help="to profile; twice to measure")
    parser.add_argument("--workers", type=int, default=0, help="cores; 0: as the runtime does")
    parser.add_argument("--profile", type=Path, help="what `hccc profile` wrote, instead")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    given = load(chosen.profile) if chosen.profile else None
    node, rows = compare(chosen.seconds, chosen.workers, given)
    told = correlations(rows)
    if chosen.json:
        facts: dict[str, object] = {"rows": [asdict(r) for r in rows], "correlation": told}
        facts |= {"agreement": agreement(rows), "cluster": "\n".join(lines(node))}
        print(json.dumps(facts, indent=2))
        return
    _print(node, rows)


def _print(node: Topology, rows: Sequence[PredictionRow]) -> None:
    cores = f"{node.cores[0]} cores, {os.cpu_count()} in all"
    table = Table(title=f"{node.devices[0].name}, {cores}: µs a launch")
    for column in ("algorithm", "size", "measured", "predicted", "predicted / measured"):
        table.add_column(column, justify="left" if column == "algorithm" else "right")
    for r in sorted(rows, key=lambda r: (r.size, r.measured)):
        cells = f"{r.measured:,.1f}", f"{r.predicted:,.1f}", f"{r.predicted / r.measured:.2f}"
        table.add_row(r.algorithm, _size(r.size), *cells)
    console = Console(width=100)
    console.print(table)
    for name, (s, k) in correlations(rows).items():
        near, error = agreement([r for r in rows if name in ("all", _size(r.size))])
        parts = f"{near:.0%} within 30 %, median error {error:.0%}"
        console.print(f"{name:>8}: {parts}, Spearman {s:.3f}, Kendall {k:.3f}")


if __name__ == "__main__":
    main()
