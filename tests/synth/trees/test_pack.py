"""pack: trees over routes that exist, loads that add up, near the bound, the same for one seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import Source, UserError
from hccc.ir.collective import OpType
from hccc.ir.topology import Topology
from hccc.lang.cluster import load
from hccc.passes.verify import verify
from hccc.synth.bounds.bound import limits
from hccc.synth.common.collectives import BOTH
from hccc.synth.common.route_table import RouteTable, route_table
from hccc.synth.trees.pack import Packing, Roots, pack, repack
from hccc.synth.trees.programs import LARGE, tree_programs
from hccc.synth.trees.tree_growth import OUT, ROOT, Style
from hccc.testing.clusters import topologies
from tests.health_checks import EVERY_CHECK
from tests.marks import slow
from tests.synth.greedy.chunked_clusters import CLUSTERS

SETTINGS = settings(deadline=None, suppress_health_check=EVERY_CHECK, max_examples=30)
STYLES = st.builds(
    Style,
    st.booleans(),
    st.booleans(),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0.5, 1),
    st.integers(0, 99),
)
HETECCL = ["4+8", "4x2+8", "4x3", "4x3+8", "8x2+4", "4x2+8x2"]


def cluster(name: str) -> Topology:
    return load.load(CLUSTERS / f"{name}.cluster")


def everybody(n: int, sums: bool = False) -> Roots:
    rank = np.arange(n, dtype=np.int32)
    return Roots(rank, np.full(n, sums))


def check(table: RouteTable, roots: Roots, made: Packing) -> None:
    """Checks that every rank hangs below the root over existing routes, with the right `load`."""
    n, carried = table.n, np.zeros(len(table.capacity))
    for root, sums, parent, depth in zip(
        roots.root, roots.sums, made.parent, made.depth, strict=True
    ):
        assert parent[root] == ROOT and depth[root] == 0 and (parent != OUT).all()
        for v in np.flatnonzero(np.arange(n) != root).tolist():
            u = int(parent[v])
            assert depth[v] == depth[u] + 1
            used = table.use[v * n + u if sums else u * n + v]
            assert used[0] != -2
            np.add.at(carried, used[used >= 0], 1)
    np.testing.assert_allclose(made.load, carried / table.capacity)


@pytest.mark.slow
@SETTINGS
@given(topologies(), STYLES, st.booleans())
def test_trees_reach_everybody(t: Topology, style: Style, sums: bool) -> None:
    table = route_table(t)
    made = pack(table, everybody(len(t), sums), len(t) / 10, style)
    if made is not None:
        check(table, everybody(len(t), sums), made)
    else:  # star, and some ranks of a node reach each other over others only
        assert style.star


@pytest.mark.slow
@SETTINGS
@given(topologies(), STYLES)
def test_the_same_seed_gives_the_same_packing(t: Topology, style: Style) -> None:
    one, other = (pack(route_table(t), everybody(len(t)), 1.0, style) for _ in range(2))
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        np.testing.assert_array_equal(one.parent, other.parent)


@pytest.mark.slow
@SETTINGS
@given(topologies(), STYLES, st.booleans())
def test_repacked_the_busiest_carries_no_more(t: Topology, style: Style, sums: bool) -> None:
    table, roots = route_table(t), everybody(len(t), sums)
    made = pack(table, roots, len(t) / 100, style)
    if made is not None:
        one, other = (repack(table, roots, len(t) / 100, style, made) for _ in range(2))
        check(table, roots, one)
        np.testing.assert_array_equal(one.parent, other.parent)
        usable = np.where(table.inside_nodes(), style.inside, 1.0)
        assert (one.load / usable).max(initial=0) <= (made.load / usable).max(initial=0)


@pytest.mark.quick(0)
@pytest.mark.parametrize("name", [slow("fault-4"), "fault-4-4", "fault-4-8", "fault-8"])
def test_repacked_nics_are_filled_chunk_by_chunk(name: str) -> None:
    """Nodes of three, four and seven NICs: passes over single trees end a chunk over."""
    t = cluster(f"heteccl-h20-4x2+8-{name}")
    found = list(tree_programs(t, OpType.ALLREDUCE, 0, 0, limits(t, OpType.ALLREDUCE)))
    assert min(one.load for one in found) < 1.001


def test_of_a_star_one_rank_of_a_node_gives_to_the_others() -> None:
    table = route_table(cluster("heteccl-h20-4x2+8"))
    made = pack(table, everybody(table.n), 1.0, Style(True, True, 0.1, 0.0, 0.8, 0))
    assert made is not None
    for root, parent in enumerate(made.parent):
        for node in range(3):
            ranks = np.flatnonzero(table.node == node)
            enters = [v for v in ranks if v == root or table.node[parent[v]] != node]
            assert len(enters) == 1
            assert all(parent[v] == enters[0] for v in ranks if v not in enters)


def test_what_is_near_is_used_within_nodes_only() -> None:
    table = route_table(cluster("heteccl-h20-4+8"))
    src, dst = np.divmod(np.arange(table.n**2), table.n)
    inside = table.inside_nodes()
    far = table.use[table.node[src] != table.node[dst]]
    assert not inside[far[far >= 0]].any() and inside.any()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4+8", *map(slow, HETECCL[1:])])
def test_heteccls_clusters_carry_nothing_more_than_they_must(name: str) -> None:
    """The optimum of ForestColl's model, by trees that are stars within nodes."""
    t = cluster(f"heteccl-h20-{name}")
    for op in (OpType.ALLGATHER, OpType.REDUCESCATTER, OpType.ALLREDUCE):
        found = list(tree_programs(t, op, 0, 0, limits(t, op)))
        assert min(one.load for one in found) < 1.001
        best = min(found, key=lambda one: (round(one.load, 2), one.depth))
        assert best.style.startswith("stars") and best.depth <= 3


