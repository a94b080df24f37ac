"""Routes' use of a cluster: against a model in sets, on programs, and at scale."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings

from hccc.base.diagnostics import Source, UserError
from hccc.driver.compilation import compile_text
from hccc.driver.options import Options
from hccc.ir import pipeline as pipeline_ir
from hccc.ir.arrays import I4
from hccc.ir.topology import Level, Topology, uniform
from hccc.lang.cluster.load import load
from hccc.lang.transfer import load as transfer
from hccc.network.routes import cost, resources, routes, unreachable
from hccc.passes.check_reachable import check_reachable
from hccc.passes.depend import depend
from hccc.passes.hpds import hpds
from hccc.passes.list_schedule import list_schedule
from hccc.passes.round_robin import round_robin
from hccc.testing.clusters import cluster, texts
from tests.marks import slow

CLUSTERS = Path(__file__).parents[2] / "examples" / "clusters"
NODES = """define node1 = 2 * 2
define bandwidth = {port => [((0,1) -> (100,1,1))]}
define nic = [((0,1) -> (10,1,5))]
"""


def pairs(n: int) -> tuple[I4, I4]:
    src, dst = (x.ravel().astype(np.int32) for x in np.divmod(np.arange(n * n), n))
    return src[src != dst], dst[src != dst]


def model(t: Topology, u: int, v: int) -> tuple[set[object], float, float]:
    """Returns the groups that u → v uses, its bandwidth (0: no way) and latency, rule by rule."""
    used, bandwidth, alpha = unlimited(t, u, v)
    for j in range(t.n_switches, len(t.side_a)):
        a, b, k = set(t.side_a.row(j)), set(t.side_b.row(j)), t.first_switch + j
        if used and ((u in a and v in b) or (u in b and v in a)):
            used = used | {("out" if u in a else "in", k)}
            bandwidth = min(bandwidth, float(t.shared.capacity[k]))
            alpha = max(alpha, float(t.shared.alpha[k]))
    return used, bandwidth, alpha


def unlimited(t: Topology, u: int, v: int) -> tuple[set[object], float, float]:
    """Returns `model`'s values without LIMIT groups."""
    for i in range(len(t.links)):
        if (t.link_src[i], t.link_dst[i]) == (u, v):
            return {("link", i)}, float(t.links.capacity[i]), float(t.links.alpha[i])
    if t.mesh[u] >= 0 and t.mesh[u] == t.mesh[v]:
        m = t.mesh[u]
        return {("mesh", u, v)}, float(t.meshes.capacity[m]), float(t.meshes.alpha[m])
    used: set[tuple[str, int]] = set()
    alpha = 0.0
    levels = [Level.PORT]
    if t.node[u] != t.node[v]:
        levels = [Level.NIC]
        for level in (Level.LEAF, Level.SPINE):
            if t.domain[level][u] == t.domain[level][v]:
                break
            levels.append(level)
    ends = [(t.port[level][u], t.port[level][v]) for level in levels]
    if all(min(end) >= 0 for end in ends):
        used = {("out", out) for out, _ in ends} | {("in", into) for _, into in ends}
        alpha = sum(float(max(t.shared.alpha[out], t.shared.alpha[into])) for out, into in ends)
    slowest = 0.0
    for j in range(t.n_switches):
        a, b, k = set(t.side_a.row(j)), set(t.side_b.row(j)), t.first_switch + j
        if (u in a and v in b) or (u in b and v in a):
            used.add(("out" if u in a else "in", k))
            slowest = max(slowest, t.shared.alpha[k])
    capacity = [float(t.shared.capacity[group]) for _, group in used]
    return set(used), min(capacity, default=0.0), alpha + slowest


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(texts())
def test_routes_are_the_models(text: str) -> None:
    try:
        t = cluster(text)
    except UserError:
        assume(False)
    src, dst = pairs(len(t))
    found = routes(t, src, dst)
    lost = set(unreachable(t, src, dst).tolist())
    time_ = cost(t, src, dst)
    for i, (u, v) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        used, bandwidth, alpha = model(t, u, v)
        row = found.uses.row(i)
        assert len(row) == len(used) == len(set(row.tolist()))
        assert found.bandwidth[i] == bandwidth and np.isclose(found.alpha[i], alpha)
        assert (i in lost) == (not used)
        if used:
            assert found.capacity[row].min() == bandwidth
            assert np.isclose(time_[i], alpha + t.chunk / bandwidth / 1e3)
            numbers = {_name(t, int(found.resource[r]), u, v) for r in row}
            assert numbers == used


