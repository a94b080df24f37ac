"""simulate: runs a Machine for one message and returns its time.

A transfer costs α + c·β + c·γ; thread blocks have a throughput of their own; links and shared
groups are divided max-min fairly among the transfers in flight (cost-model §1, §2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hccc.base.diagnostics import fail
from hccc.ir.arrays import B1, I4, I8, frozen, starts
from hccc.ir.choices import PlanProtocol
from hccc.ir.plan import Plan
from hccc.ir.primitives import Guard
from hccc.ir.topology import BYTES_PER_US, F8, Topology
from hccc.ir.uneven import BlockTable, check_uneven, skewed
from hccc.sim import compiled, state
from hccc.sim.cores import SMALL, core_of, cores_at_work, launch
from hccc.sim.costs import PACKETS, SIMPLE, Costs
from hccc.sim.machine import Machine, batches_of, parts_of, pieces
from hccc.sim.memory import MemoryRates, delivered, memory_of
from hccc.sim.state import State

PLENTY = 1 << 30  # slots, where each message has one
MOST_INSTANCES = 1 << 27  # 32 bytes each
ENDLESS = 1 << 62
ITEM = 4  # bytes of an element of skewed lengths


@dataclass(frozen=True, slots=True)
class Request:
    """One call. size: bytes, as nccl-tests counts (the larger of a rank's buffers); micro_batch:
    bytes of a channel's part of a chunk, 0 as the runtime cuts it; window: micro-batches, 0 for all
    of them (task-level), 1 is algorithm-level execution. Of an uneven collective `size` is that of
    a call whose blocks are all as long as the longest; skew: their lengths, as `hccc run` has them
    for elements of 4 bytes; lengths: bytes of each block, instead."""

    size: int
    micro_batch: int = 0
    window: int = 0
    in_place: bool = False
    costs: Costs = SIMPLE
    skew: str = ""
    lengths: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """The result of one call: `time` in µs, algbw and busbw in GB/s (nccl-tests' definitions).

    Instances (primitive p, micro-batch m) are rows p · batches + m: `begin`, when their block got
    there; `ready`, when their waits were over; `end`: f8 µs. cause: i4, the instance of another
    block that it waited for last, -1 for the order of its own block. carried: f8[R] bytes over each
    resource of the machine, all channels, with the protocol's overhead; active: f8[R] µs during
    which anything crossed it. via: i4, the transfer (`Machine.transfers`) that brought the data
    from
    `cause`, -1 for memory. carriage: the work of proxies, pair by pair in order, as records
    (`sim/state.ITEM`) of transfer, batch and µs. quiet: µs from the launch to the last event of any
    kind; counters may still arrive when everything else is done. rates: how many rates of flows and
    resources were computed.
    """

    machine: Machine
    request: Request
    batches: int
    window: int
    payload: float  # bytes of a micro-batch, except a part's last
    parts: F8  # bytes of each primitive's part of a chunk: f8[P]
    size: int
    time: float
    begin: F8
    ready: F8
    end: F8
    cause: I4
    carried: F8
    active: F8
    via: I4
    carriage: state.Table
    quiet: float
    rates: int

    def __post_init__(self) -> None:
        for name in ("parts", "begin", "ready", "end", "carried", "active"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))
        for name in ("cause", "via"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int32))
        self.carriage.setflags(write=False)

    def bytes(self, primitive: I4 | I8 | int, batch: I4 | I8 | int) -> F8:
        """Returns the bytes of micro-batches of primitives, whether or not they move any: f8, of
        the shape of both."""
        left = self.parts[primitive] - batch * self.payload
        return np.asarray(np.clip(left, 0.0, self.payload), np.float64)

    @property
    def finish(self) -> float:
        """µs from the launch to the last event: instances, and puts without a waiting instance."""
        return max(float(self.end.max(initial=0.0)), _last_arrival(self.machine, self.carriage))

    @property
    def algbw(self) -> float:
        """GB/s: size / time."""
        return self.size / self.time / BYTES_PER_US if self.time > 0 else 0.0

    @property
    def busbw(self) -> float:
        """GB/s: algbw times the collective's bus factor."""
        return self.algbw * self.machine.plan.collective.bus_factor()

    @property
    def launch(self) -> float:
        """µs of `time` before the first primitive."""
        return launch_of(self.machine, self.request)

    @property
    def moves(self) -> B1:
        """Whether each primitive moves data in this kind of call: b1[P]."""
        return _moves(self.machine, self.request)

    @property
    def primitive_end(self) -> F8:
        """The end of each primitive's last micro-batch: f8[P] µs."""
        ends: F8 = self.end.reshape(-1, self.batches)[:, -1]
        return ends

    @property
    def block_end(self) -> F8:
        """The end of each thread block: f8[T] µs."""
        return self._per_block(self.primitive_end, np.maximum)

    @property
    def block_busy(self) -> F8:
        """The time that each thread block did not wait: f8[T] µs."""
        busy = (self.end - self.ready).reshape(-1, self.batches).sum(1)
        return self._per_block(busy, np.add)

    def _per_block(self, values: F8, combine: np.ufunc) -> F8:
        each = np.zeros(len(self.machine.plan.tb_ptr) - 1)
        combine.at(each, self.machine.plan.block_of(), values)
        return each

    @property
    def utilisation(self) -> F8:
        """The share of its capacity that each resource carried: f8[R]."""
        return self.carried / (self.machine.capacity * BYTES_PER_US * max(self.time, 1e-12))


def simulate(
    machine: Machine, request: Request, work: int = ENDLESS, limit: float = math.inf
) -> Run:
    """Runs `machine` for one call. O(instances · (log blocks + what a change of rates reaches)).

    work: the number of rates of flows and resources that may be computed, a few ns each; limit: µs
    that the call may take.

    Raises:
        UserError: E415 skewed lengths of blocks that are alike; E421 lengths that the blocks cannot
        have; E426 its queues are too short for the window; E460 it serves no such calls; E461 too
        many micro-batches, more work, or longer; E462 it hangs.
    """
    plan = machine.plan
    _check(machine, request)
    if plan.protocol is PlanProtocol.LL:
        request = replace(request, costs=replace(request.costs, efficiency=PACKETS.efficiency))
    block, size = pieces(plan, request.size)
    parts = parts_of(plan, block, _lengths(plan, request, block))
    batches, micro = batches_of(plan, block, request.micro_batch)
    if len(plan) * batches > MOST_INSTANCES:
        what = f"{len(plan):,} primitives × {batches:,} micro-batches"
        raise fail("E461", f"{what} are too many to simulate", help="a larger --micro-batch")
    window = min(request.window or plan.window or plan.max_window or batches, batches)
    s = _state(machine, request, (batches, window), _Cut(parts, micro, batches))
    s.work[1] = work
    launched = launch_of(machine, request)
    ended = compiled.run(s, float(plan.channels), limit - launched)
    if s.work[0] > work:
        message = f"{plan.name} has too many transfers in flight to simulate"
        raise fail("E461", message, help="fewer connections, or a larger --micro-batch")
    if ended.late:
        raise fail("E461", f"{plan.name} takes longer than {limit:,.2f} µs")
    if ended.left:
        help = "a smaller --window, or more --slots; `hccc check` says what is safe"
        raise fail("E462", f"{ended.left} thread blocks of {plan.name} never finish", help=help)
    finish = max(float(s.instance["end"].max(initial=0.0)), _last_arrival(machine, s.item))
    figures: list[Any] = [s.instance[name] for name in ("begin", "ready", "end", "cause")]
    figures += [s.resource[name] for name in ("carried", "active")]
    figures += [s.instance["via"], s.item, ended.now, int(s.work[0])]
    time = launched + finish
    return Run(machine, request, batches, window, micro, parts, size, time, *figures)


def _last_arrival(machine: Machine, carriage: state.Table) -> float:
    """Returns the µs at which the last bytes arrived."""
    bytes_too = machine.transfers.carries[carriage["transfer"]]
    return float(carriage["arrival"][bytes_too].max(initial=0.0))


def launch_of(machine: Machine, request: Request) -> float:
    """Returns the µs of a launch, given by the call or else by the cluster, and of ranks that
    meet."""
    flags, accesses = machine.meeting
    meeting = flags + (accesses if request.costs.meets else 0.0)
    given = request.costs.launch
    if given is not None:
        return given + meeting
    plan, t = machine.plan, machine.topology
    if not t.launch[:, SMALL].any():
        return machine.launch + meeting
    return meeting + launch(plan, t, cores_at_work(t, pieces(plan, request.size)[0]))


def _core(machine: Machine, request: Request) -> I4:
    """Returns the core of each primitive in this call, as a resource, or -1."""
    plan, t = machine.plan, machine.topology
    if not t.launch[:, SMALL].any():
        return machine.core
    core = core_of(plan, t, cores_at_work(t, pieces(plan, request.size)[0]))
    first = len(machine.resource) - memory_of(t)[1] - int(t.cores.sum())
    return np.where(core >= 0, first + core, -1).astype(np.int32)


def memory_in(machine: Machine, request: Request) -> MemoryRates:
    """Returns the rates of the cluster's memories in this call."""
    block, _ = pieces(machine.plan, request.size)
    return delivered(machine.plan, machine.topology, block, in_place=request.in_place)


def same_in_place(plan: Plan, topology: Topology) -> bool:
    """Tells whether calls in place and out of place are the same to the simulator: all primitives
    move data in both, and no memory's rate depends on what a call touches."""
    return not memory_of(topology)[1] and bool((plan.guard == Guard.ALWAYS).all())


def _moves(machine: Machine, request: Request) -> B1:
    skipped = Guard.OUT_OF_PLACE if request.in_place else Guard.IN_PLACE
    moves: B1 = machine.plan.guard != skipped
    return moves


def _check(machine: Machine, request: Request) -> None:
    plan = machine.plan
    if request.in_place not in plan.modes:
        kind = "in" if request.in_place else "out of"
        help = "leave --in-place out" if request.in_place else "give --in-place"
        raise fail("E460", f"{plan.name} serves no calls {kind} place", help=help)
    if plan.max_bytes and request.size > plan.max_bytes:
        message = f"{plan.name} serves calls of up to {plan.max_bytes:,} bytes"
        raise fail("E460", message, help="a smaller size, or a plan of --protocol simple")
    if plan.max_window and (request.window > plan.max_window):
        message = f"window {request.window}: {plan.name} is safe up to {plan.max_window}"
        raise fail("E426", message, help=f"--window {plan.max_window}")


def _lengths(plan: Plan, request: Request, block: int) -> I8 | None:
    """Returns the bytes of each block, at most `block`; None where all have as many."""
    if not request.skew and request.lengths is None:
        return None
    c = plan.collective
    check_uneven(c, "--skew" if request.skew else "lengths")
    if request.lengths is None:
        return skewed(c, block // ITEM, request.skew) * ITEM
    lengths = np.array(request.lengths, np.int64)
    BlockTable.of_rows(c, lengths, block).check(block, in_place=False)
    return lengths


@dataclass(frozen=True, slots=True)
class _Cut:
    """Micro-batches of parts: bytes of each primitive's part, f8[P], and of a whole micro-batch."""

    parts: F8
    micro: float
    batches: int

    def rows(self, table: state.Table, owner: I4 | I8, moves: B1) -> None:
        """Sets the micro-batches of rows that belong to primitives, and move bytes or not."""
        part = self.parts[owner]
        whole = (
            np.minimum(part // self.micro, self.batches - 1) if self.micro else np.zeros(len(part))
        )
        whole[part > (self.batches - 1) * self.micro] = self.batches - 1
        table["whole"] = whole
        table["amount"] = np.where(moves, self.micro, 0.0)
        table["amount_last"] = np.where(moves, part - whole * self.micro, 0.0)


def _state(machine: Machine, request: Request, nest: tuple[int, int], cut: _Cut) -> State:
    """Makes the state before the first event; `nest`: micro-batches, and those of a window."""
    plan, costs, carried = machine.plan, request.costs, machine.transfers
    packets = plan.protocol is PlanProtocol.LL
    n_blocks, n_pairs = len(plan.tb_ptr) - 1, len(carried.src)
    most: I8 = np.ones(n_blocks + 2 * n_pairs, np.int64)
    np.maximum.at(
        most, plan.block_of(), machine.uses.counts() + (machine.core >= 0) + (machine.memory >= 0)
    )
    most[n_blocks : n_blocks + n_pairs] = carried.uses.counts()
    unit = np.where(machine.links, BYTES_PER_US, 1.0)
    memory = memory_in(machine, request)
    capacity = machine.capacity * unit
    capacity[len(capacity) - len(memory.capacity) :] = memory.capacity
    contention = np.where(machine.links, costs.contention, 0.0)
    n_lines = int(plan.n_flags.sum()) + 2 * len(plan.queues)
    flows = state.flows(most)
    width = max(len(flows), 2 * len(most), len(machine.capacity)) + 1
    route = frozen(np.full(len(carried.uses.index), plan.channels / costs.efficiency), np.float64)
    return State(
        _primitives(machine, request, memory, cut),
        machine.waits.index,
        machine.posts.index,
        machine.takes.index,
        machine.gives.index,
        machine.uses.index,
        frozen(machine.weight / costs.efficiency, np.float64),
        state.blocks(plan.tb_ptr, most),
        state.resources(capacity, contention),
        flows,
        _queues(machine),
        np.zeros(int(plan.n_flags.sum()), np.int32),
        np.full(n_lines, -1, np.int32),
        np.zeros(len(plan) * nest[0], state.INSTANCE),
        np.zeros(len(most), state.ENTRY),
        np.full(len(most), -1, np.int32),
        np.zeros(len(most), np.int64),
        np.zeros(len(most)),
        np.zeros((state.HEAP, width), np.int32),
        np.zeros(state.HEAP + 1, np.int32),
        np.array([*nest, PLENTY if packets else plan.queue_slots, n_blocks]),
        _transfers(machine, request, cut),
        _pairs(machine, request, nest[0]),
        np.zeros(len(carried) * nest[0], state.ITEM),
        carried.uses.index,
        route,
        np.zeros(2, np.int64),
    )


def _queues(machine: Machine) -> state.Table:
    rows = np.zeros(len(machine.plan.queues), state.QUEUE)
    rows["far"] = machine.transfers.queue
    return rows


def _transfers(machine: Machine, request: Request, cut: _Cut) -> state.Table:
    """Makes the transfers of proxies, per micro-batch of one call."""
    carried = machine.transfers
    rows = np.zeros(len(carried), state.TRANSFER)
    for name in ("pair", "kind", "target"):
        rows[name] = getattr(carried, name)
    rows["prim"] = carried.owner
    moves = carried.carries & _moves(machine, request)[carried.owner]
    cut.rows(rows, carried.owner, moves)
    return rows


def _pairs(machine: Machine, request: Request, batches: int) -> state.Table:
    """Makes the pairs, idle; alone, they have the rate of their way, all channels together."""
    carried, costs = machine.transfers, request.costs
    rows = np.zeros(len(carried.src), state.PAIR)
    rows["first"] = starts(np.bincount(carried.pair, minlength=len(rows)))[:-1] * batches
    rows["use"], rows["use_end"] = carried.uses.ptr[:-1], carried.uses.ptr[1:]
    rows["alpha"] = carried.alpha * costs.latency
    alone = carried.bandwidth * BYTES_PER_US * costs.efficiency / machine.plan.channels
    rows["cap"] = np.where(alone > 0, alone, 1.0)
    return rows


def _primitives(machine: Machine, request: Request, memory: MemoryRates, cut: _Cut) -> state.Table:
    """Makes the primitives of one call, with one row more for the ends of the lists."""
    plan, costs = machine.plan, request.costs
    moves = _moves(machine, request)
    alpha = machine.alpha * costs.latency + costs.step + costs.interpret
    rows = np.zeros(len(plan) + 1, state.PRIMITIVE)
    lists = {"wait": machine.waits, "post": machine.posts, "take": machine.takes}
    for name, csr in {**lists, "give": machine.gives, "use": machine.uses}.items():
        rows[name] = csr.ptr
    rows["hand"] = machine.transfers.ptr
    cut.rows(rows[:-1], np.arange(len(plan)), moves & (machine.move > 0))
    last = cut.parts - rows["whole"][:-1] * cut.micro
    for name, size in (("fixed", cut.micro), ("fixed_last", last), ("fixed_none", 0.0)):
        rows[name][:-1] = np.where(moves, alpha + machine.combine * size, 0.0)
    move = machine.move / memory.faster[plan.rank_of()]
    rows["cap"][:-1] = 1 / np.where(move > 0, move, 1.0)
    rows["core"][:-1] = _core(machine, request)
    rows["core_weight"][:-1] = move * plan.channels
    rows["memory"][:-1] = machine.memory
    rows["memory_weight"][:-1] = machine.copied * plan.channels
    return rows
