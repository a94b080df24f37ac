"""machine: a Plan on a Topology as tables for the engine.

Holds everything that does not depend on the message: the waits and posts of each primitive, the
resources that its bytes cross and how often, its latency, and its cost for its thread block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hccc.base.diagnostics import fail
from hccc.ir.arrays import B1, I4, I8, Csr, frozen, starts
from hccc.ir.choices import Bits, PlanProtocol
from hccc.ir.micro_batch import default_micro_batch
from hccc.ir.plan import Plan
from hccc.ir.plan_check import check_ranks
from hccc.ir.primitives import Buffer, Operands, crossing
from hccc.ir.topology import BYTES_PER_US, F8, Topology
from hccc.network.routes import Routes, routes
from hccc.sim.cores import core_of, launch
from hccc.sim.costs import PACKETS, SWITCHED
from hccc.sim.meeting import Meeting, meeting
from hccc.sim.memory import memory_of
from hccc.sim.rates import block_rates
from hccc.sim.transfers import (
    ProxyTransfers,
    by_proxy,
    carried_posts,
    carried_puts,
    check_reached,
    transfers,
)

EACH, LOADED, STORED = range(3)  # ways that operands cross between ranks
WAYS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """A Plan on a Topology: P primitives in T thread blocks, F flags, Q queues, R resources.

    waits, posts: Csr[P] of flags numbered over all ranks, without those that proxies raise; takes,
    gives: Csr[P] of queues, once per message; uses: Csr[P] of resources, weight: f8 how often the
    bytes that its thread block moves cross each (all channels together); alpha: f8[P] µs; move,
    combine: f8[P] µs per byte of a thread block (0: only a proxy moves any) and of a reduction;
    copied: f8[P] copies that a thread block makes of a byte, a read or a write is a part of one;
    core,
    memory: i4[P] the resources of its core and of its rank's memory, or -1; resource: i8[R] numbers
    as in `routes`, then a -1 for each core and memory; capacity: f8[R] GB/s, 1 for a core, infinite
    for a memory (`sim/memory.py`); launch: µs of a launch according to the cluster; core and launch
    are those of calls that are not small; meeting: µs of ranks that meet; transfers: the work of
    proxies.
    """

    plan: Plan
    topology: Topology
    waits: Csr
    posts: Csr
    takes: Csr
    gives: Csr
    uses: Csr
    weight: F8
    alpha: F8
    move: F8
    combine: F8
    copied: F8
    core: I4
    memory: I4
    resource: I8
    capacity: F8
    launch: float
    meeting: Meeting
    transfers: ProxyTransfers

    @property
    def links(self) -> B1:
        """Which resources are the network's: b1[R]."""
        links: B1 = self.resource >= 0
        return links


def prepare(plan: Plan, topology: Topology) -> Machine:
    """Makes the tables of `plan` on `topology`. O(operands log operands).

    Raises:
        UserError: E130 the numbers of ranks differ; E131 a primitive has no route to its operand;
        E323 packets on hosts, greetings.
    """
    check_ranks(plan, topology)
    if plan.protocol is PlanProtocol.LL and topology.cores.any():
        message = f"{plan.name}: packets between processes of a host are not simulated, so far"
        raise fail("E323", message, help="`hccc run` measures them, GPUs are simulated")
    if plan.greets:
        message = f"{plan.name}: ranks greet each other, which GPUs do not, so far"
        raise fail("E323", message, help="--protocol simple")
    rank = plan.rank_of()
    k, d = plan.src.counts(), plan.dst.counts()
    d = d - np.bincount(plan.dst.owner()[carried_puts(plan, topology)], minlength=len(plan))
    device = topology.device[rank]
    block = block_rates(plan, topology) * BYTES_PER_US
    reduce = np.array([x.reduce for x in topology.devices])[device] * BYTES_PER_US
    by_switch = switched(plan)
    k, d = (np.where(of, 1, count) for of, count in zip(by_switch, (k, d), strict=True))
    uses, weight, alpha, near = _uses(plan, topology, rank)
    carried, far = transfers(plan, topology)
    resource, capacity, (first, second) = _joined(near, far)
    read = np.array([x.read for x in topology.devices])[device]
    copied = (k + _flags(plan.src, plan)) * read + (d + _flags(plan.dst, plan)) * (1 - read)
    cores, base = topology.cores.astype(np.int64), starts(plan.n_flags)
    core, memory, memories = _apart(plan, topology, cores, len(resource))
    capacity = np.concatenate([capacity, np.ones(cores.sum()), np.full(memories, np.inf)])
    return Machine(
        plan,
        topology,
        waits=Csr(plan.waits.ptr, base[rank[plan.waits.owner()]] + plan.waits.index),
        posts=_posts(plan, topology),
        takes=_queues(plan.src),
        gives=_queues(plan.dst),
        uses=Csr(uses.ptr, first[uses.index]),
        weight=weight,
        alpha=alpha,
        move=frozen(np.where(d > 0, copied / block, 0.0), np.float64),
        combine=frozen(np.maximum(k - 1, 0) / reduce, np.float64),
        copied=frozen(copied, np.float64),
        core=frozen(core, np.int32),
        memory=frozen(memory, np.int32),
        resource=frozen(np.concatenate([resource, np.full(cores.sum() + memories, -1)]), np.int64),
        capacity=frozen(capacity, np.float64),
        launch=launch(plan, topology, cores),
        meeting=meeting(plan, topology),
        transfers=replace(carried, uses=Csr(far.uses.ptr, second[far.uses.index])),
    )


