"""time: the time of a call on machines, for a given algorithm, protocol and number of channels.

A call takes its base, then steps: each an α and the time to copy a channel's bytes; links and NICs
set a least time. The form follows the algorithms, the figures are fitted (`calibration`).
Everything by size is an array over sizes in bytes, f8[s].
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

import numpy as np
from numpy.typing import NDArray

from hccc.ir.collective import OpType
from hccc.predict.nccl.calibration import Table, kind, link_kind
from hccc.predict.nccl.channels import graphs
from hccc.predict.nccl.choose import chunk_of, steps
from hccc.predict.nccl.machine import NcclLink, NcclMachine, NcclNetwork
from hccc.predict.nccl.p2p import total
from hccc.predict.nccl.tuning import PROTOCOLS, STEP, NcclAlgorithm, Protocol

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
GB = 1000.0  # bytes in a µs of one GB/s
ONE_PASS = 4096  # bytes that the threads of a channel move at once in LL
SLICE = 1 << 20  # bytes of a channel that go on at once in Simple: 2 of 8 steps (device.h)
ASKED = 2048  # bytes of data, twice as many on the wire, that a network sends without asking
SHARPNESS = 16  # of the maximum of several limits
# Of a wire's bytes, those that are data: LL has 4 of flag to 4 of data, LL128 8 to 120.
PAYLOAD = {Protocol.LL: 0.5, Protocol.LL128: 120 / 128, Protocol.SIMPLE: 1.0}


@dataclass(frozen=True, slots=True, eq=False)
class ProtocolRates:
    """Figures of one machine in one protocol. step, hop: µs within a node, between; channel: GB/s;
    link: GB/s of a GPU; net: GB/s of a node's NICs."""

    base: float
    step: float
    hop: float
    channel: float
    link: float
    net: float


def rates(m: NcclMachine, p: Protocol, c: Table) -> ProtocolRates:
    """Returns the figures of `m` in protocol `p`."""
    k, net = kind(m), str(m.network)
    step, hop = c["step"][k], c["hop"][net] * (c["other"]["hop_AMD"] if m.generation.amd else 1)
    if p is not Protocol.LL:
        amd = "AMD" if m.generation.amd else ""
        step, hop = step * c["step_factor"][p + amd], hop + c["hop_more"][p]
    channel = c[p.lower()][k]
    delivered = m.node_wire * c["net"][net] / (1 + c["other"]["congestion"] * m.nodes)
    if m.network is NcclNetwork.ETHERNET:
        # The host copies what sockets send: a fast NIC is not filled.
        delivered /= 1 + m.nic / c["other"]["sockets"]
    if p is not Protocol.SIMPLE:
        delivered *= c["other"]["net_ll128"]
    if p is Protocol.LL:
        delivered = min(delivered, 2 * c["net_ll"].get(net, delivered))
    link = m.wire * c["link"][link_kind(m)] * PAYLOAD[p]
    if m.link is NcclLink.PCIE and m.peer:
        link *= 1.5
    return ProtocolRates(c["base"][p], step, hop, channel, link, delivered * PAYLOAD[p])


def most(*limits: F8) -> F8:
    """Returns the largest, rounded where several are near each other."""
    top = np.maximum(np.maximum.reduce(limits), 1e-9)
    result: F8 = top * sum((x / top) ** SHARPNESS for x in limits) ** (1 / SHARPNESS)
    return result


def copied(part: F8, p: Protocol, rate: float) -> F8:
    """Returns the µs in which a channel moves `part` bytes; in LL, the bytes that its threads move
    at once are cheap."""
    if p is Protocol.SIMPLE:
        return part / (rate * GB)
    return (np.minimum(part, ONE_PASS) / 4 + np.maximum(part - ONE_PASS, 0)) / (rate * GB)


def took(
    m: NcclMachine, op: OpType, a: NcclAlgorithm, p: Protocol, sizes: F8, channels: I8, c: Table
) -> F8:
    """Returns the µs of calls of `sizes`."""
    by = {
        NcclAlgorithm.RING: _pipeline if op in {OpType.BROADCAST, OpType.REDUCE} else _ring,
        NcclAlgorithm.TREE: _tree,
        NcclAlgorithm.NVLS: _nvls,
        NcclAlgorithm.NVLS_TREE: _nvls,
        NcclAlgorithm.PAT: _pat,
        NcclAlgorithm.P2P: _p2p,
    }
    time = by[a](m, op, a, p, sizes, channels, c)
    floor = m.floor
    if a is NcclAlgorithm.P2P:  # the program launches nothing more, but hands over each send
        peers = 1 if op is OpType.SENDRECV else m.ranks - 1
        floor *= 1 + c["other"]["p2p_launch"] * peers
    return most(time, np.full(len(sizes), floor))


