"""prices: the price of one more chunk on each resource, which rises exponentially with its load.

A search that gives each chunk the cheapest route, tree or path fills the resources evenly: a
resource that carries more than the goal costs many times as much as one that carries less
(Plotkin, Shmoys, Tardos 1995; Aspnes et al. 1997).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4
from hccc.ir.topology import F8
from hccc.synth.common.route_table import NO_ROUTE


class Prices(NamedTuple):
    """Loads and prices of R resources.

    use: as of RouteTable; chunk: f8[R] what one chunk adds to a load; goal: f8[R] the load that is
    to be reached and not exceeded; weight: f8[R] the price at the goal; load, price: f8[R], which
    change; ahead: chunks that a price adds to the present load, 0 or 1; highest: the exponent of no
    price is larger.
    """

    use: I4
    chunk: F8
    goal: F8
    weight: F8
    load: F8
    price: F8
    ahead: float
    highest: float


def prices(use: I4, chunk: F8, goal: F8, weight: F8, *, ahead: float, highest: float) -> Prices:
    """Returns the Prices of resources that carry nothing yet; `reprice` sets their prices."""
    loads, price = np.zeros((2, len(chunk)))
    return Prices(use, chunk, goal, weight, loads, price, ahead, highest)


@njit(allocates=False)
def _price(p: Prices, resource: int, steepness: float) -> float:
    """Returns the price of a resource. steepness: how fast prices rise with the load."""
    load = p.load[resource] + p.ahead * p.chunk[resource]
    exponent = steepness * (load / p.goal[resource] - 1.0)
    return float(p.weight[resource] * math.exp(min(exponent, p.highest)))


@njit(allocates=False)
def reprice(p: Prices, steepness: float) -> None:
    """Sets the prices of all resources."""
    for resource in range(len(p.load)):
        p.price[resource] = _price(p, resource, steepness)


@njit(allocates=False)
def put(p: Prices, row: int, chunks: float, steepness: float) -> None:
    """Adds chunks to the route in a row of `use`, or takes them off, and sets its prices."""
    for j in range(p.use.shape[1]):
        resource = p.use[row, j]
        if resource < 0:
            return
        p.load[resource] += chunks * p.chunk[resource]
        p.price[resource] = _price(p, resource, steepness)


@njit(allocates=False)
def route_price(p: Prices, row: int, begin: float) -> float:
    """Returns `begin` plus the prices along the route in a row of `use`; inf without a route."""
    if p.use[row, 0] == NO_ROUTE:
        return math.inf
    total = begin
    for j in range(p.use.shape[1]):
        if p.use[row, j] < 0:
            break
        total += p.price[p.use[row, j]]
    return float(total)
