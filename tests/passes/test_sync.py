"""sync: enough waits, and not one more."""

from dataclasses import replace

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import pytest

from hccc.analysis.waits import enforced
from hccc.base.diagnostics import InternalError, UserError
from hccc.ir.arrays import I8
from hccc.ir.blocks import Blocks
from hccc.ir.plan import Plan
from hccc.ir.primitives import Primitives, Transport
from hccc.passes.allocate import allocate
from hccc.passes.fuse import fuse
from hccc.passes.place import place
from hccc.passes.sync import sync
from hccc.proofs.race import race
from tests.passes.textbook import (
    SMALL,
    SWEEP,
    alltoall,
    few,
    lowered,
    mesh_allreduce,
    verdict,
    works,
)
from tests.sabotage import without_edge, without_wait

INDEPENDENT = {("mesh allreduce", "full")}  # each chunk is one primitive
COMPILED = [
    (Transport.DIRECT, "none", "connection"),
    (Transport.DIRECT, "full", "state"),
    (Transport.STAGED, "none", "state"),
]


def order_graph(plan: Plan) -> "nx.DiGraph[int]":
    """Returns program order and waits of a Plan as a graph of networkx."""
    waits, graph = enforced(plan), nx.DiGraph()
    graph.add_nodes_from(range(len(plan)))
    graph.add_edges_from(zip(waits.index.tolist(), waits.owner().tolist(), strict=True))
    first = set(plan.tb_ptr.tolist())
    graph.add_edges_from((i - 1, i) for i in range(len(plan)) if i not in first)
    return graph


def synced(p: Primitives, allocator: str = "connection") -> tuple[Primitives, Plan, I8]:
    """Returns the primitives, the Plan, and each primitive's row in the Plan."""
    blocks = allocate(place(p), allocator)
    p = blocks.primitives
    return p, sync(blocks, "", 2), np.argsort(np.lexsort((np.arange(len(p)), blocks.tb, p.owner)))


@pytest.mark.parametrize(("transport", "level", "allocator"), COMPILED)
@pytest.mark.parametrize("name", SMALL)
def test_every_dependency_is_covered(
    name: str, transport: Transport, level: str, allocator: str
) -> None:
    p, plan, row = synced(fuse(lowered(SMALL[name], transport), level), allocator)
    assert bool(len(p.deps.index)) != ((name, level) in INDEPENDENT)
    after = nx.transitive_closure_dag(order_graph(plan))
    for i, j in zip(p.deps.owner().tolist(), p.deps.index.tolist(), strict=True):
        assert after.has_edge(int(row[j]), int(row[i]))


@pytest.mark.parametrize(("transport", "level", "allocator"), COMPILED)
@pytest.mark.parametrize("name", SMALL)
def test_every_wait_is_needed(name: str, transport: Transport, level: str, allocator: str) -> None:
    """The race proof refuses the Plan without any one of its waits."""
    _, plan, _ = synced(fuse(lowered(SMALL[name], transport), level), allocator)
    race(plan)
    assert bool(len(plan.waits.index)) != ((name, level) in INDEPENDENT)
    for k in range(len(plan.waits.index)):
        with pytest.raises(UserError, match="nothing orders") as caught:
            race(without_wait(plan, k))
        assert caught.value.problem.code == "E304"


def test_no_wait_is_implied_by_the_others() -> None:
    """networkx agrees: the waits are the transitive reduction."""
    _, plan, _ = synced(lowered(mesh_allreduce(4)))
    graph = order_graph(plan)
    reduced = nx.transitive_reduction(graph)
    waits = enforced(plan)
    for edge in zip(waits.index.tolist(), waits.owner().tolist(), strict=True):
        assert reduced.has_edge(*edge)


def test_a_block_that_runs_in_order_needs_no_wait() -> None:
    p = place(lowered(SMALL["ring allreduce"]))
    one = sync(Blocks(p, np.zeros(len(p), np.int32)))
    blocks = one.block_of()
    waits = enforced(one)
    assert (blocks[waits.index] != blocks[waits.owner()]).all()


def test_waiters_of_one_rank_share_a_flag() -> None:
    _, plan, _ = synced(lowered(SMALL["broadcast"]))
    flags = {(int(r), int(f)) for r, f in zip(plan.posts.rank, plan.posts.flag, strict=True)}
    assert len(flags) == len(plan.posts.flag) == plan.n_flags.sum()
    poster_and_rank = list(zip(plan.posts.owner(), plan.posts.rank, strict=True))
    assert len(set(poster_and_rank)) == len(poster_and_rank)


def test_a_cycle_of_blocks_and_dependencies_is_an_internal_error() -> None:
    p = place(lowered(SMALL["ring allreduce"]))
    rows = np.append(p.deps.owner(), np.int32(0))
    late = replace(
        p,
        deps=type(p.deps)(
            np.concatenate([[0], p.deps.ptr[1:] + 1]), np.append(np.int32(len(p) - 1), p.deps.index)
        ),
    )
    assert len(rows) == len(late.deps.index)
    with pytest.raises(InternalError, match="cycle"):
        sync(Blocks(late, np.zeros(len(p), np.int32)))


@SWEEP
@pytest.mark.parametrize("name", ["ring allreduce", "alltoall", "broadcast"])
def test_no_forgotten_dependency_survives(name: str, most: int) -> None:
    """A dependency that sync never sees: the race proof says no, or the rest implies it."""
    p = place(fuse(lowered(SMALL[name]), "full"))
    for k in few(range(len(p.deps.index)), most):
        wrong = replace(p, deps=without_edge(p.deps, k))
        plan = sync(allocate(wrong, "connection"))
        assert verdict(plan) == "E304" or works(plan, micro_batches=3)


def test_in_place_alltoall_waits_for_what_is_set_aside() -> None:
    """Out of place it would need no waits at all."""
    _, plan, _ = synced(lowered(alltoall(3)))
    assert len(plan.waits.index) > 0
    only = replace(
        plan, in_place=False, waits=type(plan.waits)(plan.waits.ptr * 0, np.zeros(0, np.int32))
    )
    race(only)