def _few(m: NcclMachine, sizes: F8, c: Table) -> F8:
    """Returns the part of latency that small calls pay: ranks without data of their own do not wait
    for it."""
    least = c["other"]["few"]
    return least + (1 - least) * np.minimum(1, sizes / (16 * m.ranks))


def _asked(m: NcclMachine, p: Protocol, part: F8, c: Table) -> F8:
    """Returns the µs more of a hop of `part` bytes in LL, if the network asks before it sends that
    many."""
    more = c["rendezvous"].get(m.network, 0.0) if p is Protocol.LL else 0.0
    return np.where(part > ASKED, more, 0.0)


def _far(m: NcclMachine, c: Table) -> float:
    """Returns the factor of a tree's hops, which cross more switches if there are more nodes."""
    return 1 + c["other"]["far"] * log2(m.nodes)


def _around(m: NcclMachine) -> float:
    return m.gpus / (m.gpus - 1) if m.nodes > 1 and m.gpus > 1 else 1.0


def _ring(
    m: NcclMachine, op: OpType, a: NcclAlgorithm, p: Protocol, sizes: F8, channels: I8, c: Table
) -> F8:
    r, n, rounds = rates(m, p, c), m.ranks, steps(op, m.ranks)
    crossing = rounds // (n - 1) * (m.nodes - 1) if m.nodes > 1 else 0
    hop = r.hop + _asked(m, p, sizes / (n * channels), c)
    alpha = (rounds - crossing) * r.step + crossing * hop
    faster = op is OpType.ALLREDUCE and p is Protocol.SIMPLE
    rate = r.channel * (c["other"]["allreduce"] if faster else 1)
    moved = sizes * rounds / n
    limits = [rounds * copied(sizes / (n * channels), p, rate)]
    if m.gpus > 1:
        limits.append(moved / (r.link * _around(m) * GB))
    fill = np.zeros(len(sizes))
    if m.nodes > 1:
        # Rings, unlike trees, send as much in LL128 as in Simple.
        net = r.net / (c["other"]["net_ll128"] if p is Protocol.LL128 else 1)
        limits.append(moved / (net * GB))
        if p is Protocol.SIMPLE:
            # A slice crosses by as much of the NICs as its channel has, before it goes on.
            fill = crossing * np.minimum(sizes / n, channels * SLICE) / (net * GB)
    return r.base + alpha * _few(m, sizes, c) + fill + most(*limits)


def _pipeline(
    m: NcclMachine, op: OpType, a: NcclAlgorithm, p: Protocol, sizes: F8, channels: I8, c: Table
) -> F8:
    """Returns the µs of a chain, chunk by chunk: the last rank begins when its first chunk has
    come."""
    r, n = rates(m, p, c), m.ranks
    chunk = np.minimum(chunk_of(m, op, a, p, sizes, channels), sizes / channels)
    # In LL every word goes on as it comes; in Simple, measured, a part of a chunk.
    first = np.minimum(chunk, c["other"]["slice"] if p is Protocol.SIMPLE else ONE_PASS)
    fill = (n - m.nodes) * r.step + (m.nodes - 1) * r.hop + (n - 1) * copied(first, p, r.channel)
    rest = np.maximum(sizes / channels - chunk, 0) / (r.channel * GB)
    limits = [copied(chunk, p, r.channel) + rest]
    if m.gpus > 1:
        limits.append(sizes / (r.link * _around(m) * GB))
    if m.nodes > 1:
        limits.append(sizes / (r.net * GB))
    return r.base + fill + most(*limits)


