"""greedy programs: several chunks, both kinds of greedy, and impossible demands."""

from __future__ import annotations

import pytest

from hccc.base.diagnostics import Source, UserError
from hccc.driver.inputs import parse_cluster
from hccc.ir.collective import OpType
from hccc.ir.topology import Topology
from hccc.lang.cluster.faults import with_faults
from hccc.passes.verify import verify
from hccc.synth.common.collectives import BOTH
from hccc.synth.greedy.programs import greedy_programs

SMALL = """
define network = InfiniBand
define device = H20
define node1 = 1
define nic = [((0) -> (50,1))]
define node2 = 3
define bandwidth = {direct => [((0,1) -> (25,1)), ((1,0) -> (25,1)), ((1,2) -> (25,1)),
  ((2,1) -> (25,1))]}
define nic = [((0) -> (50,1)), ((1) -> (50,1)), ((2) -> (50,1))]
"""


def small(*failed: str) -> Topology:
    """Makes nodes of 1 and 3 GPUs; the GPUs of node2 are in a line."""
    return parse_cluster(with_faults(Source("small", SMALL), failed, ()))


@pytest.mark.parametrize("op", sorted(BOTH))
def test_programs_are_right_and_not_below_the_bound(op: OpType) -> None:
    found = list(
        greedy_programs(small(), op, 1 if op in (OpType.BROADCAST, OpType.REDUCE) else 0, 0)
    )
    assert {one.again for one in found} == {False, True}
    assert [one.chunks for one in found] == sorted(one.chunks for one in found)
    for one in found:
        verify(one.program)
        assert one.steps >= one.bound > 0
        assert one.steps == int(one.program.transfers["step"].max()) + 1
        assert one.name.startswith("greedy, ") and ("again" in one.name) == one.again


@pytest.mark.quick(2)
@pytest.mark.parametrize("op", sorted(BOTH))
def test_a_node_whose_ranks_reach_each_other_only_over_others(op: OpType) -> None:
    """The middle of the line failed: a chunk at one rank of the node does not reach the other."""
    found = list(greedy_programs(small("node2.gpu1"), op, 0, 0))
    assert found
    for one in found:
        verify(one.program)


def test_other_collectives_are_not_greedys() -> None:
    with pytest.raises(UserError, match="greedy schedules nothing for Alltoall"):
        next(greedy_programs(small(), OpType.ALLTOALL, 0, 0))
