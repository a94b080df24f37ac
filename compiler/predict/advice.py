"""advice: warnings about a call on a cluster, each with a remedy.

W401: thread blocks limit the speed, and how many would not. W402: the plan is for another cluster.
"""

from __future__ import annotations

from dataclasses import replace

from hccc.base.diagnostics import Problem
from hccc.driver.compilation import recorded
from hccc.driver.compiled import Compiled, CompiledProgram
from hccc.driver.tune.setting import most_blocks
from hccc.ir.limits import MAX_CHANNELS
from hccc.ir.text import size, time
from hccc.ir.topology import Topology
from hccc.sim.critical import breakdown, critical_path
from hccc.sim.machine import prepare
from hccc.sim.simulate import Run, simulate

MOST_OF_IT = 0.5  # of the critical path
WORTH = 0.9  # of the time: more channels must save a tenth
ENOUGH = 1.05  # times the least
MOST_INSTANCES = 1 << 20  # of a call that is simulated again


def advice(compiled: Compiled, topology: Topology, run: Run) -> tuple[Problem, ...]:
    """Returns warnings W401 and W402 about a simulated call.

    Simulates it a few times more if thread blocks limit its speed.
    """
    found = [_other_cluster(compiled, topology), _few_blocks(compiled, run)]
    return tuple(problem for problem in found if problem)


def _other_cluster(compiled: Compiled, topology: Topology) -> Problem | None:
    made = compiled.plan.provenance
    if isinstance(compiled, CompiledProgram) or made is None or made.cluster is None:
        return None
    if made.cluster.text == recorded(topology).text:
        return None
    message = f"{compiled.catalogue.name} is compiled for {made.cluster.name}, not {topology.name}"
    help = "what is best there need not be here: compile it again with this --cluster"
    return Problem("W402", message, help=help, severity="warning")


def _few_blocks(compiled: Compiled, run: Run) -> Problem | None:
    path = breakdown(run, critical_path(run))
    share = path.get("thread block", 0.0) / max(sum(path.values()), 1e-9)
    plan = run.machine.plan
    if share < MOST_OF_IT or len(run.end) > MOST_INSTANCES:
        return None
    times = _with_more(run)
    least = min(times.values())
    if least > WORTH * run.time:
        return None
    channels = next(n for n, took in times.items() if took <= ENOUGH * least)
    blocks = plan.blocks_per_rank // plan.channels * channels
    message = (
        f"thread blocks are {share:.0%} of the critical path of {size(run.size)}: "
        f"with {plan.blocks_per_rank} a rank it takes {time(run.time)}, "
        f"with {blocks} {time(times[channels])}"
    )
    return Problem("W401", message, help=_remedy(compiled, channels), severity="warning")


def _remedy(compiled: Compiled, channels: int) -> str:
    """Returns how the plan gets more channels."""
    made = compiled.plan.provenance
    if not isinstance(compiled, CompiledProgram) and not (made and made.options):
        # A schedule of another tool: hccc has chosen nothing of it.
        return f"--reschedule schedules it anew, with --channels {channels} or as many as are best"
    again = "" if isinstance(compiled, CompiledProgram) else "compile it again with "
    return f"{again}--channels {channels}, or without --channels, --max-sms and --tune off"


def _with_more(run: Run) -> dict[int, float]:
    """Returns the µs with more channels, doubled as often as SMs allow, by their number."""
    plan, t = run.machine.plan, run.machine.topology
    each = max(1, plan.blocks_per_rank // plan.channels)
    most, channels = min(MAX_CHANNELS, most_blocks(t) // each), 2 * plan.channels
    times = {plan.channels: run.time}
    while channels < 2 * most:
        n = min(channels, most)
        more = prepare(replace(plan, channels=n), t)
        times[n] = simulate(more, replace(run.request, micro_batch=0)).time
        channels *= 2
    return times
