"""what_if: the same call again with one change: of hardware, the call, or the compilation.

Nothing is guessed: every change is simulated, and compiled first if it needs that. A change of
hardware keeps the plan that was made for the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from hccc.base.progress import quiet, tell
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.ir.choices import Allocator, Fusion, NetworkLowering, Scheduler
from hccc.ir.device import BLOCK_RATES, Device
from hccc.ir.limits import MAX_CHANNELS
from hccc.ir.primitives import Transport
from hccc.ir.program import Program
from hccc.ir.topology import Rates, Topology
from hccc.network.resource_names import KINDS, LINK, MESH, kinds
from hccc.predict.trials import Trial, evaluate
from hccc.sim.costs import PROTOCOLS
from hccc.sim.machine import Machine, prepare
from hccc.sim.simulate import Request, Run, simulate

FREE = 1e9  # GB/s of what costs nothing
MANY = {
    "port": "ports",
    "NIC": "NICs",
    "leaf": "leaf uplinks",
    "spine": "spine uplinks",
    "switch": "switch groups",
    "limit": "limits between nodes",
    "link": "links",
    "mesh": "mesh links",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One what-if experiment. option: the flag that makes the change, empty if it takes other
    hardware."""

    name: str
    option: str
    machine: Callable[[], Machine]
    request: Request


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """The result of a change: µs, the part of the time that it saves (below 0: loses), and the
    thread blocks of the rank with most, over all channels."""

    name: str
    option: str
    time: float
    saves: float
    blocks: int


def outcomes(run: Run, program: Program | None, options: Options) -> list[ChangeOutcome]:
    """Simulates every change, and returns the best first. Changes that cannot run are left out.

    program: to compile anew, with `options`; None for a plan, which stays as it is.
    """
    changes = [*_hardware(run), *_calls(run), *_compilations(run, program, options)]
    by_name = {change.name: change for change in changes}
    simulated, _ = evaluate(  # what cannot run so is left out: a window too large, say
        [Trial(c.name, partial(_simulated, c)) for c in changes],
        lambda result: result[0],
        lambda name: tell(f"Simulating: {name}"),
    )
    found = [
        ChangeOutcome(
            one.name,
            by_name[one.name].option,
            one.value,
            1 - one.value / run.time,
            one.result[1],
        )
        for one in simulated
    ]
    return sorted(found, key=lambda outcome: outcome.time)


def _simulated(change: Change) -> tuple[float, int]:
    """Returns the µs of the change, and its thread blocks."""
    machine = change.machine()
    return simulate(machine, change.request).time, machine.plan.blocks_per_rank


def _hardware(run: Run) -> Iterator[Change]:
    """Yields twice the bandwidth of each kind of link in use, and nodes of lower cost."""
    machine = run.machine
    plan, t = machine.plan, machine.topology

    def on(name: str, better: Topology) -> Change:
        return Change(name, "", lambda: prepare(plan, better), run.request)

    used = machine.resource[machine.links & (run.carried > 0)]
    for kind in np.unique(kinds(t, used)).tolist():
        yield on(f"{MANY[KINDS[kind]]} twice as fast", _doubled(t, kind))
    slow = [_faster_blocks(device) for device in t.devices]
    yield on("thread blocks twice as fast", replace(t, devices=tuple(slow)))
    free = [replace(device, reduce=FREE) for device in t.devices]
    if plan.collective.reduces:
        yield on("reductions free (γ = 0)", replace(t, devices=tuple(free)))
    if (t.cores > 0).any():
        yield on("twice the cores", replace(t, cores=2 * t.cores))
    links, meshes, shared = map(_prompt, (t.links, t.meshes, t.shared))
    none = tuple(replace(device, step=0.0) for device in t.devices)
    prompt = replace(t, links=links, meshes=meshes, shared=shared, devices=none)
    yield on("no latency (α = 0)", prompt)


def _doubled(t: Topology, kind: int) -> Topology:
    """Returns the Topology with links of one kind (of `resource_names`) twice as fast."""
    if kind == LINK:
        return replace(t, links=_faster(t.links, np.full(len(t.links), 2.0)))
    if kind == MESH:
        return replace(t, meshes=_faster(t.meshes, np.full(len(t.meshes), 2.0)))
    return replace(t, shared=_faster(t.shared, np.where(t.level == kind, 2.0, 1.0)))


