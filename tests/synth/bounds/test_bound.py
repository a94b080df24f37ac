"""bound: known optima, every subset and partition of small networks, and no run below it."""

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from pathlib import Path

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import Source, UserError
from hccc.driver.compilation import compile_program
from hccc.driver.options import Options
from hccc.ir.collective import PROGRAMMABLE, ROOTED, Collective, OpType, block_count
from hccc.ir.topology import Rate, Topology, uniform
from hccc.lang.cluster import load as cluster
from hccc.lang.transfer.load import parse
from hccc.network import flow as network_module
from hccc.network.flow import FlowNetwork, network
from hccc.network.latency import through_one_block
from hccc.network.resource_names import names
from hccc.network.routes import routes
from hccc.sim.costs import LL, Costs
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, simulate
from hccc.synth.bounds.block_bound import block_bound
from hccc.synth.bounds.bound import Bound, Cut, Limits, bound, limits
from hccc.testing import cluster_texts, correct_programs
from hccc.testing.clusters import cluster as cluster_of
from tests.health_checks import EVERY_CHECK
from tests.synth.published import ALLGATHER, ALLREDUCE, published

CLUSTERS = Path(__file__).parents[3] / "examples" / "clusters"
SETTINGS = settings(deadline=None, suppress_health_check=EVERY_CHECK, max_examples=20)


def reachable(source: str) -> bool:
    """Tells whether the working GPUs reach each other: in random texts some do not."""
    try:
        cluster_of(source)
    except UserError:
        return False
    return True


texts = cluster_texts().filter(reachable)
topologies = texts.map(cluster_of)


@cache
def load(name: str) -> Topology:
    return cluster.load(CLUSTERS / f"{name}.cluster")


def cut_of(found: Bound | Limits) -> Cut:
    """Returns the cut that binds; every collective of more than one rank has one."""
    assert found.cut is not None
    return found.cut


def algbw(t: Topology, op: OpType, root: int = 0) -> float:
    cut = cut_of(limits(t, op, root))
    return cut.capacity / cut.share


@pytest.mark.parametrize("name", ALLGATHER)
def test_published_optima_exactly(name: str) -> None:
    """As stock ForestColl, and min-cuts by igraph, find them."""
    t, exact = published(name), Fraction(ALLGATHER[name])
    assert cut_of(limits(t, OpType.ALLGATHER)).algbw == exact
    assert cut_of(limits(t, OpType.REDUCESCATTER)).algbw == exact


@pytest.mark.parametrize("name", ALLREDUCE)
def test_published_allreduces_are_no_better_than_the_bound(name: str) -> None:
    assert algbw(published(name), OpType.ALLREDUCE) == pytest.approx(ALLREDUCE[name], abs=0.005)


def test_one_crossbar() -> None:
    t = cluster_of("define node1 = 8\ndefine bandwidth = {port => [((0..7) -> (300,1))]}")
    assert algbw(t, OpType.ALLGATHER) == pytest.approx(8 / 7 * 300)
    assert algbw(t, OpType.ALLREDUCE) == pytest.approx(8 / 14 * 300)
    assert algbw(t, OpType.BROADCAST) == pytest.approx(300)
    assert algbw(t, OpType.ALLTOALL) == pytest.approx(8 / 7 * 300)
    assert algbw(t, OpType.SENDRECV) == pytest.approx(300)


def test_a_cut_that_no_level_of_the_topology_shows() -> None:
    """Pairs of an MI250's dies with wide links between and narrow ones outside: 16 · 150 / 7."""
    pairs = [(i, i + 1) for i in range(0, 16, 2)]
    wires = [(a, b, 200) for a, b in pairs]
    wires += [(2 * i + 1, (2 * i + 2) % 16, 150) for i in range(8)]
    both = [f"(({u},{v}) -> ({w},1))" for a, b, w in wires for u, v in ((a, b), (b, a))]
    t = cluster_of(f"define node1 = 16\ndefine bandwidth = {{direct => [{', '.join(both)}]}}")
    parts = cut_of(limits(t, OpType.ALLREDUCE)).parts
    assert sorted(parts) == pairs
    assert algbw(t, OpType.ALLREDUCE) == pytest.approx(8 * 300 / 14)


