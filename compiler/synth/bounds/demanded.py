"""demanded: what no schedule of a demand can beat: its latency, its narrowest cut, its best paths.

A block crosses a cut into C where a rank of C wants it and no rank of C has a copy of it; a sum,
where any rank outside has a piece. So much must cross, whatever is copied or summed on the way; of
sums that several parts want, more may have to (`bound`, Allreduce), so the bound is not the
tightest there. A demand that a collective of the table has is that collective's (`demand_of`).

*Paths.* Where every block goes from one rank to one rank, every schedule is a flow for each rank
that wants blocks, and the fastest is the linear program of `best_paths`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hccc.base.diagnostics import fail
from hccc.ir.arrays import I8
from hccc.ir.collective import Collective
from hccc.ir.demand import Demand
from hccc.ir.topology import F8, Topology
from hccc.network.flow import FlowNetwork, network
from hccc.network.latency import Distances, through_one_block
from hccc.network.resource_names import leading_kinds
from hccc.synth.bounds.best_paths import BestPaths, demanded_paths
from hccc.synth.bounds.bound import Limits, Optimum, mixed, narrowest

MOST_RANKS = 1024  # of which the latency is found
INEXACT = 1e-6  # of a rate that a linear program finds


def check_ranks(demand: Demand, t: Topology) -> None:
    """Raises UserError E410 unless a demand is of the ranks of a cluster."""
    if demand.n_ranks != len(t):
        message = f"the demand is of {demand.n_ranks} ranks, and the cluster has {len(t)}"
        raise fail("E410", message, help="its ranks are those of the cluster")


def limits_of(
    t: Topology, demand: Demand, most_variables: int | None = None
) -> tuple[Limits, BestPaths | None]:
    """Returns the bound of a demand for all sizes, and its best paths; None where blocks do not go
    from one rank to one rank, or the linear program has more than `most_variables`."""
    blocks = Collective.of(demand).most_blocks()
    if not demand.lacking().any():
        return Limits(0.0, 0.0, None, blocks), None
    net = network(t)
    distances = Distances(net)
    if demand.sums.any():
        distances = Distances(net, through_one_block(t))
    head, cut = narrowest(
        t, net, distances, lambda label, out: _crossing(demand, label, out) / blocks
    )
    head = 0.0 if mixed(t, cut) else head
    found = Limits(_latency(net, distances, demand), head, cut, blocks)
    need = _pairs(demand)
    if need is None or not cut.capacity > 0:
        return found, None
    rate = float(cut.algbw)
    best = demanded_paths(t, need / blocks, rate, most_variables)
    if best is None or best.algbw >= rate * (1 - INEXACT):
        return found, best
    by = leading_kinds(t, best.resource, best.weight)
    return replace(found, optimum=Optimum("paths", best.algbw * (1 + INEXACT), by)), best


def _pairs(demand: Demand) -> F8 | None:
    """Returns the blocks from each rank to each, f8[ranks, ranks]; None where a block has several
    ways to go."""
    if not demand.pairwise:
        return None
    lacks = demand.lacking()
    moves = lacks.any(1)
    need = np.zeros((demand.n_ranks, demand.n_ranks))
    np.add.at(need, (demand.has[moves].argmax(1), lacks[moves].argmax(1)), 1.0)
    return need


def _crossing(demand: Demand, label: I8, out: bool) -> F8:
    """Returns the blocks that must enter each part, or leave it: f8[parts]."""
    parts = (label[:, None] == np.arange(int(label.max()) + 1)).astype(np.int32)
    has, wants = demand.has.astype(np.int32), demand.wants.astype(np.int32)
    had, wanted = has @ parts, wants @ parts  # of the ranks of each part: i4[blocks, parts]
    if out:
        had, wanted = (x.sum(1, keepdims=True) - of for x, of in ((has, had), (wants, wanted)))
    elsewhere = has.sum(1, keepdims=True) - had
    needs = np.where(demand.sums[:, None], elsewhere > 0, had == 0)
    crosses: F8 = ((wanted > 0) & needs).sum(0).astype(np.float64)
    return crosses


def _latency(net: FlowNetwork, distances: Distances, demand: Demand) -> float:
    """Returns the µs until the last rank has what it wants, at least; 0 for many ranks."""
    if net.ranks > MOST_RANKS:
        return 0.0
    away = np.concatenate(distances.rows(np.arange(net.ranks)))
    least = 0.0
    for has, wants, sums in zip(demand.has, demand.wants, demand.sums.tolist(), strict=True):
        between = away[has][:, wants]
        least = max(least, float((between.max(0) if sums else between.min(0)).max()))
    return least
