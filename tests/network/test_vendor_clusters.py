"""vendor_clusters: found by vendor and NIC, split by bandwidth, or as the cluster file says."""

from __future__ import annotations

import pytest

from hccc.base.diagnostics import Source
from hccc.ir.topology import Topology, same
from hccc.lang.cluster import printer
from hccc.lang.cluster.load import parse
from hccc.network.vendor_clusters import divisions, vendor_clusters_of

NVIDIA = "define network = RoCE\ndefine node1 = 2 * 4\ndefine device = {vendor => nvidia}\n"
PORTS = "define bandwidth = {port => [((0..3) -> 100)]}\n"
AMD = "define node3 = 3\ndefine device = {vendor => amd}\n" + PORTS.replace("3", "2")
TWO = NVIDIA + PORTS + "define nic = [((0,1) -> 10), ((2) -> 25)]\n" + AMD


def cluster(text: str) -> Topology:
    t = parse(Source("test.cluster", text))
    assert same(parse(Source("printed", "\n".join(printer.lines(t)))), t)
    return t


def found(text: str) -> list[tuple[str, list[int], list[int], list[int]]]:
    v = vendor_clusters_of(cluster(text))
    return [
        (
            v.vendors[c],
            v.members(c),
            v.border(c),
            v.weight[v.borders.ptr[c] : v.borders.ptr[c + 1]].tolist(),
        )
        for c in range(len(v))
    ]


def test_vendors_and_the_ranks_at_their_nics() -> None:
    """GPU 3 of an nvidia node has no NIC; 10 GB/s of two and 25 GB/s of one are 1 : 1 : 5."""
    assert found(TWO + "define nic = [((0) -> 60)]\n") == [
        ("nvidia", list(range(8)), [0, 1, 2, 4, 5, 6], [1, 1, 5, 1, 1, 5]),
        ("amd", [8, 9, 10], [8], [1]),
    ]


def test_a_vendor_with_twice_the_bandwidth_is_two() -> None:
    text = TWO + "define nic = [((0..2) -> 35)]\n"
    assert [(v, len(ranks)) for v, ranks, _, _ in found(text)] == [
        ("nvidia", 4),
        ("nvidia", 4),
        ("amd", 3),
    ]


def test_both_divisions() -> None:
    t = cluster(TWO + "define nic = [((0..2) -> 35)]\n")
    assert [len(v) for v in divisions(t)] == [3, 2]
    assert [len(v) for v in divisions(cluster(TWO + "define nic = [((0) -> 60)]\n"))] == [2]


def test_the_file_says_which() -> None:
    text = TWO + (
        "define nic = [((0) -> 20)]\n"
        "define cluster = [(node1, (0, 2)), (node1, (1, 3), node2)]\n"
        "define border = [(node2, 1), (node1, (3))]\n"
    )
    assert found(text) == [
        ("nvidia", [0, 2], [0, 2], [2, 5]),
        ("nvidia", [1, 3, 4, 5, 6, 7], [3, 5], [1, 1]),
        ("amd", [8, 9, 10], [8], [1]),
    ]


def test_failed_gpus_are_in_none() -> None:
    text = TWO + "define nic = [((0..2) -> 60)]\ndefine cluster = [(node1), (node2, node3)]\n"
    v = found(text + "define failed = [(node1, 0)]\n")
    assert [(vendor, ranks) for vendor, ranks, _, _ in v] == [
        ("nvidia", [0, 1, 2]),
        ("nvidia+amd", [3, 4, 5, 6, 7, 8, 9]),
    ]


def test_without_nics_border_ranks_are_those_with_links() -> None:
    text = (
        "define node1 = 2\ndefine device = {vendor => a}\n"
        "define bandwidth = {mesh => [((0,1) -> 50)]}\n"
        "define node2 = 2\ndefine device = {vendor => b}\n"
        "define bandwidth = {mesh => [((0,1) -> 50)]}\n"
        "define internode = (node1, node2)\n"
        "define interbandwidth = {direct => [((1,0) -> 10), ((1,1) -> 20)]}\n"
        "define internode = (node2, node1)\n"
        "define interbandwidth = {direct => [((0,1) -> 10), ((1,1) -> 20)]}\n"
    )
    assert found(text) == [("a", [0, 1], [1], [1]), ("b", [2, 3], [2, 3], [1, 2])]


@pytest.mark.parametrize("name", ["hetccl-snu", "hetccl-pku-nvidia+v3"])
def test_shipped_clusters(name: str) -> None:
    from pathlib import Path

    from hccc.driver.inputs import load_cluster

    v = vendor_clusters_of(load_cluster(Path(name)))
    sizes = [len(v.members(c)) for c in range(len(v))]
    assert sizes == {"hetccl-snu": [8, 8], "hetccl-pku-nvidia+v3": [32, 16, 16]}[name]
