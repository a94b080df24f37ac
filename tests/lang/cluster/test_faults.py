"""faults: failed GPUs and slower links, given in commands beside the file's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hccc.base.diagnostics import Source, UserError
from hccc.driver.inputs import load_cluster, parse_cluster
from hccc.ir.collective import OpType
from hccc.ir.topology import Topology, same
from hccc.lang.cluster.faults import with_faults
from hccc.lang.cluster.printer import lines
from hccc.network.resource_names import names
from hccc.network.routes import routes
from hccc.synth.bounds.bound import limits

CLUSTERS = Path(__file__).parents[3] / "examples" / "clusters"
PLAIN = (CLUSTERS / "heteccl-h20-4+8.cluster").read_text()


def made(
    *, tail: str = "", failed: tuple[str, ...] = (), degraded: tuple[str, ...] = ()
) -> Topology:
    return parse_cluster(with_faults(Source("x", PLAIN + tail), failed, degraded))


def rate(t: Topology, src: int, dst: int) -> float:
    """Returns GB/s of a route."""
    found = routes(t, np.array([src], np.int32), np.array([dst], np.int32))
    return float(found.bandwidth[0])


def code(**given: tuple[str, ...]) -> str:
    with pytest.raises(UserError) as error:
        made(**given)  # type: ignore[arg-type]
    return error.value.problem.code


def test_nothing_said_changes_nothing() -> None:
    source = Source("x", PLAIN)
    assert with_faults(source, (), ()).text == PLAIN


def test_gpus_that_failed_are_no_ranks() -> None:
    t = made(failed=("node1.gpu3", "NODE2.gpu0"))
    assert len(t) == 10 and t.failed.tolist() == [[0, 3], [1, 0]]


@pytest.mark.parametrize(
    ("said", "expected"),
    {
        "node1.nic0=18Gbps": 2.25,
        "node1.nic0=2.25": 2.25,
        "node1.nic0=2.25GB/s": 2.25,
        "node1.nic=18gbps": 2.25,
        "node1=18Gbps": 2.25,
        "node1.nic0=12.345678": 12.345678,
        "node1.nic1=2": 50.0,
        "node2.nic0=3": 3.0,
    }.items(),
)
def test_links_that_are_slower(said: str, expected: float) -> None:
    assert rate(made(degraded=(said,)), 0, 4) == pytest.approx(expected, rel=1e-9)


def test_ports_are_slower() -> None:
    t = made(degraded=("node2.port3=100",))
    assert (rate(t, 7, 4), rate(t, 5, 4)) == (100.0, 450.0)


def shared(t: Topology, *pairs: tuple[int, int]) -> list[str]:
    """Lists the limits that routes of these pairs use."""
    src, dst = (np.array(ranks, np.int32) for ranks in zip(*pairs, strict=True))
    found = routes(t, src, dst)
    return [one for one in names(t, found.resource) if one.startswith("limit")]


@pytest.mark.parametrize("said", ["node1-node2=18Gbps", "NODE2-NODE1=2.25"])
def test_all_routes_between_two_nodes_are_slower_together(said: str) -> None:
    t = made(degraded=(said,))
    every = [(u, v) for u in range(4) for v in range(4, 12)]
    assert {rate(t, u, v) for u, v in every} == {rate(t, v, u) for u, v in every} == {2.25}
    assert shared(t, *every) == ["limit between ranks 0-3 and ranks 4-11, A to B"]
    assert shared(t, *[(v, u) for u, v in every]) == [
        "limit between ranks 0-3 and ranks 4-11, B to A"
    ]
    assert (rate(t, 0, 1), rate(t, 4, 5)) == (150.0, 450.0)


def test_only_the_two_nodes_are_held() -> None:
    t = load_cluster(CLUSTERS / "heteccl-h20-4x2+8.cluster", (), ["node1-node2=18Gbps"])
    assert (rate(t, 0, 4), rate(t, 0, 8), rate(t, 4, 8)) == (2.25, 50.0, 50.0)


def test_a_limit_makes_no_route() -> None:
    text = """define node1 = 2 * 2
define bandwidth = {mesh => [((0,1) -> 100)]}
define nic = [((0) -> 10), ((1) -> 10)]
define rail = [(0), (1)]
"""
    t = parse_cluster(with_faults(Source("rails", text), [], ["node1-node2=5"]))
    assert [rate(t, 0, v) for v in (2, 3)] == [5.0, 0.0]


def test_direct_links_between_nodes_are_held_together() -> None:
    between = "{direct => [((0,0) -> 10), ((1,1) -> 10)]}"
    text = f"""define node1 = 2 * 2
