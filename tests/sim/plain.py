"""A second simulator, plain and slow: everything is computed anew at every event.

Shares with `hccc.sim` only what a Plan is, and the routes of a Topology (which have a reference
of their own in tests/network).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hccc.ir.choices import PlanProtocol
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Guard, Operands
from hccc.ir.topology import Topology
from hccc.network.routes import routes
from hccc.sim.costs import Costs


@dataclass(frozen=True, slots=True)
class Transfer:
    """A transfer by a proxy. counts: ("flag", rank, flag), ("sent", queue), ("taken", queue), or
    nothing."""

    src: int
    dst: int
    bytes: bool
    counts: tuple[Any, ...]


@dataclass(slots=True)
class Item:
    """A transfer of a micro-batch: bytes left, then µs of its way."""

    transfer: Transfer
    m: int
    left: float
    way: float
    sent: bool = False


@dataclass(frozen=True, slots=True)
class Way:
    """Between two ranks: µs, bytes/µs alone, resources."""

    alpha: float
    cap: float
    uses: Counter[int]


@dataclass(slots=True)
class Primitive:
    """A primitive's waits, posts and costs."""

    rank: int
    waits: list[int]
    posts: list[tuple[int, int]]
    takes: list[int]
    gives: list[int]
    alpha: float
    cap: float  # bytes/µs of its thread block
    copied: float  # load of its memory
    gamma: float  # µs a byte
    uses: Counter[int]  # resource: times
    core: int  # the resource of its node's cores, 0 or less: none
    memory: int  # the resource of its memory, 0: none
    active: bool
    works: bool  # its thread block moves bytes itself
    hands: list[Transfer]  # handed to proxies


@dataclass(slots=True)
class ThreadBlock:
    """A thread block: its remaining work, and its progress with the first item."""

    todo: list[tuple[int, int]]
    started: bool = False
    fixed: float = 0.0
    left: float = 0.0


@dataclass(slots=True)
class Signals:
    """Flags and queues."""

    flags: Counter[tuple[int, int]] = field(default_factory=Counter)
    sent: Counter[int] = field(default_factory=Counter)
    sending: Counter[int] = field(default_factory=Counter)
    taken: Counter[int] = field(default_factory=Counter)
    taking: Counter[int] = field(default_factory=Counter)
    pairs: dict[tuple[int, int], list[Item]] = field(default_factory=dict)


class Network:
    """Pairs of ranks that only proxies join, and their routes; capacity: bytes/µs by resource."""

    def __init__(self, plan: Plan, t: Topology) -> None:
        self.plan, self.t = plan, t
        self.packets = plan.protocol is PlanProtocol.LL
        self.capacity: dict[int, float] = {}

    def far(self, u: int, v: int) -> bool:
        domains = self.plan.memory_domain, self.t.memory_domain
        return all(bool(d[u] != d[v]) for d in domains)

    def way(self, u: int, v: int) -> Way:
        found = routes(self.t, np.array([u], np.int32), np.array([v], np.int32))
        if found.bandwidth[0] <= 0:  # counters take the way back
            back = routes(self.t, np.array([v], np.int32), np.array([u], np.int32))
            return Way(float(back.alpha[0]) if back.bandwidth[0] > 0 else 0.0, 1.0, Counter())
        used = found.uses.index.tolist()
        for r in used:
            self.capacity[int(found.resource[r])] = float(found.capacity[r]) * 1000
        uses = Counter(int(found.resource[r]) for r in used)
        alpha = float(found.alpha[0])
        if self.packets:
            alpha = min(alpha, self.t.devices[self.t.device[u]].alpha.ll)
        return Way(alpha, float(found.bandwidth[0]) * 1000, uses)

    def transfers(
        self,
        rank: int,
        sources: list[tuple[int, int]],
        targets: list[tuple[int, int]],
        posts: list[tuple[int, int]],
    ) -> list[Transfer]:
        """Lists transfers in order: puts, messages, credits, flags."""
        q = self.plan.queues
        if self.packets:  # the thread block stores them itself; nobody waits for a slot
            sent = [k for k, b in targets if b == Buffer.QUEUE]
            return [Transfer(rank, int(self.plan.queues.dst[k]), False, ("sent", k)) for k in sent]
        found = [
            Transfer(rank, r, True, ())
            for r, b in targets
            if b != Buffer.QUEUE and self.far(rank, r)
        ]
        for operands, there, counter in ((targets, q.dst, "sent"), (sources, q.src, "taken")):
            found += [
                Transfer(rank, int(there[k]), counter == "sent", (counter, k))
                for k, b in operands
                if b == Buffer.QUEUE and self.far(rank, int(there[k]))
            ]
        flags = [(r, f) for r, f in posts if self.far(rank, r)]
        return found + [Transfer(rank, r, False, ("flag", r, f)) for r, f in flags]


