"""gap: where the time of a Run goes that no schedule would need.

The time of a Run is taken apart by its *bottleneck*, the link or shared group whose bytes take
longest at its full capacity. Each mark is the largest of the one before and of a figure that the
Run cannot be below; each part is what a mark adds to the one before it, so parts are never negative
and add up to the time:

| part               | up to                                                                    |
|--------------------|--------------------------------------------------------------------------|
| `launch`           | what a launch takes, first of all                                        |
| `bound`            | what no schedule beats (`synth/bounds/bound`)                            |
| `extra bytes`      | all bytes over the bound's cut, at the capacity of the cut               |
| `imbalance`        | the bottleneck's bytes, at the capacity of the bottleneck                |
| `below capacity`   | the time during which anything crossed the bottleneck                    |
| `bubbles`          | the time from the first byte over it to the last one                     |
| `fill and drain`   | the whole time: before the first byte over it, and after the last one    |

To each of the four in the middle is added the latency of the bound's first byte, as far as the
bottleneck's first byte waits for that long: it is in the bound, and no part of the filling.

Thread blocks, reductions and a runtime's steps are not in the bound: they show as transfers that
run below capacity, bubbles, fill and drain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import I4
from hccc.ir.collective import Collective
from hccc.ir.topology import BYTES_PER_US, F8, Topology
from hccc.network.resource_names import names
from hccc.sim.simulate import Run
from hccc.synth.bounds.bound import Bound, Limits, limits

PARTS = (
    "launch",
    "bound",
    "extra bytes",
    "imbalance",
    "below capacity",
    "bubbles",
    "fill and drain",
)


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The busiest resource of a Run.

    capacity: GB/s; load: µs that its bytes take at capacity; active: µs during which anything
    crossed it; begin, end: µs after the launch, of the first byte and the last; flight: transfers
    on it at a time while it is active, on average; offered: GB/s that the thread blocks, or proxies
    (`movers`), of those transfers could move.
    """

    name: str
    capacity: float
    bytes: float
    load: float
    active: float
    begin: float
    end: float
    flight: float
    offered: float
    movers: str


@dataclass(frozen=True, slots=True, eq=False)
class Gap:
    """A Run taken apart. parts: µs by name, in the order of PARTS; their sum is the Run's time."""

    run: Run
    bound: Bound
    bottleneck: Bottleneck | None
    parts: dict[str, float]


def gap(run: Run, limits: Limits) -> Gap:
    """Takes `run` apart. O(resources + uses + instances of the bottleneck)."""
    least = limits.at(run.size, run.request.costs)
    busiest = bottleneck(run)
    launch = run.launch
    marks = np.array([least.time, 0.0, 0.0, 0.0, 0.0])
    if busiest is not None:
        span = busiest.end - busiest.begin
        head = min(least.head, busiest.begin)
        marks[1:] = head + np.array([_over_cut(run, least), busiest.load, busiest.active, span])
    whole = run.time - launch
    reached = np.maximum.accumulate(np.minimum([0.0, *marks, whole], whole))
    parts = dict(zip(PARTS, [launch, *np.diff(reached).tolist()], strict=True))
    return Gap(run, least, busiest, parts)


def least_times(t: Topology, collective: Collective, sizes: Sequence[int]) -> dict[int, float]:
    """Returns the µs that no schedule of a call of each size beats."""
    least = limits(t, collective.op, collective.root)
    return {size: least.at(size).time for size in sizes}


def bottleneck(run: Run) -> Bottleneck | None:
    machine = run.machine
    load = np.where(machine.links, run.carried / (machine.capacity * BYTES_PER_US), 0.0)
    if not load.any():
        return None
    k = int(load.argmax())
    blocks, proxies = _moved_by_blocks(run, k), _carried(run, k)
    begin, end, at_once, rate = (np.concatenate(pair) for pair in zip(blocks, proxies, strict=True))
    took, active = end - begin, float(run.active[k])
    return Bottleneck(
        name=names(machine.topology, machine.resource[[k]])[0],
        capacity=float(machine.capacity[k]),
        bytes=float(run.carried[k]),
        load=float(load[k]),
        active=active,
        begin=float(begin.min()),
        end=float(end.max()),
        flight=float((took * at_once).sum()) / active,
        offered=float((took * rate).sum()) / active / BYTES_PER_US,
        movers="proxies" if len(proxies[0]) else "blocks",
    )


# Movements over a resource, f8[m] each: when bytes began and ceased to move (µs), how many
# transfers of a kind at once, and the bytes/µs that who moves them could.
_Movements = tuple[F8, F8, F8, F8]


def _moved_by_blocks(run: Run, k: int) -> _Movements:
    """Returns the movements of thread blocks over resource k: a row for every primitive and
    micro-batch."""
    machine = run.machine
    at = np.flatnonzero(machine.uses.index == k)
    at = at[run.moves[machine.uses.owner()[at]]]
    p, weight = machine.uses.owner()[at], machine.weight[at] / run.request.costs.efficiency
    begin, end = _moving(run, p)
    rate = np.repeat(weight / machine.move[p], run.batches)
    return begin.ravel(), end.ravel(), np.full(len(rate), float(machine.plan.channels)), rate


def _carried(run: Run, k: int) -> _Movements:
    """Returns the movements of proxies over resource k: a row for every transfer with bytes."""
    carried, items = run.machine.transfers, run.carriage
    over = np.zeros(len(carried.src), np.bool_)
    over[carried.uses.owner()[carried.uses.index == k]] = True
    x = items["transfer"]
    moves = carried.carries & run.moves[carried.owner]
    mine = over[carried.pair[x]] & moves[x]
    rate = carried.bandwidth[carried.pair[x[mine]]] * BYTES_PER_US
    begin, end = items["begin"][mine], items["end"][mine]
    return begin, end, np.ones(len(begin)), rate


def _moving(run: Run, p: I4) -> tuple[F8, F8]:
    """Returns when the bytes of primitives began and ceased to move: f8[len(p), micro-batches]
    µs."""
    machine, costs = run.machine, run.request.costs
    size = run.bytes(p[:, None], np.arange(run.batches))
    fixed = machine.alpha[p] * costs.latency + costs.step + costs.interpret
    ready, end = (x.reshape(-1, run.batches)[p] for x in (run.ready, run.end))
    begin = ready + fixed[:, None] + machine.combine[p][:, None] * size
    return np.minimum(begin, end), end


def _over_cut(run: Run, bound: Bound) -> float:
    """Returns the µs that the bytes over the bound's cut take at the capacity of the cut."""
    if bound.cut is None:
        return 0.0
    mine = np.isin(run.machine.resource, bound.cut.resources)
    return float(run.carried[mine].sum()) / (bound.cut.capacity * BYTES_PER_US)
