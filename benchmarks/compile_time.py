"""How long program → Plan takes, by phase, how it grows, and how much memory (ResCCL Fig. 10a).

    python -m benchmarks.compile_time [--ranks 64,256,1024] [--large] [--msccl-tools DIR]

Every row is a process of its own. Seconds are CPU seconds (user + system of all threads): they
are the same on a busy machine, and at least the wall time on an idle one. "load" is importing and
loading compiled passes, which one compilation of 16 ranks does first. A phase's growth is the
exponent x of time ~ transfers^x, fitted over the rows where it takes long enough to tell.
--large adds 2,048 and 4,096 ranks: minutes, and about 10 GiB. With a checkout of
microsoft/msccl-tools (lxml installed) its ring AllReduce is timed beside hccc's.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.programs import hierarchical_mesh, ring_allreduce
from hccc.base.progress import listening
from hccc.driver.options import Options

PHASES = ("Parsing", "Analysis", "Scheduling", "Lowering", "Proof")
TOTALS = ("total", "without Proof", "wall")
SHORTEST = 0.01  # seconds of a phase that can be compared
MSCCL_RING = """
import sys
sys.setrecursionlimit(100000)
from msccl.language import *
from msccl.topologies import fully_connected
from msccl.language.collectives import AllReduce
size = {ranks}
with MSCCLProgram("ring", fully_connected(size), AllReduce(size, size, True), 1):
    for step in range(0, size - 1):
        for index in range(0, size):
            rank = (index + step) % size
            c = chunk((rank + 1) % size, Buffer.input, index)
            c.reduce(chunk(rank, Buffer.input, index))
    for step in range(-1, size - 2):
        for index in range(0, size):
            rank = (index + step) % size
            chunk(rank, Buffer.input, index).copy((rank + 1) % size, Buffer.input, index)
    XML()
"""


def measure(text: str) -> dict[str, float]:
    """Compiles once in this process; returns CPU seconds and peak GiB by phase, and wall
    seconds."""
    from hccc.base.diagnostics import Source
    from hccc.driver.compilation import compile_text

    spent: dict[str, float] = {}
    peak: dict[str, float] = {}
    running, since = "", time.process_time()

    def enter(phase: str) -> None:
        nonlocal running, since
        now = time.process_time()
        spent[running] = spent.get(running, 0.0) + now - since
        peak[f"GiB after {running}"] = _peak()
        running, since = phase, now

    begin = time.process_time()
    with listening(enter):
        stops = compile_text(Source("benchmark.rccl", text), Options())
    enter("")
    return {
        **spent,
        **peak,
        "wall": sum(stops.seconds.values()),
        "cpu": time.process_time() - begin,
        "GiB": _peak(),
        "transfers": len(stops.program),
        "primitives": len(stops.plan),
    }


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def warm_measure(text: str) -> dict[str, float]:
    """Runs `measure` after loading all that it needs, whose seconds are "load"."""
    measure(hierarchical_mesh("allreduce", 2, 8))
    load = time.process_time()
    return {**measure(text), "load": load}


def in_process(text: str, how: str = "measure") -> dict[str, float]:
    """Runs `measure` in a fresh process."""
    run = [sys.executable, "-m", "benchmarks.compile_time", f"--{how}"]
    done = subprocess.run(run, input=text, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def msccl_ring(checkout: Path, ranks: int) -> float:
    """Returns the CPU seconds of msccl-tools' ring AllReduce in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", MSCCL_RING.format(ranks=ranks)],
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def growth(rows: list[dict[str, float]], key: str) -> str:
    """Returns the exponent of `key` over transfers, by least squares; "-" where rows are too
    few."""
    points = [(math.log(m["transfers"]), math.log(m[key])) for m in rows if m[key] >= SHORTEST]
    if len(points) < 2:
        return "-"
    slope, _ = statistics.linear_regression(*zip(*points, strict=True))
    return f"{slope:.2f}"


def hm_tables(ranks: list[int]) -> list[Table]:
    """Makes the tables of the HM AllReduce at each size (nodes of 8): time, and memory."""
    seconds = Table(
        title="HM AllReduce, program to Plan: CPU seconds (ResCCL: about 660 s at 1,024)"
    )
    memory = Table(title="HM AllReduce, program to Plan: peak GiB so far, after each phase")
    for name in ("ranks", "transfers", "primitives", "load", *PHASES, *TOTALS):
        seconds.add_column(name, justify="right")
    for name in ("ranks", *PHASES):
        memory.add_column(name, justify="right")
    rows = []
    for n in ranks:
        m = in_process(hierarchical_mesh("allreduce", n // 8, 8), "warm-measure")
        m["total"] = sum(m[p] for p in PHASES)
        rows.append(m)
        times = [m["load"], *(m[p] for p in PHASES), m["total"], m["total"] - m["Proof"], m["wall"]]
        counts = (f"{n:,}", f"{m['transfers']:,.0f}", f"{m['primitives']:,.0f}")
        seconds.add_row(*counts, *(f"{s:.2f}" for s in times))
        memory.add_row(f"{n:,}", *(f"{m[f'GiB after {p}']:.2f}" for p in PHASES))
    seconds.add_section()
    seconds.add_row("growth", "", "", "", *(growth(rows, k) for k in (*PHASES, "total")))
    return [seconds, memory]


def ring_table(ranks: list[int], checkout: Path | None) -> Table:
    """Makes the table of the ring AllReduce beside msccl-tools', which is a whole process."""
    table = Table(title="Ring AllReduce, program to Plan: CPU seconds")
    for name in ("ranks", "hccc (all)", "msccl-tools (process)", "ratio"):
        table.add_column(name, justify="right")
    for n in ranks:
        ours = in_process(ring_allreduce(n))["cpu"]
        theirs = msccl_ring(checkout, n) if checkout else None
        peer = (f"{theirs:.1f}", f"{theirs / ours:.0f}x") if theirs else ("not given", "")
        table.add_row(str(n), f"{ours:.2f}", *peer)
    return table


def main() -> None:
    """Measures and prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--ranks", default="64,256,1024")
    parser.add_argument("--large", action="store_true", help="2,048 and 4,096 ranks too")
    parser.add_argument("--rings", default="8,32,64,128")
    parser.add_argument("--msccl-tools", type=Path)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--warm-measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure or args.warm_measure:
        print(json.dumps((measure if args.measure else warm_measure)(sys.stdin.read())))
        return
    console = Console(width=140)
    in_process(hierarchical_mesh("allreduce", 32, 8))  # compiles what is not in numba's cache
    sizes = [int(x) for x in args.ranks.split(",")] + [2048, 4096] * args.large
    for table in hm_tables(sizes):
        console.print(table)
    if args.rings:
        rings = [int(x) for x in args.rings.split(",")]
        console.print(ring_table(rings, args.msccl_tools))


if __name__ == "__main__":
    main()
