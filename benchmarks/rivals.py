"""What others take, in the same simulator: NCCL's rings, the built-in algorithms, TACOS-like ones.

Times are µs of one call, None where there is no such thing on a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks import tacos
from benchmarks.candidates import compile_candidate
from hccc.base.diagnostics import UserError
from hccc.driver.compiled import Compiled
from hccc.driver.options import Options
from hccc.ir.collective import OpType
from hccc.ir.program import Program
from hccc.ir.topology import Level, Topology
from hccc.network.summary import limits
from hccc.predict.baselines import alternatives
from hccc.predict.nccl import machine as library
from hccc.predict.nccl.model import predict, predict_registered
from hccc.predict.simulation import Call
from hccc.sim.machine import prepare
from hccc.synth.builtin import registry

BUILTIN = ("direct", "two-shot", "hierarchical")
CHUNKS = (1, 4, 16)  # of a rank, of TACOS-like schedules
MOST_TRANSFERS = 200_000  # that a TACOS-like program may have to be simulated


@dataclass(frozen=True, slots=True)
class Rival:
    """One rival's time, in µs."""

    name: str
    time: float


def nccl_ring(made: Compiled, t: Topology, size: int) -> float | None:
    """Simulates NCCL's rings, scheduled and run as NCCL does; returns µs."""
    for one in alternatives(made, t, Options(prove=False)):
        if one.name == "NCCL ring":
            try:
                machine = prepare(one.plan(), t)
                return float(Call().simulate(machine, size, one.adapt, free=one.free).time)
            except UserError:
                return None
    return None


def nccl(t: Topology, op: OpType, size: int) -> Iterator[Rival]:
    """Predicts NCCL or RCCL without in-switch reduction: as it is by default, and NCCL with
    registered buffers where it has symmetric kernels for them.

    Its model knows nothing of limits between nodes: there is none.
    """
    if limits(t):
        return
    try:
        machine = replace(library.of(t), nvls=False)
        usual, buffers = predict(machine, op, [size]), predict_registered(machine, op, [size])
    except UserError:
        return
    yield Rival("NCCL", usual[0].time_us)
    if buffers[0] is not None:
        yield Rival("NCCL registered", buffers[0].time_us)


def programs(t: Topology, op: OpType, size: int) -> Iterator[tuple[str, Program]]:
    """Makes the built-in algorithms that others have, and TACOS-like schedules, with their
    names."""
    for name in BUILTIN:
        if op in registry.BUILTINS[name].ops:
            try:
                yield name, registry.make(name, t, op)
            except UserError:
                continue
    for chunks in CHUNKS if op in tacos.OPS else ():
        if chunks * len(t) * len(t) * (1 + (op is OpType.ALLREDUCE)) <= MOST_TRANSFERS:
            try:
                yield f"TACOS-like, {chunks}", tacos.best(t, op, chunks, size).program
            except UserError:
                return


def of(t: Topology, op: OpType, size: int) -> list[Rival]:
    """Simulates all rivals; returns the fastest first."""
    found = []
    for name, program in programs(t, op, size):
        try:
            found.append(Rival(name, compile_candidate(program, t, size)[1]))
        except UserError:
            continue
    return sorted([*found, *nccl(t, op, size)], key=lambda one: one.time)


def ideal_ring(t: Topology, op: OpType) -> float:
    """Returns the algbw (GB/s) of a ring that enters and leaves each node once over all its NICs.

    It costs nothing besides; 0 where nothing between nodes is a NIC's.
    """
    nic = t.port[Level.NIC]
    if t.n_nodes < 2 or (nic < 0).all():
        return 0.0
    pairs = np.unique(np.stack([t.node, nic], axis=1)[nic >= 0], axis=0)
    node = np.bincount(pairs[:, 0], t.shared.capacity[pairs[:, 1]], t.n_nodes)
    least = float(node[np.unique(t.node)].min())
    if len(np.unique(t.node)) <= 3:  # both ways round, every two nodes are neighbours
        least = min([least, *(2 * r.bandwidth * r.parallel for _, _, r in limits(t))])
    return least * len(t) / (len(t) - 1) / (2 if op is OpType.ALLREDUCE else 1)
