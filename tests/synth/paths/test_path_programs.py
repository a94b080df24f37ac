"""routed: paths for collectives whose chunks go from one rank to one rank."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import UserError
from hccc.ir.collective import OpType
from hccc.ir.topology import Topology
from hccc.passes.verify import verify
from hccc.synth.bounds.bound import limits
from hccc.synth.bounds.estimate import estimate
from hccc.synth.paths.programs import OPS, path_programs
from hccc.testing.clusters import cluster

SIZE = 1 << 30
UNEQUAL = """define nodenum = 2
define node1 = 4
define bandwidth = {mesh => [((0..3) -> (150,1))]}
define nic = [((0) -> (50,1)), ((1) -> (50,1)), ((2) -> (50,1)), ((3) -> (50,1))]
define node2 = 7
define bandwidth = {port => [((0..6) -> (450,1))]}
define nic = [((0,1) -> (50,1)), ((2,3) -> (50,1)), ((4,5) -> (50,1)), ((6) -> (50,1))]
"""
RAILS = """define nodenum = 3
define node1 = 3 * 2
define bandwidth = {port => [((0,1) -> (180,1))]}
define nic = [((0) -> (50,1)), ((1) -> (50,1))]
define rail = [(0), (1)]
"""


def unequal() -> Topology:
    return cluster(UNEQUAL)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("text", [UNEQUAL, RAILS])
def test_all_that_is_made_is_right_and_within_the_bound(text: str, op: OpType) -> None:
    t = cluster(text)
    for root in (0, len(t) - 1):
        least = limits(t, op, root).at(SIZE).bandwidth
        try:
            found = list(path_programs(t, op, root))
        except UserError as error:
            assert error.problem.code == "E451"
            continue
        for one in found:
            verify(one.program)
            assert one.relayed > 0
            assert one.load >= 1 - 1e-9
            assert estimate(one.program, t, SIZE) >= least


def test_a_rank_with_a_nic_for_itself_relays_for_those_that_share() -> None:
    t = unequal()
    bound = limits(t, OpType.ALLTOALL).at(SIZE).bandwidth
    best = min(estimate(one.program, t, SIZE) for one in path_programs(t, OpType.ALLTOALL))
    assert best <= 1.02 * bound
    rows = next(iter(path_programs(t, OpType.ALLTOALL))).program.transfers
    assert len(rows) < 1.2 * len(t) * (len(t) - 1)  # most go straight


def test_rails_are_joined_by_relays() -> None:
    t = cluster(RAILS)
    one = next(iter(path_programs(t, OpType.ALLTOALL)))
    crossing = t.node[one.program.transfers["src"]] != t.node[one.program.transfers["dst"]]
    src, dst = (one.program.transfers[key][crossing] for key in ("src", "dst"))
    assert np.array_equal(t.local[src], t.local[dst])


def line(nodes: int) -> Topology:
    """Makes nodes of two, each joined to the next by one link of 5 GB/s each way."""
    text = "".join(
        f"define node{i + 1} = 2\ndefine bandwidth = {{mesh => [((0,1) -> 100)]}}\n"
        for i in range(nodes)
    )
    for i in range(1, nodes):
        for a, b, ends in ((i, i + 1, "(1,0)"), (i + 1, i, "(0,1)")):
            text += f"define internode = (node{a}, node{b})\n"
            text += f"define interbandwidth = {{direct => [({ends} -> 5)]}}\n"
    return cluster(text)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("nodes", [3, 4, 6])
def test_a_line_of_nodes_needs_as_many_relays_as_it_is_long(op: OpType, nodes: int) -> None:
    t = line(nodes)
    least = limits(t, op, 1).at(SIZE).bandwidth
    made = list(path_programs(t, op, 1))
    for one in made:
        verify(one.program)
        assert estimate(one.program, t, SIZE) >= least
    assert made
    if op in (OpType.GATHER, OpType.SCATTER):  # every path there is is the only one
        assert made[0].load == pytest.approx(1)


def test_a_ring_of_one_way_links_divides_the_load_evenly() -> None:
    """Every rank sends 1 to 6 places on: 21 blocks over each link, 6 of its own rank's."""
    links = ", ".join(f"(({i},{(i + 1) % 7}) -> 10)" for i in range(7))
    t = cluster(f"define node1 = 7\ndefine bandwidth = {{direct => [{links}]}}")
    one = next(iter(path_programs(t, OpType.ALLTOALL)))
    verify(one.program)
    assert one.relayed == 7 * (0 + 1 + 2 + 3 + 4 + 5)
    assert estimate(one.program, t, SIZE) >= 21 / 49 * SIZE / 10e3


def test_where_relays_gain_nothing_it_says_so() -> None:
    t = cluster(
        "define nodenum = 1\ndefine node1 = 4\ndefine bandwidth = {port => [((0..3) -> (100,1))]}"
    )
    with pytest.raises(UserError, match="relays gain nothing"):
        next(path_programs(t, OpType.ALLTOALL))


def test_what_is_no_path_is_refused() -> None:
    with pytest.raises(UserError, match="does not serve"):
        next(path_programs(unequal(), OpType.ALLGATHER))


@given(st.integers(0, 1 << 16))
@settings(max_examples=5, deadline=None)
def test_a_seed_gives_one_program(seed: int) -> None:
    t = unequal()
    one, other = (next(path_programs(t, OpType.ALLTOALL, seed=seed)).program for _ in range(2))
    assert np.array_equal(one.transfers, other.transfers)
