"""Pictures of clusters: everything is there, alike things once, faults to be seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from hccc import testing
from hccc.base.diagnostics import Source
from hccc.ir.topology import Device, Level, Topology, uniform
from hccc.lang.cluster import load as cluster
from hccc.pictures.canvas import SMALL, width_of
from hccc.pictures.fabric import fabric
from hccc.pictures.node_classes import node_classes, slower
from hccc.pictures.node_view import node_view
from hccc.pictures.panel import Panel
from hccc.pictures.tiers import Tiers
from hccc.pictures.topology import topology
from tests.marks import slow
from tests.pictures.drawn import CLUSTERS, site, texts, tips

BIG = """
define nodenum = 128
define node1 = 128 * 8
define device = {vendor => nvidia, name => H100}
define bandwidth = {port => [((0..7) -> (450,1))]}
define nic = [((0..1) -> (50,1)), ((2..3) -> (50,1)), ((4..5) -> (50,1)), ((6..7) -> (50,1))]
"""


def _parsed(text: str) -> Topology:
    return cluster.parse(Source("test.cluster", text))


@pytest.mark.parametrize(
    "path", [slow(p) if i % 10 else p for i, p in enumerate(CLUSTERS)], ids=lambda path: path.stem
)
def test_every_example_is_drawn(path: Path) -> None:
    t = cluster.load(path)
    picture = topology(t, path.stem)
    shown = texts(picture)
    assert f"{len(t)} ranks" in shown[0] or any(f"{len(t):,} ranks" in x for x in shown)
    assert len(picture.svg) < 120_000
    assert topology(t, path.stem).svg == picture.svg  # the same input, the same bytes
    for device in t.devices:
        assert any(device.name in x for x in shown)


@pytest.mark.slow
@given(testing.topologies())
@settings(max_examples=20, deadline=None)
def test_every_node_is_in_one_box_and_one_kind(t: Topology) -> None:
    kinds = node_classes(t)
    assert sorted(n for kind in kinds for n in kind.nodes) == list(range(t.n_nodes))
    net = fabric(t, kinds)
    assert (net is None) == (t.n_nodes < 2)
    if net:
        assert sorted(n for u in net.tiers[0] for n in u.members) == list(range(t.n_nodes))
        for edge in net.edges:
            assert edge.low < len(net.tiers[edge.tier])
            assert edge.high < len(net.tiers[edge.tier + 1])
            assert edge.capacity > 0
    shown = texts(topology(t))
    for rank in range(len(t)):  # at most 20 GPUs: drawn one by one, or said to be alike
        first = next(kind.first for kind in kinds if t.node[rank] in kind.nodes)
        if t.node[rank] == first:
            assert str(rank) in shown


def test_alike_nodes_are_drawn_once() -> None:
    t = _parsed(BIG)
    picture = topology(t, "big")
    shown = texts(picture)
    assert "node1 × 127 more: node2–node128" in shown
    assert "128 alike, each:" in shown
    assert len(picture.svg) < 40_000


def test_one_node_that_differs_is_drawn_apart() -> None:
    text = BIG + "define degraded = [((node5, nic, 1) -> (5,1))]\ndefine failed = [(node9, 3)]\n"
    t = _parsed(text)
    assert [k.nodes[:1] for k in node_classes(t)] == [(0,), (4,), (8,)]
    shown = texts(topology(t))
    assert "node1 × 125 more: node2–node4, node6–node8, node10–node128" in shown
    assert {"node5", "node9", "failed", "1 of 8 failed"} <= set(shown)
    assert "NICs 3 × 50 GB/s, 1 × 5 GB/s" in shown
    assert "slower than its peers, or failed" in shown


def test_slower_than_its_peers() -> None:
    t = site("heteccl-h20-4x2+8-slow")
    slow = np.flatnonzero(slower(t))
    assert sorted(slow) == sorted(np.unique(t.port[Level.NIC][t.node == 0]))
    assert not slower(site("hetccl-pku-nvidia+v1")).any()  # unlike devices are no peers
    assert "slower than its peers, or failed" not in texts(topology(site("resccl-topo4")))


def test_links_say_both_rates_of_an_asymmetric_pair() -> None:
    text = (
        "define nodenum = 1\ndefine node1 = 2\n"
        "define bandwidth = {direct => [((0,1) -> (25,2)), ((1,0) -> (12.5,1))]}\n"
    )
    shown = " ".join(texts(topology(_parsed(text))))
    assert "25 GB/s × 2" in shown and "12.5 GB/s" in shown


def test_tiers_rails_and_links_between_nodes() -> None:
    rails = texts(topology(site("syccl-h800-512")))
    assert {"rail1", "rail8", "no uplinks", "node1–node64"} <= set(rails)
    assert "node1–node8" in texts(topology(site("syccl-h800-64")))  # 64 edges are a tangle
    assert "Nothing crosses rails but the links inside nodes." in rails
    clos = texts(topology(site("resccl-topo4")))
    assert {"spine", "leaf1", "leaf2", "up 25 GB/s × 8"} <= set(clos)
    pairs = "(" + ", ".join(f"node{i}" for i in range(1, 13)) + ")"
    text = (
        "define nodenum = 12\ndefine node1 = 12 * 1\n"
        f"define internode = {pairs}\n"
        "define interbandwidth = {switch => [((0), (0) >-> (8,1))]}\n"
    )
    assert "66 alike, each:" in texts(topology(_parsed(text)))
    found = texts(topology(site("heteccl-fig10")))
    assert {"GPUs 0, 1 ↔ GPUs 0–3", "8 GB/s shared", "16 GB/s shared"} <= set(found)


def test_ranks_of_all_are_not_said_of_each() -> None:
    shown = texts(topology(site("syccl-h800-512")))
    each = shown.index("64 alike, each:")
    assert shown.index("ranks 0–511") < each < shown.index("8 × H800")


def test_every_rail_has_its_nic() -> None:
    """Lines of one box do not begin in one point: each NIC is named beside its own."""
    t = site("syccl-h800-512")
    net = fabric(t, node_classes(t))
    assert net is not None
    assert {(e.nics, e.high) for e in net.edges} == {((i,), i) for i in range(8)}
    picture = topology(t)
    assert {f"NIC {i}" for i in range(8)} <= set(texts(picture))
    tiers = Tiers(net, [])
    box = (0.0, 0.0, 8.0, 1.0)
    assert len({tiers.low_end(edge, box) for edge in net.edges}) == 8


def test_boxes_of_a_tier_are_alike_in_height() -> None:
    """Also where one of them says that a GPU failed."""
    t = site("heteccl-h20-4x2+8-fault-4-8")
    net = fabric(t, node_classes(t))
    assert net is not None and len({len(unit.lines) for unit in net.tiers[0]}) > 1
    boxes = Tiers(net, []).places(0, 12.0, 1.0)
    assert len(boxes) == 3 and len({(y, height) for _, y, _, height in boxes}) == 1


def test_colours_and_widths_have_a_legend() -> None:
    shown = texts(topology(site("heteccl-h20-4x2+8-fault-4-8")))
    assert {"node1: 3 × H20", "node2: 4 × H20", "node3: 7 × H20"} <= set(shown)
    assert {"50 GB/s", "450 GB/s"} <= set(shown)
    alone = texts(topology(site("resccl-topo4")))
    assert not any(x.startswith("node1–node4: ") for x in alone)  # one colour needs none


def test_labels_of_nics_keep_from_their_boxes() -> None:
    t = site("heteccl-h20-4x2+8-slow")
    for i, of in enumerate(node_classes(t)):
        view = node_view(t, of.first)
        panel = Panel(t, of, view, i)
        for nic in view.nics:
            room = panel.column * len(nic.columns) - 0.08
            assert all(width_of(line, SMALL) < room - 0.1 for line in nic.lines)


def test_a_very_wide_node_is_cut_and_says_so() -> None:
    shown = texts(topology(uniform(300, 300, 2)))
    assert {"0", "299", "+ 287"} <= set(shown)
    assert "12" not in shown


def test_names_cannot_leave_the_picture() -> None:
    """The language refuses such names; a Topology made by a program may have them."""
    evil = "<script>alert(1)</script>\x00&'\""
    t = replace(site("mi300x"), devices=(Device(evil, evil),))
    picture = topology(t, evil)
    assert "<script" not in picture.svg and "\x00" not in picture.svg
    assert any("<script>" in x for x in texts(picture))  # shown as text
    assert tips(picture)
    assert "x^2" in "".join(texts(topology(t, "$x^2$")))  # no mathematics either


def _sharing(n: int, memory: str) -> list[str]:
    """Returns the notes about memory in the picture of n nodes of two GPUs."""
    inside = "define bandwidth = {port => [((0,1) -> 100)]}\ndefine nic = [((0,1) -> 12)]"
    t = _parsed(f"define node1 = {n} * 2\n{inside}\n{memory}")
    return [x for x in texts(topology(t)) if "Memory domains" in x]


def test_memory_domains_of_several_nodes_are_named() -> None:
    some = _sharing(5, "define memory = [(node1, node3), (node4, node5)]")
    assert some == ["Memory domains: node1, node3; node4, node5; 1 node alone."]
    assert _sharing(3, "define memory = [(node1..node3)]") == ["Memory domains: node1–node3."]
    pairs = ", ".join(f"(node{i}, node{i + 1})" for i in range(1, 17, 2))
    (many,) = _sharing(18, f"define memory = [{pairs}]")
    assert many.endswith("node11, node12; 2 more of several nodes; 2 nodes alone.")


def test_nodes_that_are_memory_domains_need_no_note() -> None:
    assert _sharing(3, "") == []
