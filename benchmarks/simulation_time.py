"""How long simulating takes, and compiling for a cluster first, as the cluster grows.

    python -m benchmarks.simulation_time [--ranks 64,256,1024] [--size 1073741824] [--micro-batch 0]

HM AllReduce on nodes of `examples/clusters/resccl-topo2.cluster` (8 A100s, two GPUs a NIC), one
call of 1 GiB. Every row is a process of its own; CPU seconds (user + system of all threads),
without loading hccc's compiled loops, which one call on 16 ranks does first. An instance is a
primitive and a micro-batch of one channel.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from itertools import pairwise

from rich.console import Console
from rich.table import Table

from benchmarks.programs import EXAMPLES, hierarchical_mesh

COLUMNS = ("ranks", "primitives", "instances", "compile", "prepare", "simulate", "GiB", "algbw")
SITE = EXAMPLES / "clusters" / "resccl-topo2.cluster"


def measure(ranks: int, size: int, micro_batch: int) -> dict[str, float]:
    """Compiles once and simulates one call in this process; returns the COLUMNS."""
    from hccc.base.diagnostics import Source
    from hccc.driver.compilation import compile_text
    from hccc.driver.options import Options
    from hccc.lang.cluster.load import parse
    from hccc.sim.machine import prepare
    from hccc.sim.simulate import Request, simulate

    nodes = ranks // 8
    site = SITE.read_text().replace("nodenum = 2", f"nodenum = {nodes}")
    clock = [time.process_time()]
    source = Source("benchmark.rccl", hierarchical_mesh("allreduce", nodes, 8))
    text = site.replace("node1 = 2 * 8", f"node1 = {nodes} * 8")
    topology = parse(Source("benchmark.cluster", text))
    stops = compile_text(source, Options(), topology)
    clock.append(time.process_time())
    machine = prepare(stops.plan, topology)
    clock.append(time.process_time())
    run = simulate(machine, Request(size, micro_batch))
    clock.append(time.process_time())
    spent = [after - before for before, after in pairwise(clock)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    figures = (ranks, len(stops.plan), len(run.end), *spent, peak, run.algbw)
    return dict(zip(COLUMNS, figures, strict=True))


def in_process(ranks: int, size: int, micro_batch: int) -> dict[str, float]:
    """Runs `measure` in a fresh process that has loaded all it needs."""
    run = [sys.executable, "-m", "benchmarks.simulation_time", "--measure", str(ranks)]
    run += ["--size", str(size), "--micro-batch", str(micro_batch)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--ranks", default="64,256,1024")
    parser.add_argument("--size", type=int, default=1 << 30)
    parser.add_argument("--micro-batch", type=int, default=0, help="bytes; 0: the default")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(16, args.size, args.micro_batch)
        print(json.dumps(measure(args.measure, args.size, args.micro_batch)))
        return
    table = Table(title=f"HM AllReduce, {args.size:,} bytes simulated: CPU seconds")
    for name in COLUMNS:
        table.add_column(name, justify="right")
    for ranks in (int(x) for x in args.ranks.split(",")):
        m = in_process(ranks, args.size, args.micro_batch)
        counts = (f"{m[name]:,.0f}" for name in COLUMNS[:3])
        table.add_row(*counts, *(f"{m[name]:.2f}" for name in COLUMNS[3:]))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
