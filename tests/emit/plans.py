"""Plans to emit: Programs built from formulas with NumPy, compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.emit import directory
from hccc.emit.targets import TARGETS
from hccc.ir import plan_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.choices import Bits, PlanProtocol
from hccc.ir.collective import Collective, OpType
from hccc.ir.pipeline import Pipeline
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from hccc.ir.program import TRANSFER, Program
from hccc.passes.allocate import allocate
from hccc.passes.depend import depend
from hccc.passes.fuse import fuse
from hccc.passes.hpds import hpds
from hccc.passes.lower import lower
from hccc.passes.multicast import multicast
from hccc.passes.place import place
from hccc.passes.sync import sync
from hccc.passes.verify import verify
from hccc.testing.clusters import cluster

Golden = Callable[[str, str], None]


def program(
    name: str,
    op: OpType,
    n: int,
    rows: Sequence[tuple[int, ...]] | NDArray[Any],
    *,
    chunks: int | None = None,
    gpus: int | None = None,
    channels: int = 1,
    root: int = 0,
) -> Program:
    """Makes a Program of (src, dst, step, chunk, line, op) rows."""
    table = np.array(rows, np.int32).reshape(-1, 6)
    table = table[np.argsort(table[:, 2], kind="stable")]
    transfers = np.zeros(len(table), TRANSFER)
    for k, field in enumerate(("src", "dst", "step", "chunk", "line", "op")):
        transfers[field] = table[:, k]
    collective = Collective(op, n, n if chunks is None else chunks, root)
    return Program(name, collective, channels, 16, gpus or n, 1, transfers)


def ring_allgather(n: int, **options: int) -> Program:
    """Makes a ring AllGather of n - 1 steps; every rank passes on its last chunk received."""
    rows = [(r, (r + 1) % n, s, (r - s) % n, 3, 0) for s in range(n - 1) for r in range(n)]
    return program("ring_allgather", OpType.ALLGATHER, n, rows, **options)


def ring_allreduce(n: int, **options: int) -> Program:
    """Makes a ring reduce-scatter, then a ring allgather: 2 (n - 1) steps."""
    rows = [(r, (r + 1) % n, s, (r - s) % n, 3, 1) for s in range(n - 1) for r in range(n)]
    rows += [
        (r, (r + 1) % n, n - 1 + s, (r + 1 - s) % n, 6, 0) for s in range(n - 1) for r in range(n)
    ]
    return program("ring", OpType.ALLREDUCE, n, rows, **options)


def mesh_allreduce(n: int, **options: int) -> Program:
    """Makes an AllReduce: each rank reduces its chunk from all others and puts it to all."""
    rows = [((r + k) % n, r, k - 1, r, 3, 1) for k in range(1, n) for r in range(n)]
    rows += [(r, (r + k) % n, n + k, r, 5, 0) for k in range(1, n) for r in range(n)]
    return program("mesh", OpType.ALLREDUCE, n, rows, **options)


def hierarchical_mesh(nodes: int, gpus: int, **options: int) -> Program:
    """Makes ResCCL Fig. 16: intra and inter reduce-scatter, inter and intra allgather."""
    n = nodes * gpus
    base, r, off = (x.ravel() for x in np.mgrid[0:nodes, 0:n, 0 : gpus - 1])
    peer = r // gpus * gpus + (r + off + 1) % gpus
    step = base * (gpus - 1) + off
    intra_scatter = (r, peer, step, (peer + base * gpus) % n, 12, 1)
    start = nodes * (gpus - 1)
    intra_gather = (r, peer, start + 2 * nodes + step, (r + base * gpus) % n, 33, 0)
    r, off = (x.ravel() for x in np.mgrid[0:n, 0 : nodes - 1])
    peer = (r + (off + 1) * gpus) % n
    inter_scatter = (r, peer, start + off, peer, 20, 1)
    inter_gather = (r, peer, start + nodes + off, r, 26, 0)
    phases = (intra_scatter, inter_scatter, inter_gather, intra_gather)
    rows = np.concatenate([np.stack(np.broadcast_arrays(*p), axis=1) for p in phases])
    return program("hm_allreduce", OpType.ALLREDUCE, n, rows, gpus=gpus, **options)


def broadcast(n: int, root: int = 1) -> Program:
    """Makes a Broadcast in which the root puts to everybody: blocks of different ranks differ."""
    rows = [(root, r, 0, 0, 2, 0) for r in range(n) if r != root]
    return program("star", OpType.BROADCAST, n, rows, chunks=1, root=root)


def alltoall(n: int, **options: int) -> Program:
    """Makes an AllToAll of one transfer a pair."""
    rows = [(s, (s + k) % n, k, s * n + (s + k) % n, 4, 0) for k in range(1, n) for s in range(n)]
    return program("a2a", OpType.ALLTOALL, n, rows, chunks=n * n, **options)


def direct_reducescatter(n: int, **options: int) -> Program:
    """Makes a ReduceScatter: each rank reduces its chunk from all others."""
    rows = [((r + k) % n, r, k - 1, r, 3, 1) for k in range(1, n) for r in range(n)]
    return program("scatter", OpType.REDUCESCATTER, n, rows, **options)


def uneven(p: Program) -> Program:
    """Returns the program for blocks that have lengths of their own."""
    return replace(p, name=f"{p.name}_v", collective=replace(p.collective, uneven=True))


def compiled(
    p: Program,
    *,
    level: str = "full",
    transport: Transport = Transport.DIRECT,
    allocator: str = "state",
    blocks: int | None = None,
    source: str = "algo.rccl",
    slots: int = 2,
) -> Plan:
    """Compiles a Program to a Plan, of at most `blocks` thread blocks a rank."""
    pipeline: Pipeline = hpds(depend(verify(p)))
    primitives = place(fuse(lower(pipeline, transport), level))
    return sync(allocate(primitives, allocator, blocks), source, slots)


def switched(p: Program, bits: Bits = Bits.ANY) -> Plan:
    """Compiles a Program for as many H100, whose switch reduces."""
    switch = cluster(f"define node1 = {p.collective.n_ranks}\ndefine device = H100")
    primitives = place(multicast(hpds(depend(verify(p), switch)), bits))
    return sync(allocate(primitives, "state", None), "algo.rccl", 2)


def written(plan: Plan, place: Path) -> Path:
    """Writes a plan's kernels and returns their directory."""
    cpu_only = plan.protocol is PlanProtocol.LL
    targets = [target for target in TARGETS if not (cpu_only and target.stream)]
    directory.write(place, directory.files(Catalogue.of(plan), targets, plan_json.dumps(plan)))
    return place
