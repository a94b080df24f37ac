"""baselines: the alternatives match their names, are proved, and simulated for the same call."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hccc.base.diagnostics import Source, UserError
from hccc.driver import compilation as driver
from hccc.driver.compiled import Compiled
from hccc.driver.inputs import opened
from hccc.driver.load import load
from hccc.driver.options import Options
from hccc.interop.export_msccl import XmlOptions, export_msccl
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from hccc.lang.cluster import load as cluster
from hccc.predict.baselines import DECODE, NCCL_SLOTS, Alternative, alternatives
from hccc.proofs.deadlock import deadlock
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, simulate
from hccc.testing import exact_inputs, execute, expected

EXAMPLES = Path(__file__).parents[2] / "examples"
TOPO1 = EXAMPLES / "clusters" / "resccl-topo1.cluster"
OPTIONS = Options()
MESH = """
ResCCLAlgo(nRanks=8, nChannels=2, OpType="{op}", GPUPerNode=4):
    for s in range(8):
        for d in range(8):
            if s != d:
                transfer({body})
"""
GATHER = MESH.format(op="Allgather", body="s, d, 0, s, recv")
REDUCE = MESH.format(op="Allreduce", body="s, d, 0, d, rrc") + (
    "    for s in range(8):\n        for d in range(8):\n            if s != d:\n"
    "                transfer(s, d, 1, s, recv)\n"
)


def made(text: str, options: Options = OPTIONS, on: Path | None = TOPO1) -> Compiled:
    source = Source("test.rccl", text)
    return driver.compile_text(source, options, cluster.load(on) if on else None)


def others(text: str, options: Options = OPTIONS) -> dict[str, Alternative]:
    found = alternatives(made(text, options), cluster.load(TOPO1), options)
    return {a.name: a for a in found}


def right(plan: Plan) -> bool:
    x = exact_inputs(plan.collective, np.int64, (3,))
    got = execute(plan, x, in_place=False, seed=1)
    want = expected(plan.collective, x, "sum", np.int64)
    return all(np.array_equal(a, b) for a, b in zip(want, got, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("text", "tree"), [(GATHER, False), (REDUCE, True)])
def test_everything_that_runs_the_collective(text: str, tree: bool) -> None:
    found = others(text)
    expected = ["hccc", "NCCL ring", "NCCL tree", "MSCCL", "stage-level", "round-robin"]
    assert list(found) == [name for name in expected if tree or name != "NCCL tree"]
    for a in found.values():
        plan = a.plan()
        assert a.plan() is plan
        assert plan.collective.op == found["hccc"].plan().collective.op
        deadlock(plan)
        assert right(plan)
        assert a.note


def test_nccl_is_staged_fused_and_one_block_a_channel() -> None:
    found = others(REDUCE)
    ring, tree = found["NCCL ring"].plan(), found["NCCL tree"].plan()
    for plan in (ring, tree):
        assert plan.transport is Transport.STAGED and plan.queue_slots == NCCL_SLOTS
        assert plan.max_window == 1
        assert (np.maximum(plan.src.counts(), plan.dst.counts()) > 1).mean() > 0.5
    assert (ring.n_tb == 4).all()  # four NICs
    assert len(ring) == 8 * 4 * (2 * 8 - 1)
    assert tree.n_tb.max() <= 2 * 8  # four pairs of trees, up and down
    for name in ("NCCL ring", "NCCL tree"):
        slots = [found[name].adapt(Request(size)).micro_batch for size in (1 << 17, 1 << 32)]
        assert slots == [32 << 10, 512 << 10]


@pytest.mark.slow
def test_msccl_has_a_block_a_connection_and_stages_more() -> None:
    found = others(REDUCE)
    msccl, stage = found["MSCCL"].plan(), found["stage-level"].plan()
    assert msccl.transport is Transport.STAGED
    assert (msccl.n_tb == 14).all()
    assert (stage.n_tb > 14).any()
    assert (msccl.src.counts() <= 2).all() and (msccl.dst.counts() == 1).all()


def test_calls_are_adapted() -> None:
    found, call = others(REDUCE), Request(1 << 20, in_place=True)
    assert found["hccc"].adapt(call) == call == found["round-robin"].adapt(call)
    ring = found["NCCL ring"].adapt(call)
    assert (ring.window, ring.size) == (1, 1 << 20)
    assert found["NCCL ring"].adapt(replace(call, micro_batch=4096)).micro_batch == 4096
    for name in ("MSCCL", "stage-level"):
        adapted = found[name].adapt(call)
        assert adapted.window == 1 and adapted.costs.interpret == DECODE
        assert adapted.in_place


@pytest.mark.slow
def test_all_of_them_simulate() -> None:
    """Rings come near the limit of their NICs; interpreting costs time."""
    t = cluster.load(TOPO1)
    found = others(REDUCE)
    runs = {
        name: simulate(prepare(a.plan(), t), a.adapt(Request(64 << 20)))
        for name, a in found.items()
    }
    assert all(run.time > 0 and run.size == 64 << 20 for run in runs.values())
    assert 80 < runs["NCCL ring"].busbw < 100  # four NICs of 25 GB/s
    machine, call = prepare(found["MSCCL"].plan(), t), Request(64 << 20, window=1)
    assert simulate(machine, call).time < runs["MSCCL"].time


def test_an_imported_plan_has_alternatives_too(tmp_path: Path) -> None:
    file = tmp_path / "mesh.xml"
    staged = replace(OPTIONS, transport=Transport.STAGED, allocator="connection")
    file.write_text(export_msccl(made(GATHER, staged, None).plan, XmlOptions()))
    imported = load(opened(file))
    found = {a.name: a for a in alternatives(imported, cluster.load(TOPO1), OPTIONS)}
    assert right(found["stage-level"].plan())
    assert right(found["NCCL ring"].plan())


def test_a_cluster_without_a_ring_is_said_when_it_is_asked_for() -> None:
    """Three GPUs in a line: every way back is taken."""
    one_way = """
define node1 = 3
define bandwidth = {direct => [((0,1) -> (25,1)), ((1,0) -> (25,1)), ((1,2) -> (25,1)),
                               ((2,1) -> (25,1))]}
"""
    t = cluster.parse(Source("line.cluster", one_way))
    text = 'ResCCLAlgo(nRanks=3, OpType="Broadcast", nChunks=1):\n'
    text += "    transfer(0, 1, 0, 0, recv)\n    transfer(1, 2, 1, 0, recv)\n"
    found = {a.name: a for a in alternatives(made(text, on=None), t, Options())}
    with pytest.raises(UserError, match="no ring over the cluster's links"):
        found["NCCL ring"].plan()