def _apart(plan: Plan, t: Topology, cores: I8, first: int) -> tuple[I4, I4, int]:
    """Returns the core and memory of each primitive, as resources from `first` on, and the number
    of memories."""
    core, (memory, count) = core_of(plan, t, cores), memory_of(t)
    mine = memory[plan.rank_of()]
    beyond = first + int(cores.sum())
    return np.where(core >= 0, first + core, -1), np.where(mine >= 0, beyond + mine, -1), count


def _posts(plan: Plan, t: Topology) -> Csr:
    """Returns the flags that a thread block raises itself."""
    own = ~carried_posts(plan, t)
    flag = starts(plan.n_flags)[plan.posts.rank] + plan.posts.flag
    count = np.bincount(plan.posts.owner()[own], minlength=len(plan))
    return Csr(starts(count), flag[own])


def _joined(near: Routes, far: Routes) -> tuple[I8, F8, tuple[I8, I8]]:
    """Returns the resources of both, their capacities, and the place of each one's resources in
    them."""
    if not len(far.resource):
        return near.resource, near.capacity, (np.arange(len(near.resource)), np.zeros(0, np.int64))
    resource = np.union1d(near.resource, far.resource)
    first, second = (np.searchsorted(resource, paths.resource) for paths in (near, far))
    capacity = np.zeros(len(resource))
    capacity[first], capacity[second] = near.capacity, far.capacity
    return resource, capacity, (first, second)


def _queues(operands: Operands) -> Csr:
    """Returns the queue of every message that a primitive takes or gives."""
    queue = operands.buffer == Buffer.QUEUE
    count = np.bincount(operands.owner()[queue], minlength=len(operands))
    return Csr(starts(count), operands.rank[queue])


def _flags(operands: Operands, plan: Plan) -> F8:
    """Returns the bytes of flags that each primitive reads or writes besides a byte of each
    operand: f8[P]."""
    packets = operands.buffer == Buffer.QUEUE
    packets &= plan.protocol is PlanProtocol.LL
    of_each = np.bincount(operands.owner()[packets], minlength=len(plan))
    return frozen(of_each * (1 / PACKETS.efficiency - 1), np.float64)


def switched(plan: Plan) -> tuple[B1, B1]:
    """Tells which primitives load by a multicast address, and which store by one: b1[P] each.

    Calls that may not have any bits are taken to be of floats, which are then loaded one by one.
    """
    loads, stores = plan.at_all_ranks()
    return loads & (plan.multicast is Bits.ANY), stores


