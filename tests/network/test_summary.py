"""A cluster in a few words: each part is said when it is there, and only then."""

from __future__ import annotations

import pytest

from hccc.network import summary
from hccc.testing.clusters import cluster

NICS = "define nic = [((0) -> 5), ((1) -> 5)]\n"
MESH = "define bandwidth = {mesh => [((0,1) -> 10)]}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("define node1 = 2\n" + MESH, "mesh"),
        ("define node1 = 2\ndefine bandwidth = {port => [((0,1) -> 10)]}", "crossbar"),
        ("define node1 = 2\ndefine bandwidth = {switch => [((0), (1) >-> 10)]}", "switches"),
        ("define node1 = 2\n" + MESH + "define nic = [((0,1) -> 5)]", "mesh; 1 NIC a node"),
        ("define node1 = 2 * 2\n" + NICS, "none; 2 NICs a node"),
        (
            "define node1 = 2 * 2\n" + MESH + NICS + "define rail = [(0), (1)]",
            "mesh; 2 NICs a node, 2 rails",
        ),
        (
            "define node1 = 2 * 2\n" + NICS + "define leaf = [((node1) -> 9), ((node2) -> 9)]\n"
            "define spine = [(leaf1, leaf2)]",
            "none; 2 NICs a node, 2 leaves",
        ),
        (
            f"define node1 = 2\n{NICS}define node2 = 1\ndefine nic = [((0) -> 5)]",
            "none; 1 to 2 NICs a node",
        ),
        (
            f"define node1 = 2 * 2\n{MESH}define internode = (node1, node2)\n"
            "define interbandwidth = {switch => [((0,1), (0,1) >-> 3)]}",
            "mesh; switches",
        ),
        (
            f"define node1 = 2 * 2\n{MESH}define internode = (node1, node2)\n"
            "define interbandwidth = {direct => [((0,0) -> 3), ((0,1) -> 3)], "
            "switch => [((0,1), (0,1) >-> 3)]}",
            "mesh; links, switches",
        ),
    ],
)
def test_network(text: str, said: str) -> None:
    assert summary.network(cluster(text)) == said


def test_devices_are_counted_in_the_order_of_the_ranks() -> None:
    text = f"define node1 = 2\ndefine device = {{name => B}}\n{NICS}"
    text += f"define node2 = 2\ndefine device = {{name => A}}\n{NICS}"
    text += (
        f"define node3 = 2 * 2\ndefine device = {{name => B}}\n{NICS}define failed = [(node3,0)]"
    )
    assert summary.devices(cluster(text)) == "5 B, 2 A"
