"""Meaning of cluster files: the paper's figure, each extension, the examples, size."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import Source, UserError
from hccc.ir.topology import Level, Topology, check, same, uniform
from hccc.lang.cluster.build import build
from hccc.lang.cluster.load import load
from hccc.lang.cluster.printer import lines
from hccc.lang.cluster.printer_internode import cover
from hccc.lang.cluster.read_site import read_site
from hccc.lang.cluster.text import parse_defines
from hccc.network.graph import disconnected, graph
from hccc.testing.clusters import cluster, texts
from tests.marks import slow

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "clusters").glob("*.cluster"))
GPUS = {
    "resccl-topo1": 8,
    "resccl-topo2": 16,
    "resccl-topo3": 16,
    "resccl-topo4": 32,
    "heteccl-h20-4+8": 12,
    "heteccl-h20-4x2+8": 16,
    "heteccl-h20-4x3": 12,
    "heteccl-h20-4x3+8": 20,
    "heteccl-h20-8x2+4": 20,
    "heteccl-h20-4x2+8x2": 24,
    "heteccl-v100-4+8": 12,
    "heteccl-v100-4x2+8": 16,
    "heteccl-v100-4x3": 12,
    "heteccl-v100-4x3+8": 20,
    "heteccl-v100-8x2+4": 20,
    "heteccl-v100-4x2+8x2": 24,
    "heteccl-h20-4x2+8-fault-4": 15,
    "heteccl-h20-4x2+8-fault-8": 15,
    "heteccl-h20-4x2+8-fault-4-8": 14,
    "heteccl-h20-4x2+8-fault-4-4": 14,
    "heteccl-h20-4x2+8-slow": 16,
    "syccl-a100-16": 16,
    "syccl-a100-32": 32,
    "syccl-h800-64": 64,
    "syccl-h800-512": 512,
    "hetccl-pku-nvidia": 32,
    "hetccl-pku-v1": 32,
    "hetccl-pku-v2": 16,
    "hetccl-pku-v3": 32,
    "hetccl-snu": 16,
    "dgx-h100": 8,
    "mi300x": 8,
    "resccl-v100-topo1": 8,
    "resccl-v100-topo2": 16,
    "resccl-v100-topo3": 16,
    "resccl-v100-topo4": 32,
    "heteccl-fig10": 6,
}
FIG10 = """define nodenum = 2
define node1 = 2
define bandwidth = {direct => [( (0,1) -> (25,2) )
, ( (1,0) -> (25,2) ) ]}
define node2 = 4
define bandwidth = {switch => [( ( (0,1) , (2,3)
>-> (16,1) ) ) ] , direct => [( (0,1) -> (25,2) )
, ( (1,0) -> (25,2) ) , ( (2,3) -> (25,2) ) , ( (3,2)
-> (25,2) ) ]}
define internode = (node1, node2)
define interbandwidth = {switch => [( ( (0,1)
, (0,1,2,3) >-> (8,1) ) ) ]}
"""


def printed(t: Topology) -> str:
    return "\n".join(lines(t))


def test_figure_10_as_printed() -> None:
    t = cluster(FIG10)
    assert check(t) == []
    assert (t.node.tolist(), t.local.tolist()) == ([0, 0, 1, 1, 1, 1], [0, 1, 0, 1, 2, 3])
    ends = list(zip(t.link_src.tolist(), t.link_dst.tolist(), strict=True))
    assert ends == [(0, 1), (1, 0), (2, 3), (3, 2), (4, 5), (5, 4)]
    assert (t.links.bandwidth == 25).all() and (t.links.parallel == 2).all()
    assert t.level.tolist() == [Level.SWITCH] * 2 and t.shared.bandwidth.tolist() == [16, 8]
    assert [t.side_a.row(k).tolist() for k in range(2)] == [[2, 3], [0, 1]]
    assert [t.side_b.row(k).tolist() for k in range(2)] == [[4, 5], [2, 3, 4, 5]]


def test_brackets_of_figure_10_may_be_fewer_or_more() -> None:
    few = "define node1 = 4\ndefine bandwidth = {switch => [(0,1),(2,3) >-> (16,1)], "
    few += "direct => [(0,1) -> 5, (1,0) -> 5, (2,3) -> (5), (3,2) -> (5,1)]}"
    more = "define node1 = 4\ndefine bandwidth = {switch => [((((0,1),(2,3)) >-> (16,1))),], "
    more += "direct => [(((0,1) -> (5,1))), ((1,0) -> 5), ((2,3) -> 5), ((3,2) -> 5)],}"
    assert same(cluster(few), cluster(more))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples(path: Path) -> None:
    t = load(path)
    assert check(t) == []
    assert same(t, cluster(printed(t)))
    assert path.read_text().startswith("# ")  # where its numbers come from
    if path.stem in GPUS:
        assert len(t) == GPUS[path.stem]


def test_all_examples_are_there() -> None:
    assert set(GPUS) <= {path.stem for path in EXAMPLES}


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(texts())
def test_printing_parses_to_the_same(text: str) -> None:
    try:
        t = cluster(text)
    except UserError as error:
        assert error.problem.code == "E135"  # a GPU failed that others were reached by
        assume(False)
    assert check(t) == []
    again = printed(t)
    assert same(t, cluster(again))
    assert again == printed(cluster(again))


def test_uniform_prints_too() -> None:
    for shape in ((8, 4, 2), (12, 4, 4), (4, 4, 1)):
        t = uniform(*shape)
        assert check(t) == []
        u = cluster(printed(t))
        assert np.array_equal(t.port[Level.NIC], u.port[Level.NIC])
        assert np.array_equal(t.mesh, u.mesh) and t.chunk == u.chunk


def test_kinds_of_nodes_repeat() -> None:
    body = "define bandwidth = {mesh => [((0..1) -> 10)]}\ndefine nic = [((0,1) -> 5)]\n"
    once = "".join(f"define node{i + 1} = 2\n{body}" for i in range(3))
    t = cluster("define node1 = 3 * 2\n" + body)
    assert same(t, cluster(once))
    assert "define node1 = 3 * 2" in printed(t)


def test_latency_of_the_rate_the_node_the_file() -> None:
    text = """define latency = {mesh => 3, nic => 4}
    define node1 = 2
    define bandwidth = {mesh => [((0,1) -> (10,1,9))]}
    define nic = [((0,1) -> 5)]
    define node2 = 2
    define bandwidth = {mesh => [((0,1) -> (10,1))]}
    define nic = [((0) -> 5), ((1) -> 5)]
    define latency = {nic => 6}"""
    t = cluster(text)
    assert t.meshes.alpha.tolist() == [9, 3]
    assert t.shared.alpha.tolist() == [4, 6, 6]


def test_devices_belong_to_nodes() -> None:
    text = """define device = {vendor => nvidia, block => 7}
    define node1 = 1\ndefine nic = [(0) -> 5]
    define node2 = 1\ndefine device = {vendor => "amd", name => "MI 300"}
    define nic = [(0) -> 5]\ndefine chunk = 2 MiB"""
    t = cluster(text)
    assert [(t.devices[d].vendor, t.devices[d].block) for d in t.device] == [
        ("nvidia", 7),
        ("amd", 7),
    ]
    assert t.chunk == 2 << 20
    assert np.allclose(t.block_cost(), (2 << 20) / 7000)


def test_launches_belong_to_nodes() -> None:
    text = """define launch = {entry => 0.5, wake => 7}
    define node1 = 2 * 1\ndefine launch = 40\ndefine nic = [(0) -> 5]
    define node3 = 1\ndefine launch = {wake => 0}\ndefine nic = [(0) -> 5]
    """
    assert cluster(text).launch.tolist() == [[40, 0.5, 7, 0]] * 2 + [[0, 0.5, 0, 0]]
    assert "define launch = {base => 40, entry => 0.5, wake => 7}" in printed(cluster(text))
    small = cluster("define node1 = 1\ndefine launch = {base => 3, small => 4 MiB}")
    assert small.launch.tolist() == [[3, 0, 0, 4 << 20]] and same(small, cluster(printed(small)))
    plain = cluster("define node1 = 1\ndefine launch = 43.5")
    assert "define launch = 43.5" in printed(plain)
    assert not cluster("define node1 = 1").launch.any()
    assert "launch" not in printed(cluster("define node1 = 1"))


def test_cores_belong_to_nodes() -> None:
    text = """define cores = 4
    define node1 = 2 * 2\ndefine nic = [(0..1) -> 5]
    define node3 = 1\ndefine cores = 16\ndefine nic = [(0) -> 5]
    define failed = [(node3, 0)]"""
    assert cluster(text).cores.tolist() == [4, 4, 16]
    assert cluster(text.replace("define cores = 4", "")).cores.tolist() == [0, 0, 16]
    assert same(cluster(text), cluster(printed(cluster(text))))


def test_failed_gpus_are_no_ranks() -> None:
    text = """define node1 = 2 * 3
    define bandwidth = {mesh => [((0..2) -> 10)]}
    define nic = [((0,1) -> 5), ((2) -> 6)]
    define failed = [(node1, 2), (node2, 0)]"""
    t = cluster(text)
    assert (t.node.tolist(), t.local.tolist()) == ([0, 0, 1, 1], [0, 1, 1, 2])
    assert t.shared.bandwidth.tolist() == [5, 5, 6]  # the NIC of the first dead GPU is gone
    assert t.failed.tolist() == [[0, 2], [1, 0]]


def test_degraded() -> None:
    text = """define node1 = 2 * 2
    define bandwidth = {mesh => [((0,1) -> (10,1,2))]}
    define nic = [((0) -> (5,2,3)), ((1) -> 5)]
    define degraded = [((node2, nic) -> (1,1)), ((node1, direct, 0, 1) -> (4,1)),
                       (node1, nic, 1) -> 2]"""
    t = cluster(text)
    assert t.shared.bandwidth.tolist() == [5, 2, 1, 1]
    assert t.shared.alpha[2] == 3
    assert (t.link_src.tolist(), t.link_dst.tolist(), t.links[0]) == ([0], [1], (4, 1, 2))


def test_rails_and_leaves() -> None:
    nodes = "define node1 = 2 * 2\ndefine bandwidth = {port => [((0,1) -> 9)]}\n"
    nodes += "define nic = [((0) -> 5), ((1) -> 5)]\n"
    rails = cluster(nodes + "define rail = [(0), ((1) -> (5,2))]")
    assert rails.domain[Level.LEAF].tolist() == [0, 1, 0, 1]
    assert rails.port[Level.LEAF].tolist() == [-1, 8, -1, 8]
    same_rails = (
        nodes + "define leaf = [((node1..node2), (0)), ((node1, (1), node2, (1)) -> (5,2))]"
    )
    assert same(rails, cluster(same_rails))
    spines = cluster(
        nodes + "define leaf = [((node1) -> 7), ((node2) -> 7)]\n"
        "define spine = [((leaf1) -> 8), ((leaf2) -> 8)]"
    )
    assert spines.domain[Level.SPINE].tolist() == [0, 0, 1, 1]
    assert spines.shared.bandwidth[spines.port[Level.SPINE]].tolist() == [8] * 4


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(texts())
def test_the_graph_agrees_on_what_is_reached(text: str) -> None:
    try:
        t = cluster(text)
    except UserError:
        assume(False)
    g = graph(t)
    component = max(nx.strongly_connected_components(g), key=len)
    assert disconnected(t) is None
    assert set(range(len(t))) <= component


def test_512_gpus_print_and_parse() -> None:
    t = load(next(path for path in EXAMPLES if path.stem == "syccl-h800-512"))
    assert len(t) == 512
    assert same(t, cluster(printed(t)))


def test_512_unlike_gpus_parse() -> None:
    node = "define bandwidth = {{direct => [{}]}}\ndefine nic = [((0..7) -> ({}, 1))]\n"
    pairs = ", ".join(f"(({u},{v}) -> (25,2))" for u in range(8) for v in range(8) if u != v)
    text = "".join(f"define node{i + 1} = 8\n{node.format(pairs, i + 1)}" for i in range(64))
    assert len(cluster(text).links) == 64 * 56


@settings(max_examples=200, deadline=None)
@given(st.sets(st.tuples(st.integers(0, 12), st.integers(0, 12)).filter(lambda p: p[0] < p[1])))
def test_pairs_are_covered_once(pairs: set[tuple[int, int]]) -> None:
    x, y = (np.array([p[i] for p in sorted(pairs)], np.int64) for i in range(2))
    found = list(cover(x, y))
    assert all(nodes == sorted(set(nodes)) for nodes in found)
    covered = [pair for nodes in found for pair in combinations(nodes, 2)]
    assert sorted(covered) == sorted(pairs)


def test_all_pairs_are_one() -> None:
    x, y = np.triu_indices(300, 1)
    assert list(cover(x, y)) == [list(range(300))]


MANY = "define node1 = 1000 * 2\ndefine bandwidth = {mesh => [((0,1) -> 10)]}\n"
EVERY_PAIR = "define internode = (node1..node1000)\ndefine interbandwidth = "
WIDE = {
    "nics": "define nic = [((0) -> 5), ((1) -> 6)]\ndefine rail = [((0) -> (5,9)), ((1) -> (5,9))]",
    "direct": EVERY_PAIR + "{direct => [((0,0) -> 5)]}\ndefine internode = "
    f"({', '.join(f'node{i}' for i in range(1000, 0, -1))})\n"
    "define interbandwidth = {direct => [((0,0) -> 5)]}",
    "switch": EVERY_PAIR + "{switch => [((0), (0) >-> 5)]}",
    "direct and failures": EVERY_PAIR + "{direct => [((0,0) -> 5), ((1,1) -> 6)]}\n"
    "define internode = (node1, node1000)\n"
    "define interbandwidth = {switch => [((0,1), (0,1) >-> 7)]}\n"
    "define failed = [(node9, 0), (node70, 1)]",
    "failures": "define node1001 = 20000\ndefine bandwidth = {port => [((0..19999) -> 5)]}\n"
    "define internode = (node1, node1001)\n"
    + EVERY_PAIR.replace("1000", "400")
    + "{switch => [((0,1), (0) >-> 5), ((0), (1) >-> (6,2))]}\n"
    "define internode = (node400..node1000)\n"
    "define interbandwidth = {direct => [(0,0) -> 4]}\n"
    "define failed = [(node1001, 1..9000), "
    f"{', '.join(f'(node{i}, 1)' for i in range(2, 900, 7))}]",
}


@pytest.mark.parametrize("name", [slow(name) for name in WIDE])
def test_a_thousand_nodes_print_and_parse(name: str) -> None:
    source = Source("wide.cluster", MANY + WIDE[name])
    t = build(read_site(parse_defines(source.text)))  # whether all are reached does not matter
    again = printed(t)
    assert len(again) < 200_000
    assert same(t, build(read_site(parse_defines(again))))


IDS = st.sets(st.integers(0, 1), min_size=1).map(
    lambda ids: f"({', '.join(map(str, sorted(ids)))})"
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.integers(3, 6),
    st.lists(st.tuples(IDS, IDS), min_size=1, max_size=3),
    st.sets(st.tuples(st.integers(0, 5), st.integers(0, 1)), max_size=4),
    st.booleans(),
)
def test_every_pair_of_nodes_with_failures(
    nodes: int, ways: list[tuple[str, str]], failed: set[tuple[int, int]], again: bool
) -> None:
    gone = ", ".join(f"(node{node + 1}, {gpu})" for node, gpu in sorted(failed) if node < nodes)
    joined = ", ".join(f"({a}, {b} >-> {5 + i})" for i, (a, b) in enumerate(ways))
    between = f"define internode = (node1..node{nodes})\n"
    between += f"define interbandwidth = {{switch => [{joined}]}}\n"
    text = f"define node1 = {nodes} * 2\n{between * (1 + again)}"
    t = build(read_site(parse_defines(text + (f"define failed = [{gone}]" if gone else ""))))
    assert same(t, build(read_site(parse_defines(printed(t)))))
    if not gone:
        assert printed(t).count("internode") == 1 + again


def test_rates_and_latencies_may_have_units() -> None:
    plain = "define node1 = 4\ndefine latency = {nic => 5}\ndefine bandwidth = {mesh => "
    plain += "[((0..3) -> (50,2,0.7))]}\ndefine nic = [((0..3) -> 25)]\n"
    units = plain.replace("(50,2,0.7)", "(400Gbps, 2, 700 ns)").replace("-> 25", "-> 0.025 TB/s")
    for written in (units.replace("=> 5}", "=> 5us}"), units.replace("=> 5}", "=> 0.005 ms}")):
        assert same(cluster(written), cluster(plain))
    assert same(cluster(plain.replace("0.7", "0.7µs")), cluster(plain))


def test_an_unknown_unit_is_told_the_known_ones() -> None:
    with pytest.raises(UserError) as caught:
        cluster("define node1 = 4\ndefine nic = [((0..3) -> (400Gbs,1))]")
    assert caught.value.problem.help is not None
    assert "GB/s" in caught.value.problem.help and "Gbps" in caught.value.problem.help
