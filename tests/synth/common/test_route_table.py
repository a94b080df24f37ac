"""route_table: the resources and rates of `network/routes`, row by row."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from hccc.ir.topology import Topology
from hccc.network.routes import routes
from hccc.synth.common.route_table import NO_ROUTE, route_table
from hccc.testing.clusters import topologies
from tests.health_checks import EVERY_CHECK

SETTINGS = settings(deadline=None, suppress_health_check=EVERY_CHECK, max_examples=30)


def row(use: np.ndarray) -> list[int]:
    return [int(resource) for resource in use[use >= 0]]


@SETTINGS
@given(topologies())
def test_rows_are_routes(t: Topology) -> None:
    table, n = route_table(t), len(t)
    for u in range(n):
        for v in np.flatnonzero(np.arange(n) != u).tolist():
            one = routes(t, np.array([u], np.int32), np.array([v], np.int32))
            used = table.use[u * n + v]
            assert (used[0] == NO_ROUTE) == (one.bandwidth[0] <= 0)
            if used[0] != NO_ROUTE:
                rates = one.capacity[one.uses.index]
                assert table.capacity[row(used)].tolist() == rates.tolist()
        assert not row(table.use[u * n + u])


@SETTINGS
@given(topologies())
def test_some_ranks_have_the_rows_that_they_have_among_all(t: Topology) -> None:
    ranks = np.arange(len(t))[::2]
    few, full = route_table(t, ranks), route_table(t)
    for i, u in enumerate(ranks.tolist()):
        for j, v in enumerate(ranks.tolist()):
            own, whole = few.use[i * few.n + j], full.use[u * full.n + v]
            assert (own[0] == NO_ROUTE) == (whole[0] == NO_ROUTE)
            assert few.capacity[row(own)].tolist() == full.capacity[row(whole)].tolist()


@SETTINGS
@given(topologies())
def test_a_resource_is_used_between_nodes_or_inside_them(t: Topology) -> None:
    table = route_table(t)
    between, inside = table.between_nodes(), table.inside_nodes()
    assert not (between & inside).any()
    if table.node.max() > 0:
        assert (between | inside).all()
    else:
        assert not between.any() and not inside.any()
