"""demand_table: Programs of a demand from transfers that sum, and transfers that copy.

A sum is reduced to one of the ranks that want it, its chunk's *root*, and copied to the others from
there. Those with several chunks have their roots in turn.
"""

from __future__ import annotations

import numpy as np

from hccc.ir.arrays import I8
from hccc.ir.collective import Collective
from hccc.ir.demand import Demand
from hccc.ir.program import Op, Program
from hccc.ir.topology import Topology
from hccc.synth.common.transfer_table import followed, joined

SRC, DST, STEP, CHUNK, OP = range(5)


def roots(demand: Demand, per_block: int) -> I8:
    """Returns the root of each chunk, i8[chunks]; of a copy -1. Ranks that have a piece come first,
    and of those, ranks that are roots of few chunks."""
    found = np.full((len(demand), per_block), -1)
    load = np.zeros(demand.n_ranks)
    for block in np.flatnonzero(demand.sums).tolist():
        wants = np.flatnonzero(demand.wants[block])
        for j in range(per_block):
            root = wants[np.lexsort((load[wants], ~demand.has[block, wants]))[0]]
            found[block, j] = root
            load[root] += 1
    return found.ravel()


def demand_program(
    name: str, t: Topology, demand: Demand, per_block: int, sums: I8, copies: I8
) -> Program:
    """Returns the Program of a demand. sums, copies: i8[5, transfers], one after the other.

    Raises:
        UserError: E451 the cluster lacks a route; E452 there are too many transfers.
    """
    c = Collective.of(demand, per_block)
    return joined(name, c, t, followed(_received_first(sums, demand, per_block), copies))


def _received_first(sums: I8, demand: Demand, per_block: int) -> I8:
    """Returns the sums where ranks without a piece receive the first one, and reduce the others
    into it, a step later."""
    table = sums[:, np.argsort(sums[STEP], kind="stable")].copy()
    place = table[CHUNK] * demand.n_ranks + table[DST]
    first = np.zeros(table.shape[1], np.bool_)
    first[np.unique(place, return_index=True)[1]] = True
    empty = ~demand.has[table[CHUNK] // per_block, table[DST]]
    if empty.any():
        table[OP, first & empty] = int(Op.RECV)
        table[STEP] = 2 * table[STEP] + (empty & ~first)
    return table
