"""transfers: the transfers that a Plan's primitives hand to proxies (kernel-protocol §1).

A proxy carries the transfers of one thread block for one peer, a *pair*, in order: the bytes of one
transfer after those of the one before, and each arrives the latency of the way after its last byte.
Pairs of the same two ranks share the resources between these like any others. Packets (protocol LL)
are transfers without bytes: the thread block stores them itself, and goes on while they are on the
way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from hccc.base.diagnostics import fail
from hccc.ir.arrays import B1, I4, I8, U1, Csr, frozen, starts
from hccc.ir.choices import PlanProtocol
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer
from hccc.ir.topology import F8, Topology
from hccc.network.routes import Routes, routes


class TransferKind(IntEnum):
    """The effect of a transfer at the peer, in the order in which a primitive hands them over."""

    PUT = 0  # bytes into memory
    MESSAGE = 1  # bytes into a slot of a queue; then it counts as sent
    CREDIT = 2  # a slot of a queue is free again
    FLAG = 3  # raises a flag


@dataclass(frozen=True, slots=True, eq=False)
class ProxyTransfers:
    """The transfers of P primitives: X per micro-batch, in the order of rows, for C pairs.

    ptr: i8[P + 1]; kind: u1[X] (`TransferKind`); target: i4[X] the queue, or the flag numbered over
    all ranks, or for a PUT the row of `plan.dst`; pair: i4[X]; src, dst: i4[C] ranks, by block;
    alpha: f8[C] µs; bandwidth: f8[C] GB/s alone; uses: Csr[C] of resources. queue: b1[Q], the
    queues whose messages and credits are among them. packets: whether messages are packets.
    """

    ptr: I8
    kind: U1
    target: I4
    pair: I4
    src: I4
    dst: I4
    alpha: F8
    bandwidth: F8
    uses: Csr
    queue: B1
    packets: bool

    def __post_init__(self) -> None:
        for name in ("target", "pair", "src", "dst"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int32))
        object.__setattr__(self, "ptr", frozen(self.ptr, np.int64))
        object.__setattr__(self, "kind", frozen(self.kind, np.uint8))

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def owner(self) -> I4:
        """The primitive of each transfer: i4[X]."""
        return np.repeat(np.arange(len(self.ptr) - 1, dtype=np.int32), np.diff(self.ptr))

    @property
    def carries(self) -> B1:
        """Which transfers move bytes: b1[X]."""
        carries: B1 = self.kind <= (TransferKind.PUT if self.packets else TransferKind.MESSAGE)
        return carries

    def bytes_ahead(self) -> I4:
        """Returns the number of payloads that the same primitive hands over for the same peer up to
        and including each transfer: i4[X]. A transfer after puts waits for them."""
        key = self.owner.astype(np.int64) * max(len(self.src), 1) + self.pair
        order = np.argsort(key, kind="stable")
        carries = self.carries[order].astype(np.int32)
        total = np.cumsum(carries)
        first = np.searchsorted(key[order], key[order])
        ahead = np.empty(len(self), np.int32)
        ahead[order] = total - (total - carries)[first]
        return ahead


def by_proxy(plan: Plan, t: Topology, src: I4, dst: I4) -> B1:
    """Tells whether a proxy carries from src to dst: the plan does so, and memory does not
    reach."""
    mine, there = plan.memory_domain, t.memory_domain
    away: B1 = (mine[src] != mine[dst]) & (there[src] != there[dst])
    return away


def check_reached(t: Topology, bandwidth: F8, src: I4, dst: I4) -> None:
    """Raises E131 if there is no way from src to dst (bandwidth 0)."""
    lost = np.flatnonzero(bandwidth <= 0)
    if len(lost):
        u, v = int(src[lost[0]]), int(dst[lost[0]])
        message = f"there is no route from {t.describe(u)} to {t.describe(v)}"
        raise fail("E131", message, help="another cluster, or a program that takes another route")


def transfers(plan: Plan, t: Topology) -> tuple[ProxyTransfers, Routes]:
    """Returns the transfers that `plan` hands over on `t`, and the routes of its pairs. O(operands
    log operands).

    Raises:
        UserError: E131 bytes have no route.
    """
    q = plan.queues
    packets = plan.protocol is PlanProtocol.LL
    queue = by_proxy(plan, t, q.src, q.dst) | packets
    row, kind, target, src, dst = _handed(plan, t, queue)
    block = np.searchsorted(plan.tb_ptr, row, side="right").astype(np.int64) - 1
    _, at, pair = np.unique(block * len(t) + dst, return_index=True, return_inverse=True)
    first, last = src[at], dst[at]
    paths = routes(t, first, last)
    carries = kind <= TransferKind.MESSAGE
    check_reached(t, paths.bandwidth[pair[carries]], src[carries], dst[carries])
    order = np.argsort(row, kind="stable")
    ptr = starts(np.bincount(row, minlength=len(plan)))
    found = ProxyTransfers(
        ptr,
        kind[order],
        target[order],
        pair[order],
        first,
        last,
        _latency(plan, t, paths, first, last),
        paths.bandwidth,
        paths.uses,
        queue,
        packets,
    )
    return found, paths


def _handed(plan: Plan, t: Topology, queue: B1) -> tuple[I4, U1, I4, I4, I4]:
    """Returns (primitive, kind, target, from, to) of every transfer, by kind."""
    q, rank = plan.queues, plan.rank_of()
    put = np.flatnonzero(carried_puts(plan, t))
    row = plan.dst.owner()[put]
    table = [_columns(row, TransferKind.PUT, put, rank[row], plan.dst.rank[put])]
    for operands, kind, src, dst in (
        (plan.dst, TransferKind.MESSAGE, q.src, q.dst),
        (plan.src, TransferKind.CREDIT, q.dst, q.src),
    ):
        at = np.flatnonzero(operands.buffer == Buffer.QUEUE)
        at = at[queue[operands.rank[at]]]
        if kind == TransferKind.CREDIT and plan.protocol is PlanProtocol.LL:
            at = at[:0]  # a packet slot is free
        which = operands.rank[at]
        table.append(_columns(operands.owner()[at], kind, which, src[which], dst[which]))
    raised = np.flatnonzero(carried_posts(plan, t))
    row, there = plan.posts.owner()[raised], plan.posts.rank[raised]
    flag = starts(plan.n_flags)[there] + plan.posts.flag[raised]
    table.append(_columns(row, TransferKind.FLAG, flag, rank[row], there))
    row, kinds, target, src, dst = np.concatenate(table, axis=1)
    return row, kinds.astype(np.uint8), target, src, dst


def _columns(row: I4, kind: TransferKind, target: I4 | I8, src: I4, dst: I4) -> I4:
    return np.stack([row, np.full(len(row), kind), target, src, dst]).astype(np.int32)


def carried_puts(plan: Plan, t: Topology) -> B1:
    """Tells which destinations a proxy writes: b1[entries of dst]."""
    puts = plan.network_puts()
    at = np.flatnonzero(puts)
    there = np.zeros(len(puts), np.bool_)
    there[at] = by_proxy(plan, t, plan.rank_of()[plan.dst.owner()[at]], plan.dst.rank[at])
    return there


def carried_posts(plan: Plan, t: Topology) -> B1:
    """Tells which flags a proxy raises: b1[posts]."""
    return by_proxy(plan, t, plan.rank_of()[plan.posts.owner()], plan.posts.rank)


def as_packets_cross(plan: Plan, t: Topology) -> Topology:
    """Returns the cluster with no more latency than packets have, for bounds of a plan of them; as
    it is for any other plan."""
    if plan.protocol is PlanProtocol.SIMPLE:
        return t
    least = min(device.alpha.ll for device in t.devices)
    links, meshes, shared = (
        replace(x, alpha=np.minimum(x.alpha, least)) for x in (t.links, t.meshes, t.shared)
    )
    return replace(t, links=links, meshes=meshes, shared=shared)


def _latency(plan: Plan, t: Topology, paths: Routes, src: I4, dst: I4) -> F8:
    """Returns the α of each pair's way, for packets no more than the sender's device says; of the
    way back if there is none, as only counters take it."""
    lost = paths.bandwidth <= 0
    alpha = np.where(lost, 0.0, paths.alpha)
    if lost.any():
        back = routes(t, dst[lost], src[lost])
        alpha[lost] = np.where(back.bandwidth > 0, back.alpha, 0.0)
    if plan.protocol is PlanProtocol.LL:
        alpha = np.minimum(alpha, np.array([d.alpha.ll for d in t.devices])[t.device[src]])
    return frozen(alpha, np.float64)