define bandwidth = {{mesh => [((0,1) -> 100)]}}
define internode = (node1, node2)
define interbandwidth = {between}
define internode = (node2, node1)
define interbandwidth = {between}
"""
    t = parse_cluster(with_faults(Source("direct", text), [], ["node1-node2=8"]))
    assert [rate(t, 0, 2), rate(t, 1, 3), rate(t, 0, 3)] == [8.0, 8.0, 0.0]
    assert len(shared(t, (0, 2), (1, 3))) == 1
    assert limits(t, OpType.ALLGATHER).at(1 << 30).time * 8e3 >= (1 << 29)


def test_the_bound_knows_the_limit() -> None:
    t = made(degraded=("node1-node2=18Gbps",))
    bound = limits(t, OpType.ALLGATHER).at(1 << 30)
    assert bound.time == pytest.approx((1 << 30) * 8 / 12 / 2250, rel=1e-3)


@pytest.mark.parametrize("text", ["node1-node2=18Gbps", "node1-node3=3"])
def test_what_is_printed_is_the_same_cluster(text: str) -> None:
    t = load_cluster(CLUSTERS / "heteccl-h20-4x2+8.cluster", ["node3.nic0"], [text])
    assert same(parse_cluster(Source("again", "\n".join(lines(t)))), t)


def test_gpus_of_a_nic_that_failed_go_by_others() -> None:
    t = made(failed=("node1.nic0",))
    assert (rate(t, 0, 4), rate(t, 1, 4), rate(t, 0, 1)) == (0.0, 50.0, 150.0)
    two = made(failed=("node2.NIC1",))
    assert [rate(two, 0, v) for v in (5, 6, 7, 8)] == [50.0, 0.0, 0.0, 50.0]


@pytest.mark.parametrize("way", [("node1.nic",), tuple(f"node1.nic{i}" for i in range(4))])
def test_what_cannot_be_reached_is_named(way: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as error:
        made(failed=way)
    assert error.value.problem.code == "E135"
    assert error.value.problem.message == "node2 cannot be reached from node1"


def test_of_two_the_last_holds() -> None:
    assert rate(made(degraded=("node1-node2=3", "node2-node1=2")), 0, 4) == 2.0
    assert rate(made(degraded=("node1.nic=3", "node1.nic0=2")), 0, 4) == 2.0
    assert rate(made(degraded=("node1.nic0=2", "node1.nic=3")), 0, 4) == 3.0


def test_what_the_file_says_is_kept_but_the_command_wins() -> None:
    tail = "\ndefine failed = [(node1, 3)]\ndefine degraded = [((node1, nic) -> (3,1))]  # today"
    t = made(tail=tail, failed=("node2.gpu7",), degraded=("node1.nic0=2",))
    assert t.failed.tolist() == [[0, 3], [1, 7]]
    assert (rate(t, 0, 3), rate(t, 1, 3)) == (2.0, 3.0)


@pytest.mark.parametrize("empty", ["define failed = []", "define degraded = []"])
def test_a_file_that_says_that_nothing_did(empty: str) -> None:
    t = made(tail=f"\n{empty}\n", failed=("node1.gpu0",), degraded=("node2.nic0=2",))
    assert len(t) == 11 and rate(t, 3, 0) == 2.0


def test_nodes_that_the_file_defines_after_what_failed() -> None:
    first, rest = PLAIN.split("define node2")
    text = f"{first}define failed = [(node1, 0)]\ndefine node2{rest}"
    assert len(parse_cluster(with_faults(Source("x", text), ["node2.gpu0"], []))) == 10


@pytest.mark.parametrize(("name", "lost"), {"4": ["node1.gpu3"], "8": ["node3.gpu7"]}.items())
def test_as_the_scenarios_that_ship(name: str, lost: list[str]) -> None:
    shipped = load_cluster(CLUSTERS / f"heteccl-h20-4x2+8-fault-{name}.cluster")
    told = load_cluster(CLUSTERS / "heteccl-h20-4x2+8.cluster", lost)
    assert told.failed.tolist() == shipped.failed.tolist() and len(told) == len(shipped) == 15


@pytest.mark.parametrize(
    "said",
    [
        "",
        "x",
        "gpu3",
        "node1",
        "node1.nicx",
        "node1.gpu",
        "node1.gpu-1",
        "node1.gpu1\n",
        "node1.gpu1)]",
        "node1.gpu٣",
        "node1.gpu1,node1.gpu2",
    ],
)
def test_no_gpu(said: str) -> None:
    assert code(failed=(said,)) == "E410"


@pytest.mark.parametrize(
    "said",
    [
        "",
        "node1.nic",
        "node1.nic=",
        "node1.nic=fast",
        "node1.nic=-1",
        "node1.nic=1e3",
        "node1.nic=18Mbps",
        "node1.gpu0=3",
        "node1-node2",
        "node1-=3",
        "node1-node2.nic0=3",
        "node1.nic=1,node2.nic=2",
        "node1.nic=3\n",
    ],
)
def test_no_rate(said: str) -> None:
    assert code(degraded=(said,)) == "E410"


@pytest.mark.parametrize(
    ("failed", "degraded", "expected"),
    [
        (["node9.nic0"], [], "E138"),
        (["node1.nic4"], [], "E132"),
        (["node1.nic", "node1.nic1"], [], "E134"),
        ([], ["node1-node3=1"], "E138"),
        ([], ["node2-node2=1"], "E035"),
        ([], ["node1-node2=0"], "E133"),
        (["node9.gpu0"], [], "E138"),
        (["node1.gpu9"], [], "E132"),
        (["node1.gpu0", "node1.gpu0"], [], "E134"),
        ([], ["node1.nic9=1"], "E132"),
        ([], ["leaf1=50"], "E138"),
        ([], ["node1.nic=0"], "E133"),
    ],
)
def test_what_this_cluster_has_not(failed: list[str], degraded: list[str], expected: str) -> None:
    assert code(failed=tuple(failed), degraded=tuple(degraded)) == expected


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_text_is_an_error_of_ours_or_a_cluster(failed: str, degraded: str) -> None:
    try:
        assert len(made(failed=(failed,), degraded=(degraded,)))
    except UserError as error:
        assert error.problem.code == "E410"
