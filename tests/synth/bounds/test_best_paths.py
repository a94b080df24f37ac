"""best_paths: as a plain linear program over all routes has it, and closed forms of trees of
switches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from scipy.optimize import linprog  # type: ignore[import-untyped]

from hccc.ir.collective import OpType
from hccc.ir.topology import Topology
from hccc.lang.cluster.load import load
from hccc.network.resource_names import names
from hccc.network.routes import routes
from hccc.synth.bounds import best_paths as module
from hccc.synth.bounds.best_paths import BestPaths, best_paths
from hccc.synth.bounds.bound import limits
from hccc.synth.bounds.certificate import certificate
from hccc.testing.clusters import cluster
from tests.health_checks import EVERY_CHECK
from tests.synth.bounds.test_bound import topologies
from tests.synth.published import CLUSTERS

SETTINGS = settings(deadline=None, suppress_health_check=EVERY_CHECK, max_examples=25)
PAIRWISE = (OpType.ALLTOALL, OpType.GATHER, OpType.SCATTER)

# Two nodes of eight below each leaf, whose four uplinks of 50 GB/s are a quarter of its NICs.
FAT_TREE = """
define network = InfiniBand
define node1 = 4 * 8
define bandwidth = {port => [((0..7) -> (300,1))]}
define nic = [((0) -> 50), ((1) -> 50), ((2) -> 50), ((3) -> 50),
              ((4) -> 50), ((5) -> 50), ((6) -> 50), ((7) -> 50)]
define leaf = [((node1, node2) -> (50,4)), ((node3, node4) -> (50,4))]
"""
# A leaf for each node, and two spines whose two uplinks of 50 GB/s are all there is between them.
SPINES = """
define network = InfiniBand
define node1 = 4 * 8
define bandwidth = {port => [((0..7) -> (300,1))]}
define nic = [((0) -> 50), ((1) -> 50), ((2) -> 50), ((3) -> 50),
              ((4) -> 50), ((5) -> 50), ((6) -> 50), ((7) -> 50)]
define leaf = [((node1) -> (50,8)), ((node2) -> (50,8)), ((node3) -> (50,8)), ((node4) -> (50,8))]
define spine = [((leaf1, leaf2) -> (50,2)), ((leaf3, leaf4) -> (50,2))]
"""


def found(t: Topology, op: OpType = OpType.ALLTOALL, root: int = 0) -> BestPaths:
    cut = limits(t, op, root).cut
    assert cut is not None
    best = best_paths(t, op, root, float(cut.algbw), 1 << 20)
    assert best is not None
    return best


def over_routes(t: Topology, op: OpType, root: int) -> float:
    """Returns the optimum by a program that knows nothing of hubs, chains or colours: a variable
    for each destination and pair of ranks, which takes of all resources of the pair's route."""
    n = len(t)
    src, dst = (x.astype(np.int32) for x in np.divmod(np.arange(n * n), n))
    src, dst = src[src != dst], dst[src != dst]
    way = routes(t, src, dst)
    pairs = np.flatnonzero(way.bandwidth > 0)
    if op is OpType.SCATTER:
        toward = [(dst, src, root)]  # backward, from every rank to the root
    else:
        toward = [(src, dst, d) for d in (range(n) if op is OpType.ALLTOALL else [root])]
    columns = 1 + len(toward) * len(pairs)
    most, equal = np.zeros((len(way.capacity), columns)), []
    for k, (tail, head, target) in enumerate(toward):
        first = 1 + k * len(pairs)
        for j, pair in enumerate(pairs.tolist()):
            most[way.uses.row(pair), first + j] = 1.0
        for v in set(range(n)) - {target}:
            row = np.zeros(columns)
            row[0] = 1 / n
            row[first + np.flatnonzero(tail[pairs] == v)] -= 1.0
            row[first + np.flatnonzero(head[pairs] == v)] += 1.0
            equal.append(row)
    gain = np.zeros(columns)
    gain[0] = -1.0
    zero = np.zeros(len(equal))
    solved = linprog(gain, A_ub=most, b_ub=way.capacity, A_eq=np.array(equal), b_eq=zero)
    return -float(solved.fun)


def meets_at_nics(t: Topology) -> bool:
    """Tells whether the flow network is wider than the routes: GPUs of a node may meet at a NIC's
    switch there, which no route does."""
    return t.n_nodes > 1


@pytest.mark.slow
@SETTINGS
@given(topologies)
def test_as_over_all_routes(t: Topology) -> None:
    assume(2 <= t.n_ranks <= 6)
    for op in PAIRWISE:
        best, exact = found(t, op, t.n_ranks - 1).algbw, over_routes(t, op, t.n_ranks - 1)
        if meets_at_nics(t):
            assert best >= exact * (1 - 1e-6)
        else:
            assert best == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("name", ["heteccl-fig10", "heteccl-h20-4+8", "resccl-topo1", "mi300x"])
