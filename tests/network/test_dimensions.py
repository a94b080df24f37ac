"""Dimensions: the levels that join ranks, each only where it joins pairs that no lower one does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from hccc.ir.topology import Topology
from hccc.network.dimensions import NAMES, dimensions
from hccc.network.routes import unreachable
from hccc.testing.clusters import cluster, topologies
from tests.health_checks import EVERY_CHECK

PORTS = "define bandwidth = {port => [((0..3) -> 180)]}\n"
NICS = "define nic = [((0) -> 50), ((1) -> 50), ((2) -> 50), ((3) -> 50)]\n"
RAILS = "define rail = [(0), (1), (2), (3)]\n"


def groups(t: Topology) -> dict[str, list[list[int]]]:
    return {d.name: [d.members(g).tolist() for g in range(len(d.sizes))] for d in dimensions(t)}


def test_rails_of_syccl_figure_19() -> None:
    t = cluster("define node1 = 7 * 4\n" + PORTS + NICS + RAILS)
    found = groups(t)
    assert list(found) == ["node", "rail"]
    assert found["node"] == [list(range(4 * i, 4 * i + 4)) for i in range(7)]
    assert found["rail"] == [list(range(i, 28, 4)) for i in range(4)]
    assert [(d.rate[0], d.alike) for d in dimensions(t)] == [(180, True), (50, True)]


def test_a_clos_of_four_levels() -> None:
    leaves = ", ".join(f"((node{2 * i + 1}, node{2 * i + 2}) -> (100,2))" for i in range(4))
    text = f"define node1 = 8 * 4\n{PORTS}{NICS}define leaf = [{leaves}]\n"
    t = cluster(text + "define spine = [((leaf1, leaf2) -> 300), ((leaf3, leaf4) -> 300)]")
    found = groups(t)
    assert {name: [len(one) for one in of] for name, of in found.items()} == {
        "node": [4] * 8,
        "leaf": [8] * 4,
        "spine": [16] * 2,
        "core": [32],
    }
    assert found["leaf"][1] == list(range(8, 16))
    core = dimensions(t)[-1]  # 16 ranks leave each spine together, over 300 GB/s
    assert np.allclose(core.rate, 300 / 16)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("define node1 = 4\n" + PORTS, ["node"]),
        ("define node1 = 2 * 4\n" + NICS, ["node", "leaf"]),
        ("define node1 = 2 * 1\ndefine nic = [((0) -> 5)]", ["leaf"]),
        (
            f"define node1 = 2 * 4\n{NICS}define leaf = [((node1) -> 9), ((node2) -> 9)]",
            ["node", "spine"],
        ),
    ],
)
def test_a_level_that_joins_nothing_new_is_none(text: str, names: list[str]) -> None:
    within = "" if "node1 = 2 * 1" in text or PORTS in text else PORTS
    first, _, rest = text.partition("\n")
    assert [d.name for d in dimensions(cluster(f"{first}\n{within}{rest}"))] == names


def test_unlike_nodes_are_said_to_be() -> None:
    text = f"define node1 = 4\n{PORTS}{NICS}define node2 = 2\n"
    two = "define bandwidth = {port => [((0,1) -> 90)]}\ndefine nic = [((0,1) -> 50)]"
    node, leaf = dimensions(cluster(text + two))
    assert node.sizes.tolist() == [4, 2] and not node.alike
    assert (node.rate.min(), node.rate.max()) == (90, 180)
    assert leaf.sizes.tolist() == [6] and not leaf.alike


@pytest.mark.slow
@given(topologies())
@settings(deadline=None, suppress_health_check=EVERY_CHECK, max_examples=40)
def test_groups_join_what_routes_do(t: Topology) -> None:
    found = dimensions(t)
    assert [d.name for d in found] == [n for n in NAMES if n in {d.name for d in found}]
    for k, d in enumerate(found):
        firsts = [d.members(g)[0] for g in range(len(d.sizes))]
        assert firsts == sorted(firsts) and (d.sizes > 0).all()
        assert ((d.rate > 0) <= (d.group >= 0)).all() and (d.rate > 0).any()
        u, v = np.nonzero((d.group[:, None] == d.group) & (d.group >= 0)[:, None])
        new = u != v
        for lower in found[:k]:
            new &= (lower.group[u] != lower.group[v]) | (lower.group[u] < 0)
        assert new.any()
        if d.name != "node":
            assert not len(unreachable(t, u[new].astype(np.int32), v[new].astype(np.int32)))
