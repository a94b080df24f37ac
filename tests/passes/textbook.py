"""Textbook programs, the passes one by one, and the verdict on a Plan."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pytest

from hccc.analysis.grouping import transpose
from hccc.base.diagnostics import InternalError, UserError
from hccc.ir import plan_check
from hccc.ir.collective import Collective, OpType
from hccc.ir.dag import Dag
from hccc.ir.plan import Plan
from hccc.ir.primitives import Operands, Primitives, Transport
from hccc.ir.program import TRANSFER, Program
from hccc.passes.allocate import allocate
from hccc.passes.depend import depend
from hccc.passes.hpds import hpds
from hccc.passes.lower import lower
from hccc.passes.place import place
from hccc.passes.sync import sync
from hccc.passes.verify import verify
from hccc.proofs.prove import prove
from hccc.testing import exact_inputs, execute, expected

RECV, RRC = 0, 1
Row = tuple[int, int, int, int, int]  # src, dst, step, chunk, op
T = TypeVar("T")
# How many faults of one kind a sweep plants: a few always, every one in the slow suite.
SWEEP = pytest.mark.parametrize("most", [8, pytest.param(1 << 30, marks=pytest.mark.slow)])


def few(faults: Iterable[T], most: int) -> list[T]:
    """Returns at most `most` of the faults, evenly spread."""
    faults = list(faults)
    return faults[:: -(-len(faults) // most)] if faults else []


def program(
    op: OpType,
    n_ranks: int,
    n_chunks: int,
    rows: Sequence[Row],
    *,
    gpus: int | None = None,
    nics: int | None = None,
    root: int = 0,
) -> Program:
    """Makes a Program of (src, dst, step, chunk, op) rows."""
    table = np.zeros(len(rows), TRANSFER)
    for k, name in enumerate(["src", "dst", "step", "chunk", "op"]):
        table[name] = np.asarray(rows).reshape(-1, 5)[:, k]
    table = table[np.argsort(table["step"], kind="stable")]
    gpus = gpus or n_ranks
    c = Collective(op, n_ranks, n_chunks, root)
    return Program("textbook", c, 1, 16, gpus, nics or gpus, table)


def ring_allgather(r: int) -> Program:
    rows = [(i, (i + 1) % r, s, (i - s) % r, RECV) for s in range(r - 1) for i in range(r)]
    return program(OpType.ALLGATHER, r, r, rows)


def ring_reducescatter(r: int) -> Program:
    rows = [(i, (i + 1) % r, s, (i - 1 - s) % r, RRC) for s in range(r - 1) for i in range(r)]
    return program(OpType.REDUCESCATTER, r, r, rows)


def ring_allreduce(r: int) -> Program:
    rows = [(i, (i + 1) % r, s, (i - s) % r, RRC) for s in range(r - 1) for i in range(r)]
    rows += [
        (i, (i + 1) % r, r - 1 + s, (i + 1 - s) % r, RECV) for s in range(r - 1) for i in range(r)
    ]
    return program(OpType.ALLREDUCE, r, r, rows)


def mesh_allreduce(r: int) -> Program:
    """Makes an AllReduce in which each rank reduces its chunk from all, then gives it to all."""
    rows = [(s, d, s, d, RRC) for d in range(r) for s in range(r) if s != d]
    rows += [(s, d, r, s, RECV) for d in range(r) for s in range(r) if s != d]
    return program(OpType.ALLREDUCE, r, r, rows)


def hm_allreduce(n: int, g: int) -> Program:
    """Makes ResCCL Fig. 16: hierarchical mesh over n nodes of g GPUs."""
    r = n * g
    rows: list[Row] = []
    for node in range(n):
        for i in range(g):
            src = node * g + i
            for b in range(n):
                for o in range(g - 1):
                    dst = node * g + (i + o + 1) % g
                    rows.append((src, dst, b * (g - 1) + o, (dst + b * g) % r, RRC))
                    last = n * (g - 1) + 2 * n - 2 + b
                    rows.append((src, dst, last, (src + b * g) % r, RECV))
            for b in range(n - 1):
                dst, base = (src + g) % r, n * (g - 1)
                rows.append((src, dst, base + b, (src - b * g) % r, RRC))
                rows.append((src, dst, base + n - 1 + b, (src - (b + n - 1) * g) % r, RECV))
    return program(OpType.ALLREDUCE, r, r, rows, gpus=g)


def hm_allgather(n: int, g: int) -> Program:
    """Makes an AllGather by rings between nodes, then a mesh within each."""
    r = n * g
    rows = [(s, (s + g) % r, b, (s - b * g) % r, RECV) for b in range(n - 1) for s in range(r)]
    for s in range(r):
        for o in range(1, g):
            dst = s // g * g + (s + o) % g
            rows += [(s, dst, n - 1 + b, (s - b * g) % r, RECV) for b in range(n)]
    return program(OpType.ALLGATHER, r, r, rows, gpus=g)


def alltoall(r: int) -> Program:
    rows = [(s, d, 0, s * r + d, RECV) for s in range(r) for d in range(r) if s != d]
    return program(OpType.ALLTOALL, r, r * r, rows)


def sendrecv(r: int) -> Program:
    return program(OpType.SENDRECV, r, r, [(s, (s + 1) % r, 0, s, RECV) for s in range(r)])


def broadcast(r: int) -> Program:
    """Makes a Broadcast of two chunks along a binomial tree; r is a power of two."""
    rows = [
        (s, s + 2**k, k, c, RECV)
        for k in range(r.bit_length() - 1)
        for s in range(2**k)
        for c in range(2)
    ]
    return program(OpType.BROADCAST, r, 2, rows)


def one_link(n: int) -> Program:
    """Makes n transfers of one chunk over one link, each after the one before."""
    return program(OpType.BROADCAST, 2, 1, [(0, 1, i, 0, RECV) for i in range(n)])


def one_link_many_chunks(n: int) -> Program:
    return program(OpType.BROADCAST, 2, n, [(0, 1, 0, i, RECV) for i in range(n)])


def one_to_all(r: int) -> Program:
    return program(OpType.BROADCAST, r, 1, [(0, d, 0, 0, RECV) for d in range(1, r)], gpus=1)


def all_to_one(r: int) -> Program:
    return program(OpType.REDUCE, r, 1, [(s, 0, s, 0, RRC) for s in range(1, r)], gpus=1)


def gather(r: int) -> Program:
    return program(OpType.GATHER, r, r, [(s, 0, 0, s, RECV) for s in range(1, r)], gpus=1)


def flat_broadcast(r: int) -> Program:
    """Makes a Broadcast of r chunks from the root to every rank: no chunk waits for another."""
    rows = [(0, d, 0, c, RECV) for d in range(1, r) for c in range(r)]
    return program(OpType.BROADCAST, r, r, rows, gpus=1)


def all_pairs(r: int) -> Dag:
    """Makes a Dag that no program has: all pairs of ranks in one chunk, no task after another."""
    dag = depend(replace(alltoall(r), gpus_per_node=1, nics_per_node=1))
    together = dag.program.transfers.copy()
    together["chunk"] = 0
    return replace(dag, program=replace(dag.program, transfers=together))


SMALL = {
    "ring allgather": ring_allgather(4),
    "ring reducescatter": ring_reducescatter(4),
    "ring allreduce": ring_allreduce(4),
    "mesh allreduce": mesh_allreduce(4),
    "hm allreduce": hm_allreduce(2, 2),
    "hm allgather": hm_allgather(2, 2),
    "alltoall": alltoall(3),
    "sendrecv": sendrecv(4),
    "broadcast": broadcast(4),
}


def alg_1(dag: Dag) -> list[list[int]]:
    """Returns the sub-pipelines (lists of tasks) of ResCCL Alg. 1 by the letter.

    Of the chunks with ready tasks the one served least goes first, then the one with the smaller
    id; it takes every ready task, longest ready first, whose resources the sub-pipeline does not
    use; what that releases may go in the same sub-pipeline when the chunk's turn comes again.
    """
    chunk = dag.program.transfers["chunk"].tolist()
    left = dag.preds.counts().tolist()
    succs = transpose(dag.preds)
    ready: dict[int, list[int]] = defaultdict(list)
    served: dict[int, int] = defaultdict(int)
    pipelines: list[list[int]] = []
    for i in range(len(dag)):
        if left[i] == 0:
            ready[chunk[i]].append(i)
    while any(ready.values()):
        pipelines.append([])
        used: set[int] = set()
        in_turn = {c for c in ready if ready[c]}
        while in_turn:
            c = min(in_turn, key=lambda c: (served[c], c))
            taken = []
            for i in ready[c]:
                needs = {int(dag.tx[i]), int(dag.rx[i])}
                if not needs & used:
                    used |= needs
                    taken.append(i)
            ready[c] = [i for i in ready[c] if i not in set(taken)]
            for i in taken:
                for j in succs.row(i).tolist():
                    left[j] -= 1
                    if left[j] == 0:
                        ready[c].append(j)
            if not taken or not ready[c]:
                in_turn.remove(c)
            served[c] += bool(taken)
            pipelines[-1] += taken
    return pipelines


def lowered(p: Program, transport: Transport = Transport.DIRECT) -> Primitives:
    """Lowers `p` to primitives in HPDS order, nothing fused."""
    return lower(hpds(depend(verify(p))), transport)


def planned(p: Primitives, allocator: str = "connection", slots: int = 2) -> Plan:
    """Runs the passes after lowering."""
    return sync(allocate(place(p), allocator), "", slots)


def verdict(plan: Plan) -> str | None:
    """Returns the code of the proof that refuses `plan`, or None.

    Proofs index memory with a Plan's numbers, so a Plan that is not even well formed stops at
    `plan_check`; two of its complaints (spare memory, an idle flag) harm no proof.
    """
    for step in (plan_check.check, prove):
        try:
            step(plan)
        except UserError as error:
            if "E315" not in str(error) and "nothing waits for" not in str(error):
                return error.problem.code
    return None


def works(plan: Plan, micro_batches: int = 2, seeds: int = 4) -> bool:
    """Tells whether `plan` gives the right data in some interleavings, in and out of place."""
    x = exact_inputs(plan.collective, np.int64, (micro_batches,))
    want = expected(plan.collective, x, "sum", np.int64)
    for seed in range(seeds):
        for in_place in plan.modes:
            got = execute(plan, x, in_place=in_place, seed=seed)
            if not all(np.array_equal(a, b) for a, b in zip(want, got, strict=True)):
                return False
    return True


def with_operands(plan: Plan, side: str, operands: Operands) -> Plan:
    """Replaces the sources ("src") or destinations ("dst") of `plan`."""
    return replace(plan, src=operands) if side == "src" else replace(plan, dst=operands)


def made(build: Callable[[], T]) -> T | None:
    """Returns the result of `build()`, or None when a pass refuses."""
    try:
        return build()
    except InternalError:
        return None


def shapes(p: Primitives) -> Counter[tuple[int, int]]:
    """Returns the number of primitives with k sources and d destinations, by (k, d)."""
    return Counter(zip(p.src.counts().tolist(), p.dst.counts().tolist(), strict=True))


def on_nodes(p: Program, gpus: int, network: str) -> Primitives:
    """Lowers `p`, with `gpus` GPUs a node, to mixed primitives."""
    return lower(hpds(depend(verify(replace(p, gpus_per_node=gpus)))), Transport.AUTO, network)
