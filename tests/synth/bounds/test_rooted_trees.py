"""rooted_trees: published optima, no in-network multicast, and between the known bounds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hccc.ir.collective import OpType
from hccc.ir.topology import Topology
from hccc.network.flow import FlowNetwork
from hccc.synth.bounds import rooted_trees as module
from hccc.synth.bounds.bound import limits
from hccc.synth.bounds.rooted_trees import RootedTrees, rooted_trees
from hccc.testing.clusters import cluster as cluster_of
from tests.synth.bounds.test_bound import SETTINGS, topologies
from tests.synth.published import ALLGATHER, ALLREDUCE, published


def found(t: Topology, op: OpType = OpType.ALLREDUCE) -> RootedTrees:
    trees = rooted_trees(t, op, rate(t, op))
    assert trees is not None
    return trees


def rate(t: Topology, op: OpType) -> float:
    """Returns GB/s that the narrowest cut lets through."""
    cut = limits(t, op).cut
    assert cut is not None
    return float(cut.algbw)


@pytest.mark.parametrize("name", ALLREDUCE)
def test_published_optima(name: str) -> None:
    trees = found(published(name))
    assert trees.algbw == pytest.approx(ALLREDUCE[name], abs=0.005)
    assert trees.share.sum() == pytest.approx(1) and (trees.share >= 0).all()


@pytest.mark.parametrize("name", ALLGATHER)
def test_published_allgathers_are_over_trees(name: str) -> None:
    """Where no GPUs share the narrow links, the cut is reached."""
    for op in (OpType.ALLGATHER, OpType.REDUCESCATTER):
        assert found(published(name), op).algbw == pytest.approx(float(Fraction(ALLGATHER[name])))


def test_what_a_nic_brings_one_gpu_it_does_not_bring_another() -> None:
    """Each GPU needs 3 parts of 4: four together 6 a node, over two ports of 1 and a NIC of 2."""
    t = cluster_of(
        "define node1 = 2 * 2\ndefine bandwidth = {port => [((0, 1) -> 1)]}\n"
        "define nic = [((0, 1) -> 2)]"
    )
    assert rate(t, OpType.ALLGATHER) == pytest.approx(4)
    assert found(t, OpType.ALLGATHER).algbw == pytest.approx(4 * 4 / 6)


def test_a_switch_sends_no_copies() -> None:
    """A crossbar of 8 ports of 300: one copy for all would be 300; every rank takes 7/8 twice."""
    t = cluster_of("define node1 = 8\ndefine bandwidth = {port => [((0..7) -> 300)]}")
    assert found(t).algbw == pytest.approx(8 / 14 * 300)


def test_unequal_nodes_have_equal_shares_of_roots() -> None:
    """Four GPUs and eight behind equal NICs: the NICs are the bound, whichever rank is a root."""
    trees = found(published("f (4+8)"))
    equal = rate(published("f (4+8)"), OpType.ALLGATHER) / 2
    assert trees.algbw == pytest.approx(200) and equal == pytest.approx(150)


@pytest.mark.slow
@SETTINGS
@given(topologies)
def test_between_equal_shares_and_the_bound(t: Topology) -> None:
    """No better than any schedule, and no worse than a Reducescatter and an Allgather in turn."""
    assume(2 <= t.n_ranks <= 8)
    trees = found(t)
    assert trees.algbw <= rate(t, OpType.ALLREDUCE) * (1 + 1e-6)
    turns = 0.0
    for op in (OpType.REDUCESCATTER, OpType.ALLGATHER):
        half = found(t, op)
        assert half.algbw <= rate(t, op) * (1 + 1e-6)
        assert half.share == pytest.approx(1 / len(t))
        turns += 1 / half.algbw
    assert trees.algbw >= (1 - 1e-6) / turns


@pytest.mark.slow
@SETTINGS
@given(topologies)
def test_tying_what_is_alike_changes_nothing(t: Topology) -> None:
    assume(2 <= t.n_ranks <= 5)
    tied = found(t).algbw

    def apart(net: FlowNetwork, marked: np.ndarray | None = None) -> np.ndarray:
        return np.arange(net.vertices)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "vertex_colours", apart)
        assert found(t).algbw == pytest.approx(tied, rel=1e-6)


@pytest.mark.slow
@SETTINGS
@given(st.integers(3, 7), st.data())
def test_without_switches_the_bound_is_reached(n: int, data: st.DataObject) -> None:
    """Links alike in both directions: spanning trees pack as densely as partitions allow."""
    pairs = [(u, v) for v in range(1, n) for u in range(v)]
    rates = {(v - 1, v): 10 for v in range(1, n)}
    for pair in pairs:
        if data.draw(st.booleans()):
            rates[pair] = data.draw(st.integers(1, 100))
    links = [f"(({a},{b}) -> {r})" for (u, v), r in rates.items() for a, b in ((u, v), (v, u))]
    t = cluster_of(f"define node1 = {n}\ndefine bandwidth = {{direct => [{', '.join(links)}]}}")
    assert found(t).algbw == pytest.approx(rate(t, OpType.ALLREDUCE), rel=1e-6)


def test_too_many_unlike_ranks_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_VARIABLES", 10)
    assert rooted_trees(published("f (4+8)"), OpType.ALLREDUCE, 200.0) is None
    assert rooted_trees(cluster_of("define node1 = 1"), OpType.ALLREDUCE, 1.0) is None
