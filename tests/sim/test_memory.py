"""Memory bandwidth of a call: it depends on the bytes touched, and all movers of bytes share it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import Source
from hccc.driver.compilation import compile_text
from hccc.driver.options import Options
from hccc.ir.memory_use import bytes_touched
from hccc.ir.plan import Plan
from hccc.ir.topology import Topology
from hccc.sim.critical import breakdown, critical_path
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, Run, simulate
from hccc.testing.clusters import cluster

MIB = 1 << 20
EXCHANGE = """ResCCLAlgo(nRanks={n}, AlgoName="x", OpType="SendRecv"):
    for r in range(nRanks):
        transfer(r, (r + 1) % nRanks, 0, r, recv)
"""
STAR = """ResCCLAlgo(nRanks={n}, AlgoName="x", OpType="Reduce", nChunks=1):
    for r in range(1, nRanks):
        transfer(r, 0, r, 0, rrc)
"""
NODE = """define node1 = {n}
define device = {{vendor => cpu, name => CPU, block => 5{more}}}
define bandwidth = {{mesh => [((0..{last}) -> (1000, 1, 0))]}}
"""


def plan_of(text: str, n: int, *, channels: int = 1, fuse: str = "none") -> Plan:
    options = Options(fuse=fuse, channels=channels, tune="off")
    return compile_text(Source("x", text.format(n=n)), options).plan


def node(n: int, more: str = "", rest: str = "") -> Topology:
    """Makes a node with blocks of 5 GB/s and links that are no limit."""
    return cluster(NODE.format(n=n, last=n - 1, more=more) + rest)


def called(plan: Plan, t: Topology, size: int, *, in_place: bool = False) -> Run:
    return simulate(prepare(plan, t), Request(size, micro_batch=size, in_place=in_place))


def cache(*levels: tuple[int, float, float]) -> str:
    text = ", ".join(f"({size} -> ({block}, {all}))" for size, block, all in levels)
    return f", cache => [{text}]"


@settings(max_examples=8, deadline=None)
@given(st.integers(2, 6), st.floats(1, 50), st.floats(1, 300), st.integers(12, 26))
def test_what_a_block_and_all_blocks_copy(n: int, block: float, all: float, bits: int) -> None:
    """Each rank copies `size` at its own rate, or all share a rate; half the rate takes twice as
    long."""
    plan, size = plan_of(EXCHANGE, n), 1 << bits
    took = []
    for part in (1.0, 0.5):
        more = cache((MIB, block * part, max(all, block) * part))
        took.append(called(plan, node(n, more, f"define cores = {n}"), size).time)
    each = min(block, max(all, block) / n)
    assert took[0] == pytest.approx(size / (each * 1e3), rel=1e-6)
    assert took[1] == pytest.approx(2 * took[0], rel=1e-6)


def test_gpus_have_a_memory_each() -> None:
    """Without `cores`, copies of one GPU take nothing from the others."""
    plan, more = plan_of(EXCHANGE, 4), cache((MIB, 10, 10))
    alone, shared = (
        called(plan, node(4, more, rest), MIB).time for rest in ("", "define cores = 4")
    )
    assert alone == pytest.approx(MIB / 10e3) and shared == pytest.approx(4 * alone)


def test_the_blocks_of_a_gpu_share_its_memory() -> None:
    """Eight blocks of 10 GB/s at a memory of 30."""
    t = node(2, cache((MIB, 10, 30)))
    for channels, rate in ((1, 10), (2, 20), (8, 30)):
        plan = plan_of(EXCHANGE, 2, channels=channels)
        assert called(plan, t, 64 * MIB).time == pytest.approx(64 * MIB / rate / 1e3, rel=1e-6)


def test_calls_that_touch_more_are_slower() -> None:
    """Four ranks with a send and a receive buffer: 8 × size; between two sizes in proportion."""
    more = cache((8 * MIB, 40, 1000), (128 * MIB, 10, 1000))
    plan, t = plan_of(EXCHANGE, 4), node(4, more, "define cores = 4")
    for size, rate in ((MIB // 2, 40), (MIB, 40), (4 * MIB, 20), (16 * MIB, 10), (64 * MIB, 10)):
        assert called(plan, t, size).time == pytest.approx(size / rate / 1e3, rel=1e-6)


def test_all_that_a_call_touches_counts_once() -> None:
    """Both user buffers out of place, one of them in place, and scratch memory."""
    assert bytes_touched(plan_of(EXCHANGE, 4), 100, in_place=False).tolist() == [200] * 4
    star = plan_of(STAR, 4)
    assert bytes_touched(star, 100, in_place=False).tolist() == [200, 100, 100, 100]
    assert bytes_touched(star, 100, in_place=True).tolist() == [100] * 4


@pytest.mark.parametrize("read", [0.2, 0.5, 0.8])
def test_reads_and_writes_are_parts_of_a_copy(read: float) -> None:
    """Four sources into one destination: four reads, one write."""
    plan = plan_of(STAR, 4, fuse="full")
    got = called(plan, node(4, f", reduce => 1000000, read => {read}"), MIB, in_place=True)
    copies = 4 * read + (1 - read)
    assert got.time == pytest.approx(copies * MIB / 5e3, rel=1e-3)


def test_steps_over_no_link_cost_what_the_device_says() -> None:
    """Rank 0's copy of its own chunk crosses nothing, the others' transfers links without α."""
    text = 'ResCCLAlgo(nRanks=2, AlgoName="x", OpType="Broadcast", nChunks=1):\n'
    plan = plan_of(text + "    transfer(0, 1, 0, 0, recv)\n", 2)
    without, having = (called(plan, node(2, more), MIB) for more in ("", ", step => 7"))
    local = (plan.dst.rank == plan.rank_of()[plan.dst.owner()]) & (plan.src.counts() == 1)
    assert local.any()
    gained = having.primitive_end - without.primitive_end
    assert gained.max() == pytest.approx(7)
    assert breakdown(having, critical_path(having))["latency"] in (0.0, pytest.approx(7))


def test_small_calls_have_one_core() -> None:
    """Up to `small` bytes of all ranks' blocks nothing is woken, and blocks take turns."""
    launch = "define cores = 4\ndefine launch = {{base => 3, entry => 2, wake => 50{}}}"
    plan = plan_of(EXCHANGE, 4)
    always, small = (node(4, rest=launch.format(more)) for more in ("", f", small => {4 * MIB}"))
    for size in (MIB // 4, MIB):
        assert called(plan, always, size).time == pytest.approx(3 + 2 + 50 + size / 5e3)
        assert called(plan, small, size).launch == 3 + 4 * 2
        assert called(plan, small, size).time == pytest.approx(3 + 4 * 2 + 4 * size / 5e3)
    size = MIB + 4096
    assert called(plan, small, size).time == called(plan, always, size).time


def test_the_path_of_a_cached_call_is_its_blocks() -> None:
    """Nothing is left over as sharing where a block copies as fast as its memory lets it."""
    run = called(plan_of(EXCHANGE, 2), node(2, cache((MIB, 20, 100))), MIB)
    parts = breakdown(run, critical_path(run))
    assert parts["thread block"] == pytest.approx(run.time) and math.isclose(
        parts.get("sharing", 0.0), 0.0, abs_tol=1e-6
    )