def _faster_blocks(device: Device) -> Device:
    cache = tuple(level._replace(block=2 * level.block) for level in device.cache)
    twice = {name: 2 * getattr(device, name) for name in BLOCK_RATES}
    return replace(device, cache=cache, **twice)


def _faster(rates: Rates, times: np.ndarray) -> Rates:
    return Rates(rates.bandwidth * times, rates.parallel, rates.alpha)


def _prompt(rates: Rates) -> Rates:
    return Rates(rates.bandwidth, rates.parallel, np.zeros(len(rates)))


def _calls(run: Run) -> Iterator[Change]:
    """Yields other micro-batches, windows and protocols."""
    request = run.request

    def asked(name: str, option: str, other: Request) -> Change:
        return Change(name, option, lambda: run.machine, other)

    micro = 1 << max(0, int(run.payload).bit_length() - 1)
    for other in (micro // 4, micro // 2, 2 * micro, 4 * micro):
        if other >= 1 and not (run.batches == 1 and other > micro):
            name = f"micro-batches of {other:,} bytes"
            yield asked(name, f"--micro-batch {other}", replace(request, micro_batch=other))
    windows = {
        1: "one micro-batch at a time",
        4: "four micro-batches at a time",
        0: "all micro-batches at a time",
    }
    for window, name in windows.items():
        if (min(window, run.batches) or run.batches) != run.window:
            yield asked(name, f"--window {window}", replace(request, window=window))
    for name, costs in PROTOCOLS.items():
        now = request.costs
        other_costs = replace(now, efficiency=costs.efficiency, latency=costs.latency)
        if other_costs != now:
            yield asked(
                f"protocol {name}", f"--protocol {name}", replace(request, costs=other_costs)
            )


def _compilations(run: Run, program: Program | None, options: Options) -> Iterator[Change]:
    """Yields more or fewer channels, other fusion, order, thread blocks, and other ways between
    ranks."""
    if program is None:
        return
    options = replace(options, prove=False, tune="off")
    channels = run.machine.plan.channels
    more_or_fewer = (channels // 2, 2 * channels, 4 * channels)
    choices: list[tuple[str, str, Sequence[object]]] = [
        ("channels", "--channels", [n for n in more_or_fewer if 1 <= n <= MAX_CHANNELS]),
        ("fuse", "--fuse", tuple(Fusion)),
        ("scheduler", "--scheduler", tuple(Scheduler)),
        ("allocator", "--allocator", tuple(Allocator)),
        *_transports(run, options),
    ]
    for field, option, values in choices:
        for value in values:
            if value == getattr(options, field):
                continue
            other = replace(options, **{field: value})  # type: ignore[arg-type]
            made = partial(_compiled, program, other, run)
            name = value.name.lower() if isinstance(value, Transport) else value
            yield Change(f"{field} {name}", f"{option} {name}", made, run.request)


def _transports(run: Run, options: Options) -> Iterator[tuple[str, str, Sequence[object]]]:
    """Yields other transports that the cluster allows: one-sided everywhere only within one
    domain."""
    plan = run.machine.plan
    several = bool(np.ptp(run.machine.topology.memory_domain))
    possible = (Transport.AUTO if several else Transport.DIRECT, Transport.STAGED)
    yield "transport", "--transport", [t for t in possible if _transport(t) != plan.transport]
    if plan.transport is Transport.MIXED:
        yield (
            "network_lowering",
            "--network-lowering",
            [way for way in NetworkLowering if way != options.network_lowering],
        )


def _transport(asked: Transport) -> Transport:
    """Returns the transport that AUTO becomes if there are several memory domains."""
    return Transport.MIXED if asked is Transport.AUTO else asked


def _compiled(program: Program, options: Options, run: Run) -> Machine:
    """Compiles the program anew for the same cluster, and prepares it to be called as before."""
    t, plan = run.machine.topology, run.machine.plan
    with quiet():
        made = driver.compile_program(program, options, t).plan
    largest = made.largest_window
    window = min(plan.window, largest) if largest else plan.window
    return prepare(replace(made, window=window, grain=plan.grain), t)