def _uses(plan: Plan, t: Topology, rank: I4) -> tuple[Csr, F8, F8, Routes]:
    """Returns the use of resources by thread blocks: Csr of resources, weights, α (µs), and routes.

    α is that of the slowest of several routes; without a route, or with packets, its device's
    `step`. Data that a
    proxy carries has a route too, but is not included. What a switch reduces leaves the ports of
    all ranks, the own one too, and arrives once; what it stores leaves once and arrives at all.
    """
    row, src, dst = crossing(plan.src, plan.dst, plan.queues, rank)
    own = ~by_proxy(plan, t, src, dst)
    row, src, dst = row[own], src[own], dst[own]
    way = None
    if plan.multicast is not None:
        row, src, dst, way = _ways(plan, rank, row, src, dst)
    pair, at = np.unique(src.astype(np.int64) * len(t) + dst, return_inverse=True)
    paths = routes(t, (pair // len(t)).astype(np.int32), (pair % len(t)).astype(np.int32))
    check_reached(t, paths.bandwidth[at], src, dst)
    alpha = np.array([device.step for device in t.devices])[t.device[rank]]
    if plan.protocol is PlanProtocol.SIMPLE:  # packets have their latency on the way
        alpha[row] = 0.0
        np.maximum.at(alpha, row, paths.alpha[at])
    used = paths.uses.take(at)
    owner = row[used.owner()].astype(np.int64)
    n_resources = max(len(paths.resource), 1)
    if way is None:
        kinds, times = np.unique(owner * n_resources + used.index, return_counts=True)
    else:
        kinds, times = _by_way(owner, used.index, way[used.owner()], n_resources)
    ptr = np.searchsorted(kinds // n_resources, np.arange(len(plan) + 1))
    weight = frozen(times * float(plan.channels), np.float64)
    return Csr(ptr, kinds % n_resources), weight, alpha, paths


def _ways(plan: Plan, rank: I4, row: I4, src: I4, dst: I4) -> tuple[I4, I4, I4, I4]:
    """Adds the data that a switch brings back to its rank to those between ranks (`crossing`).

    Returns the ways, too: EACH, or LOADED and STORED at once with all of its primitive: i4[m].
    """
    loads, stores = switched(plan)
    own = [np.flatnonzero(of).astype(np.int32) for of in (loads, stores)]
    way = np.where(loads[row] & (dst == rank[row]), LOADED, EACH)
    way = np.where(stores[row] & (src == rank[row]), STORED, way)
    way = np.concatenate([way, np.repeat([LOADED, STORED], list(map(len, own)))])
    rows, mine = np.concatenate([row, *own]), np.concatenate([rank[of] for of in own])
    return rows, np.concatenate([src, mine]), np.concatenate([dst, mine]), way.astype(np.int32)


def _by_way(owner: I8, resource: I4, way: I4, n_resources: int) -> tuple[I8, F8]:
    """Returns the kinds of (primitive, resource), ascending, and how often the bytes cross each: of
    what a switch adds or spreads once, at its rate."""
    each, count = np.unique((owner * WAYS + way) * n_resources + resource, return_counts=True)
    primitive, of = np.divmod(each // n_resources, WAYS)
    times = np.where(of == EACH, count.astype(np.float64), 1 / SWITCHED)
    kinds, at = np.unique(primitive * n_resources + each % n_resources, return_inverse=True)
    total = np.bincount(at, times).astype(np.float64)
    return kinds, total


def pieces(plan: Plan, size: int) -> tuple[int, int]:
    """Returns (bytes of a block, bytes of all blocks of the larger buffer) of a call of `size`
    bytes."""
    most = plan.collective.most_blocks()
    return size // most, size // most * most


def size_of(plan: Plan, part: int) -> int:
    """Returns the bytes of the call in which a channel's part of a chunk has `part` bytes."""
    c = plan.collective
    return part * plan.channels * c.chunks_per_block * c.most_blocks()


def batches_of(plan: Plan, block: int, micro_batch: int) -> tuple[int, float]:
    """Returns (micro-batches, bytes of each but the last) of one channel's part of a chunk.

    As `runtime/layout.py`, but with equal parts: bytes are exact, not aligned. micro_batch: bytes,
    0 for the default of calls that name none.
    """
    parts = plan.collective.chunks_per_block * plan.channels
    if plan.protocol is PlanProtocol.LL:
        return 1, block / parts
    micro_batch = micro_batch or default_micro_batch(-(-block // parts), plan.grain)
    batches = max(1, -(-block // (parts * micro_batch)))
    return batches, min(float(micro_batch), block / parts)


def parts_of(plan: Plan, block: int, lengths: I8 | None) -> F8:
    """Returns the bytes of each primitive's part of a chunk, the mean of all channels: f8[P].

    block: bytes of the longest block; lengths: bytes of each, None where all are as long. As in
    kernels (`hccc_valid`), a shorter block has the first of the longest block's parts.
    """
    c = plan.collective
    most = block / (c.chunks_per_block * plan.channels)
    if lengths is None:
        return frozen(np.full(len(plan), most), np.float64)
    of, index = np.divmod(plan.chunk.astype(np.int64), c.chunks_per_block)
    return frozen(np.clip(lengths[of] / plan.channels - index * most, 0.0, most), np.float64)