def test_as_over_all_routes_of_shipped_clusters(name: str) -> None:
    t = load(CLUSTERS / f"{name}.cluster")
    for op in PAIRWISE:
        assert found(t, op, 3).algbw == pytest.approx(over_routes(t, op, 3), rel=1e-5)


def test_links_of_one_colour_are_told_apart() -> None:
    """Eight dies of four MI250X: the links 1-3 and 1-5 are alike for each of their ends, but not
    for the others. Tied, they would let 132 GB/s through."""
    wires = [(0, 1, 4), (0, 2, 1), (0, 6, 2), (1, 3, 1), (1, 5, 1), (2, 3, 4), (2, 4, 2)]
    wires += [(3, 7, 1), (4, 5, 4), (4, 6, 1), (5, 7, 1), (6, 7, 4)]
    both = [f"(({u},{v}) -> (36,{k}))" for a, b, k in wires for u, v in ((a, b), (b, a))]
    buses = [f"(({r}), ({', '.join(str(x) for x in range(8) if x != r)}) >-> 24)" for r in range(8)]
    buses += [
        f"(({r}, {r + 1}), ({', '.join(str(x) for x in range(8) if x not in (r, r + 1))}) >-> 24)"
        for r in range(0, 8, 2)
    ]
    buses.append("((0..3), (4..7) >-> 16)")
    t = cluster(
        "define node1 = 8\ndefine bandwidth = "
        f"{{direct => [{', '.join(both)}], switch => [{', '.join(buses)}]}}"
    )
    assert found(t).algbw == pytest.approx(116) == over_routes(t, OpType.ALLTOALL, 0)


def test_cuts_that_bind_together() -> None:
    """Two GPUs, each linked to three others: 120 GB/s of links carry the 28 hops of 20 blocks. The
    narrowest cut, into one of the three, would let 25 GB/s through."""
    pairs = [(u, v) for u in (0, 1) for v in (2, 3, 4)]
    both = ", ".join(f"(({u},{v}) -> 10), (({v},{u}) -> 10)" for u, v in pairs)
    t = cluster(f"define node1 = 5\ndefine bandwidth = {{direct => [{both}]}}")
    cut = limits(t, OpType.ALLTOALL).cut
    assert cut is not None and float(cut.algbw) == pytest.approx(25)
    assert found(t).algbw == pytest.approx(5 * 120 / 28)
    bound = certificate(t, OpType.ALLTOALL).at(1 << 30)
    assert bound.reason == "over paths (links)"
    assert bound.time == pytest.approx((1 << 30) // 5 * 5 / (5 * 120 / 28) / 1e3, rel=1e-5)


@pytest.mark.parametrize(
    ("text", "rate", "name"),
    [
        # Of every rank's 32 blocks 16 leave its leaf, where 16 ranks share 200 GB/s.
        (FAT_TREE, 200 / 8, "uplink of leaf"),
        # The same over a spine's 100 GB/s.
        (SPINES, 100 / 8, "uplink of spine"),
    ],
)
def test_what_leaves_and_spines_let_through(text: str, rate: float, name: str) -> None:
    t = cluster(text)
    cut = limits(t, OpType.ALLTOALL).cut
    assert cut is not None and float(cut.algbw) == pytest.approx(rate)
    assert names(t, cut.resources)[0].startswith(name) and len(cut.ranks) == 16
    best = found(t)
    assert best.algbw == pytest.approx(rate, rel=1e-6)
    assert all(one.startswith(name) for one in names(t, best.resource))
    assert best.weight.sum() == pytest.approx(1)


def test_alike_ranks_are_one_destination() -> None:
    """Of 512 ranks; 504 of 512 blocks leave a node, over NICs of 50 GB/s a rank."""
    t = load(CLUSTERS / "syccl-h800-512.cluster")
    assert found(t).algbw == pytest.approx(512 / 504 * 50)


def test_too_many_unlike_ranks_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    t = cluster(FAT_TREE)
    monkeypatch.setattr(module, "MOST_VARIABLES", 5)
    assert best_paths(t, OpType.ALLTOALL, 0, 25.0) is None
    assert best_paths(t, OpType.ALLGATHER, 0, 25.0) is None
    assert best_paths(cluster("define node1 = 1"), OpType.ALLTOALL, 0, 1.0) is None


def test_what_binds_is_said() -> None:
    bound = certificate(cluster(FAT_TREE), OpType.ALLTOALL).at(1 << 30)
    assert bound.reason == f"{bound.binding} (uplinks of leaves)"
    tiny = certificate(cluster(FAT_TREE), OpType.ALLTOALL).at(1)
    assert tiny.reason == tiny.limited_by == "latency"
