"""How well the simulator predicts the CPU backend: six algorithms, three sizes, measured beside
predicted on this machine's own profile (`hccc profile`), and the correlation of their ranks.

    python benchmarks/cpu_prediction.py [--seconds 10] [--workers 1] [--json]

Launches of all algorithms and sizes take turns, out of place, float32; the lower decile counts, as
in the profile. As the runtime does, launches of up to 4 MiB in all are predicted on one core.
On a machine that is busy, launches on several cores wait for each other's: `--workers 1` is fairer.
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
from programs import hierarchical_mesh
from rich.console import Console
from rich.table import Table

from hccc.diagnostics import Source
from hccc.driver import compile_file, compile_text
from hccc.emit import directory
from hccc.emit.targets import TARGETS
from hccc.ir.plan import Plan
from hccc.launch import measure as bench
from hccc.options import Options
from hccc.profile import calibrate
from hccc.profile.calibrate import Case, Work
from hccc.profile.cluster_file import Profile
from hccc.profile.measure import profile
from hccc.profile.probes import Pool
from hccc.runtime.cpu import CpuCommunicator
from hccc.runtime.measure import perf
from hccc.runtime.request import Request
from hccc.sim import simulate
from hccc.sim.machine import prepare

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ALGORITHMS = ("ring_allreduce", "rhd_allreduce", "direct_alltoall", "binomial_broadcast")
SIZES = tuple(1 << bits for bits in (16, 18, 20, 22, 23, 24, 26))
RANKS = 8
F8 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Row:
    """One algorithm and size (bytes): µs measured and predicted."""

    algorithm: str
    size: int
    measured: float
    predicted: float


def plans() -> list[Plan]:
    """What is launched and simulated: examples, and hierarchical mesh on 2 nodes of 4."""
    made = [compile_file(EXAMPLES / f"{name}.rccl", Options()) for name in ALGORITHMS]
    for op in ("allreduce", "allgather"):
        text = hierarchical_mesh(op, 2, 4, channels=1)
        made.append(compile_text(Source(f"hm_{op}.rccl", text), Options()))
    return [stops.plan for stops in made]


def predict(p: Profile, plan: Plan, size: int, workers: int = 0) -> float:
    """µs of one launch on the profiled machine; workers: 0 for as many as the runtime chooses."""
    node = p.topology
    if workers:
        launch = node.launch * (1, 1, 1, 0)  # no launch is small
        node = replace(node, cores=np.full(node.n_nodes, workers), launch=launch)
    return simulate.simulate(prepare(plan, node), simulate.Request(size)).time


def measure(
    chosen: Sequence[Plan], sizes: Sequence[int], seconds: float, workers: int = 0
) -> list[list[float]]:
    """µs of one launch of each plan (row) at each size (column)."""
    with tempfile.TemporaryDirectory(prefix="hccc-") as place:
        pool = Pool(RANKS, 2 * max(sizes))
        rows = [_cases(plan, sizes, Path(place) / plan.name, workers, pool) for plan in chosen]
        # By size: what one launch leaves in a cache the next finds there, as the profile has it.
        calibrate.measure([case for column in zip(*rows, strict=True) for case in column], seconds)
    return [[case.time for case in row] for row in rows]


def _cases(plan: Plan, sizes: Sequence[int], place: Path, workers: int, pool: Pool) -> list[Case]:
    target = next(target for target in TARGETS if target.name == "cpu")
    directory.write(place, directory.files(plan, [target]))
    built = bench.communicator("cpu", place / f"{plan.name}{target.suffix}", plan)
    assert isinstance(built, CpuCommunicator)
    cases = []
    for size in sizes:
        count = perf.count_of(plan.collective, size, 4)
        request = Request(count, "float32", workers=workers)
        session = bench.bound(built, request, pool.memory(plan, count, False))
        cases.append(Case(plan.name, Work(size, 0, 0, 0, 0, 0, 0), session))
    return cases


def compare(seconds: float, workers: int = 0) -> tuple[Profile, list[Row]]:
    """Profiles the machine, measures, predicts."""
    found, chosen = profile("cpu", RANKS, seconds), plans()
    times = measure(chosen, SIZES, 2 * seconds, workers)
    return found, [
        Row(plan.name, size, time, predict(found, plan, size, workers))
        for plan, row in zip(chosen, times, strict=True)
        for size, time in zip(SIZES, row, strict=True)
    ]


def ranks(x: Sequence[float]) -> F8:
    """The rank of each value, equal ones sharing theirs."""
    values = np.asarray(x, np.float64)
    less, equal = values[:, None] > values, values[:, None] == values
    found: F8 = less.sum(1) + (equal.sum(1) - 1) / 2
    return found


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """The correlation of the ranks, -1 to 1."""
    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def kendall(x: Sequence[float], y: Sequence[float]) -> float:
    """Kendall's tau-b: pairs in the same order less pairs in the other, as a part of all."""
    a, b = (np.sign(np.subtract.outer(np.asarray(v), np.asarray(v))) for v in (x, y))
    return float((a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum()))


def correlations(rows: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """Spearman's and Kendall's, over everything and within each size."""
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
    """Prints the table and the correlations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=10, help="to profile; twice to measure")
    parser.add_argument("--workers", type=int, default=0, help="cores; 0: as the runtime does")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found, rows = compare(chosen.seconds, chosen.workers)
    told = correlations(rows)
    if chosen.json:
        facts = {"profile": asdict(found), "rows": [asdict(r) for r in rows], "correlation": told}
        print(json.dumps(facts, indent=2))
        return
    table = Table(title=f"{found.name}, {found.cores} cores, {os.cpu_count()} in all: µs a launch")
    for column in ("algorithm", "size", "measured", "predicted", "predicted / measured"):
        table.add_column(column, justify="left" if column == "algorithm" else "right")
    for r in sorted(rows, key=lambda r: (r.size, r.measured)):
        cells = f"{r.measured:,.1f}", f"{r.predicted:,.1f}", f"{r.predicted / r.measured:.2f}"
        table.add_row(r.algorithm, _size(r.size), *cells)
    console = Console(width=100)
    console.print(table)
    for name, (s, k) in told.items():
        console.print(f"{name:>8}: Spearman {s:.3f}, Kendall {k:.3f}")


if __name__ == "__main__":
    main()
