"""A second simulator, plain and slow: everything is computed anew at every event.

Shares with `hccc.sim` only what a Plan is, and the routes of a Topology (which have a reference
of their own in tests/network).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Guard, Operands
from hccc.ir.topology import Topology
from hccc.network.routes import routes
from hccc.sim.costs import Costs


@dataclass(slots=True)
class Primitive:
    """What a primitive waits for, raises, and costs."""

    rank: int
    waits: list[int]
    posts: list[tuple[int, int]]
    takes: list[int]
    gives: list[int]
    alpha: float
    cap: float  # bytes/µs of its thread block
    gamma: float  # µs a byte
    uses: Counter[int]  # resource: times
    core: int  # the resource of its node's cores, 0 or less: none
    active: bool


@dataclass(slots=True)
class Block:
    """A thread block: what it still has to do, and how far it is with the first of it."""

    todo: list[tuple[int, int]]
    started: bool = False
    fixed: float = 0.0
    left: float = 0.0


@dataclass(slots=True)
class World:
    """Flags and queues."""

    flags: Counter[tuple[int, int]] = field(default_factory=Counter)
    sent: Counter[int] = field(default_factory=Counter)
    sending: Counter[int] = field(default_factory=Counter)
    taken: Counter[int] = field(default_factory=Counter)
    taking: Counter[int] = field(default_factory=Counter)


def primitives(
    plan: Plan, t: Topology, costs: Costs, in_place: bool
) -> tuple[list[Primitive], dict[int, float]]:
    """Every primitive, and the capacity (bytes/µs) of every resource used."""
    skipped = Guard.OUT_OF_PLACE if in_place else Guard.IN_PLACE
    capacity: dict[int, float] = {}
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
            way = routes(t, np.array([u], np.int32), np.array([v], np.int32))
            alpha = max(alpha, float(way.alpha[0]))
            for r in way.uses.index.tolist():
                capacity[int(way.resource[r])] = float(way.capacity[r]) * 1000
                uses[int(way.resource[r])] += 1
        device = t.devices[t.device[rank]]
        node = int(t.node[rank])
        core = 0
        if t.cores[node]:  # each core has an equal run of its node's blocks, rank by rank
            mates = np.flatnonzero(t.node == node)
            widest = int(plan.n_tb.max())
            tb = int(plan.block_of()[i] - plan.n_tb[:rank].sum())
            place = int(np.flatnonzero(mates == rank)[0]) * widest + tb
            core = -1 - (1000 * node + place * int(t.cores[node]) // (len(mates) * widest))
            capacity[core] = 1.0
        k, d = len(sources), len(targets)
        found.append(
            Primitive(
                rank,
                plan.waits.row(i).tolist(),
                _posts(plan, i),
                [q for q, b in sources if b == Buffer.QUEUE],
                gives,
                alpha * costs.latency + costs.step + costs.interpret,
                device.block * 1000 / ((k + d) / 2),
                (k - 1) / (device.reduce * 1000),
                uses,
                core,
                bool(plan.guard[i] != skipped),
            )
        )
    return found, capacity


def _operands(o: Operands, i: int) -> list[tuple[int, int]]:
    row = slice(int(o.ptr[i]), int(o.ptr[i + 1]))
    return list(zip(o.rank[row].tolist(), o.buffer[row].tolist(), strict=True))


def _posts(plan: Plan, i: int) -> list[tuple[int, int]]:
    row = slice(int(plan.posts.ptr[i]), int(plan.posts.ptr[i + 1]))
    return list(zip(plan.posts.rank[row].tolist(), plan.posts.flag[row].tolist(), strict=True))


def nest(rows: range, batches: int, window: int) -> Iterator[tuple[int, int]]:
    """The loop nest of a thread block."""
    for first in range(0, batches, window):
        for p in rows:
            for m in range(first, min(first + window, batches)):
                yield p, m


def ready(world: World, p: Primitive, m: int, slots: int) -> bool:
    """Whether everything that `p` waits for is there."""
    if any(world.flags[p.rank, f] <= m for f in p.waits):
        return False
    takes, gives = Counter(p.takes), Counter(p.gives)
    return all(world.sent[q] - world.taking[q] >= n for q, n in takes.items()) and all(
        world.sending[q] - world.taken[q] + n <= slots for q, n in gives.items()
    )


def fair(
    flows: dict[int, tuple[Counter[int], float]], capacity: dict[int, float]
) -> dict[int, float]:
    """Max-min fair rates: flow → (resource: weight, cap)."""
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
    plan: Plan, t: Topology, batches: int, payload: float, last: float, window: int,
    costs: Costs, in_place: bool,
) -> dict[tuple[int, int], float]:  # fmt: skip
    """When each (primitive, micro-batch) ends, in µs."""
    prims, capacity = primitives(plan, t, costs, in_place)
    world, now, ends = World(), 0.0, {}
    blocks = [
        Block(list(nest(range(int(a), int(b)), batches, window)))
        for a, b in zip(plan.tb_ptr[:-1], plan.tb_ptr[1:], strict=True)
    ]

    def amount(m: int) -> float:
        return last if m == batches - 1 else payload

    while any(b.todo for b in blocks):
        moved = True
        while moved:  # start and finish whatever can be at this moment
            moved = False
            for b in blocks:
                if not b.todo:
                    continue
                i, m = b.todo[0]
                p = prims[i]
                if not b.started and ready(world, p, m, plan.queue_slots):
                    b.started, moved = True, True
                    b.fixed = (p.alpha + p.gamma * amount(m)) if p.active else 0.0
                    b.left = amount(m) if p.active else 0.0
                    world.taking.update(p.takes)
                    world.sending.update(p.gives)
                if b.started and b.fixed <= 1e-9 and b.left <= 1e-9 * payload:
                    b.todo.pop(0)
                    b.started, moved = False, True
                    ends[i, m] = now
                    for post in p.posts:
                        world.flags[post] = m + 1
                    world.sent.update(p.gives)
                    world.taken.update(p.takes)
        busy = [b for b in blocks if b.started]
        if not busy:
            assert not any(b.todo for b in blocks), "hangs"
            return ends
        flows = {}
        for n, b in enumerate(busy):
            p = prims[b.todo[0][0]]
            if b.fixed <= 1e-9:
                load = {r: w * plan.channels / costs.efficiency for r, w in p.uses.items()}
                if p.core:
                    load[p.core] = plan.channels / p.cap
                flows[n] = (Counter(load), p.cap)
            elif p.core:  # what the runtime adds takes a core too
                flows[n] = (Counter({p.core: float(plan.channels)}), 1.0)
        rate = fair(flows, capacity)
        step = min(
            (b.fixed if b.fixed > 1e-9 else b.left) / rate.get(n, 1.0) for n, b in enumerate(busy)
        )
        now += step
        for n, b in enumerate(busy):
            if b.fixed > 1e-9:
                b.fixed -= step * rate.get(n, 1.0)
            else:
                b.left -= step * rate[n]
    return ends
