"""Demands of one's own: programs of every engine that are right, and bounds that none beats."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import UserError
from hccc.ir.collective import OpType, demand_of
from hccc.ir.demand import Demand, parse
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.network.flow import network
from hccc.passes.verify import verify
from hccc.synth.bounds.best_paths import best_paths
from hccc.synth.bounds.bound import limits
from hccc.synth.bounds.demanded import limits_of
from hccc.synth.bounds.estimate import estimate
from hccc.synth.builtin.direct import direct_demand
from hccc.synth.candidates import candidates, request
from hccc.synth.greedy.demands import demand_programs
from hccc.synth.paths.demands import routed_demand
from hccc.synth.synthesize import synthesize
from hccc.testing.clusters import cluster
from hccc.testing.reference import exact_inputs, expected, is_correct, run
from hccc.testing.strategies import demands

SIZE = 1 << 26
RELAYED = """define nodenum = 2
define node1 = 3
define bandwidth = {port => [((0..2) -> (100,1))]}
define nic = [((0,1) -> (25,1)), ((2) -> (25,1))]
define node2 = 2
define bandwidth = {port => [((0,1) -> (100,1))]}
define nic = [((0) -> (25,1)), ((1) -> (10,1))]
"""
SITE = cluster(RELAYED)
THREE = cluster("""define nodenum = 3
define node1 = 3 * 2
define bandwidth = {port => [((0,1) -> (180,1))]}
define nic = [((0) -> (50,1)), ((1) -> (50,1))]
define rail = [(0) -> (50,3), (1) -> (25,3)]
""")


def every_program(t: Topology, demand: Demand) -> list[Program]:
    """Makes the programs of all engines that serve a demand."""
    found = [direct_demand(t, demand)]
    found += [made.program for made in demand_programs(t, demand, 0)]
    return found + [made.program for made in routed_demand(t, demand)]


@pytest.mark.slow
@pytest.mark.parametrize("site", [SITE, THREE], ids=["two nodes", "three nodes"])
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_every_engine_does_what_is_demanded_and_none_beats_the_bound(
    site: Topology, data: st.DataObject
) -> None:
    demand = data.draw(demands(len(site), max_blocks=5))
    bound = limits_of(site, demand)[0].at(SIZE)
    for program in every_program(site, demand):
        verify(program)
        assert is_correct(program)
        x = exact_inputs(program.collective, np.int64, (2,))
        want = expected(program.collective, x, "sum", np.int64)
        for got, right in zip(run(program, x, "sum", np.int64), want, strict=True):
            assert np.array_equal(got, right)
        size = SIZE // program.collective.most_blocks() * program.collective.most_blocks()
        assert estimate(program, site, size) >= bound.bandwidth * (1 - 1e-9)


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(demands(len(SITE), max_blocks=5))
def test_no_cut_is_narrower_than_the_bound_says_of_all(demand: Demand) -> None:
    """What must cross any set of ranks takes no longer than the bound: it is one of them."""
    found, best = limits_of(SITE, demand)
    assert found.cut is not None
    blocks, tightest = found.blocks, 0.0
    for count in range(1, len(SITE)):
        for ranks in combinations(range(len(SITE)), count):
            inside = np.isin(np.arange(len(SITE)), ranks)
            crosses = sum(
                bool((wants & inside).any())
                and bool((has & ~inside).any() if sums else not (has & inside).any())
                for has, wants, sums in zip(demand.has, demand.wants, demand.sums, strict=True)
            )
            tightest = max(tightest, crosses / blocks / into(inside))
    own = found.cut.share / found.cut.capacity
    assert own <= tightest * (1 + 1e-9)
    if best is not None:
        assert tightest * (1 - 1e-6) <= 1 / best.algbw


def into(inside: np.ndarray) -> float:
    """Returns the GB/s into a set of ranks, by SciPy."""
    from scipy.sparse import csr_array  # type: ignore[import-untyped]
    from scipy.sparse.csgraph import maximum_flow  # type: ignore[import-untyped]

    net = network(SITE)
    big, scale, n = 10**6, 100, net.vertices
    ends = [(n, r, big) for r in np.flatnonzero(~inside).tolist()]
    ends += [(r, n + 1, big) for r in np.flatnonzero(inside).tolist()]
    capacity = np.minimum(net.capacity, big // scale) * scale
    tail = np.concatenate([net.tail, [a for a, _, _ in ends]])
    head = np.concatenate([net.head, [b for _, b, _ in ends]])
    value = np.concatenate([capacity, [c for _, _, c in ends]])
    whole = csr_array((value, (tail, head)), shape=(n + 2, n + 2)).astype(np.int32)
    return float(maximum_flow(whole, n, n + 1).flow_value) / scale


@pytest.mark.parametrize("op", [OpType.ALLTOALL, OpType.GATHER, OpType.SCATTER])
def test_the_bound_of_a_collectives_demand_is_that_of_the_collective(op: OpType) -> None:
    found, best = limits_of(SITE, demand_of(op, len(SITE)))
    whole = limits(SITE, op)
    assert found.cut is not None and whole.cut is not None and best is not None
    assert float(found.cut.algbw) == pytest.approx(float(whole.cut.algbw))
    known = best_paths(SITE, op, 0, float(whole.cut.algbw))
    assert known is not None and best.algbw == pytest.approx(known.algbw, rel=1e-6)


def test_a_collectives_demand_is_served_by_all_that_serves_the_collective() -> None:
    demand = demand_of(OpType.ALLREDUCE, len(SITE))
    pool = candidates(request(SITE, demand, SIZE))
    made = [candidate for candidate in pool if candidate.program]
    assert {"ring", "tree", "two-shot"} <= {c.name for c in pool} and len(made) > 3
    for candidate in made:
        assert candidate.program is not None
        assert candidate.program.collective.demand == demand
        verify(candidate.program)


@pytest.mark.slow
def test_relays_carry_what_a_narrow_nic_would_hold_up() -> None:
    demand = parse("0 -> 4; 1 -> 4; 2 -> 4; 0 -> 3", len(SITE))
    made = synthesize(SITE, demand, SIZE)
    straight = next(c for c in made.weighed if c.name == "direct")
    assert made.best.time is not None
    assert made.best.time < 0.7 * straight.estimate
    assert made.share() > 0.6


def test_copies_come_from_the_nearest_that_has_one() -> None:
    program = direct_demand(SITE, parse("0,3 -> 1,4", len(SITE)))
    pairs = set(map(tuple, program.transfers[["src", "dst"]].tolist()))
    assert pairs == {(0, 1), (3, 4)}


def test_a_rank_without_a_piece_gets_the_first_and_adds_the_others() -> None:
    program = direct_demand(SITE, parse("sum 1-4 -> 0", len(SITE)))
    rows = [tuple(row) for row in program.transfers[["src", "step", "op"]].tolist()]
    assert [op for _, _, op in rows] == [0, 1, 1, 1]
    assert rows[0][1] < rows[1][1] == rows[3][1]


def test_another_number_of_ranks_is_refused() -> None:
    with pytest.raises(UserError, match="the demand is of 2 ranks, and the cluster has 5"):
        request(SITE, parse("0 -> 1", 2), SIZE)


@pytest.mark.parametrize("method", ["ring", "pack", "cegis", "compose"])
def test_an_engine_that_does_not_apply_says_so(method: str) -> None:
    with pytest.raises(UserError, match=f"there is no {method} for custom"):
        request(SITE, parse("0 -> 1", len(SITE)), SIZE, method=method)