def _name(t: Topology, resource: int, u: int, v: int) -> object:
    """Returns the model's name of a resource number, as `routes` documents them."""
    groups = 2 * len(t.shared)
    if resource < groups:
        return ("out", "in")[resource % 2], resource // 2
    if resource < groups + len(t.links):
        return "link", resource - groups
    return "mesh", u, v


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(texts())
def test_schedules_keep_their_invariants(text: str) -> None:
    try:
        t = cluster(text)
    except UserError:
        assume(False)
    src, dst = pairs(len(t))
    assume(len(src) > 0)
    joined = set(zip(src.tolist(), dst.tolist(), strict=True))
    lost = unreachable(t, src, dst)
    joined -= set(zip(src[lost].tolist(), dst[lost].tolist(), strict=True))
    lines = [f"    transfer({u}, {v}, 0, {u}, recv)" for u, v in sorted(joined)]
    assume(lines)
    text = f'def ResCCLAlgo(nRanks={len(t)}, OpType="Allgather"):\n' + "\n".join(lines)
    program = transfer.parse(Source("p.rccl", text))
    check_reachable(program, t)
    dag = depend(program, t)
    for scheduler in (hpds, list_schedule, round_robin):
        pipeline = scheduler(dag)
        assert pipeline_ir.check(pipeline) == []
        for begin, end in zip(pipeline.start[:-1], pipeline.start[1:], strict=True):
            tasks = pipeline.order[begin:end]
            links = [
                (int(dag.program.transfers["src"][i]), int(dag.program.transfers["dst"][i]))
                for i in tasks
            ]
            assert len(set(links)) == len(links)


