"""What the default micro-batch costs over the best one of every call, in the simulator.

    python -m benchmarks.micro_batches [--most 300000]

Hierarchical meshes, rings and the examples on clusters of `examples/clusters/`, calls of 1 KiB to
2 GiB. The best is of 4 KiB, 8 KiB … 4 MiB; those of more instances (primitives × micro-batches)
than --most are left out. Times over the best: geometric mean, 90th percentile, worst.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.programs import EXAMPLES, hierarchical_mesh
from hccc.base.diagnostics import Source
from hccc.driver import compilation as driver
from hccc.driver.compiled import Compiled
from hccc.driver.options import Options
from hccc.ir.collective import OpType
from hccc.ir.topology import Topology
from hccc.lang.cluster import load as cluster
from hccc.lang.transfer import load as transfer
from hccc.sim.machine import Machine, prepare
from hccc.sim.simulate import Request, simulate
from hccc.synth.builtin.ring import ring

MESHES = (
    ("resccl-topo1", 2, 4),
    ("resccl-topo2", 2, 8),
    ("resccl-topo3", 4, 4),
    ("resccl-topo4", 4, 8),
    ("resccl-v100-topo4", 4, 8),
    ("syccl-a100-16", 2, 8),
)
RINGS = ("resccl-topo2", "heteccl-h20-4x2+8", "dgx-h100", "mi300x", "hetccl-snu")
ALONE = (
    ("rhd_allreduce", "mi300x"),
    ("ring_allreduce", "dgx-h100"),
    ("direct_alltoall", "dgx-h100"),
    ("binomial_broadcast", "dgx-h100"),
)
SIZES = tuple(1 << k for k in range(10, 33, 3))
TRIED = tuple(1 << k for k in range(12, 23))
FIXED = (64 << 10, 256 << 10, 1 << 20)
Make = Callable[[Options, Topology], Compiled]


def cases() -> Iterator[tuple[str, Make]]:
    """Yields (cluster, a function that compiles an algorithm for it)."""
    for name, nodes, per_node in MESHES:
        for op in ("allreduce", "allgather"):
            source = Source(f"hm_{op}.rccl", hierarchical_mesh(op, nodes, per_node))
            yield name, partial(driver.compile_text, source)
    for name in RINGS:
        yield name, _ring
    for example, name in ALONE:
        file = EXAMPLES / f"{example}.rccl"
        yield name, partial(driver.compile_text, transfer.read(file))


def _ring(options: Options, topology: Topology) -> Compiled:
    program = ring(topology, OpType.ALLREDUCE, 0)
    return driver.compile_program(program, options, topology)


def machine(name: str, make: Make) -> Machine:
    """Compiles an algorithm for a cluster and prepares it for the simulator."""
    file = EXAMPLES / "clusters" / f"{name}.cluster"
    topology = cluster.load(file)
    return prepare(make(Options(prove=False), topology).plan, topology)


def over_best(m: Machine, size: int, most: int) -> dict[str, float]:
    """Returns times over the best, by what the micro-batch is."""

    def time(micro_batch: int) -> tuple[float, int]:
        run = simulate(m, Request(size, micro_batch))
        return run.time, len(run.end)

    found: dict[int, float] = {}
    for micro in reversed(TRIED):
        found[micro], instances = time(micro)
        if 2 * instances > most:
            break
    default = time(0)[0]
    best = min(default, *found.values())
    fixed = {f"{micro >> 10} KiB": found[micro] / best for micro in FIXED if micro in found}
    return {"default": default / best, **fixed}


def main() -> None:
    """Prints a line for the default and for each fixed micro-batch."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--most", type=int, default=300_000, help="instances of a call")
    most = parser.parse_args().most
    console, ratios = Console(), defaultdict(list)
    every = list(cases())
    for name, make in track(every, "Simulating", console=Console(stderr=True)):
        made = machine(name, make)
        for size in SIZES:
            for what, ratio in over_best(made, size, most).items():
                ratios[what].append(ratio)
    table = Table("micro-batch", "calls", "mean", "90 %", "worst")
    for what, found in ratios.items():
        mean, high = np.exp(np.mean(np.log(found))), np.quantile(found, 0.9)
        table.add_row(what, str(len(found)), *(f"{x:.2f}×" for x in (mean, high, max(found))))
    console.print(f"{len(every)} algorithms on clusters, {len(SIZES)} sizes")
    console.print(table)


if __name__ == "__main__":
    main()
