"""Topologies with published optima (ForestColl, its LP for Allreduce, TE-CCL's models)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from hccc.ir.topology import Topology
from hccc.lang.cluster import load as cluster
from hccc.testing.clusters import cluster as cluster_of

CLUSTERS = Path(__file__).parents[2] / "examples" / "clusters"
# Of the 16 dies of an MI250 box: how many xGMI links of 50 GB/s are between two.
DIES = """0-1:4 0-2 0-4:2 1-2 1-3 1-5 2-3:4 2-6 3-7:2 4-5:4 4-12 5-13 5-14 6-7:4 6-13 6-14 7-15
8-9:4 8-10 8-12:2 9-10 9-11 9-13 10-11:4 10-14 11-15:2 12-13:4 14-15:4"""
# Of a DGX-1: NVLinks of 25 GB/s.
CUBE = "0-3:2 0-4:2 1-2:2 1-5:2 2-3:2 4-7:2 5-6:2 6-7:2 0-1 0-2 1-3 2-6 3-7 4-5 4-6 5-7"
FOUR = (
    "define bandwidth = {mesh => [((0..3) -> 150)]}\ndefine nic = [((0) -> 50), ((1) -> 50), "
    "((2) -> 50), ((3) -> 50)]\n"
)
EIGHT = (
    "define bandwidth = {port => [((0..7) -> 450)]}\ndefine nic = [((0,1) -> 50), "
    "((2,3) -> 50), ((4,5) -> 50), ((6,7) -> 50)]\n"
)
A100 = (
    "define bandwidth = {port => [((0..7) -> 300)]}\ndefine nic = [((0,1) -> 25), "
    "((2,3) -> 25), ((4,5) -> 25), ((6,7) -> 25)]\n"
)


def _links(text: str, rate: float) -> str:
    entries = []
    for pair in text.split():
        ends, _, count = pair.partition(":")
        u, v = ends.split("-")
        entries += [f"(({a},{b}) -> ({rate}, {count or 1}))" for a, b in ((u, v), (v, u))]
    return f"define bandwidth = {{direct => [{', '.join(entries)}]}}\n"


def _own_nics(gpus: int, rate: float) -> str:
    return f"define nic = [{', '.join(f'(({i}) -> {rate})' for i in range(gpus))}]\n"


def _mixed(four: int, eight: int) -> str:
    return f"define node1 = {four} * 4\n{FOUR}define node{four + 1} = {eight} * 8\n{EIGHT}"


TEXTS = {
    "a": "define node1 = 8\ndefine bandwidth = {port => [((0..7) -> 300)]}\n",
    "b": f"define node1 = 2 * 8\n{A100}",
    "c": f"define node1 = 4 * 8\n{A100}",
    "c, 2 leaves": f"define node1 = 4 * 8\n{A100}define leaf = [((node1, node2) -> (25,8)), "
    "((node3, node4) -> (25,8))]\n",
    "d": "syccl-h800-64",
    "e": "syccl-h800-512",
    "f (4+8)": "heteccl-h20-4+8",
    "f (4x2+8)": "heteccl-h20-4x2+8",
    "f (4x3)": "heteccl-h20-4x3",
    "f (4x3+8)": "heteccl-h20-4x3+8",
    "f (8x2+4)": "heteccl-h20-8x2+4",
    "f (4x2+8x2)": "heteccl-h20-4x2+8x2",
    "64 = 8x4+4x8": _mixed(8, 4),
    "64 = 4x4+6x8": _mixed(4, 6),
    "g": f"define node1 = 16\n{_links(DIES, 50)}",
    "g, 2 boxes": f"define node1 = 2 * 16\n{_links(DIES, 50)}{_own_nics(16, 16)}",
    "a100_topology(2)": "define node1 = 2 * 8\ndefine bandwidth = {port => [((0..7) -> 300)]}\n"
    + _own_nics(8, 25),
    "DGX-1": f"define node1 = 8\n{_links(CUBE, 25)}",
    "NDv2 x 4": f"define node1 = 4 * 8\n{_links(CUBE, 25)}define nic = [((0..7) -> 12.5)]\n",
    "DGX-2 x 2": "define node1 = 2 * 16\ndefine bandwidth = {port => [((0..15) -> 112.5)]}\n"
    + _own_nics(16, 12.5),
}
# algbw, GB/s, of an Allgather (and Reducescatter), exactly.
ALLGATHER = {
    "a": "2400/7",
    "b": "200",
    "c": "400/3",
    "c, 2 leaves": "400/3",
    "d": "14720/63",
    "e": "117760/511",
    "f (4+8)": "300",
    "f (4x2+8)": "800/3",
    "f (4x3)": "300",
    "f (4x3+8)": "250",
    "f (8x2+4)": "250",
    "f (4x2+8x2)": "240",
    "64 = 8x4+4x8": "640/3",
    "64 = 4x4+6x8": "640/3",
    "g": "2400/7",
    "g, 2 boxes": "5312/15",
    "a100_topology(2)": "1040/3",
    "DGX-1": "1200/7",
    "NDv2 x 4": "50/3",
    "DGX-2 x 2": "4000/31",
}
# algbw, GB/s, of the best Allreduce over trees with free roots.
ALLREDUCE = {
    "a": 171.43,
    "b": 100.0,
    "c": 66.67,
    "d": 116.83,
    "e": 115.23,
    "f (4+8)": 200.0,
    "f (4x2+8)": 150.0,
    "f (4x3)": 150.0,
    "f (4x3+8)": 133.33,
    "f (8x2+4)": 150.0,
    "f (4x2+8x2)": 133.33,
    "64 = 8x4+4x8": 109.09,
    "64 = 4x4+6x8": 111.11,
    "g": 171.43,
    "g, 2 boxes": 177.07,
}


@cache
def published(name: str) -> Topology:
    """Returns one of the topologies."""
    text = TEXTS[name]
    if "\n" not in text:
        return cluster.load(CLUSTERS / f"{text}.cluster")
    return cluster_of(text)
