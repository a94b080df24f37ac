"""estimate: α + cβ + cγ, a block's share of memory, and channels."""

from dataclasses import replace

import numpy as np
import pytest

from hccc.analysis.connections import connections
from hccc.analysis.estimate import estimate, least_traffic, link_time
from hccc.ir.collective import OpType
from hccc.ir.primitives import Primitives
from hccc.ir.program import Program
from hccc.ir.topology import Device, Rate, Topology, rates, uniform
from hccc.passes.depend import depend
from hccc.passes.fuse import fuse
from hccc.passes.hpds import hpds
from hccc.passes.lower import lower
from tests.passes.textbook import RECV, RRC, lowered, mesh_allreduce, program

CHUNK = 1_000_000


def cluster(ranks: int, *, link: float = 100.0, alpha: float = 0.0, block: float = 1e3) -> Topology:
    device = Device(reduce=500.0, block=block)
    return uniform(ranks, ranks, 1, link=Rate(link, 1, alpha), device=device, chunk=CHUNK)


def primitives(p: Program, topology: Topology, channels: int = 1) -> Primitives:
    return lower(hpds(depend(replace(p, channels=channels), topology)))


def units(p: Primitives) -> np.ndarray:
    """Returns µs of each primitive for one micro-batch, with each primitive in its own block."""
    blocks = np.arange(len(p), dtype=np.int32)
    one, two = (estimate(p, blocks, batches) for batches in (1, 2))
    return (two.end - two.start) - (one.end - one.start)


COPY = program(OpType.BROADCAST, 2, 1, [(0, 1, 0, 0, RECV)])
REDUCE = program(OpType.REDUCE, 2, 1, [(1, 0, 0, 0, RRC)])


def test_a_slow_link_decides_and_latency_counts() -> None:
    assert units(primitives(COPY, cluster(2))) == pytest.approx([10.0])  # 1 MB at 100 GB/s
    assert units(primitives(COPY, cluster(2, alpha=3.0))) == pytest.approx([13.0])


def test_data_take_the_way_they_go() -> None:
    """Bytes that rank 0 reads come over the link from rank 1, which is the slower one."""
    t = cluster(2)
    ends = np.array([0, 1], np.int32)
    both = rates([Rate(100.0), Rate(50.0)])
    t = replace(t, mesh=np.array([-1, -1]), link_src=ends, link_dst=ends[::-1], links=both)
    assert units(primitives(COPY, t)) == pytest.approx([10.0])
    assert units(primitives(REDUCE, t)) == pytest.approx([22.0])


def test_links_are_in_use_for_every_micro_batch() -> None:
    p = primitives(mesh_allreduce(4), cluster(4))
    assert link_time(p, 1) == pytest.approx(20.0)  # a copy and a reduction over each link
    assert link_time(p, 7) == pytest.approx(140.0)


def test_a_reduction_pays_for_its_sources() -> None:
    """On the link as long as a copy, and 1 MB at 500 GB/s for the second source."""
    assert units(primitives(REDUCE, cluster(2))) == pytest.approx([12.0])


def test_block_is_what_one_copies() -> None:
    """25 GB/s: 40 µs for one source and one destination, half as much again for a third."""
    assert units(primitives(COPY, cluster(2, block=25.0))) == pytest.approx([40.0])
    assert units(primitives(REDUCE, cluster(2, block=25.0))) == pytest.approx([62.0])


def test_channels_share_links_but_have_blocks_of_their_own() -> None:
    assert units(primitives(COPY, cluster(2, block=25.0), 2)) == pytest.approx([20.0])
    assert units(primitives(COPY, cluster(2, block=25.0), 8)) == pytest.approx([10.0])
    assert units(primitives(REDUCE, cluster(2, block=25.0), 8)) == pytest.approx([10.25])


@pytest.mark.parametrize("channels", [1, 4])
def test_what_fusing_saves_is_memory_traffic(channels: int) -> None:
    """Where blocks are slow a fused mesh waits less for them; its reductions cost the same."""
    p = primitives(mesh_allreduce(4), cluster(4, block=10.0), channels)
    full = fuse(p, "full")
    assert units(full).sum() < units(p).sum()


def test_without_a_cluster_one_chunk_transfer_takes_one() -> None:
    p = lowered(COPY)
    found = estimate(p, connections(p).of, 1)
    assert found.makespan == pytest.approx(1.0)


@pytest.mark.parametrize("block", [1e3, 100.0])
def test_memory_traffic_is_saved_where_that_costs_no_time(block: float) -> None:
    """One slow block moves to three peers what three blocks would."""
    plain = primitives(mesh_allreduce(4), cluster(4, block=block))
    fused = fuse(plain, "full")
    assert least_traffic([plain, fused]) is (fused if block == 1e3 else plain)
