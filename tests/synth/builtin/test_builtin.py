"""Rings and double binary trees on the papers' clusters: right, on existing routes, and counted."""

from math import ceil, log2
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import UserError
from hccc.driver.compilation import compile_program
from hccc.driver.options import Options
from hccc.ir.collective import OpType
from hccc.ir.program import Op, Program
from hccc.ir.topology import Level, Topology, uniform
from hccc.lang.cluster import load as cluster
from hccc.network.routes import routes, unreachable
from hccc.passes.verify import verify
from hccc.synth.builtin.circuits import channels_of, circuits, shares
from hccc.synth.builtin.levels import levels
from hccc.synth.builtin.ring import OPS, count_of, ring
from hccc.synth.builtin.tree import binary, double, tree
from hccc.testing.clusters import cluster as cluster_of
from tests.marks import slow, some

CLUSTERS = Path(__file__).parents[3] / "examples" / "clusters"
SMALL = [
    "dgx-h100",
    "mi300x",
    "heteccl-fig10",
    "heteccl-v100-4+8",
    "heteccl-h20-4x2+8-fault-4-4",
    "resccl-topo1",
    "resccl-v100-topo2",
    "hetccl-snu",
]
EVERY = [
    pytest.param(path.stem, marks=() if path.stem in SMALL else pytest.mark.slow)
    for path in sorted(CLUSTERS.glob("*.cluster"))
]

ALWAYS = ["mi300x", "heteccl-fig10", "syccl-h800-512"]  # of several kinds, and a large one
TUNED = ["mi300x", "heteccl-fig10"]
OTHERS = [p.stem for p in sorted(CLUSTERS.glob("*.cluster")) if p.stem not in ALWAYS]


def load(name: str) -> Topology:
    return cluster.load(CLUSTERS / f"{name}.cluster")


def bytes_sent(p: Program) -> np.ndarray:
    """Returns the bytes each rank sends if its larger buffer has 1 byte: f8[n]."""
    sent = np.bincount(p.transfers["src"], minlength=p.collective.n_ranks)
    return sent / p.collective.n_chunks


def carried(t: Topology, p: Program) -> float:
    """Returns GB/s of the larger buffer that links allow, if all transfers run at once."""
    src, dst = (np.ascontiguousarray(p.transfers[k]) for k in ("src", "dst"))
    paths = routes(t, src, dst)
    load = np.bincount(paths.uses.index, minlength=len(paths.resource)) / p.collective.n_chunks
    return float((paths.capacity / load).min())


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", EVERY)
def test_circuits_visit_everyone_over_ways_that_exist(name: str) -> None:
    t = load(name)
    orders = circuits(t)
    assert (np.sort(orders, axis=1) == np.arange(len(t))).all()
    assert not len(unreachable(t, orders.ravel(), np.roll(orders, -1, axis=1).ravel()))
    node = t.node[orders]
    crossings = (node != np.roll(node, -1, axis=1)).sum(axis=1)
    assert (crossings == (len(np.unique(t.node)) if node.any() else 0)).all()


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("name", "count", "gbps"),
    [
        ("resccl-topo1", 4, 25),
        ("resccl-topo4", 4, 25),
        ("mi300x", 7, 45),
        ("dgx-h100", 1, 367),
        ("heteccl-h20-4+8", 4, 50),
        ("heteccl-h20-4x2+8-fault-4-4", 3, 50),
        ("heteccl-fig10", 1, 8),
        ("syccl-h800-64", 8, 180 / 7),
        ("heteccl-v100-8x2+4", 4, 8),
    ],
)
def test_every_nic_or_link_is_used(name: str, count: int, gbps: float) -> None:
    """One circuit a NIC (or link of a GPU in a mesh), none in the way of another."""
    t = load(name)
    orders = circuits(t)
    assert len(orders) == count
    assert shares(t, orders) == pytest.approx(gbps)


@pytest.mark.slow
def test_rails_are_kept() -> None:
    t = load("syccl-h800-64")
    orders = circuits(t)
    src, dst = orders, np.roll(orders, -1, axis=1)
    away = t.node[src] != t.node[dst]
    leaf = t.domain[Level.LEAF]
    assert (leaf[src[away]] == leaf[dst[away]]).all()
    used = np.bincount(t.port[Level.NIC][src[away]])
    assert (used[t.port[Level.NIC]] == 1).all()


