"""Ranks of one function are named by node and place where they form a grid."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from hccc.emit.kernels.classes import rank_axes
from hccc.ir.plan import Plan

RANKS = 24
numbers = st.sets(st.integers(0, RANKS - 1), min_size=1)


@st.composite
def grids(draw: st.DrawFn) -> set[int]:
    """Draws some places of some nodes of 4."""
    some = st.sets(st.integers(0, 3), min_size=1), st.sets(st.integers(0, 5), min_size=1)
    places, nodes = draw(some[0]), draw(some[1])
    return {4 * node + place for node, place in product(nodes, places)}


@given(numbers | grids(), st.sampled_from([1, 4, 5, 6, 24]))
def test_axes_go_through_all_ranks_in_order(some: set[int], gpus: int) -> None:
    ranks = tuple(sorted(some))
    plan = cast(Plan, SimpleNamespace(gpus_per_node=gpus, n_ranks=RANKS))
    axes, found = rank_axes(ranks, plan)
    nodes, places = {r // gpus for r in ranks}, {r % gpus for r in ranks}
    whole = RANKS % gpus == 0 and min(len(nodes), len(places)) > 1
    if whole and len(nodes) * len(places) == len(ranks):
        assert ([a.name for a in axes], found) == (["node", "local"], gpus)
        node, local = (a.values.tolist() for a in axes)
        assert tuple(n * gpus + x for n, x in product(node, local)) == ranks
    else:
        assert ([a.name for a in axes], found) == (["rank"], 0)
        assert tuple(axes[0].values.tolist()) == ranks