def primitives(
    plan: Plan, network: Network, costs: Costs, in_place: bool, block: float
) -> list[Primitive]:
    """Lists every primitive. block: bytes."""
    skipped = Guard.OUT_OF_PLACE if in_place else Guard.IN_PLACE
    t, capacity = network.t, network.capacity
    found = []
    for i, rank in enumerate(plan.rank_of().tolist()):
        sources = _operands(plan.src, i)
        targets = _operands(plan.dst, i)
        crossings = [(r, rank) for r, b in sources if b != Buffer.QUEUE and r != rank]
        crossings += [(rank, r) for r, b in targets if b != Buffer.QUEUE and r != rank]
        gives = [q for q, b in targets if b == Buffer.QUEUE]
        crossings += [(int(plan.queues.src[q]), int(plan.queues.dst[q])) for q in gives]
        uses: Counter[int] = Counter()
        alpha = 0.0
        for u, v in crossings:
            if not network.far(u, v):
                way = network.way(u, v)
                alpha = max(alpha, way.alpha)
                uses += way.uses
        if network.packets:
            alpha = t.devices[t.device[rank]].step
        device = t.devices[t.device[rank]]
        if all(network.far(u, v) for u, v in crossings):
            alpha = device.step
        node = int(t.node[rank])
        core, cores = 0, int(t.cores[node])
        if np.count_nonzero(t.node == node) * round(block) <= t.launch[node][3]:
            cores = min(cores, 1)
        if t.cores[node]:  # each core has an equal run of its node's blocks, rank by rank
            mates = np.flatnonzero(t.node == node)
            widest = int(plan.n_tb.max())
            tb = int(plan.block_of()[i] - plan.n_tb[:rank].sum())
            place = int(np.flatnonzero(mates == rank)[0]) * widest + tb
            core = -1 - (1000 * node + place * cores // (len(mates) * widest))
            capacity[core] = 1.0
        posts = _posts(plan, i)
        hands = network.transfers(rank, sources, targets, posts)
        k, d = float(len(sources)), float(len(targets) - sum(not x.counts for x in hands))
        if network.packets:  # of a packet 12 bytes are data, 4 flags
            k += sum(b == Buffer.QUEUE for _, b in sources) / 3
            d += sum(b == Buffer.QUEUE for _, b in targets) / 3
        memory, faster = _memory(network, rank, block, in_place)
        copied = k * device.read + d * (1 - device.read)
        found.append(
            Primitive(
                rank,
                plan.waits.row(i).tolist(),
                [(r, f) for r, f in posts if not network.far(rank, r)],
                [q for q, b in sources if b == Buffer.QUEUE],
                gives,
                alpha * costs.latency + costs.step + costs.interpret,
                _rate(network, rank, sources, targets) * 1000 * faster / copied,
                copied,
                (len(sources) - 1) / (device.reduce * 1000),
                uses,
                core,
                memory,
                bool(plan.guard[i] != skipped),
                d > 0,
                hands,
            )
        )
    return found


def _memory(network: Network, rank: int, block: float, in_place: bool) -> tuple[int, float]:
    """Returns the resource of a rank's memory, and its blocks' copy speed over the device's."""
    t, plan, c = network.t, network.plan, network.plan.collective
    device, node = t.devices[t.device[rank]], int(t.node[rank])
    if not device.cache:
        return 0, 1.0
    mates = np.flatnonzero(t.node == node).tolist() if t.cores[node] else [rank]
    touched = 0.0
    for r in mates:
        both = c.input_blocks(r), c.output_blocks(r)
        slots = plan.scratch_slots[r] + (plan.stage_slots[r] if in_place else 0)
        touched += (max if in_place else sum)(both) * block + slots * block // c.chunks_per_block
    at, rates = math.log(max(touched, 1)), [math.log(x.block) for x in device.cache]
    sizes = [math.log(x.size) for x in device.cache]
    name = -(10**9) - mates[0]
    network.capacity[name] = math.inf
    if device.cache[0].all:
        alls = [math.log(x.all) for x in device.cache]
        network.capacity[name] = 1000 * math.exp(np.interp(at, sizes, alls))
    return name, math.exp(np.interp(at, sizes, rates)) / device.block


def _rate(
    network: Network, rank: int, sources: list[tuple[int, int]], targets: list[tuple[int, int]]
) -> float:
    """Returns GB/s of a thread block: the slowest of its sources and targets."""
    device = network.t.devices[network.t.device[rank]]
    rates = [device.load for r, b in sources if b != Buffer.QUEUE and r != rank]
    for r, b in targets:
        if b == Buffer.QUEUE:
            far = network.far(rank, int(network.plan.queues.dst[r]))
            rates.append(device.proxy if far else device.store)
        elif r != rank and not network.far(rank, r):
            rates.append(device.store)
    return float(min(rates, default=device.block))


def _operands(o: Operands, i: int) -> list[tuple[int, int]]:
    row = slice(int(o.ptr[i]), int(o.ptr[i + 1]))
    return list(zip(o.rank[row].tolist(), o.buffer[row].tolist(), strict=True))


def _posts(plan: Plan, i: int) -> list[tuple[int, int]]:
    row = slice(int(plan.posts.ptr[i]), int(plan.posts.ptr[i + 1]))
    return list(zip(plan.posts.rank[row].tolist(), plan.posts.flag[row].tolist(), strict=True))


def nest(rows: range, batches: int, window: int) -> Iterator[tuple[int, int]]:
    """Yields the loop nest of a thread block: (primitive, micro-batch)."""
    for first in range(0, batches, window):
        for p in rows:
            for m in range(first, min(first + window, batches)):
                yield p, m


def ready(world: Signals, p: Primitive, m: int, slots: int) -> bool:
    """Tells whether everything that `p` waits for is there."""
    if any(world.flags[p.rank, f] <= m for f in p.waits):
        return False
    takes, gives = Counter(p.takes), Counter(p.gives)
    return all(world.sent[q] - world.taking[q] >= n for q, n in takes.items()) and all(
        world.sending[q] - world.taken[q] + n <= slots for q, n in gives.items()
    )


def fair(
    flows: dict[int, tuple[Counter[int], float]], capacity: dict[int, float]
) -> dict[int, float]:
    """Returns max-min fair rates. flows: flow → (resource: weight, cap)."""
    rate: dict[int, float] = {}
    while len(rate) < len(flows):
        growing = {f: x for f, x in flows.items() if f not in rate}
        bounds = {}
        for r in {r for uses, _ in growing.values() for r in uses}:
            used = sum(flows[f][0][r] * x for f, x in rate.items())
            load = sum(uses[r] for uses, _ in growing.values())
            bounds[r] = (capacity[r] - used) / load
        level = min([*bounds.values(), *(cap for _, cap in growing.values())])
        for f, (uses, cap) in growing.items():
            if cap <= level * (1 + 1e-9) or any(bounds[r] <= level * (1 + 1e-9) for r in uses):
                rate[f] = level
    return rate


def times(
    plan: Plan,
    t: Topology,
    batches: int,
    payload: float,
    parts: list[float],
    window: int,
    costs: Costs,
    in_place: bool,
    whole: float,
) -> dict[tuple[int, int], float]:
    """Returns the end of each (primitive, micro-batch), in µs. parts: bytes of each primitive's."""
    network = Network(plan, t)
    prims = primitives(plan, network, costs, in_place, whole)
    ways = {(x.src, x.dst): network.way(x.src, x.dst) for p in prims for x in p.hands}
    capacity, world, now, ends = network.capacity, Signals(), 0.0, {}
    blocks = [
        ThreadBlock(list(nest(range(int(a), int(b)), batches, window)))
        for a, b in zip(plan.tb_ptr[:-1], plan.tb_ptr[1:], strict=True)
    ]

    def amount(i: int, m: int) -> float:
        return min(payload, max(0.0, parts[i] - m * payload))

    def through(i: int, m: int) -> None:
        p = prims[i]
        far = {x.counts for x in p.hands}
        for post in p.posts:
            world.flags[post] = m + 1
        world.sent.update(q for q in p.gives if ("sent", q) not in far)
        world.taken.update(q for q in p.takes if ("taken", q) not in far)
        for x in p.hands:
            left = amount(i, m) if x.bytes and p.active else 0.0
            way = ways[x.src, x.dst].alpha * costs.latency
            block = int(np.searchsorted(plan.tb_ptr, i, side="right"))
            world.pairs.setdefault((block, x.dst), []).append(Item(x, m, left, way))

    while any(b.todo for b in blocks):
        moved = True
        while moved:  # start and finish whatever can be at this moment
            moved = deliver(world, 1e-9 * payload)
            for b in blocks:
                if not b.todo:
                    continue
                i, m = b.todo[0]
                p = prims[i]
                slots = 1 << 30 if network.packets else plan.queue_slots
                if not b.started and ready(world, p, m, slots):
                    b.started, moved = True, True
                    b.fixed = (p.alpha + p.gamma * amount(i, m)) if p.active else 0.0
                    b.left = amount(i, m) if p.active and p.works else 0.0
                    world.taking.update(p.takes)
                    world.sending.update(p.gives)
                if b.started and b.fixed <= 1e-9 and b.left <= 1e-9 * payload:
                    b.todo.pop(0)
                    b.started, moved = False, True
                    ends[i, m] = now
                    through(i, m)
        busy = [b for b in blocks if b.started]
        carried = [next((x for x in line if not x.sent), None) for line in world.pairs.values()]
        carriers = [x for x in carried if x is not None]
        flying = [x for line in world.pairs.values() for x in line if x.sent]
        if not busy and not carriers and not flying:
            assert not any(b.todo for b in blocks), "hangs"
            return ends
        flows = {}
        for n, b in enumerate(busy):
            p = prims[b.todo[0][0]]
            if b.fixed <= 1e-9:
                load = {r: w * plan.channels / costs.efficiency for r, w in p.uses.items()}
                if p.core:
                    load[p.core] = plan.channels / p.cap
                if p.memory:
                    load[p.memory] = plan.channels * p.copied
                flows[n] = (Counter(load), p.cap)
            elif p.core:  # the runtime's own work takes a core too
                flows[n] = (Counter({p.core: float(plan.channels)}), 1.0)
        for n, x in enumerate(carriers, len(busy)):
            way, often = ways[x.transfer.src, x.transfer.dst], plan.channels / costs.efficiency
            flows[n] = (Counter({r: w * often for r, w in way.uses.items()}), way.cap / often)
        rate = fair(flows, capacity)
        steps = [
            (b.fixed if b.fixed > 1e-9 else b.left) / rate.get(n, 1.0) for n, b in enumerate(busy)
        ]
        steps += [x.left / rate[n] for n, x in enumerate(carriers, len(busy))]
        step = min([*steps, *(x.way for x in flying)])
        now += step
        for n, b in enumerate(busy):
            if b.fixed > 1e-9:
                b.fixed -= step * rate.get(n, 1.0)
            else:
                b.left -= step * rate[n]
        for n, x in enumerate(carriers, len(busy)):
            x.left -= step * rate[n]
        for x in flying:
            x.way -= step
    return ends


def deliver(world: Signals, least: float) -> bool:
    """Delivers in order: sends finished transfers on their way, counts arrivals; tells if any."""
    changed = False
    for line in world.pairs.values():
        while (x := next((x for x in line if not x.sent), None)) and x.left <= least:
            x.sent = changed = True
        while line and line[0].sent and line[0].way <= 1e-9:
            item = line.pop(0)
            changed = True
            match item.transfer.counts:
                case ("flag", rank, flag):
                    world.flags[rank, flag] = item.m + 1
                case ("sent", q):
                    world.sent[q] += 1
                case ("taken", q):
                    world.taken[q] += 1
    return changed
