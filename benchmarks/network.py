"""What mixed transport saves: 8 ranks as two nodes of four, on the CPU, with a slow network.

    python -m benchmarks.network [--bytes 64M] [--share 0.1] [--iters 5]

A hierarchical mesh AllReduce. The two nodes have one NIC each, with `share` of the bandwidth that
a copy in this machine's memory has, measured first, and 20 µs of latency. Printed: what each
transport took, the best of the launches, and which part of it the network needs by itself (bytes
that leave a node / bandwidth).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.programs import hierarchical_mesh
from hccc.base.diagnostics import Source
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.emit import directory
from hccc.emit.targets import TARGETS
from hccc.ir import plan_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from hccc.ir.primitives import crossing
from hccc.ir.transport import Transport
from hccc.launch.measure import between
from hccc.runtime.cpu import CpuLauncher
from hccc.runtime.layout import shape_of
from hccc.runtime.measure.patterns import Pattern
from hccc.runtime.measure.perf import allocate
from hccc.runtime.measure.session import HostSession
from hccc.runtime.network import Wire
from hccc.runtime.request import LaunchRequest

NODES, PER_NODE, LATENCY = 2, 4, 20.0
WAYS = (
    ("all staged", Options(transport=Transport.STAGED)),
    ("mixed, slots", Options(network_lowering="slots")),
    ("mixed, puts", Options(network_lowering="put")),
)


def copied() -> float:
    """Measures one thread that copies what no cache holds: GB/s."""
    source, target = np.ones(1 << 27, np.uint8), np.zeros(1 << 27, np.uint8)
    best = 0.0
    for _ in range(5):
        begin = time.perf_counter()
        np.copyto(target, source)
        best = max(best, len(source) / (time.perf_counter() - begin) / 1e9)
    return best


def leaving(plan: Plan, size: int) -> float:
    """Returns the bytes that leave the node that most leave, when a call is of `size` bytes."""
    _, src, dst = crossing(plan.src, plan.dst, plan.queues, plan.rank_of())
    away = plan.memory_domain[src] != plan.memory_domain[dst]
    chunks = np.bincount(plan.memory_domain[src[away]])
    return float(chunks.max()) * size / plan.collective.n_chunks


def best(plan: Plan, wire: Wire, size: int, iters: int) -> float:
    """Returns the seconds of the fastest of `iters` launches, out of place."""
    with tempfile.TemporaryDirectory() as place:
        cpu = [t for t in TARGETS if t.name == "cpu"]
        directory.write(
            Path(place) / "k", directory.files(Catalogue.of(plan), cpu, plan_json.dumps(plan))
        )
        source = Path(place) / "k" / f"{plan.name}_cpu.cpp"
        host = CpuLauncher(
            source, plan.name, shape_of(plan), plan.collective, network=between(plan, wire)
        )
        request = LaunchRequest(size // 4, "float32", "sum", window=plan.largest_window)
        pattern = Pattern(plan.collective, "float32", "sum", request.count)
        memory = [allocate(pattern, rank, False) for rank in range(plan.n_ranks)]
        for one in memory:
            one.slab[...] = 1
        session = HostSession(host, request, memory)
        session.run(1)
        return min(session.run(1) for _ in range(iters))


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--iters", type=int, default=5)
    given = parser.parse_args()
    wire = Wire(given.share * copied(), LATENCY)
    text = hierarchical_mesh("allreduce", NODES, PER_NODE)
    text = text.replace(f"NICPerNode={PER_NODE}", "NICPerNode=1")
    table = Table("transport", "ms", "of what the network allows")
    for name, options in WAYS:
        plan = driver.compile_text(Source("hm.rccl", text), options).plan
        floor = leaving(plan, given.bytes) / (wire.bandwidth * 1e9)
        took = best(plan, wire, given.bytes, given.iters)
        table.add_row(name, f"{took * 1e3:.1f}", f"{floor / took:.0%} of {floor * 1e3:.1f} ms")
    Console().print(f"{given.bytes:,} bytes, network {wire.bandwidth:.2f} GB/s a node", table)


if __name__ == "__main__":
    main()
