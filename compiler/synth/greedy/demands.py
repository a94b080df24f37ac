"""demands: Programs of greedy schedules for a demand of one's own.

Sums are copies of the turned cluster, backwards, from their roots to the ranks that have pieces
(`common/demand_table`); then all that is not where it is wanted is copied. Ranks that neither have
a block nor want it forward none of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hccc.base.progress import tell
from hccc.ir.arrays import I8
from hccc.ir.demand import Demand
from hccc.ir.program import Op
from hccc.ir.topology import Topology
from hccc.synth.common.demand_table import OP, demand_program, roots
from hccc.synth.common.transfer_table import transfers
from hccc.synth.greedy import schedule
from hccc.synth.greedy.chunked import chunked
from hccc.synth.greedy.least_steps import least_steps
from hccc.synth.greedy.programs import CHUNKS, MOST_TRANSFERS, GreedyProgram, best_greedy


def demand_programs(t: Topology, demand: Demand, seed: int) -> Iterator[GreedyProgram]:
    """Yields Programs of greedy schedules with different numbers of chunks, fewest first.

    Raises:
        UserError: E451 a rank is reached by none that has a block or wants it.
    """
    c = chunked(t, fine=True)
    several = len(np.unique(c.node)) > 1
    for per in CHUNKS:
        sums, copies = _parts(demand, per)
        moved = sum(int(np.count_nonzero(part.post & ~part.pre)) for part in (sums, copies))
        if per > 1 and moved > MOST_TRANSFERS:
            return
        for again in (False, True) if several else (False,):
            tell(f"Synthesis: greedy, chunks of a block: {per}")
            steps = bound = 0
            tables = list[I8]()
            for part, turned in ((sums, True), (copies, False)):
                model = c.reversed() if turned else c
                if not (part.post & ~part.pre).any():
                    tables.append(np.zeros((5, 0), np.int64))
                    continue
                found = best_greedy(model, part, seed, again)
                steps, bound = steps + found.steps, bound + least_steps(model, part)
                tables.append(_table(found.reversed() if turned else found, turned))
            made = demand_program("Greedy", t, demand, per, *tables)
            yield GreedyProgram(made, per, again, steps, bound, "block")


def _parts(demand: Demand, per: int) -> tuple[schedule.CopyDemand, schedule.CopyDemand]:
    """Returns the copies that are sums backwards, and those that follow."""
    root = roots(demand, per)
    has, wants = np.repeat(demand.has, per, 0), np.repeat(demand.wants, per, 0)
    mine = np.arange(demand.n_ranks) == root[:, None]
    summed = root[:, None] >= 0
    sums = schedule.CopyDemand(np.where(summed, mine, has), np.where(summed, mine | has, has))
    held = np.where(summed, mine, has)
    return sums, schedule.CopyDemand(held, held | wants)


def _table(s: schedule.Schedule, sums: bool) -> I8:
    """Returns a schedule's transfers: i8[5, transfers]."""
    columns = (column.astype(np.int64) for column in (s.src, s.dst, s.step, s.chunk))
    table = transfers(*columns)
    table[OP] = int(Op.RRC if sums else Op.RECV)
    return table
