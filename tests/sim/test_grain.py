"""How finely a plan's calls are cut on a cluster."""

from dataclasses import replace
from pathlib import Path

import pytest
from hccc.sim.grain import with_grain

from hccc import driver
from hccc.diagnostics import Source
from hccc.driver import Compiled
from hccc.ir.micro_batch import COARSEST, FINEST, GRAIN
from hccc.ir.topology import Device, Rate, uniform
from hccc.lang.cluster import load as cluster
from hccc.options import Options
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, simulate

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FAST = Device(reduce=1e9, block=1e9)
HEADER = (
    'ResCCLAlgo(nRanks={}, nChannels=1, nWarps=16, AlgoName="a", OpType="Broadcast", '
    "GPUPerNode={}, NICPerNode=1, nChunks=1):\n"
)


def broadcast(n: int, *transfers: tuple[int, int]) -> Compiled:
    """A program of n ranks: one chunk from rank 0, hop by hop."""
    lines = (f"    transfer({a}, {b}, {step}, 0, recv)\n" for step, (a, b) in enumerate(transfers))
    return driver.compile_text(Source("a.rccl", HEADER.format(n, n) + "".join(lines)), Options())


@pytest.mark.parametrize(
    ("algorithm", "site"),
    [("ring_allreduce", "dgx-h100"), ("direct_alltoall", "mi300x"), ("hm_allgather", "topo4"),
     ("hm_allreduce", "topo4"), ("rhd_allreduce", "mi300x")],
)  # fmt: skip
def test_calls_are_cut_about_as_finely_as_is_best(algorithm: str, site: str) -> None:
    file = EXAMPLES / "clusters" / f"{site.replace('topo4', 'resccl-topo4')}.cluster"
    plan = driver.compile_file(EXAMPLES / f"{algorithm}.rccl", Options(), cluster.load(file)).plan
    machine = prepare(plan, cluster.load(file))
    for size in (1 << 18, 1 << 23, 1 << 26):
        default = simulate(machine, Request(size)).time
        best = min(simulate(machine, Request(size, 1 << k)).time for k in range(12, 23, 2))
        assert default < 1.15 * best


def test_what_costs_nothing_is_done_often_and_what_gains_nothing_never() -> None:
    hop, chain = broadcast(2, (0, 1)).plan, broadcast(3, (0, 1), (1, 2)).plan
    free, dear = Rate(100.0, 1, 0.0), Rate(100.0, 1, 2.0)
    assert with_grain(chain, uniform(3, 3, 1, link=free, device=FAST)).grain == FINEST
    assert with_grain(hop, uniform(2, 2, 1, link=dear, device=FAST)).grain == COARSEST


@pytest.mark.parametrize("alpha", [0.5, 2.0, 8.0])
def test_the_grain_of_a_chain_is_what_latency_and_bandwidth_make(alpha: float) -> None:
    """(n + f) · (α + m/B) over one relay more: f = 1 micro-batch, so the grain is α · B."""
    chain = broadcast(3, (0, 1), (1, 2)).plan
    t = uniform(3, 3, 1, link=Rate(100.0, 1, alpha), device=FAST)
    assert with_grain(chain, t).grain == pytest.approx(alpha * 100.0 * 1e3, rel=0.01)


def test_everything_else_stays() -> None:
    plan = broadcast(2, (0, 1)).plan
    other = with_grain(plan, uniform(2, 2, 1))
    assert other.grain != GRAIN
    assert other.chunk is plan.chunk and replace(other, grain=GRAIN).src is plan.src


def test_large_plans_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hccc.sim.grain.MOST", 0)
    plan = broadcast(2, (0, 1)).plan
    assert with_grain(plan, uniform(2, 2, 1)) is plan
