"""block_bound: closed forms, and no program of the built-in algorithms is below it."""

import pytest

from hccc.base.diagnostics import UserError
from hccc.driver.compilation import compile_program
from hccc.driver.options import Options
from hccc.ir.collective import PROGRAMMABLE, ROOTED, OpType
from hccc.ir.topology import Topology
from hccc.lang.cluster.load import load
from hccc.passes.verify import verify
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, simulate
from hccc.synth.bounds.block_bound import block_bound
from hccc.synth.builtin import registry
from hccc.testing.clusters import cluster
from tests.synth.published import CLUSTERS

SIZE = 1 << 26
# Links so wide that thread blocks of 10 GB/s are what there is; a quarter of a copy is its read.
WIDE = """
define node1 = 8
define device = {block => 10, read => 0.25}
define bandwidth = {mesh => [((0..7) -> (1000, 1, 0.001))]}
"""


@pytest.mark.parametrize(
    ("op", "each"),
    [
        (OpType.ALLTOALL, 7 / 8),
        (OpType.ALLGATHER, 7 / 8 * (0.75 + 0.25 / 8)),
        (OpType.REDUCESCATTER, 7 / 8 * (0.25 + 0.75 / 8)),
        (OpType.ALLREDUCE, 2 * 7 / 8 * 0.25),
        (OpType.BROADCAST, 7 / 8 * (0.75 + 0.25 / 8)),
        (OpType.GATHER, 7 / 8 / 8),
        (OpType.SENDRECV, 1.0),
    ],
)
def test_closed_forms_of_one_domain(op: OpType, each: float) -> None:
    """Two blocks of 10 GB/s a rank. A root's bytes may be moved by the blocks of all ranks."""
    found = block_bound(cluster(WIDE), op, 0, SIZE, 2)
    assert found == pytest.approx(each * SIZE / 20_000)
    assert block_bound(cluster(WIDE), op, 0, SIZE, 4) == pytest.approx(found / 2)


def test_what_proxies_carry_needs_no_blocks() -> None:
    t = load(CLUSTERS / "heteccl-h20-4+8.cluster")
    one = load(CLUSTERS / "dgx-h100.cluster")
    rate = max(t.devices[0].block_rates)
    # The 4 GPUs of the first node get 11/12 each, of which 200 GB/s come over NICs.
    least = 4 * 11 / 12 * SIZE / ((4 * 32 * rate + 200) * 1e3)
    assert block_bound(t, OpType.ALLTOALL, 0, SIZE, 32) >= least * (1 - 1e-6)
    assert block_bound(one, OpType.ALLTOALL, 0, 0, 32) == 0.0
    assert block_bound(cluster("define node1 = 1"), OpType.ALLTOALL, 0, SIZE, 32) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("op", PROGRAMMABLE)
@pytest.mark.parametrize("name", ["wide", "heteccl-h20-4+8", "resccl-topo1"])
def test_no_program_is_below_it(name: str, op: OpType) -> None:
    t: Topology = cluster(WIDE) if name == "wide" else load(CLUSTERS / f"{name}.cluster")
    root = 3 if op in ROOTED else 0
    for algorithm in registry.serving(op):
        try:
            made = registry.make(algorithm, t, op, root)
        except UserError:  # not for this cluster
            continue
        plan = compile_program(verify(made), Options(prove=False, tune="off"), t).plan
        run = simulate(prepare(plan, t), Request(SIZE, micro_batch=1 << 20))
        assert run.time >= block_bound(t, op, root, run.size, plan.blocks_per_rank) * (1 - 1e-6)
