"""Transports beside one another: hierarchical mesh on Topo1-4, simulated, in GB/s of busbw.

    python -m benchmarks.transports [--sizes 1,16,64,256,1024] [--clusters 1,2,3,4]

*mixed* is hccc's default on these clusters: memory within a server, proxies between two; *slots*
and *put* force how those are reached. *staged* has queues everywhere, unfused as ResCCL and MSCCL
run them; *direct* addresses memory of other servers, which no NIC offers: a limit to compare with.
NCCL's rings and trees and MSCCL are those of `hccc sim --baselines`. Each runs in the micro-batches
that it would choose; the best that can exist of each row is marked *.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence

from benchmarks.programs import EXAMPLES, hierarchical_mesh
from hccc.base.diagnostics import Source, UserError
from hccc.driver.compilation import compile_text
from hccc.driver.compiled import CompiledProgram
from hccc.driver.options import Options
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from hccc.ir.topology import Topology
from hccc.lang.cluster.load import load
from hccc.predict.baselines import alternatives
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, simulate

OPERATIONS = ("allreduce", "allgather")
MODES = {
    "mixed": Options(),
    "slots": Options(network_lowering="slots"),
    "put": Options(network_lowering="put"),
    "staged": Options(transport=Transport.STAGED, fuse="none"),
    "direct": Options(transport=Transport.DIRECT),
}
IMAGINED = "direct"
OTHERS = ("NCCL ring", "NCCL tree", "MSCCL")
Adapt = Callable[[Request], Request]


def compiled(op: str, t: Topology, options: Options) -> CompiledProgram:
    """Compiles hierarchical mesh for a cluster."""
    text = hierarchical_mesh(op, t.n_nodes, len(t) // t.n_nodes)
    return compile_text(Source(f"hm_{op}.rccl", text), options, t)


def plans(op: str, t: Topology) -> Iterator[tuple[str, Plan, Adapt]]:
    """Yields every transport's name and plan, and how it changes a call."""
    default = compiled(op, t, MODES["mixed"])
    yield "mixed", default.plan, lambda request: request
    for name, options in list(MODES.items())[1:]:
        yield name, compiled(op, t, options).plan, lambda request: request
    for other in alternatives(default, t, Options()):
        if other.name in OTHERS:
            yield other.name, other.plan(), other.adapt


def busbw(plan: Plan, t: Topology, adapt: Adapt, sizes: Sequence[int]) -> list[float]:
    """Returns the GB/s of a call of each size, out of place."""
    machine = prepare(plan, t)
    found = []
    for size in sizes:
        try:
            found.append(simulate(machine, adapt(Request(size))).busbw)
        except UserError as error:
            sys.stderr.write(f"{plan.name}, {size:,} bytes: {error.problem.message}\n")
            found.append(0.0)
    return found


def rows(op: str, t: Topology, sizes: Sequence[int]) -> Iterator[str]:
    """Yields the lines of a Markdown table: a row for each size, a column for each transport."""
    columns = {name: busbw(plan, t, adapt, sizes) for name, plan, adapt in plans(op, t)}
    yield f"| MiB | {' | '.join(columns)} |"
    yield f"|----:|{'|'.join('---:' for _ in columns)}|"
    for k, size in enumerate(sizes):
        best = max(values[k] for name, values in columns.items() if name != IMAGINED)
        cells = [
            f"{values[k]:.1f}{'*' if values[k] == best and name != IMAGINED else ''}"
            for name, values in columns.items()
        ]
        yield f"| {size >> 20:,} | {' | '.join(cells)} |"


def main() -> None:
    """Simulates and prints a table for each cluster and collective."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", default="1,16,64,256,1024", help="MiB")
    parser.add_argument("--clusters", default="1,2,3,4")
    args = parser.parse_args()
    sizes = [int(size) << 20 for size in args.sizes.split(",")]
    for number in args.clusters.split(","):
        t = load(EXAMPLES / "clusters" / f"resccl-topo{number}.cluster")
        for op in OPERATIONS:
            print(f"### Topo{number}, HM {op}: busbw, GB/s\n")
            print("\n".join(rows(op, t, sizes)), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
