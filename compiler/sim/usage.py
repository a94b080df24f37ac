"""usage: the utilisation of links and thread blocks in a Run (ResCCL Table 1 and Table 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.ir.topology import BYTES_PER_US
from hccc.network.resource_names import KINDS, kinds, names
from hccc.sim.simulate import Run


@dataclass(frozen=True, slots=True)
class LinkUsage:
    """All links of one kind that carried anything (one direction each): their number, the share of
    their capacity × time that they used, on average and at most, and the name of the busiest."""

    kind: str
    count: int
    mean: float
    most: float
    busiest: str


@dataclass(frozen=True, slots=True)
class BlockUsage:
    """Thread blocks: the number of the rank that has most, all channels; the shares of their lives
    (from the launch to their own end) that they were busy on average, idle on average and at
    most."""

    per_rank: int
    busy: float
    idle: float
    most_idle: float


def links(run: Run) -> list[LinkUsage]:
    """Returns every kind of link that carried anything, the busiest kind first."""
    machine = run.machine
    used = np.flatnonzero(machine.links & (run.carried > 0))
    kind = kinds(machine.topology, machine.resource[used])
    share = run.utilisation[used]
    kinds_used = []
    for k in np.unique(kind):
        mine = share[kind == k]
        top = used[kind == k][np.argmax(mine)]
        name = names(machine.topology, machine.resource[[top]])[0]
        kinds_used.append(
            LinkUsage(KINDS[k], len(mine), float(mine.mean()), float(mine.max()), name)
        )
    return sorted(kinds_used, key=lambda x: -x.most)


def utilisation(run: Run) -> float:
    """Returns the bytes on all links that carried anything, over their capacity in that time (0 to
    1)."""
    used = run.machine.links & (run.carried > 0)
    could = float(run.machine.capacity[used].sum()) * BYTES_PER_US * run.time
    return float(run.carried[used].sum()) / could if could else 0.0


def blocks(run: Run) -> BlockUsage:
    """Returns the thread blocks and their idle time (ResCCL §5.4); all channels are alike."""
    plan = run.machine.plan
    per_rank = plan.blocks_per_rank
    lives = run.block_end > 0
    if not lives.any():
        return BlockUsage(per_rank, 0.0, 0.0, 0.0)
    idle = 1 - run.block_busy[lives] / run.block_end[lives]
    return BlockUsage(per_rank, float(1 - idle.mean()), float(idle.mean()), float(idle.max()))