def test_alltoall_over_a_bus_that_is_nobodys() -> None:
    """Two meshes of four in one node, and 12 GB/s between them: half of all crosses it."""
    links = [
        f"(({u},{v}) -> 50)"
        for a in (0, 4)
        for u in range(a, a + 4)
        for v in range(a, a + 4)
        if u != v
    ]
    t = cluster_of(
        f"define node1 = 8\ndefine bandwidth = {{direct => [{', '.join(links)}], "
        "switch => [((0..3), (4..7) >-> 12)]}"
    )
    cut = cut_of(limits(t, OpType.ALLTOALL))
    assert algbw(t, OpType.ALLTOALL) == pytest.approx(12 / 2) and len(cut.ranks) == 4


def test_what_binds_is_named() -> None:
    t = load("heteccl-h20-4x2+8")
    found = bound(t, Collective(OpType.ALLGATHER, 16, 16), 1 << 30)
    cut = cut_of(found)
    assert found.binding == cut.name == "into node1"
    assert cut.ranks == (0, 1, 2, 3)
    wanted = [f"NIC {i} of node1, in" for i in range(4)]
    assert names(t, cut.resources) == wanted
    assert limits(load("syccl-h800-64"), OpType.ALLGATHER).at(1).binding == "latency"
    assert cut_of(limits(t, OpType.ALLREDUCE)).name == "between all 3 nodes"
    assert cut_of(limits(load("syccl-h800-64"), OpType.BROADCAST, 5)).name == "out of rank 5"


def test_time_is_the_larger_of_latency_and_cut() -> None:
    t = uniform(4, 4, 1, link=Rate(100.0, 1, 2.0))
    small, large = (limits(t, OpType.ALLGATHER).at(size) for size in (4, 4_000_000))
    assert small.time == pytest.approx(2.0 + 3 / 300_000)
    assert large.time == pytest.approx(2.0 + 3_000_000 / 300_000)
    assert large.algbw == pytest.approx(4_000_000 / large.time / 1000)


def test_protocols_change_bytes_and_latency() -> None:
    limit = limits(uniform(4, 4, 1, link=Rate(100.0, 1, 2.0)), OpType.ALLGATHER)
    plain, coded = limit.at(1 << 20), limit.at(1 << 20, LL)
    assert coded.bandwidth == pytest.approx(2 * plain.bandwidth)
    assert limit.at(1, Costs(latency=0.5)).latency == pytest.approx(1.0)


def test_a_block_that_gets_reduces_and_puts_pays_the_latency_of_its_links_once() -> None:
    """Over a star 1.4 µs would be the way from one point to another; a reduction takes 0.7."""
    links = ", ".join(f"((0,{i}) -> 10), (({i},0) -> 10)" for i in range(1, 4))
    t = cluster_of(f"define node1 = 4\ndefine bandwidth = {{direct => [{links}]}}")
    op = {"AlgoName": '"Star"', "OpType": '"Allreduce"'}
    head = ", ".join(f"{k}={v}" for k, v in {"nRanks": 4, "nChunks": 1, **op}.items())
    text = f"""ResCCLAlgo({head}, nChannels=1, nWarps=16, GPUPerNode=4, NICPerNode=1):
    for i in range(3):
        transfer(i + 1, 0, 0, 0, rrc)
        transfer(0, i + 1, 1, 0, recv)
"""
    plan = compile_program(parse(Source("star", text)), Options(prove=False), t).plan
    run = simulate(prepare(plan, t), Request(4))
    assert run.time >= bound(t, plan.collective, 4).time == pytest.approx(0.7, rel=1e-3)
    assert limits(t, OpType.ALLGATHER).latency == pytest.approx(1.4)  # copies go hop by hop