@pytest.mark.slow
@settings(SETTINGS, max_examples=10)
@given(topologies(), st.sampled_from(sorted(BOTH)), st.integers(0, 20), st.data())
def test_programs_do_what_they_should(
    t: Topology, op: OpType, seed: int, data: st.DataObject
) -> None:
    if len(t) < 2:
        return
    root = data.draw(st.integers(0, len(t) - 1)) if op in (OpType.BROADCAST, OpType.REDUCE) else 0
    try:
        found = list(tree_programs(t, op, root, seed, limits(t, op, root)))
    except UserError as error:
        assert error.problem.code == "E451"
        return
    for one in found:
        verify(one.program)
        assert one.load > 0
    names = [one.name for one in found]
    assert len(set(names)) == len(names)


@pytest.mark.slow
def test_a_broadcast_uses_all_nics_of_the_root() -> None:
    t = cluster("heteccl-h20-8x2+4")
    bound = limits(t, OpType.BROADCAST, 0)
    found = min(tree_programs(t, OpType.BROADCAST, 0, 0, bound), key=lambda one: one.load)
    assert bound.at(LARGE).algbw > 150 and found.load < 1.1


UNLIKE = """define device = MI250X
define node1 = 4
define bandwidth = {direct => [((0,1) -> 144), ((1,0) -> 144), ((2,3) -> 144), ((3,2) -> 144),
    ((0,2) -> 36), ((2,0) -> 36), ((1,3) -> 36), ((3,1) -> 36)]}
"""


@pytest.mark.slow
def test_unequal_links_are_filled_by_many_chunks() -> None:
    """Where links are alike, no more chunks are tried than before."""
    most = {}
    for text in (UNLIKE, UNLIKE.replace("144", "36")):
        t = load.parse(Source("box.cluster", text))
        for op in (OpType.ALLGATHER, OpType.ALLREDUCE):
            found = list(tree_programs(t, op, 0, 0, limits(t, op)))
            most[text, op] = max(one.program.collective.n_chunks for one in found)
            for one in found:
                verify(one.program)
    assert {chunks for (text, _), chunks in most.items() if text == UNLIKE} == {32 * 4}
    assert max(chunks for (text, _), chunks in most.items() if text != UNLIKE) <= 8 * 4
