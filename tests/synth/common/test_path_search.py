"""prices and path_search: loads that add up, and paths as cheap as SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array  # type: ignore[import-untyped]
from scipy.sparse.csgraph import dijkstra  # type: ignore[import-untyped]

from hccc.synth.common.path_search import cheapest_path
from hccc.synth.common.prices import Prices, prices, put, reprice, route_price
from hccc.synth.common.route_table import NO_ROUTE

STEEP = 4.0
HOP = 0.125
SEEDS = st.integers(0, 1 << 16)


def some_prices(seed: int, ranks: int = 6, resources: int = 9) -> Prices:
    """Routes over one to three of some resources between most pairs of ranks."""
    random = np.random.default_rng(seed)
    use = np.full((ranks * ranks, 3), -1, np.int32)
    for row in range(ranks * ranks):
        count = random.integers(1, 4)
        use[row, :count] = random.choice(resources, count, replace=False)
    use[random.random(ranks * ranks) < 0.4, 0] = NO_ROUTE
    chunk, goal, weight = 1 + random.random((3, resources))
    return prices(use, chunk, goal, weight, ahead=0.0, highest=60.0)


@settings(deadline=None)
@given(SEEDS)
def test_paths_are_the_cheapest(seed: int) -> None:
    p, n = some_prices(seed), 6
    reprice(p, STEEP)
    hops = np.array([route_price(p, row, HOP) for row in range(n * n)]).reshape(n, n)
    graph = csr_array(np.where(np.isinf(hops) | np.eye(n, dtype=np.bool_), 0.0, hops))
    least = dijkstra(graph)
    for u, v in ((0, 5), (3, 1)):
        before = np.empty(n, np.int32)
        assert cheapest_path(p, u, v, HOP, before) == bool(np.isfinite(least[u, v]))
        if np.isfinite(least[u, v]):
            total, at = 0.0, v
            while at != u:
                total, at = total + hops[before[at], at], int(before[at])
            assert total == pytest.approx(least[u, v])


@settings(deadline=None)
@given(SEEDS)
def test_what_is_put_on_a_route_raises_its_prices_alone_and_goes_again(seed: int) -> None:
    p = some_prices(seed)
    reprice(p, STEEP)
    load, price = p.load.copy(), p.price.copy()
    row = int(np.flatnonzero(p.use[:, 0] != NO_ROUTE)[0])
    used = np.isin(np.arange(len(load)), p.use[row])
    put(p, row, 2.0, STEEP)
    assert (p.price[used] > price[used]).all() and (p.price[~used] == price[~used]).all()
    np.testing.assert_allclose(p.load - load, np.where(used, 2 * p.chunk, 0.0))
    put(p, row, -2.0, STEEP)
    np.testing.assert_allclose(p.price, price)


def test_at_the_goal_a_resource_costs_its_weight() -> None:
    p = some_prices(0)
    p.load[:] = p.goal
    reprice(p, STEEP)
    np.testing.assert_allclose(p.price, p.weight)
    p.load[:] = 1e6
    reprice(p, STEEP)
    assert np.isfinite(p.price).all()
