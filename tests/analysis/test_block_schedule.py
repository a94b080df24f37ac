"""block_schedule: blocks go where bytes are, over their rates; an order that dependencies allow."""

import numpy as np
import pytest

import hccc
from hccc.analysis.block_schedule import block_schedule, uneven_links
from hccc.base.diagnostics import Source
from hccc.driver.options import Options
from hccc.driver.pass_manager import Settings
from hccc.driver.structures import axes, start
from hccc.ir.arrays import I8
from hccc.ir.choices import NetworkLowering
from hccc.ir.collective import Collective
from hccc.ir.demand import Demand
from hccc.ir.primitives import Primitives, Transport
from hccc.ir.program import Op, Program
from hccc.ir.topology import Topology
from hccc.ir.transport import PURE
from hccc.lang.cluster.load import parse as parse_cluster
from hccc.passes.allocate import LOADS
from hccc.passes.depend import depend
from hccc.passes.hpds import hpds
from hccc.passes.lower import lower
from hccc.passes.place import place
from hccc.passes.verify import verify
from hccc.synth.common.transfer_table import program
from tests.passes.textbook import SMALL, hm_allreduce, lowered, planned, verdict, works

# Rank 0 has a link of 144 GB/s to rank 1, and one of 36 to rank 2; a block brings 8.5 GB/s.
BOX = """define device = MI250X
define node1 = 3
define bandwidth = {direct => [((0,1) -> 144), ((1,0) -> 144), ((0,2) -> 36), ((2,0) -> 36),
    ((1,2) -> 36), ((2,1) -> 36)]}
"""
FILL_WIDE, FILL_NARROW = 17, 4.25  # blocks that fill the links, but for latency


def parse(text: str) -> Topology:
    return parse_cluster(Source("box.cluster", text))


def sent(t: Topology, wide: int, narrow: int) -> Primitives:
    """Returns the primitives with which rank 0 puts so many chunks to rank 1, and to rank 2."""
    blocks = wide + narrow
    has, wants = np.zeros((2, blocks, 3), np.bool_)
    has[:, 0], wants[:wide, 1], wants[wide:, 2] = True, True, True
    c = Collective.of(Demand(has, wants, np.zeros(blocks, np.bool_)))
    columns: dict[str, I8 | int] = {
        "src": 0,
        "dst": np.where(np.arange(blocks) < wide, 1, 2),
        "step": 0,
        "chunk": np.arange(blocks),
        "op": int(Op.RECV),
    }
    return place(lower(hpds(depend(verify(program("Sent", c, t, 1, columns)), t))))


def to(p: Primitives) -> I8:
    """Returns the rank that each primitive puts to."""
    return p.dst.rank[p.dst.ptr[:-1]].astype(np.int64)


def test_links_get_blocks_in_proportion_to_their_bytes_over_their_rates() -> None:
    """Four of five chunks go over a link four times as wide: both are full to the end."""
    p = sent(parse(BOX), 160, 40)
    made = block_schedule(p, 32, 1)
    begun = to(p)[made.order[:21]]
    assert np.count_nonzero(begun == 1) >= FILL_WIDE - 1
    assert 4 <= np.count_nonzero(begun == 2) <= FILL_NARROW + 1
    alone = block_schedule(sent(parse(BOX), 160, 1), 32, 1).time
    assert made.time < 1.1 * alone


def test_few_blocks_are_shared_in_the_same_proportion() -> None:
    p = sent(parse(BOX), 160, 40)
    made, enough = block_schedule(p, 8, 1), block_schedule(p, 32, 1)
    assert np.count_nonzero(np.bincount(made.block)) == 8
    # 8 of the 21 that fill the links, and no link is left to the last
    assert made.time < 1.1 * enough.time * 21 / 8
    last = to(p)[made.order[-20:]]
    assert 2 <= np.count_nonzero(last == 2) <= 10


def test_channels_fill_a_link_with_fewer_blocks_each() -> None:
    begun = to(sent(parse(BOX), 160, 40))[block_schedule(sent(parse(BOX), 160, 40), 8, 4).order[:5]]
    assert np.count_nonzero(begun == 2) == 1


@pytest.mark.parametrize("blocks", [1, 3, 32])
@pytest.mark.parametrize("name", SMALL)
def test_the_order_is_one_that_dependencies_allow(name: str, blocks: int) -> None:
    p = place(lowered(SMALL[name]))
    made = block_schedule(p, blocks, 1)
    position = np.empty(len(p), np.int64)
    position[made.order] = np.arange(len(p))
    assert sorted(made.order.tolist()) == list(range(len(p)))
    assert (position[p.deps.index] < position[p.deps.owner()]).all()
    assert 0 <= made.block.min() <= made.block.max() < blocks
    assert made.time > 0


@pytest.mark.parametrize("allocator", LOADS)
@pytest.mark.parametrize("transport", PURE)
@pytest.mark.parametrize("name", SMALL)
def test_plans_by_load_are_proved_and_give_the_result(
    name: str, transport: Transport, allocator: str
) -> None:
    plan = planned(lowered(SMALL[name], transport), allocator)
    assert verdict(plan) is None
    assert works(plan, micro_batches=3)


@pytest.mark.parametrize("lowering", [NetworkLowering.PUT, NetworkLowering.SLOTS])
def test_what_proxies_carry_takes_no_block(lowering: NetworkLowering) -> None:
    """Also where data take queues, whose messages keep their order."""
    p = lower(hpds(depend(verify(hm_allreduce(2, 4)))), Transport.MIXED, lowering)
    plan = planned(p, "load8")
    assert verdict(plan) is None
    assert works(plan, micro_batches=3)
    assert len(p.queues) or plan.n_tb.max() <= 8


def tried(p: Program, t: Topology) -> set[str]:
    """Returns the allocators that are tried for a program on a cluster."""
    dag = depend(verify(p), t)
    given = Settings(Options(), t, "x")
    first = start(given, dag)
    found = {choice.options.allocator for axis in axes(given, dag) for choice in axis(first)}
    return {str(name) for name in found}


def test_loads_are_tried_where_links_are_unlike() -> None:
    rows = SMALL["ring allgather"]
    even = parse("define device = H100\ndefine node1 = 4\n")
    assert not tried(rows, even) & set(LOADS)
    p = sent(parse(BOX), 4, 1).dag
    assert uneven_links(p)
    assert tried(p.program, parse(BOX)) & set(LOADS)
    assert not uneven_links(sent(parse(BOX.replace("144", "40")), 4, 1).dag)


def test_a_user_can_ask_for_them() -> None:
    p = sent(parse(BOX), 16, 4).dag.program
    made = hccc.compile(p, cluster=parse(BOX), options=Options(allocator="load8", tune="off"))
    assert 1 < made.plan.n_tb[0] <= 8