@pytest.mark.quick(2)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", EVERY)
def test_rings_perform_their_collective(name: str, op: OpType) -> None:
    """And take the steps and send the bytes that the module's table says."""
    t = load(name)
    n = len(t)
    p = verify(ring(t, op, root=n // 2))
    assert count_of(p) == len(circuits(t))
    steps, sent = int(p.transfers["step"].max()) + 1, bytes_sent(p)
    if op is OpType.ALLREDUCE:
        assert steps == 2 * (n - 1) and sent == pytest.approx(2 * (n - 1) / n)
    elif op in (OpType.ALLGATHER, OpType.REDUCESCATTER):
        assert steps == n - 1 and sent == pytest.approx((n - 1) / n)
    else:
        assert steps == n - 1 and sent.sum() == pytest.approx(n - 1)
        assert (sent <= 1 + 1e-9).all()
    assert ((p.transfers["op"] == Op.RRC).sum() > 0) == p.collective.reduces


@pytest.mark.parametrize("name", EVERY)
def test_trees_reduce_and_spread(name: str) -> None:
    t = load(name)
    n, size = len(t), np.diff(t.first_rank)
    p = verify(tree(t))
    nodes = int((size > 0).sum())
    most = 2 * (int(size.max()) - 1 + (ceil(log2(nodes)) + 1) * (nodes > 1) * 2)
    assert int(p.transfers["step"].max()) + 1 <= most
    assert bytes_sent(p).sum() == pytest.approx(2 * (n - 1))
    assert p.collective.n_chunks == len(circuits(t)) * (2 if nodes > 1 else 1)


@pytest.mark.parametrize("name", EVERY)
def test_levels_reduce_and_spread(name: str) -> None:
    """Unequal nodes too. Steps and transfers are as the module says."""
    t = load(name)
    node = np.unique(t.node, return_inverse=True)[1]
    able = np.bincount(node, t.port[Level.NIC] >= 0)
    able = np.where(able > 0, able, np.bincount(node)).astype(int)
    n, nodes, parts = len(t), len(able), int(able.max())
    p = verify(levels(t))
    assert p.collective.n_chunks == parts * (1 if nodes == 1 else 2)
    assert int(p.transfers["step"].max()) + 1 <= 4 + 2 * ceil(log2(nodes))
    assert len(p) == 2 * p.collective.n_chunks * (n - 1)


def test_levels_fill_all_nics() -> None:
    """Every byte crosses each node's NICs twice: N / (N - 1) of the least there is."""
    lines = (CLUSTERS / "syccl-h800-64.cluster").read_text()
    t = cluster_of(lines.replace("180", "900"))
    p = levels(t)
    assert carried(t, p) == pytest.approx(8 * 50 / 2)
    away = t.node[p.transfers["src"]] != t.node[p.transfers["dst"]]
    assert (t.local[p.transfers["src"][away]] == t.local[p.transfers["dst"][away]]).all()  # rails


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 5))
def test_levels_of_any_uniform_cluster(nodes: int, gpus: int, nics: int) -> None:
    t = uniform(nodes * gpus, gpus, min(nics, gpus))
    if len(t) > 1:
        p = verify(levels(t))
        proofs = compile_program(p, Options(tune="off"), t).proofs
        assert {proof.name for proof in proofs} >= {"deadlock", "race"}


def test_trees_use_every_nic_alike() -> None:
    """Two nodes: each sends the buffer once. Four: half as fast, as inner nodes have children."""
    assert carried(load("resccl-topo1"), tree(load("resccl-topo1"))) == pytest.approx(100)
    assert carried(load("resccl-topo4"), tree(load("resccl-topo4"))) == pytest.approx(50)


@pytest.mark.parametrize("n", [2, 3, 5, 8, 13, 14, 31, 64])
def test_double_trees_share_the_work(n: int) -> None:
    """Both are binary trees; a rank with two children in one is a leaf in the other."""
    kids = []
    for parent in double(n):
        root = np.flatnonzero(parent < 0)
        assert len(root) == 1
        at = np.arange(n)
        for _ in range(2 * ceil(log2(n)) + 1):
            at = np.where(parent[at] >= 0, parent[at], at)
        assert (at == root[0]).all()
        kids.append(np.bincount(parent[parent >= 0], minlength=n))
        assert kids[-1].max() <= 2
    assert not ((kids[0] == 2) & (kids[1] == 2)).any()
    assert np.array_equal(binary(n), double(n)[0])


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 6))
def test_any_uniform_cluster(nodes: int, gpus: int, nics: int) -> None:
    t = uniform(nodes * gpus, gpus, min(nics, gpus))
    if len(t) > 1:
        verify(tree(t))
        for op in OPS:
            verify(ring(t, op, root=len(t) - 1))


def test_channels_fill_links_as_nccls_do() -> None:
    t = load("resccl-topo1")
    assert channels_of(t, circuits(t)) == 8  # 25 GB/s at 6.25 / 2 a block
    assert channels_of(load("dgx-h100"), circuits(load("dgx-h100"))) == 32
    slow = load("heteccl-h20-4x2+8-slow")
    assert channels_of(slow, circuits(slow)) == 2


def test_what_has_no_ring_is_said() -> None:
    with pytest.raises(UserError, match="no ring for Alltoall"):
        ring(load("mi300x"), OpType.ALLTOALL)


@pytest.mark.parametrize("name", list(map(slow, (*ALWAYS, *some(OTHERS, 7)))))
def test_they_compile_and_are_proved(name: str) -> None:
    """On a node and between two as they are tuned, elsewhere as by default."""
    t = load(name)
    ops = OPS if len(t) <= 64 else (OpType.BROADCAST, OpType.REDUCE)
    options = Options(tune="fast" if name in TUNED else "off")
    for p in (tree(t), *(ring(t, op) for op in ops)):
        assert {x.name for x in compile_program(p, options, t).proofs} >= {"deadlock", "race"}