@given(st.integers(1, 1 << 20))
def test_ranks_have_blocks_of_equal_size(size: int) -> None:
    """Of 1,000 bytes each of 7 ranks has 142, as nccl-tests has it: 994 are moved."""
    t = uniform(7, 7, 1, link=Rate(100.0, 1, 2.0))
    found, whole = (limits(t, OpType.GATHER).at(x).bandwidth for x in (size, size // 7 * 7))
    assert found == whole
    assert limits(t, OpType.BROADCAST).at(size).bandwidth == pytest.approx(size / 600_000)


def test_one_rank_needs_nothing() -> None:
    found = limits(uniform(1, 1, 1), OpType.ALLREDUCE).at(1 << 20)
    assert (found.time, found.cut, found.binding) == (0.0, None, "latency")


def test_latency_goes_over_relays() -> None:
    """Rails: another rail's GPU is a NIC and a crossbar away."""
    t = load("syccl-h800-64")
    assert limits(t, OpType.ALLGATHER).latency == pytest.approx(14.0 + 3.4)
    assert limits(t, OpType.SENDRECV).latency == pytest.approx(14.0 + 3.4)


def arrows(net: FlowNetwork) -> "nx.DiGraph[int | str]":
    """Converts the network for networkx's maximum flow; parallel arcs are added up."""
    g: nx.DiGraph[int | str] = nx.DiGraph()
    g.add_nodes_from(range(net.vertices))
    for u, v, c in zip(net.tail.tolist(), net.head.tolist(), net.capacity.tolist(), strict=True):
        c += g[u][v]["capacity"] if g.has_edge(u, v) else 0.0
        g.add_edge(u, v, capacity=c)
    return g


def least_into(g: "nx.DiGraph[int | str]", n: int, inside: set[int]) -> float:
    """Returns the capacity into a set of ranks, hubs placed best."""
    g = g.copy()
    g.add_edges_from(("s", r) for r in set(range(n)) - inside)
    g.add_edges_from((r, "t") for r in inside)
    value: float = nx.minimum_cut_value(g, "s", "t")
    return value


def partitions(n: int) -> Iterator[tuple[int, ...]]:
    """Yields all partitions of n ranks, as labels."""
    for label in product(range(n), repeat=n):
        if all(x <= max(label[:i], default=-1) + 1 for i, x in enumerate(label)):
            yield label


@pytest.mark.slow
@SETTINGS
@given(topologies, st.data())
def test_no_subset_is_tighter(t: Topology, data: st.DataObject) -> None:
    """Every set of ranks, by networkx: the bound is the tightest cut there is."""
    assume(2 <= t.n_ranks <= 6)
    n, net = t.n_ranks, network(t)
    g, back = arrows(net), arrows(net.reversed())
    root = data.draw(st.integers(0, n - 1))
    sets = [set(c) for k in range(1, n) for c in combinations(range(n), k)]
    into = {frozenset(s): least_into(g, n, s) for s in sets}
    out = {frozenset(s): least_into(back, n, s) for s in sets}
    spread = [(into[frozenset(s)] * n / (n - len(s)), s) for s in sets]
    spread_out = [(out[frozenset(s)] * n / (n - len(s)), s) for s in sets]
    want = {
        OpType.ALLGATHER: min(v for v, _ in spread),
        OpType.REDUCESCATTER: min(v for v, _ in spread_out),
        OpType.GATHER: min(v for v, s in spread if root in s),
        OpType.SCATTER: min(v for v, s in spread_out if root in s),
        OpType.BROADCAST: min(into[frozenset(s)] for s in sets if root not in s),
        OpType.REDUCE: min(out[frozenset(s)] for s in sets if root not in s),
    }
    for op, value in want.items():
        assert algbw(t, op, root) == pytest.approx(value, rel=1e-5)


@pytest.mark.slow
@settings(SETTINGS, max_examples=15)
@given(topologies)
def test_no_partition_is_tighter(t: Topology) -> None:
    """Every partition of the ranks, by networkx: an Allreduce's bound is as tight as each."""
    assume(2 <= t.n_ranks <= 5)
    n, net = t.n_ranks, network(t)
    found = algbw(t, OpType.ALLREDUCE)
    best = np.inf
    for g in (arrows(net), arrows(net.reversed())):
        least: dict[frozenset[int], float] = {}
        for label in partitions(n):
            parts = [frozenset(np.flatnonzero(np.array(label) == p).tolist()) for p in set(label)]
            if len(parts) == 1:
                continue
            for part in parts:
                least.setdefault(part, least_into(g, n, set(part)))
            total = sum(least[part] for part in parts)
            best = min(best, total / (2 * (len(parts) - 1)), *(least[p] for p in parts))
    assert found <= best * (1 + 1e-5)


@SETTINGS
@given(topologies, st.sampled_from([0, network_module.PAIRS]))
def test_every_route_is_a_path_of_the_network(t: Topology, pairs: int) -> None:
    """The network gives nothing less than the routes: same resources, no more latency."""
    assume(2 <= t.n_ranks <= 8)
    before, network_module.PAIRS = network_module.PAIRS, pairs
    try:
        net = network(t)
    finally:
        network_module.PAIRS = before
    n = t.n_ranks
    src, dst = (x.astype(np.int32) for x in np.divmod(np.arange(n * n), n))
    away = src != dst
    found = routes(t, src[away], dst[away])
    for i, (u, v) in enumerate(zip(src[away].tolist(), dst[away].tolist(), strict=True)):
        if found.bandwidth[i] == 0:
            continue
        used = found.uses.row(i)
        numbers, capacity = found.resource[used], found.capacity[used]
        allowed = np.isin(net.resource, numbers) | (net.resource < 0)
        g = nx.DiGraph()
        for a in np.flatnonzero(allowed).tolist():
            x, y = int(net.tail[a]), int(net.head[a])
            if any(z < n and z not in (u, v) for z in (x, y)):
                continue  # a route passes no other rank
            if not g.has_edge(x, y) or g[x][y]["weight"] > net.alpha[a]:
                g.add_edge(x, y, weight=float(net.alpha[a]))
        assert nx.dijkstra_path_length(g, u, v) <= found.alpha[i] * (1 + 1e-9) + 1e-9
        for number, c in zip(numbers.tolist(), capacity.tolist(), strict=True):
            mine = net.capacity[net.resource == number]
            assert (mine == c).all() or not len(mine)


@pytest.mark.slow
@settings(SETTINGS, max_examples=10)
@given(texts, st.sampled_from(PROGRAMMABLE), st.data())
def test_no_run_is_below_the_bound(
    tmp_path_factory: pytest.TempPathFactory, source: str, op: OpType, data: st.DataObject
) -> None:
    """Random programs on random clusters, in any nesting and size, simulated."""
    t = cluster_of(source)
    assume(2 <= t.n_ranks <= 8)
    root = data.draw(st.integers(0, t.n_ranks - 1)) if op in ROOTED else 0
    c = Collective(op, t.n_ranks, block_count(op, t.n_ranks), root)
    program = data.draw(correct_programs(c))
    try:
        plan = compile_program(program, Options(prove=False), t).plan
    except UserError as error:
        assert error.problem.code == "E131"  # a transfer that the cluster has no route for
        return
    machine = prepare(plan, t)
    size = data.draw(st.sampled_from([1 << 10, 1 << 16, 1 << 22]))
    costs = data.draw(st.sampled_from([Costs(), LL, Costs(latency=0.5, step=0.3)]))
    request = Request(size, micro_batch=max(size // 8, 1), costs=costs)
    run = simulate(machine, request)
    least = bound(t, plan.collective, run.size, costs).time
    assert run.time >= least * (1 - 1e-6)
    took = block_bound(t, op, root, run.size, plan.blocks_per_rank)
    assert run.time >= took * (1 - 1e-6)


# Of 1,024 GPUs, each with 180 GB/s of NVLink and a NIC of 50: missing data come in over both;
# Alltoall brings 1,016 of its blocks over NICs; every message of SendRecv changes rails, by NVLink.
RAILS = {
    OpType.ALLGATHER: 1024 / 1023 * 230,
    OpType.REDUCESCATTER: 1024 / 1023 * 230,
    OpType.ALLREDUCE: 1024 / 2046 * 230,
    OpType.BROADCAST: 230,
    OpType.REDUCE: 230,
    OpType.GATHER: 1024 / 1023 * 230,
    OpType.SCATTER: 1024 / 1023 * 230,
    OpType.ALLTOALL: 1024 / 1016 * 50,
    OpType.SENDRECV: 180,
}


@pytest.mark.parametrize("op", PROGRAMMABLE)
def test_a_thousand_ranks(op: OpType) -> None:
    """Rails of 128 servers: answered, and the figure is the closed form."""
    lines = (CLUSTERS / "syccl-h800-64.cluster").read_text()
    t = cluster_of(lines.replace("nodenum = 8", "nodenum = 128").replace("8 * 8", "128 * 8"))
    assert algbw(t, op) == pytest.approx(RAILS[op])


@pytest.mark.slow
@pytest.mark.parametrize(
    "between, nodes",
    [
        pytest.param("rail = [(0), (1)]", 50_000, id="rails"),
        pytest.param(
            "leaf = [((node1..node25000) -> 50000), ((node25001..node50000) -> 50000)]",
            50_000,
            id="leaves",
        ),
    ],
)
def test_a_hundred_thousand_ranks(between: str, nodes: int) -> None:
    """Nothing in the way grows with the square of the ranks: minutes, where a loop is left."""
    nic = "nic = [((0) -> 50), ((1) -> 50)]"
    text = f"node1 = {nodes} * 2\ndefine bandwidth = {{port => [((0,1) -> 300)]}}"
    t = cluster_of(f"define {text}\ndefine {nic}\ndefine {between}")
    n = 2 * nodes
    assert algbw(t, OpType.ALLGATHER) == pytest.approx(100 * n / (n - 2))
    assert algbw(t, OpType.ALLREDUCE) == pytest.approx(100 * nodes / (2 * (nodes - 1)))


@pytest.mark.slow
@given(topologies)
def test_blocks_that_reduce_are_arcs_of_each_domain(t: Topology) -> None:
    """Domains of one size are looked at together; each has the same arcs alone."""
    found = {(u, v): a for u, v, a in zip(*(x.tolist() for x in through_one_block(t)), strict=True)}
    domain, expected = t.dense_memory_domain(), dict[tuple[int, int], float]()
    for d in range(int(domain.max()) + 1):
        own = np.flatnonzero(domain == d).tolist()
        apart = [(u, v) for u in own for v in own if u != v]
        if len(own) < 3:
            continue
        ways = routes(t, *(np.array(x, np.int32) for x in zip(*apart, strict=True)))
        alpha = np.where(ways.bandwidth > 0, ways.alpha, np.inf)
        direct = dict(zip(apart, alpha.tolist(), strict=True))
        for u, v in apart:
            thirds = [max(direct[u, w], direct[w, v]) for w in own if w not in (u, v)]
            if min(thirds) < direct[u, v]:
                expected[u, v] = min(thirds)
    assert found == expected


def test_a_chain_of_switch_groups_is_as_slow_as_its_slowest() -> None:
    """A route's α is its slowest group's: a link in two groups does not wait for both."""
    way = "switch => [((0), (1) >-> (1.0, 1, 0.7)), ((1), (0) >-> (1.0, 1, 0.7))]"
    t = cluster_of(f"define node1 = 2\ndefine bandwidth = {{{way}}}")
    assert bound(t, Collective(OpType.BROADCAST, 2, 1), 0).time == pytest.approx(0.7)
