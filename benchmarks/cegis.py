"""What CEGIS takes on HeteCCL's clusters: as published, and as a fast repair of greedy schedules.

    python -m benchmarks.cegis [--chunks 1,2] [--clusters 4+8,16,64] [--ways 'faithful z3']
                               [--seconds 60]

AllGather on the H20 clusters, in steps of a chunk over a NIC; 16, 32, 48 and 64 are mixes of so
many GPUs in nodes of 4 and of 8 (`speed.MIXES`: the paper does not say which it took).
"bound" is `least_steps`: no schedule takes fewer. Every search is a process of its own; seconds are
on the clock, and of the processor, from the cluster in chunks a step to the schedule, after imports
and compiled loops. "filled" is the schedule that a search falls back on; "calls" are of the solver.
Published: what HeteCCL / TE-CCL take for as many GPUs (HeteCCL Table 1; the host is not stated,
steps are not reported).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.speed import MIXES, mix

CLUSTERS = Path(__file__).parent.parent / "examples" / "clusters"
NAMES = ("4+8", "4x3", "4x2+8", "4x3+8", "8x2+4", "4x2+8x2")
WAYS = (("filled", ""), ("faithful", "z3"), ("fast", "z3"), ("fast", "highs"))
PUBLISHED = {16: "0.9 / 2.2", 32: "6.9 / 24.7", 48: "5.5 / 497", 64: "105.3 / 33990"}
# A process forked from a large one counts its memory as its own; this one is small.
LAUNCHER = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"


def measure(name: str, chunks: int, way: str, solver: str, seconds: float) -> dict[str, object]:
    """Runs one search in this process, and returns its figures."""
    from hccc.base.diagnostics import Source
    from hccc.lang.cluster import load
    from hccc.synth.cegis.fill import fill
    from hccc.synth.cegis.synthesize import EMPTY, synthesize
    from hccc.synth.greedy.chunked import chunked
    from hccc.synth.greedy.least_steps import least_steps
    from hccc.synth.greedy.schedule import gather_all, violations

    if name.isdecimal():
        t = load.parse(Source(name, mix(*MIXES[int(name)])))
    else:
        t = load.load(CLUSTERS / f"heteccl-h20-{name}.cluster")
    c = chunked(t)
    demand = gather_all(np.repeat(np.arange(c.n), chunks), c.n)
    bound = least_steps(c, demand)
    fill(c, demand, EMPTY, 1)  # loops are compiled
    begin, used = time.perf_counter(), time.process_time()
    if way == "filled":
        found, calls, ended = fill(c, demand, EMPTY), 0, ""
    else:
        outcome = synthesize(
            c,
            demand,
            mode="faithful" if way == "faithful" else "fast",
            solver="z3" if solver == "z3" else "highs",
            time_limit=seconds,
        )
        found = outcome.schedule
        calls = sum(one.variables > 0 for one in outcome.trace)
        ended = outcome.trace[-1].verdict.value if outcome.gap else ""
    took, used = time.perf_counter() - begin, time.process_time() - used
    return {
        "ranks": c.n,
        "bound": bound,
        "steps": found.steps,
        "seconds": took,
        "processor": used,
        "valid": not violations(found, c, demand),
        "calls": calls,
        "ended": ended,
        "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
    }


def apart(*given: object) -> dict[str, object]:
    """Runs `measure` in a process of its own."""
    words = [sys.executable, "-m", "benchmarks.cegis", "--one", json.dumps(given)]
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, *words], stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--chunks", default="1,2")
    parser.add_argument("--clusters", default=",".join(NAMES))
    parser.add_argument("--ways", default=",".join(f"{way} {by}".strip() for way, by in WAYS))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(*json.loads(given.one))))
        return
    ways = given.ways.split(",")
    asked = [(*way.split(), "")[:2] for way in ways]
    table = Table("cluster", "GPUs", "chunks", "bound", *ways, "published s")
    for chunks in map(int, given.chunks.split(",")):
        for name in given.clusters.split(","):
            rows = [apart(name, chunks, *way, given.seconds) for way in asked]
            ranks = int(str(rows[0]["ranks"]))
            published = PUBLISHED.get(ranks, "") if chunks == 1 else ""
            cells = [_cell(row) for row in rows]
            table.add_row(name, f"{ranks}", f"{chunks}", f"{rows[0]['bound']}", *cells, published)
    console = Console()
    Console(width=console.width if console.is_terminal else 140).print(table)


def _cell(row: dict[str, object]) -> str:
    steps = f"{row['steps']} steps" if row["valid"] else "not valid"
    calls = f" ({row['calls']} calls)" if row["calls"] else ""
    ended = f", {row['ended']}" if row["ended"] else ""
    took = f"{row['seconds']:.2f} s ({row['processor']:.2f})"
    return f"{steps}, {took}{calls}{ended}, {row['MiB']:.0f} MiB"


if __name__ == "__main__":
    main()