def test_uniform_contends_for_links_and_nics() -> None:
    t = uniform(8, 4, 2)
    src, dst = pairs(8)
    tx, rx = resources(t, src, dst)
    inside = src // 4 == dst // 4
    assert (tx[inside] == rx[inside]).all()
    assert len(set(tx[inside].tolist())) == inside.sum()
    nic = {int(r): (int(u) // 4, int(u) % 4 // 2) for r, u in zip(tx, src, strict=True)}
    assert all(
        nic[int(r)] == (u // 4, u % 4 // 2) for r, u in zip(tx[~inside], src[~inside], strict=True)
    )
    assert not set(tx[~inside].tolist()) & set(rx.tolist())
    assert cost(t, src, dst).tolist() == np.where(inside, 1.0, 2.5).tolist()


def test_pcie_switches_and_upi_exclude() -> None:
    """HeteCCL's V100 server: between modules a transfer holds both PCIe switches."""
    t = load(CLUSTERS / "heteccl-v100-4+8.cluster")
    src, dst = np.array([4, 5, 6, 4, 8], np.int32), np.array([8, 9, 10, 5, 4], np.int32)
    tx, rx = resources(t, src, dst)
    assert tx[0] == tx[1] and rx[0] == rx[1]  # both from pair 0,1 to pair 4,5
    assert tx[0] != rx[0] and tx[2] != tx[0] and rx[2] != rx[0]
    assert tx[3] == rx[3]  # NVLink
    assert {int(tx[4]), int(rx[4])}.isdisjoint({int(tx[0]), int(rx[0])})  # the other way
    found = routes(t, src, dst)
    assert found.uses.counts().tolist() == [3, 3, 3, 1, 3]
    assert found.bandwidth.tolist() == [16, 16, 16, 50, 16]


def test_oversubscribed_uplinks_exclude_by_link() -> None:
    """Four NICs share two uplinks: two of them may climb at once, not three."""
    text = NODES.replace("2 * 2", "8 * 1").replace("(0,1)", "(0)")
    text += "define leaf = [((node1..node4) -> (10,2)), ((node5..node8) -> (10,2))]"
    t = cluster(text)
    src, dst = np.arange(4, dtype=np.int32), np.arange(4, 8, dtype=np.int32)
    tx, rx = resources(t, src, dst)
    assert len(set(tx.tolist())) == len(set(rx.tolist())) == 2
    tx, _ = resources(t, src, np.array([1, 2, 3, 0], np.int32))
    assert len(set(tx.tolist())) == 4  # below one leaf only the NICs count


def test_what_a_program_asks_of_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "x.cluster"
    path.write_text(NODES + "define rail = [(0)]\n")
    ring = 'def ResCCLAlgo(nRanks={}, OpType="Allgather"):\n    for r in range(nRanks):\n'
    ring += "        for s in range(nRanks - 1):\n"
    ring += "            transfer(r, (r + 1) % nRanks, s, (r - s) % nRanks, recv)\n"
    options = Options(verify_each=True)
    stops = compile_text(Source("r.rccl", ring.format(4)), options, load(path))
    assert stops.dag.topology.n_nodes == 2
    with pytest.raises(UserError) as caught:
        compile_text(Source("r.rccl", ring.format(8)), options, load(path))
    problem = caught.value.problem
    assert problem.span is not None
    assert (problem.code, problem.span.line, problem.span.column) == ("E130", 1, 23)
    path.write_text(NODES.replace("(0,1) -> (10,", "(0) -> (10,"))
    with pytest.raises(UserError) as caught:
        compile_text(Source("r.rccl", ring.format(4)), options, load(path))
    problem = caught.value.problem
    assert problem.code == "E131" and "transfer(1, 2, 0, 1, recv)" in problem.message
    assert "GPU 1 of node1" in problem.render()


RINGS = [
    "heteccl-h20-4+8",
    "hetccl-snu",
    "resccl-topo4",
    *map(slow, ("heteccl-v100-4x2+8", "mi300x", "heteccl-h20-4x2+8-fault-4-8", "heteccl-fig10")),
]


@pytest.mark.slow
@pytest.mark.parametrize("name", RINGS)
def test_a_ring_runs_on_every_kind_of_cluster(name: str) -> None:
    ring = 'def ResCCLAlgo(nRanks={0}, OpType="Allgather", nChunks={0}):\n'
    ring += "    for r in range(nRanks):\n"
    ring += "        for s in range(nRanks - 1):\n"
    ring += "            transfer(r, (r + 1) % nRanks, s, (r - s) % nRanks, recv)\n"
    t = load(CLUSTERS / f"{name}.cluster")
    stops = compile_text(Source("r.rccl", ring.format(len(t))), Options(verify_each=True), t)
    assert len(stops.proofs) == 4


@pytest.mark.quick(1)
@pytest.mark.parametrize("nodes", [128, 512])
def test_large_clusters_are_cheap(nodes: int) -> None:
    """1,024 and 4,096 ranks, a million transfers: no table of pairs."""
    text = f"define node1 = {nodes} * 8\ndefine bandwidth = {{port => [((0..7) -> 300)]}}\n"
    text += f"define nic = [{', '.join(f'(({i}) -> 50)' for i in range(8))}]\n"
    text += f"define leaf = [((node1..node{nodes // 2}) -> (50,64)), "
    text += f"((node{nodes // 2 + 1}..node{nodes}) -> (50,64))]"
    rng = np.random.default_rng(0)
    t = cluster(text)
    src = rng.integers(0, len(t), 1_000_000).astype(np.int32)
    dst = ((src + rng.integers(1, len(t), len(src))) % len(t)).astype(np.int32)
    tracemalloc.start()
    tx, rx = resources(t, src, dst)
    cost(t, src, dst)
    assert tracemalloc.get_traced_memory()[1] < 200 << 20
    tracemalloc.stop()
    assert max(tx.max(), rx.max()) < 8 * len(src)


def test_one_huge_node_needs_no_table() -> None:
    """65,536 ranks in one mesh have four billion links; only the used links are numbered."""
    t = uniform(1 << 16, 1 << 16, 1)
    src = np.arange(1000, dtype=np.int32)
    tx, rx = resources(t, src, src + 60_000)
    assert (tx == rx).all() and len(set(tx.tolist())) == 1000 and tx.max() < 1000


def test_transfers_that_nothing_leads_anywhere_for() -> None:
    """Two nodes without NICs: no way, no resources, and no crash."""
    t = uniform(2, 1, 1)
    t = replace(t, port=np.full_like(t.port, -1))
    found = routes(t, np.array([0], np.int32), np.array([1], np.int32))
    assert found.bandwidth.tolist() == [0.0]
    assert len(found.uses.index) == 0
