"""Work that calls every loop, with small and large numbers, of both widths, and with nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import BytesIO, StringIO, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import hccc
from hccc.analysis import clocks, grouping, heap, queue_classes
from hccc.cli.execute import execute
from hccc.cli.main import cli
from hccc.driver.compiled import CompiledProgram
from hccc.ir.arrays import Csr
from hccc.ir.collective import Collective, OpType
from hccc.ir.topology import Topology
from hccc.lang.cluster import load
from hccc.lang.transfer.printer import text
from hccc.passes.depend import depend
from hccc.passes.hpds import hpds
from hccc.proofs.result import result
from hccc.sim import critical
from hccc.synth.bounds.bound import limits
from hccc.synth.bounds.estimate import estimate
from hccc.synth.builtin import hamiltonian_paths as paths
from hccc.synth.builtin.ring import ring
from hccc.synth.cegis.fill import fill
from hccc.synth.cegis.synthesize import EMPTY
from hccc.synth.common.route_table import route_table
from hccc.synth.greedy.programs import greedy_programs
from hccc.synth.paths.programs import path_programs
from hccc.synth.pods import relays
from hccc.synth.pods.compose import composed_programs
from hccc.synth.trees.pack import Roots, pack, repack
from hccc.synth.trees.programs import STYLES, tree_programs
from hccc.testing.clusters import cluster
from tests.synth.greedy.chunked_clusters import CLUSTERS, example, gather

EXAMPLES = Path(__file__).parents[3] / "examples"
COMMANDS = """
check ring_allreduce.rccl
compile hm_allreduce.rccl --tune off --emit plan
compile hm_allreduce.rccl --tune off --fuse full --network-lowering put --emit cpu
compile hm_allgather.rccl --tune off --scheduler round-robin --network-lowering slots --emit plan
compile rhd_allreduce.rccl --tune off --scheduler list --allocator state --emit plan
compile binomial_broadcast.rccl --tune off --allocator depth8 --emit plan
compile direct_alltoall.rccl --tune off --allocator stage --emit msccl-xml
compile direct_allreduce.rccl --tune off --allocator load8 --emit plan
compile ring_allreduce.rccl --tune off --allocator load32 --emit plan
compile direct_allreduce.rccl --tune off --protocol ll --emit plan
compile msccl/allgather_recdoubling_n8.xml --emit msccl-xml
check ../tests/interop/data/allreduce_parked_n2.xml
compile msccl/allreduce_ring_n8.xml --reschedule --tune off --emit program
"""
UNEQUAL = """define nodenum = 2
define node1 = 4
define bandwidth = {mesh => [((0..3) -> (150,1))]}
define nic = [((0) -> (50,1)), ((1) -> (50,1)), ((2) -> (50,1)), ((3) -> (50,1))]
define node2 = 7
define bandwidth = {port => [((0..6) -> (450,1))]}
define nic = [((0,1) -> (50,1)), ((2,3) -> (50,1)), ((4,5) -> (50,1)), ((6) -> (50,1))]
"""
LINKS = ", ".join(f"(({i},{(i + 1) % 7}) -> 10)" for i in range(7))
ONE_WAY = f"define node1 = 7\ndefine bandwidth = {{direct => [{LINKS}]}}"
LARGE = (1 << 31) - 1


def commands() -> None:
    """Runs programs of every collective through every pass, their order told as that of large
    ones."""
    with mock.patch.object(clocks, "FEW", 0):
        _commands()


def _commands() -> None:
    for line in COMMANDS.strip().splitlines():
        words = line.split()
        words[1] = str(EXAMPLES / words[1])
        with redirect_stdout(TextIOWrapper(BytesIO())), redirect_stderr(StringIO()) as said:
            code = execute(cli, words)
        assert code == 0, (line, said.getvalue())


def custom() -> None:
    """Runs a custom collective, and tasks that wait in vain."""
    compiled = hccc.compile(EXAMPLES / "ring_allreduce.rccl")
    assert isinstance(compiled, CompiledProgram)
    plan = compiled.plan
    c = plan.collective
    result(replace(plan, collective=Collective(OpType.CUSTOM, c.n_ranks, c.n_ranks * c.n_chunks)))
    hpds(depend(compiled.program, compiled.topology), looks=0)


def synthesis() -> None:
    """Schedules of each family, and the lines that they are printed in."""
    t = shipped("heteccl-h20-4+8")
    for op in (OpType.ALLGATHER, OpType.ALLREDUCE):
        for made in islice(greedy_programs(t, op, 0, 0), 2):
            estimate(made.program, t, 1 << 20)
            text(made.program)
    limits(t, OpType.ALLREDUCE)
    next(tree_programs(t, OpType.BROADCAST, 0, 1, limits(t, OpType.BROADCAST)))
    table, n = route_table(t), len(t)
    roots, style = Roots(np.arange(n, dtype=np.int32), np.zeros(n, np.bool_)), STYLES["trees"]
    packing = pack(table, roots, n / 1e5, style)
    assert packing is not None
    repack(table, roots, n / 1e5, style, packing)
    list(path_programs(cluster(UNEQUAL), OpType.ALLTOALL))
    list(path_programs(cluster(ONE_WAY), OpType.ALLTOALL))
    next(composed_programs(shipped("heteccl-h20-4x2+8-slow"), OpType.ALLGATHER))
    ring(shipped("dgx-h100"), OpType.ALLREDUCE)
    c = example("heteccl-h20-4+8")
    fill(c, gather(c), EMPTY)


def alone() -> None:
    """Loops with numbers that no example has."""
    dice = np.random.default_rng(1)
    for n in (0, 1, 50):
        for kind in (np.int32, np.int64):
            ids: Any = dice.integers(0, 7, n).astype(kind)
            grouping.group(ids, 7)
            grouping.graph(ids, ids[::-1].copy(), 7)
            queue_classes.classes(7, ids, ids[::-1].copy())
    for key in (
        dice.integers(LARGE - 9, LARGE, 20),
        dice.integers(0, 1 << 62, 20),
        dice.random(20),
    ):
        ids = np.zeros(20, np.int32)
        for i in range(20):
            heap.push(ids, 0, i, i, key)
        for size in range(20, 0, -1):
            heap.pop(ids, 0, size, key)
    for n in (3, 12):
        weight = dice.integers(1, 5, (n, n)).astype(np.float64)
        paths.costs(weight)
        paths.path(weight, 0, n - 1)
    paths.costs(np.ones((12, 12)))
    home = np.repeat(np.arange(3), 4)
    relays._relayed(
        np.repeat(home[None, :], 3, axis=0),
        home,
        dice.permutation(12),
        np.array([-3.0, 4.0, 2.0]),
        np.array([1.0, 3.0, 2.0]),
    )
    ptr = np.array([0, 3, 6], np.int64)
    preds = Csr(np.array([0, 0, 0, 0, 0, 1, 2], np.int64), np.array([0, 1], np.int32))
    order = clocks.topological(ptr, preds)
    clocks._by_clock(
        ptr, preds, order, np.array([0, 3, 5], np.int32), np.array([4, 1, 2], np.int32)
    )
    cause = np.full(12, -1, np.int32)
    cause[7] = 2
    critical._back(11, cause, np.array([0, 0, 2]), np.array([2, 2, 3]), 4, 2)


def shipped(name: str) -> Topology:
    """Loads a cluster that ships."""
    return load.load(CLUSTERS / f"{name}.cluster")


ALL: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (commands, custom, synthesis, alone)
}
