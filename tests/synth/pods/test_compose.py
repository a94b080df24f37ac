"""compose: right on any pods, near the bound, and the same pods found alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import Source, UserError
from hccc.driver.inputs import parse_cluster
from hccc.ir.collective import OpType
from hccc.ir.topology import Topology
from hccc.lang.cluster import load
from hccc.lang.cluster.faults import with_faults
from hccc.network.routes import routes
from hccc.passes.verify import verify
from hccc.synth.bounds.bound import limits
from hccc.synth.greedy.programs import owners
from hccc.synth.pods.compose import OPS, compose, composed_programs
from hccc.synth.pods.pods import pods
from tests.health_checks import EVERY_CHECK

CLUSTERS = Path(__file__).parents[3] / "examples" / "clusters"
SETTINGS = settings(deadline=None, suppress_health_check=EVERY_CHECK, max_examples=15)
EACH = pytest.mark.parametrize("op", sorted(OPS))


def cluster(text: str, *failed: str) -> Topology:
    return parse_cluster(with_faults(Source("pods", text), failed, ()))


def node(name: str, count: int, size: int, links: str, sharers: int) -> str:
    """Returns the text of nodes with links of a kind; `sharers` GPUs in a run share a NIC."""
    ids = f"(0..{size - 1})"
    within = {"port": f"port => [({ids} -> 180)]", "mesh": f"mesh => [({ids} -> 60)]"}
    line = ", ".join(f"(({i},{i + 1}) -> 90), (({i + 1},{i}) -> 90)" for i in range(size - 1))
    within["line"] = f"direct => [{line}]"
    runs = [tuple(range(i, min(i + sharers, size))) for i in range(0, size, sharers)]
    nics = ", ".join(f"(({','.join(map(str, run))}) -> 50)" for run in runs)
    bandwidth = f"define bandwidth = {{{within[links]}}}\n" if size > 1 else ""
    return f"define {name} = {count} * {size}\n{bandwidth}define nic = [{nics}]\n"


def rails(count: int, size: int = 4) -> str:
    each = ", ".join(f"({i})" for i in range(size))
    return node("node1", count, size, "port", 1) + f"define rail = [{each}]\n"


@st.composite
def clusters(draw: st.DrawFn) -> Topology:
    """Draws 1 to 3 kinds of nodes on one switch, 2 nodes or more."""
    text, begin = "", 1
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.integers(2 if begin == 1 else 1, 4))
        size = draw(st.integers(1, 5))
        links = draw(st.sampled_from(["port", "mesh", "line"]))
        text += node(f"node{begin}", count, size, links, draw(st.integers(1, size)))
        begin += count
    return cluster(text)


@pytest.mark.slow
@EACH
@SETTINGS
@given(t=clusters())
def test_programs_are_right_and_no_faster_than_the_bound(op: OpType, t: Topology) -> None:
    most = limits(t, op).cut
    assert most is not None
    found = list(composed_programs(t, op))
    assert found
    for one in found:
        verify(one.program)
        assert one.algbw <= float(most.algbw) * (1 + 1e-9)
    for ring in (False, True):
        rates = [one.algbw for one in found if one.ring == ring]
        assert rates == sorted(rates)


@pytest.mark.slow
@SETTINGS
@given(st.integers(2, 6), st.sets(st.tuples(st.integers(1, 6), st.integers(0, 3)), max_size=4))
def test_rails_of_which_gpus_failed(count: int, failed: set[tuple[int, int]]) -> None:
    lost = [f"node{x}.gpu{g}" for x, g in sorted(failed) if x <= count]
    try:
        t = cluster(rails(count), *lost)
        found = list(composed_programs(t, OpType.ALLGATHER))
    except UserError as error:
        assert lost and error.problem.code in ("E135", "E451", "E139")  # no rail in common
        return
    for one in found:
        verify(one.program)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least"),
    {
        "heteccl-h20-4x2+8": 1.0,
        "heteccl-h20-4x3+8": 1.0,
        "hetccl-pku-nvidia+v1": 1.0,
        "heteccl-h20-4x2+8-fault-4": 1.0,
        "heteccl-h20-4+8": 1.0,
        "heteccl-h20-8x2+4": 1.0,
        "heteccl-v100-4x2+8x2": 1.0,
        "syccl-a100-32": 1.0,
        "resccl-topo4": 1.0,
        "syccl-h800-64": 0.995,
        "hetccl-pku-v3": 0.995,
        "hetccl-pku-nvidia": 0.99,
    }.items(),
)
def test_the_busiest_resource_is_nearly_the_bounds(name: str, least: float) -> None:
    t = load.load(CLUSTERS / f"{name}.cluster")
    cut = limits(t, OpType.ALLGATHER).cut
    assert cut is not None
    best = max(one.algbw for one in composed_programs(t, OpType.ALLGATHER))
    assert least * (1 - 1e-9) <= best / float(cut.algbw) <= 1 + 1e-9


@pytest.mark.slow
def test_512_ranks_take_the_network_for_what_their_node_has() -> None:
    t = load.load(CLUSTERS / "syccl-h800-512.cluster")
    cut = limits(t, OpType.ALLGATHER).cut
    assert cut is not None
    found = list(composed_programs(t, OpType.ALLGATHER))
    assert [one.ring for one in found] == [False, True]
    for one in found:
        verify(one.program)
        assert one.algbw >= 0.999 * float(cut.algbw)


def test_what_is_said_of_the_rate_is_what_routes_say() -> None:
    t = cluster(rails(6, 8))
    owner = owners(t, OpType.ALLGATHER, 0, 2)
    one = compose(t, owner)
    assert one is not None
    found = routes(t, one.schedule.src, one.schedule.dst)
    time = (np.bincount(found.uses.index) / found.capacity).max()
    assert one.rate == pytest.approx(1 / time)
    far = t.node[one.schedule.src] != t.node[one.schedule.dst]
    assert np.count_nonzero(far) > len(owner) * 5  # some come into a node again


def test_nodes_alike_are_one_kind() -> None:
    text = node("node1", 3, 4, "port", 2) + node("node4", 2, 2, "mesh", 1)
    assert pods(cluster(text)).kind.tolist() == [0, 0, 0, 1, 1]
    slower = text + "define degraded = [((node2, port, 1) -> 20)]\n"
    assert pods(cluster(slower)).kind.tolist() == [0, 1, 0, 2, 2]


def test_planes_are_rails_where_nothing_joins_these() -> None:
    p = pods(cluster(rails(3), "node2.gpu1"))
    assert not p.joined
    assert p.gateway.tolist() == [[0, 1, 2, 3], [4, -1, 5, 6], [7, 8, 9, 10]]


@pytest.mark.slow
def test_slow_pods_send_by_way_of_others() -> None:
    """Two GPUs share each NIC of node3 only: it cannot send to every rank in time."""
    text = node("node1", 2, 4, "port", 1) + node("node3", 1, 8, "port", 2)
    t = cluster(text)
    made = compose(t, owners(t, OpType.ALLGATHER, 0, 1))
    assert made is not None
    s = made.schedule
    between = t.node[s.src] != t.node[s.dst]
    by_way = between & (t.node[s.src] != t.node[s.chunk])  # chunk k is rank k's
    assert np.count_nonzero(by_way) > 0 and (t.node[s.chunk[by_way]] == 2).all()


def test_turned_round_links_are_those_of_the_way_back() -> None:
    text = node("node1", 2, 2, "port", 1).replace(
        "port => [((0..1) -> 180)]", "direct => [((0,1) -> 90), ((1,0) -> 30)]"
    )
    t = cluster(text)
    owner = owners(t, OpType.ALLGATHER, 0, 1)
    for turned in (False, True):
        s = compose(t, owner, turned=turned)
        assert s is not None
        ends = (s.schedule.dst, s.schedule.src) if turned else (s.schedule.src, s.schedule.dst)
        found = routes(t, *ends)
        time = (np.bincount(found.uses.index) / found.capacity).max()
        assert s.rate == pytest.approx(1 / time)


def test_one_node_is_no_composition() -> None:
    with pytest.raises(UserError, match="compose joins pods, and there is one"):
        next(composed_programs(cluster(node("node1", 1, 4, "port", 1)), OpType.ALLGATHER))


def test_other_collectives_are_not_composed() -> None:
    with pytest.raises(UserError, match="compose schedules nothing for Alltoall"):
        next(composed_programs(cluster(rails(2)), OpType.ALLTOALL))
