"""Clusters in chunks a step: HeteCCL's, and small random ones."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from hccc.ir.arrays import frozen
from hccc.lang.cluster import load
from hccc.synth.greedy.chunked import Chunked, chunked
from hccc.synth.greedy.schedule import CopyDemand, gather_all

CLUSTERS = Path(__file__).parents[3] / "examples" / "clusters"
# Nodes of 1 and 2 GPUs.
SMALL = """
define network = InfiniBand
define device = H20
define node1 = 1
define nic = [((0) -> (50,1))]
define node2 = 2
define bandwidth = {mesh => [((0,1) -> (150,1))]}
define nic = [((0) -> (50,1)), ((1) -> (50,1))]
"""


@cache
def example(name: str) -> Chunked:
    """Loads a shipped cluster."""
    return chunked(load.load(CLUSTERS / f"{name}.cluster"))


def gather(c: Chunked, chunks: int = 1, *, exclusive: bool = False) -> CopyDemand:
    """Makes the demand of an Allgather of `chunks` chunks a rank."""
    return gather_all(np.repeat(np.arange(c.n), chunks), c.n, exclusive=exclusive)


def cluster(nodes: list[int], use: dict[tuple[int, int], list[int]], caps: list[int]) -> Chunked:
    """Makes a cluster. nodes: of each rank; use: resources of u → v, where there is a route."""
    n, width = len(nodes), max([1, *map(len, use.values())])
    table = np.full((n * n, width), -1, np.int32)
    for u in range(n):
        for v in range(n):
            if u != v:
                row = use.get((u, v), [-2])
                table[u * n + v, : len(row)] = row
    network = np.zeros(len(caps), np.bool_)
    node, rows, capacity = frozen(nodes, np.int32), frozen(table, np.int32), frozen(caps, np.int64)
    return Chunked(node, rows, capacity, frozen(network, np.bool_), 1.0)


@st.composite
def clusters(draw: st.DrawFn) -> Chunked:
    """Draws 2 to 4 ranks that reach each other, with links missing and resources shared at
    random."""
    n = draw(st.integers(2, 4))
    caps = draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))
    uses = st.lists(st.integers(0, len(caps) - 1), min_size=1, max_size=2, unique=True)
    use = {}
    for u in range(n):
        for v in range(n):
            if u != v and ((u + 1) % n == v or draw(st.booleans())):
                use[u, v] = draw(uses)
    return cluster(draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)), use, caps)


@st.composite
def switched(draw: st.DrawFn) -> Chunked:
    """Draws 2 or 3 nodes of 1 or 2 ranks; NICs, shared or not, on one switch or two rails."""
    sizes = draw(st.lists(st.integers(1, 2), min_size=2, max_size=3))
    nodes = [m for m, size in enumerate(sizes) for _ in range(size)]
    local = [i for size in sizes for i in range(size)]
    shared = draw(st.booleans())
    rails = draw(st.booleans()) and not shared and len(set(sizes)) == 1
    n = len(nodes)
    caps = draw(st.lists(st.integers(1, 2), min_size=3 * n, max_size=3 * n))
    nic = [nodes.index(m) for m in nodes] if shared else list(range(n))
    use = {}
    for u in range(n):
        for v in range(n):
            if nodes[u] == nodes[v] and u != v:
                use[u, v] = [2 * n + u]
            elif nodes[u] != nodes[v] and (not rails or local[u] == local[v]):
                use[u, v] = [nic[u], n + nic[v]]
    return cluster(nodes, use, caps)


@st.composite
def demands(draw: st.DrawFn, c: Chunked) -> CopyDemand:
    """Draws 1 to 4 chunks, each of one rank or two, wanted by any."""
    count = draw(st.integers(1, 4))
    owner = draw(st.lists(st.integers(0, c.n - 1), min_size=count, max_size=count))
    pre = gather_all(np.array(owner), c.n).pre.copy()
    pre[0, draw(st.integers(0, c.n - 1))] = True
    flags = st.lists(st.booleans(), min_size=c.n, max_size=c.n)
    some = np.array(draw(st.lists(flags, min_size=count, max_size=count)))
    post = np.ones_like(pre) if draw(st.booleans()) else some | pre
    return CopyDemand(pre, post, draw(st.booleans()))
