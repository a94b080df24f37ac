"""structures: the structures of a program that are tried for a cluster.

A structure is an order of tasks, a way over the network, a fusion, a number of thread blocks a
channel, a transport and a protocol. Options that are given are kept. Channels, windows and cuts of
calls are settings, which every structure can be run with (`tune/setting`). Of large programs fewer
structures are tried, as each takes all passes from `schedule` on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from hccc.analysis.block_schedule import uneven_links
from hccc.driver.options import AUTO, Options
from hccc.driver.pass_manager import Settings
from hccc.ir.choices import (
    Accumulate,
    Allocator,
    Bits,
    Fusion,
    NetworkLowering,
    PlanProtocol,
    Scheduler,
)
from hccc.ir.collective import OpType
from hccc.ir.dag import Dag
from hccc.ir.plan import Plan
from hccc.ir.transport import Transport
from hccc.passes.allocate import DEPTHS, LOADS
from hccc.passes.lower import decide_transport
from hccc.passes.multicast import possible
from hccc.passes.packets import refusal

# Values of an option that is left open; the first is used if nothing is tried.
SCHEDULERS_TRIED = (Scheduler.HPDS, Scheduler.LIST)
ALLOCATORS_TRIED = (Allocator.STATE, *DEPTHS)
LOADS_TRIED = (Allocator.LOAD32, Allocator.LOAD8)
NETWORK_TRIED = (NetworkLowering.PUT, NetworkLowering.SLOTS)
# Collectives in which each rank hears of every other by their data.
HEARD = (OpType.ALLREDUCE, OpType.ALLGATHER, OpType.REDUCESCATTER, OpType.ALLTOALL)
FUSION_TRIED = (AUTO, Fusion.FULL, Fusion.NONE)
MOST_TRIED = 1 << 13  # transfers, of which everything is tried
MOST_SCHEDULED = 1 << 15  # transfers, of which schedulers are, and what no cluster is given for
MOST_LISTED = 1 << 20  # transfers: more than MOST_SCHEDULED are list scheduled
# Steps, where there are more: HPDS fills long pipelines late. Of an Alltoall it takes chunks by
# number, those of all ranks for the same ones first, which a program's order spreads.
HOPS = 8

Axis = Callable[[Settings], Sequence[Settings]]  # other choices, given the best so far


def start(settings: Settings, tasks: Dag) -> Settings:
    """Returns the settings used when nothing is tuned."""
    options = settings.options
    if options.scheduler == AUTO:
        scheduler = Scheduler.LIST if _listed(settings, tasks) else SCHEDULERS_TRIED[0]
        options = replace(options, scheduler=scheduler)
    most = None
    if not options.simple and options.allocator == AUTO:
        most = 1  # calls are short: another block would take longer to begin than it saves
    elif options.max_sms is not None and (settings.topology is None or not options.tuned):
        most = max(1, options.max_sms // tasks.program.channels)
    if options.allocator == AUTO:
        options = replace(options, allocator=ALLOCATORS_TRIED[0])
    if settings.topology is not None and options.network_lowering == AUTO:
        options = replace(options, network_lowering=NETWORK_TRIED[0])
    if options.protocol == AUTO:
        options = replace(options, protocol=PlanProtocol.SIMPLE)
    return replace(settings, options=options, blocks=most)


def _listed(settings: Settings, tasks: Dag) -> bool:
    """Tells whether a program for which one scheduler is tried gets list scheduling."""
    if settings.topology is None or not settings.options.tuned:
        return False
    program = tasks.program
    several = int(program.transfers["step"].max(initial=0)) >= HOPS
    several |= program.collective.op is OpType.ALLTOALL
    return several and MOST_SCHEDULED < len(tasks) <= MOST_LISTED


def axes(settings: Settings, tasks: Dag) -> list[Axis]:
    """Returns the other values to try of each option that is left open, unless they take long.

    The estimate that `lower` and `fuse` choose by without a cluster does not know that proxies work
    on their own.
    """
    options = settings.options
    mixed = decide_transport(tasks, options.transport) is Transport.MIXED
    several = len(tasks) <= MOST_TRIED
    found = list[Axis]()
    if options.fuse == AUTO and several:
        found.append(_others("fuse", FUSION_TRIED[1:]))
    if options.allocator == AUTO and several:
        found += [partial(_by_depth, options.fuse), _more_by_depth]
        if uneven_links(tasks):
            found.append(partial(_by_load, options.fuse))
    if several:
        found.append(partial(_one_block, options.fuse))
    if options.network_lowering == AUTO and mixed and several:
        found.append(_others("network_lowering", NETWORK_TRIED[1:]))
    if options.scheduler == AUTO and len(tasks) <= MOST_SCHEDULED:
        found.append(_others("scheduler", SCHEDULERS_TRIED[1:]))
    if options.protocol == AUTO and several and _can_be_packets(settings, tasks):
        found.append(partial(_packets, options))
    if options.transport is Transport.AUTO and several and _can_be_multicast(options, tasks):
        found.append(partial(_multicast, options))
    return found


def _can_be_packets(settings: Settings, tasks: Dag) -> bool:
    """Tells whether protocol auto has packets to weigh: LL can do what the program does, and no
    rank has to greet others (`passes/greet`)."""
    heard = tasks.program.collective.op in HEARD and len(tasks.topology) > 1
    return heard and refusal(tasks, settings.options.transport) is None


def _can_be_multicast(options: Options, tasks: Dag) -> bool:
    """Tells whether a switch may add floats, and can do what the program does."""
    floats = options.sum_bits is Bits.ANY and options.sums is Accumulate.FLOAT32
    return floats and possible(tasks)


def _by_depth(fuse: str, best: Settings) -> Sequence[Settings]:
    """Tries blocks by depth, also fully fused: one block then writes to all peers at once."""
    deep = [_with(best, allocator=name) for name in ALLOCATORS_TRIED[1:-1]]
    if fuse != AUTO or best.options.fuse == Fusion.FULL:
        return deep
    return [*deep[:1], *(_with(one, fuse=Fusion.FULL) for one in deep)]


def _more_by_depth(best: Settings) -> Sequence[Settings]:
    """Tries the most blocks by depth where many are better than few."""
    *_, many, most = ALLOCATORS_TRIED
    return [_with(best, allocator=most)] if best.options.allocator == many else []


def _by_load(fuse: str, best: Settings) -> Sequence[Settings]:
    """Tries blocks by load, with few fusions: what is fused has to find room on several links."""
    if fuse == AUTO:
        best = _with(best, fuse=Fusion.REDUCE)
    return [_with(best, allocator=name) for name in LOADS_TRIED]


def _one_block(fuse: str, best: Settings) -> Sequence[Settings]:
    """Tries one block a channel, also unfused: what suits several blocks may not suit one."""
    few = replace(best, blocks=1)
    if fuse != AUTO or best.options.fuse == Fusion.NONE:
        return [few]
    return [few, _with(few, fuse=Fusion.NONE)]


def _packets(asked: Options, best: Settings) -> Sequence[Settings]:
    """Tries packets, in one shot and in two: short calls are faster by them. asked: the options
    before any choice."""
    packets = _with(best, protocol=PlanProtocol.LL)
    if asked.allocator == AUTO:
        packets = replace(_with(packets, allocator=ALLOCATORS_TRIED[0]), blocks=1)
    fusions = (AUTO, Fusion.FULL) if asked.fuse == AUTO else (asked.fuse,)
    return [_with(packets, fuse=fuse) for fuse in fusions]


def _multicast(asked: Options, best: Settings) -> Sequence[Settings]:
    """Tries the switch, whose primitives are few and wait for nothing. asked: as in `_packets`."""
    allocator = ALLOCATORS_TRIED[0] if asked.allocator == AUTO else asked.allocator
    plain = _with(best, protocol=PlanProtocol.SIMPLE, allocator=allocator)
    switched = replace(plain.options, transport=Transport.MULTICAST)
    return [replace(plain, options=switched, blocks=None)]


def _with(settings: Settings, **changes: str) -> Settings:
    change: Any = replace
    return replace(settings, options=change(settings.options, **changes))


def _others(name: str, values: Sequence[str]) -> Axis:
    def choices(best: Settings) -> Sequence[Settings]:
        return [_with(best, **{name: value}) for value in values]

    return choices


def named(settings: Settings, plan: Plan) -> str:
    """Returns a name of a structure for people, from its settings and its Plan."""
    o = settings.options
    words = [o.scheduler, f"fuse {o.fuse}"]
    if plan.multicast is not None:
        words = [o.scheduler, "multicast"]
    if plan.transport is Transport.MIXED:
        words.append(o.network_lowering)
    if o.allocator in LOADS:
        words.append(f"{LOADS[o.allocator]} blocks by load")
    if o.allocator in DEPTHS:
        blocks = DEPTHS[o.allocator]
        words.append(f"{blocks} blocks by depth" if blocks > 1 else "a block for each depth")
    if not o.simple:
        words.append("packets")
    elif settings.blocks == 1:
        words.append("one block a channel")
    return ", ".join(words)
