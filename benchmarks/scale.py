"""What large programs take from their text to compiled kernels, by phase, and how it grows.

    python -m benchmarks.scale [--ranks 64,128,256,512,1024] [--programs hm,alltoall] [--no-build]
    python -m benchmarks.scale --clusters rails,tree --ranks 1024,16384,100000

The second goes from a cluster file to a bound of every collective, an Allreduce (`hccc builtin
levels`), its proved plan, its simulated time, and its kernels (docs/scale.md).

Every row is a process of its own. Seconds are CPU seconds (user + system of all threads), "wall"
is from the text to the emitted kernels on the clock. Emission is of all three targets; "plan.json"
is printing it. nvcc (`-O3 -arch=sm_90`, to a cubin) and g++ (`-O3`, to a library) build one type
and operation, where they are there. A phase's growth is the exponent x of time ~ ranks^x, fitted
over the rows where it takes long enough to tell.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.programs import direct_alltoall, hierarchical_mesh
from hccc.base.progress import listening
from hccc.driver.options import Options
from hccc.ir.catalogue import Catalogue

PROGRAMS: dict[str, Callable[[int], str]] = {
    "hm": lambda ranks: hierarchical_mesh("allreduce", ranks // 8, 8),
    "alltoall": direct_alltoall,
}
PHASES = (
    "Parsing",
    "Analysis",
    "Scheduling",
    "Lowering",
    "Proof",
    "plan.json",
    "Emission",
    "nvcc",
    "g++",
)
SHORTEST = 0.05  # seconds of a phase that can be compared
COMPILERS = {
    "nvcc": ("nvcc", ".cu", ["-O3", "-arch=sm_90", "-cubin"]),
    "g++": ("g++", "_cpu.cpp", ["-O3", "-shared", "-fPIC", "-pthread"]),
}
# A process forked from a large one counts its memory as its own; this one is small.
LAUNCHER = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print([used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20])
"""
Figures = dict[str, float]
LEAF, SPINE = 16, 16  # nodes of a leaf, leaves of a spine
SIZES = (1 << 20, 64 << 20)  # bytes of simulated calls
MICRO_BATCH = 1 << 17
STAGES = (
    "Bound",
    "Algorithm",
    "Analysis",
    "Scheduling",
    "Lowering",
    "Proof",
    "Simulation",
    "Emission",
)


