"""depths: the longest chain of thread blocks that data came through; and blocks by depth."""

from collections import defaultdict

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import pytest

from hccc.analysis.depth import depth, depths
from hccc.analysis.shared_blocks import shared_blocks
from hccc.analysis.waits import enforced
from hccc.ir.choices import Fusion
from hccc.ir.primitives import Primitives, Transport
from hccc.ir.program import Op
from hccc.ir.transport import PURE
from hccc.passes.allocate import allocate
from hccc.passes.fuse import fuse
from hccc.passes.place import place
from tests.passes.textbook import SMALL, lowered, on_nodes, planned, ring_allgather, ring_allreduce

TRANSPORTS = [Transport.DIRECT, Transport.STAGED]


def plain(p: Primitives, gpus: int = 0) -> list[int]:
    """Returns each primitive's depth. A task's is 0, or one more than its deepest predecessor at
    another rank, and one more if the network brings a summand, whose sender is one above.

    gpus: of a node; 0: there is one.
    """
    t = p.dag.program.transfers
    maker = [int(row["dst"] if row["op"] == Op.RRC else row["src"]) for row in t]
    far = [
        bool(gpus and row["op"] == Op.RRC and row["src"] // gpus != row["dst"] // gpus) for row in t
    ]
    found = dict[int, int]()
    for i in range(len(t)):
        before = p.dag.preds.index[p.dag.preds.ptr[i] : p.dag.preds.ptr[i + 1]].tolist()
        found[i] = far[i] + max((found[k] + (maker[k] != maker[i]) for k in before), default=0)
    of = [p.tasks.index[p.tasks.ptr[i] : p.tasks.ptr[i + 1]].tolist() for i in range(len(p))]
    return [
        max((found[k] - (far[k] and maker[k] != p.owner[i]) for k in of[i]), default=0)
        for i in range(len(p))
    ]


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("level", Fusion)
def test_a_depth_is_the_longest_chain_of_ranks_before(name: str, level: str) -> None:
    p = fuse(lowered(SMALL[name]), level)
    assert depths(p).tolist() == plain(p)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("network", ["slots", "put"])
def test_a_sum_over_the_network_is_one_deeper(name: str, network: str) -> None:
    for gpus in (1, 2):
        if SMALL[name].collective.n_ranks % gpus == 0:
            p = on_nodes(SMALL[name], gpus, network)
            assert depths(p).tolist() == plain(p, gpus)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("transport", PURE)
def test_a_plans_depth_is_its_longest_path(name: str, transport: Transport) -> None:
    plan = planned(lowered(SMALL[name], transport))
    waits, block = enforced(plan), plan.block_of()
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(plan)))
    graph.add_edges_from((i - 1, i) for i in range(1, len(plan)) if block[i - 1] == block[i])
    graph.add_edges_from(zip(waits.index.tolist(), waits.owner().tolist(), strict=True))
    assert depth(plan) == nx.dag_longest_path_length(graph) + 1


def test_rings_are_as_deep_as_they_are_long() -> None:
    gathered, reduced = (depths(lowered(ring(4))) for ring in (ring_allgather, ring_allreduce))
    assert sorted(set(gathered.tolist())) == [0, 1, 2]
    assert reduced.max() == 4  # the rank that sums last also sends first


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_each_depth_of_a_rank_has_one_block(name: str, transport: Transport) -> None:
    p = place(lowered(SMALL[name], transport))
    blocks = allocate(p, "depth")
    depth = depths(blocks.primitives)
    of, seen = defaultdict(set), set()
    for rank, tb, d in zip(blocks.primitives.owner, blocks.tb, depth, strict=True):
        of[rank, tb].add(int(d))
        seen.add((int(rank), int(d)))
    assert all(len(ds) == 1 for ds in of.values())
    assert len(of) == len(seen)
    assert np.bincount([rank for rank, _ in of]).max() <= 1 + depth.max()


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("most", [1, 3, 8, 32])
def test_blocks_are_as_many_as_there_may_be_and_of_one_depth(name: str, most: int) -> None:
    p = place(fuse(lowered(SMALL[name]), "full"))
    depth = depths(p)
    block = shared_blocks(p, depth, most)
    for rank in np.unique(p.owner):
        mine = p.owner == rank
        blocks, deep = np.unique(block[mine]), np.unique(depth[mine])
        assert len(blocks) == max(len(deep), min(most, mine.sum()))
        assert not np.isin(blocks, block[~mine]).any()
        for b in blocks:
            assert len(np.unique(depth[block == b])) == 1


@pytest.mark.parametrize("placed", [False, True])
def test_what_moves_more_has_more_blocks_which_move_alike(placed: bool) -> None:
    p = lowered(ring_allgather(9))
    p = place(p) if placed else p
    depth = np.minimum(depths(p), 1).astype(np.int32)  # one primitive of a rank, and seven
    block = shared_blocks(p, depth, 4)
    for rank in range(9):
        mine = p.owner == rank
        sizes = [np.sum(block[mine] == b) for b in np.unique(block[mine & (depth == 1)])]
        assert sorted(sizes) == [2, 2, 3]
