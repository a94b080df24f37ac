"""Why a simulated figure is what it is: read off the Runs, so that it cannot go stale."""

from __future__ import annotations

import numpy as np

from hccc.ir.topology import F8
from hccc.predict.gap import gap
from hccc.sim import usage
from hccc.sim.simulate import Run
from hccc.synth.bounds.bound import Limits

FULL = 0.9  # of the time: a link or a thread block that is this busy is the limit
FAST = 0.75  # of its own speed: a thread block below that waits for a link it shares


def limit(run: Run) -> str:
    """Says what a Run's time went to: full links, thread blocks, links shared, or waiting."""
    top = usage.links(run)[0]
    busiest = int(run.block_busy.argmax())
    busy = float(run.block_busy[busiest])
    link = f"busiest {top.kind} {top.most:.0%} full"
    if top.most >= FULL:
        return f"links are the limit ({link})"
    block = f"busiest block {busy / run.time:.0%} busy, {link}"
    if busy < FULL * run.time:
        return f"waiting is the limit ({block})"
    own = float(_own_time(run)[busiest]) / busy
    if own < FAST:
        return f"links that busy blocks share are the limit ({block}, at {own:.0%} of its speed)"
    speed = run.machine.topology.devices[0].block
    return f"thread blocks of {speed:g} GB/s are the limit ({block})"


def idlest(run: Run) -> str:
    """Says what the most idle thread block does."""
    lives = np.flatnonzero(run.block_end > 0)
    idle = 1 - run.block_busy[lives] / run.block_end[lives]
    own = _own_time(run)
    share = own[lives[idle.argmax()]] / own.max()
    return f"the idlest block moves {share:.0%} of what the busiest does"


def ceiling(run: Run, limits: Limits) -> float:
    """Returns how many times faster than `run` any schedule could be."""
    return run.time / (limits.at(run.size, run.request.costs).time + run.launch)


def lost(run: Run, limits: Limits) -> str:
    """Says which part of a Run's time no schedule needs, by its largest cause (`predict.gap`)."""
    parts = gap(run, limits).parts
    name = max((n for n in parts if n != "bound"), key=lambda n: parts[n])
    return f"bound {parts['bound'] / run.time:.0%} of the time, {name} {parts[name] / run.time:.0%}"


def _own_time(run: Run) -> F8:
    """Returns the µs that each thread block's bytes take at its own speed: f8[T]."""
    plan = run.machine.plan
    taken = np.where(run.moves, run.machine.move * run.parts, 0.0)
    found: F8 = np.bincount(plan.block_of(), taken, len(plan.tb_ptr) - 1).astype(np.float64)
    return found