def _tree(
    m: NcclMachine, op: OpType, a: NcclAlgorithm, p: Protocol, sizes: F8, channels: I8, c: Table
) -> F8:
    r, deep = rates(m, p, c), log2(m.nodes)
    chunk = np.minimum(chunk_of(m, op, a, p, sizes, channels), sizes / channels)
    rate = r.channel * c["other"]["tree_ll128" if p is Protocol.LL128 else "tree"]
    # A step of a tree is to one of a ring as in the library's own table.
    known, k = STEP["PCI" if m.link is NcclLink.PCIE else "NVLINK"], PROTOCOLS.index(p)
    step = r.step * known[NcclAlgorithm.TREE][k] / known[NcclAlgorithm.RING][k]
    hop = r.hop + _asked(m, p, sizes / channels, c)
    alpha = 2 * ((m.gpus - 1) * step + deep * hop * _far(m, c))
    # In Simple a chunk goes on when all of it has come, in LL and LL128 each word.
    first = chunk if p is Protocol.SIMPLE else np.minimum(chunk, ONE_PASS)
    fill = 2 * (m.gpus - 1 + deep) * copied(first, p, rate)
    rest = np.maximum(sizes - first * channels, 0)
    limits, least = [rest / (channels * rate * GB)], np.zeros(len(sizes))
    if m.gpus > 1:
        # Trees end at different GPUs: all of a chain but its end send both ways.
        both = 2 * (1 - 1 / m.gpus) / (r.link * GB)
        limits.append(rest * both)
        least = sizes * both
    if m.nodes > 1:
        # In LL, messages are what is limited, and a node's tree has as many of them both ways.
        crossing = 1 if m.nodes == 2 or p is Protocol.LL else 2
        slower = np.maximum(channels / (r.net * GB) - 1 / (rate * GB), 0)
        fill = fill + 2 * deep * slower * first
        limits.append(crossing * rest / (r.net * GB))
    return np.maximum(r.base + alpha * _few(m, sizes, c) + fill + most(*limits), least)


def _nvls(
    m: NcclMachine, op: OpType, a: NcclAlgorithm, p: Protocol, sizes: F8, channels: I8, c: Table
) -> F8:
    r, v, gen = rates(m, p, c), c["nvls"], str(m.generation)
    chunk = chunk_of(m, op, a, p, sizes, channels)
    share = v[f"share_{gen}"] / (1 + 1 / min(m.gpus, 32))
    if op is not OpType.ALLREDUCE:
        share /= 2
    slower = 1 + v[f"chunk_{gen}"] / chunk
    limits = [sizes * slower / (m.wire * share * GB)]
    first = np.minimum(chunk, sizes / (channels * min(m.gpus, 32)))
    latency = v[f"latency_{gen}"] + v["fill"] * first / (r.channel * GB)
    if m.nodes > 1:
        hop = rates(m, Protocol.LL, c).hop * v["tree"]
        latency = latency + 2 * log2(m.nodes) * hop * _far(m, c)
        limits.append(sizes * (1 if m.nodes == 2 else 2) / (r.net * GB))
    return latency + most(*limits)


def _pat(
    m: NcclMachine, op: OpType, a: NcclAlgorithm, p: Protocol, sizes: F8, channels: I8, c: Table
) -> F8:
    r, n = rates(m, p, c), m.ranks
    moved = sizes * (n - 1) / n
    return (
        r.base
        + log2(n) * r.hop * _far(m, c)
        + most(moved / (r.net * GB), moved / (channels * r.channel * GB))
    )


def _p2p(
    m: NcclMachine, op: OpType, a: NcclAlgorithm, p: Protocol, sizes: F8, channels: I8, c: Table
) -> F8:
    """Returns the µs of sends and receives: to the next rank, to all, or at a root."""
    r, n = rates(m, p, c), m.ranks
    part = sizes if op is OpType.SENDRECV else sizes / n
    peers = 1 if op is OpType.SENDRECV else n - 1
    at_once = np.minimum(channels * peers, total(graphs(m)))
    limits = [copied(part * peers / at_once, p, r.channel)]
    inside = 1 if op is OpType.SENDRECV and m.gpus > 1 else min(peers, m.gpus - 1)
    if inside:
        pair = r.link / (m.gpus - 1) if m.link.mesh and op is OpType.SENDRECV else r.link
        limits.append(part * inside / (pair * GB))
    base = c["base"]["P2P"] + r.base + (c["other"]["p2p_steps"] * r.step if p is Protocol.LL else 0)
    base += c["other"]["p2p_peer"] * (peers - 1)
    if m.nodes > 1:
        base += rates(m, Protocol.LL, c).hop * c["other"]["p2p_hop"]
        per_nic = max(1.0, m.gpus / max(m.nics, 1))
        outside = 1 if op is OpType.SENDRECV else n - m.gpus
        net = r.net
        if p is Protocol.LL:  # no more than a message to each: `net_ll` is of those of a channel
            net = rates(m, Protocol.LL128, c).net * PAYLOAD[p] / PAYLOAD[Protocol.LL128]
        mine = net / m.gpus * (1 if op is not OpType.SENDRECV else m.gpus / max(1, m.nics))
        if op in {OpType.GATHER, OpType.SCATTER}:
            mine *= per_nic
        limits.append(part * outside / (mine * GB))
    return base + most(*limits)
