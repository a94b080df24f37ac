"""How long program → Plan takes, by phase, and how much memory (ResCCL Fig. 10a).

    python benchmarks/compile_time.py [--ranks 32,256,1024] [--msccl-tools DIR]

Every row is a process of its own, run once to warm numba's cache and then measured. With a
checkout of microsoft/msccl-tools (lxml installed) its ring AllReduce is timed beside hccc's.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from programs import hierarchical_mesh, ring_allreduce
from rich.console import Console
from rich.table import Table

PHASES = ("Parsing", "Analysis", "Scheduling", "Lowering", "Proof")
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
    """One compilation in this process: seconds by phase, cpu seconds, peak GiB."""
    from hccc.diagnostics import Source
    from hccc.driver import Options, compile_text

    begin = time.process_time()
    stops = compile_text(Source("benchmark.rccl", text), Options())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        **stops.seconds,
        "cpu": time.process_time() - begin,
        "GiB": peak,
        "transfers": len(stops.program),
        "primitives": len(stops.plan),
    }


def in_process(text: str) -> dict[str, float]:
    """`measure` in a fresh process."""
    run = [sys.executable, __file__, "--measure"]
    done = subprocess.run(run, input=text, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def msccl_ring(checkout: Path, ranks: int) -> float:
    """CPU seconds of msccl-tools' ring AllReduce in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", MSCCL_RING.format(ranks=ranks)],
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def hm_table(ranks: list[int]) -> Table:
    """The HM AllReduce at each size (nodes of 8)."""
    table = Table(title="HM AllReduce, program to Plan: seconds (ResCCL: about 660 s at 1,024)")
    columns = ("ranks", "transfers", "primitives", *PHASES, "total", "without Proof", "peak GiB")
    for name in columns:
        table.add_column(name, justify="right")
    for n in ranks:
        m = in_process(hierarchical_mesh("allreduce", n // 8, 8))
        spent = [m[p] for p in PHASES]
        table.add_row(
            str(n), f"{m['transfers']:,.0f}", f"{m['primitives']:,.0f}",
            *(f"{s:.2f}" for s in spent), f"{sum(spent):.2f}", f"{sum(spent[:-1]):.2f}",
            f"{m['GiB']:.2f}",
        )  # fmt: skip
    return table


def ring_table(ranks: list[int], checkout: Path | None) -> Table:
    """The ring AllReduce beside msccl-tools'. msccl-tools is a whole process."""
    table = Table(title="Ring AllReduce, program to Plan: CPU seconds")
    for name in ("ranks", "hccc (road)", "msccl-tools (process)", "ratio"):
        table.add_column(name, justify="right")
    for n in ranks:
        ours = in_process(ring_allreduce(n))["cpu"]
        theirs = msccl_ring(checkout, n) if checkout else None
        peer = (f"{theirs:.1f}", f"{theirs / ours:.0f}x") if theirs else ("not given", "")
        table.add_row(str(n), f"{ours:.2f}", *peer)
    return table


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", default="32,256,1024")
    parser.add_argument("--rings", default="8,32,64,128")
    parser.add_argument("--msccl-tools", type=Path)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(sys.stdin.read())))
        return
    console = Console(width=140)
    in_process(hierarchical_mesh("allreduce", 2, 8))
    console.print(hm_table([int(x) for x in args.ranks.split(",")]))
    console.print(ring_table([int(x) for x in args.rings.split(",")], args.msccl_tools))


if __name__ == "__main__":
    main()