def cluster_text(kind: str, ranks: int) -> str:
    """Returns a cluster of nodes of 8 H100 with 8 NICs: `rails`, or a `tree` of leaves, spines and
    a core, in which nothing is oversubscribed."""
    nodes = ranks // 8
    lines = ["define device = H100", "define network = InfiniBand", f"define node1 = {nodes} * 8"]
    if kind == "rails":
        rails = ", ".join(f"({nic})" for nic in range(8))
        return "\n".join([*lines, f"define rail = [{rails}]"])
    leaves = -(-nodes // LEAF)
    lines.append(_tier("leaf", "node", nodes, LEAF, LEAF * 8))
    lines.append(_tier("spine", "leaf", leaves, SPINE, LEAF * SPINE * 8))
    return "\n".join(lines)


def _tier(name: str, below: str, count: int, each: int, links: int) -> str:
    entries = (
        f"(({below}{first + 1}..{below}{min(first + each, count)}) -> (50, {links}))"
        for first in range(0, count, each)
    )
    return f"define {name} = [{', '.join(entries)}]"


def measure_cluster(kind: str, ranks: int) -> Figures:
    """Goes from a cluster's text to kernels in this process; returns CPU seconds by stage, GiB, MB
    and simulated µs."""
    from hccc.api import functions as api
    from hccc.base.diagnostics import Source
    from hccc.driver.compilation import compile_program
    from hccc.driver.options import Options
    from hccc.emit import directory
    from hccc.ir.collective import OpType
    from hccc.lang.cluster import load as cluster
    from hccc.lang.transfer import printer
    from hccc.predict.bounds import bounds
    from hccc.predict.simulation import Call
    from hccc.synth.builtin import registry

    clock = _Clock()
    spent, enter = clock.spent, clock.enter
    begin = time.perf_counter()
    enter("Bound")
    t = cluster.parse(Source("benchmark.cluster", cluster_text(kind, ranks)))
    found = {one.collective.op: one.bound for one in bounds(t, kind, SIZES[-1]).found}
    enter("Algorithm")
    program = registry.make("levels", t, OpType.ALLREDUCE)
    with listening(lambda phase: enter(phase) if phase in PHASES else None):
        made = compile_program(program, Options(tune="off"), t)
    enter("Simulation")
    run = api.simulate(made, list(SIZES), Call(micro_batch=MICRO_BATCH), cluster=t)
    enter("Emission")
    files = directory.files(Catalogue.of(made.plan))
    enter("")
    spent |= {"wall": time.perf_counter() - begin}
    spent["GiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    spent["lines"] = printer.text(program).count("\n")
    spent["source MB"] = len(files[f"{made.plan.name}.cu"]) / 1e6
    for size, row in zip(SIZES, run.rows, strict=True):
        spent[f"{size >> 20} MiB"] = row[0].time
    return spent | {"least": found[OpType.ALLREDUCE].time, "transfers": len(program)}


class _Clock:
    """Adds up the CPU seconds of phases."""

    def __init__(self) -> None:
        self.spent: Figures = {}
        self._running, self._since = "", time.process_time()

    def enter(self, phase: str) -> None:
        """Begins a phase, and ends the one before."""
        now = time.process_time()
        self.spent[self._running] = self.spent.get(self._running, 0.0) + now - self._since
        self._running, self._since = phase, now


def measure(text: str, build: bool) -> Figures:
    """Compiles once in this process; returns CPU seconds by phase, MB and GiB."""
    from hccc.base.diagnostics import Source
    from hccc.driver.compilation import compile_text
    from hccc.emit import directory
    from hccc.ir import plan_json

    clock = _Clock()
    spent, enter = clock.spent, clock.enter
    begin = time.perf_counter()
    with listening(enter):
        made = compile_text(Source("benchmark.rccl", text), Options())
    enter("plan.json")
    printed = plan_json.dumps(made.plan)
    enter("Emission")
    files = directory.files(Catalogue.of(made.plan), plan_json=printed)
    enter("")
    wall = time.perf_counter() - begin
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    spent |= {"wall": wall, "GiB": gib, "primitives": len(made.plan)}
    spent["source MB"] = len(files[f"{made.plan.name}.cu"]) / 1e6
    if build:
        with tempfile.TemporaryDirectory() as place:
            directory.write(Path(place) / "kernels", files)
            for name in COMPILERS:
                spent |= built(Path(place) / "kernels", made.plan.name, name)
    return spent


def built(place: Path, program: str, name: str) -> Figures:
    """Returns the CPU seconds and peak GiB of one compiler on the kernels in `place`."""
    compiler, suffix, flags = COMPILERS[name]
    if not shutil.which(compiler):
        return {}
    source = place / f"{program}{suffix}"
    command = [compiler, "-std=c++17", *flags, str(source), "-o", str(place / "built")]
    launch = [sys.executable, "-c", LAUNCHER, *command]
    done = subprocess.run(launch, stdout=subprocess.PIPE, text=True, check=True)
    seconds, gib = json.loads(done.stdout)
    return {name: seconds, f"{name} GiB": gib}


def in_process(program: str, ranks: int, build: bool, option: str = "--measure") -> Figures:
    """Measures in a fresh process, after what is loaded once."""
    run = [sys.executable, "-m", "benchmarks.scale", option, program, "--ranks", str(ranks)]
    done = subprocess.run(
        [*run, *([] if build else ["--no-build"])], stdout=subprocess.PIPE, text=True, check=True
    )
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found


def growth(ranks: list[int], rows: list[Figures], key: str) -> str:
    """Returns the exponent of `key` over ranks, by least squares; "-" where rows are too few."""
    points = [
        (math.log(n), math.log(row[key]))
        for n, row in zip(ranks, rows, strict=True)
        if row.get(key, 0.0) >= SHORTEST
    ]
    if len(points) < 2:
        return "-"
    slope, _ = statistics.linear_regression(*zip(*points, strict=True))
    return f"{slope:.1f}"


def table(program: str, ranks: list[int], build: bool) -> Table:
    """Makes the table of one program: a line for each number of ranks."""
    sizes = ("GiB", "source MB", "nvcc GiB", "g++ GiB")
    shown = Table(title=f"{program}: CPU seconds, GiB, MB of CUDA source")
    for name in ("ranks", "primitives", *PHASES, "wall", *sizes):
        shown.add_column(name, justify="right")
    rows = []
    for n in ranks:
        row = in_process(program, n, build)
        rows.append(row)
        figures = (f"{row[k]:.2f}" if k in row else "" for k in (*PHASES, "wall", *sizes))
        shown.add_row(f"{n:,}", f"{row['primitives']:,.0f}", *figures)
    shown.add_section()
    grown = (growth(ranks, rows, k) for k in ("primitives", *PHASES, "wall", *sizes))
    shown.add_row("growth", *grown)
    return shown


def cluster_table(kind: str, ranks: list[int]) -> Table:
    """Makes the table of one kind of cluster: a line for each number of ranks."""
    times = ("least", *(f"{size >> 20} MiB" for size in SIZES))
    names = ("transfers", "lines", *STAGES, "wall", "GiB", "source MB", *times)
    shown = Table(title=f"{kind}: CPU seconds, GiB, MB of CUDA source, µs")
    for name in ("ranks", *names):
        shown.add_column(name, justify="right")
    for n in ranks:
        row = in_process(kind, n, build=False, option="--measure-cluster")
        cells = (
            f"{row[k]:,.0f}" if k in ("transfers", "lines") else f"{row[k]:,.2f}" for k in names
        )
        shown.add_row(f"{n:,}", *cells)
    return shown


def main() -> None:
    """Measures and prints a table for each program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--ranks", default="64,128,256,512,1024")
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--no-build", dest="build", action="store_false")
    parser.add_argument("--clusters", help="rails, tree, or both")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--measure-cluster", help=argparse.SUPPRESS)
    args = parser.parse_args()
    ranks = [int(x) for x in args.ranks.split(",")]
    if args.measure_cluster:
        measure_cluster(args.measure_cluster, 64)
        print(json.dumps(measure_cluster(args.measure_cluster, ranks[0])))
        return
    if args.measure:
        make = PROGRAMS[args.measure]
        measure(make(16), build=False)
        print(json.dumps(measure(make(ranks[0]), args.build)))
        return
    console = Console(width=200)
    if args.clusters:
        in_process("rails", 16384, build=False, option="--measure-cluster")  # compiles loops, too
        for kind in args.clusters.split(","):
            console.print(cluster_table(kind, ranks))
        return
    for program in args.programs.split(","):
        in_process(program, ranks[0], build=False)  # compiles what is not in numba's cache
        console.print(table(program, ranks, args.build))


if __name__ == "__main__":
    main()
