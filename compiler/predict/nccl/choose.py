"""choose: the algorithm, protocol and number of channels that NCCL and RCCL choose for a size.

They take the least of `latency + bytes / bandwidth` over their tables (tuning.cc: ncclTopoTuneModel
and ncclTopoGetAlgoTime; enqueue.cc: topoGetAlgoInfo). That formula only chooses; `time` predicts
times. Everything by size is an array over sizes in bytes, f8[s].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log2

import numpy as np
from numpy.typing import NDArray

from hccc.base.diagnostics import fail
from hccc.ir.collective import OpType
from hccc.predict.nccl import p2p, rccl
from hccc.predict.nccl.channels import ChannelGraphs, graphs
from hccc.predict.nccl.machine import Generation, NcclLink, NcclMachine, NcclNetwork
from hccc.predict.nccl.tuning import (
    BASE,
    BUFFERS,
    MAX_LL,
    MAX_NVLS_TREE,
    MAX_RING_LL128,
    MAX_TREE,
    MAX_TREE_LL128,
    NET_LATENCY,
    NET_LATENCY_NEW,
    NET_OVERHEAD,
    NVLS_CHUNK,
    NVLS_EFFICIENCY,
    PROTOCOLS,
    RCCL_THREADS,
    STEP,
    STEPS,
    THREAD_BYTES,
    THREADS,
    TRAFFIC,
    TREE_CORRECTION,
    NcclAlgorithm,
    Protocol,
)

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
P2P_OPS = frozenset({OpType.ALLTOALL, OpType.SENDRECV, OpType.GATHER, OpType.SCATTER})
ALGORITHMS: dict[OpType, tuple[NcclAlgorithm, ...]] = {
    OpType.ALLREDUCE: (
        NcclAlgorithm.TREE,
        NcclAlgorithm.RING,
        NcclAlgorithm.NVLS,
        NcclAlgorithm.NVLS_TREE,
    ),
    OpType.ALLGATHER: (NcclAlgorithm.RING, NcclAlgorithm.NVLS, NcclAlgorithm.PAT),
    OpType.REDUCESCATTER: (NcclAlgorithm.RING, NcclAlgorithm.NVLS, NcclAlgorithm.PAT),
    OpType.BROADCAST: (NcclAlgorithm.RING,),
    OpType.REDUCE: (NcclAlgorithm.RING,),
}


@dataclass(frozen=True, slots=True)
class Forced:
    """The user's decisions: NCCL_ALGO, NCCL_PROTO, and the channels of every call."""

    algorithm: NcclAlgorithm | None = None
    protocol: Protocol | None = None
    channels: int | None = None


NOT_FORCED = Forced()


@dataclass(frozen=True, slots=True, eq=False)
class LibraryChoice:
    """For each size: option (a row of `options`), channels; i8[s]."""

    options: tuple[tuple[NcclAlgorithm, Protocol], ...]
    option: I8
    channels: I8


def steps(op: OpType, n: int) -> int:
    """Returns the number of steps of a ring of n."""
    if op is OpType.ALLREDUCE:
        return 2 * (n - 1)
    return n - 1 if op in {OpType.ALLGATHER, OpType.REDUCESCATTER} else n


def choose(m: NcclMachine, op: OpType, sizes: F8, forced: Forced) -> LibraryChoice:
    """Returns the library's choice on `m`, where `forced` leaves it open.

    Raises:
        UserError: E464 if the collective and cluster have no such algorithm or protocol.
    """
    g = graphs(m)
    if op in P2P_OPS:
        return _p2p(m, g, op, sizes, forced)
    possible = [
        (a, p)
        for a, p in _possible(m, op, g, forced)
        if forced.algorithm in (None, a) and forced.protocol in (None, p)
    ]
    if not possible:
        raise _impossible(m, op, forced)
    cost = rccl.cost if m.generation.amd else _cost
    table = np.stack([cost(m, op, g, a, p, sizes) for a, p in possible])
    option: I8 = table.argmin(axis=0).astype(np.int64)
    if m.generation.amd and forced.protocol is None:
        option = rccl.overridden(m, op, sizes, possible, option)
    channels = np.zeros(len(sizes), np.int64)
    for k, (a, p) in enumerate(possible):
        here = option == k
        channels[here] = channels_of(m, op, g, a, p, sizes[here])
    if forced.channels:
        channels[:] = forced.channels
    return LibraryChoice(tuple(possible), option, channels)


def _impossible(m: NcclMachine, op: OpType, forced: Forced) -> Exception:
    asked = " with ".join(str(x) for x in (forced.algorithm, forced.protocol) if x)
    there = ", ".join(f"{a} {p}" for a, p in _possible(m, op, graphs(m), Forced()))
    return fail("E464", f"{op} on this cluster has no {asked}", help=f"there is {there or 'P2P'}")


def _possible(
    m: NcclMachine, op: OpType, g: ChannelGraphs, forced: Forced
) -> Iterator[tuple[NcclAlgorithm, Protocol]]:
    """Yields the enabled options (tuning.cc), and LL128 also if the user asks for it."""
    if op in P2P_OPS:
        return
    for a in ALGORITHMS[op]:
        if a is not NcclAlgorithm.RING and _tcpx(m) and forced.algorithm is not a:
            continue
        nvls = a in {NcclAlgorithm.NVLS, NcclAlgorithm.NVLS_TREE}
        if nvls and (g.nvls is None or (a is NcclAlgorithm.NVLS) != (m.nodes == 1)):
            continue
        if nvls and op is not OpType.ALLREDUCE and m.gpus > 32:
            continue
        if a is NcclAlgorithm.PAT and (m.gpus > 1 or m.nodes == 1 or m.generation.amd):
            continue
        for p in PROTOCOLS:
            simple = nvls or a is NcclAlgorithm.PAT
            tcpx = _tcpx(m) and forced.protocol is not p
            if p is not Protocol.SIMPLE and (simple or tcpx):
                continue
            if p is Protocol.LL128 and not (_ll128(m) or forced.protocol is p):
                continue
            yield a, p


def _tcpx(m: NcclMachine) -> bool:
    """Tells whether TCPX joins the nodes: its instructions set NCCL_ALGO=Ring, NCCL_PROTO=Simple
    and NCCL_NVLS_ENABLE=0 (Google Cloud, A3 High)."""
    return m.network is NcclNetwork.TCPX and m.nodes > 1


def _ll128(m: NcclMachine) -> bool:
    """Tells whether LL128 is enabled (tuning.cc): over NVLink, and NICs that write to a GPU's
    memory by way of PCIe alone."""
    if m.generation.amd:
        return m.nodes > 1 and m.generation is not Generation.MI200
    # Slingshot's NICs hang off GH200's CPU; TCPX and sockets stage in the host's memory.
    far = {NcclNetwork.SLINGSHOT, NcclNetwork.TCPX, NcclNetwork.ETHERNET}
    return m.link is not NcclLink.PCIE and (m.nodes == 1 or m.network not in far)


def _cost(
    m: NcclMachine, op: OpType, g: ChannelGraphs, a: NcclAlgorithm, p: Protocol, sizes: F8
) -> F8:
    """Computes ncclTopoGetAlgoTime, in µs."""
    bandwidth = np.full(len(sizes), _bandwidth(m, op, g, a, p))
    latency = np.full(len(sizes), _latency(m, op, a, p))
    size_class = np.floor(np.log2(np.maximum(sizes, 64) / 64)).astype(np.int64)
    row = PROTOCOLS.index(p)
    if op is OpType.ALLREDUCE and a is NcclAlgorithm.TREE:
        bandwidth *= np.where(
            (sizes >= 64) & (size_class < 23),
            np.array(TREE_CORRECTION[row])[np.minimum(size_class, 23)],
            1.0,
        )
    if (
        op is OpType.ALLREDUCE
        and a is NcclAlgorithm.NVLS_TREE
        and m.generation is Generation.BLACKWELL
    ):
        bandwidth *= np.where(
            size_class < 24, np.array(TREE_CORRECTION[row])[np.minimum(size_class, 23)], 1.0
        )
    if (a, p, op) == (NcclAlgorithm.RING, Protocol.SIMPLE, OpType.ALLREDUCE) and m.nodes > 1:
        plateau = 1.9 if m.generation is Generation.VOLTA else 1.4
        latency *= np.where(sizes / (g.channels * m.ranks) >= 64, plateau, 1.0)
    cost: F8 = latency + sizes / (1000 * bandwidth)
    return cost


def _bandwidth(
    m: NcclMachine, op: OpType, g: ChannelGraphs, a: NcclAlgorithm, p: Protocol
) -> float:
    """Returns the GB/s of the algorithm: tuning.cc:300-390."""
    of = min(m.nodes, 3) - 1
    n, gen = m.ranks, m.generation
    if a in {NcclAlgorithm.NVLS, NcclAlgorithm.NVLS_TREE}:
        assert g.nvls is not None
        heads = g.nvls.channels
        intra = g.nvls.intra * NVLS_EFFICIENCY[gen] * (heads - 1) / heads
        intra *= 2 if op is OpType.ALLREDUCE else (m.gpus - 1) / m.gpus
        if a is NcclAlgorithm.NVLS_TREE:
            inter = g.nvls.inter * (2 if m.nodes == 2 else 1)
            intra = min(intra, inter, MAX_NVLS_TREE[gen][of])
        bus = heads * intra
    else:
        graph = g.tree if a is NcclAlgorithm.TREE else g.ring
        count = graph.channels
        bus = count * (graph.intra if m.nodes <= 2 else graph.inter)
        # Between nodes the row is the CPU's: the second that of AMD's, the first of others.
        cpu = Generation.VOLTA if m.grace else Generation.AMPERE
        latest = MAX_LL[gen if m.nodes == 1 else cpu][of]
        if a is NcclAlgorithm.RING and p is Protocol.LL:
            bus = min(latest, bus / 2)
        elif a is NcclAlgorithm.RING and p is Protocol.LL128:
            bus = min(bus * 0.92, count * MAX_RING_LL128[gen])
        elif a is NcclAlgorithm.TREE:
            bus = min(bus * 0.92, count * MAX_TREE[gen][of])
            if p is Protocol.LL:
                bus = min(bus / 3.8, latest)
            elif p is Protocol.LL128:
                share = 7 / 9 if m.nodes == 1 else 120 / 128
                bus = min(bus * share, count * MAX_TREE_LL128[gen][of])
        elif a is NcclAlgorithm.PAT:
            bus *= 0.75
    if a is not NcclAlgorithm.RING and op in {OpType.ALLGATHER, OpType.REDUCESCATTER}:
        return bus
    return bus / 2 if a is NcclAlgorithm.TREE else bus * n / steps(op, n)


def _latency(m: NcclMachine, op: OpType, a: NcclAlgorithm, p: Protocol) -> float:
    """Returns the µs of the algorithm: tuning.cc:391-440."""
    k = PROTOCOLS.index(p)
    hw = "PCI" if m.link is NcclLink.PCIE else "NVLINK"
    base, intra = BASE[a][k], STEP[hw][a][k]
    inter = STEP["NET"][NcclAlgorithm.TREE if m.gpus == 1 else a][k]
    log_nodes, n = int(log2(m.nodes)), m.ranks
    inter += _reported(m) * (2 if p is Protocol.SIMPLE else 1)
    if a is NcclAlgorithm.RING:
        if op in {OpType.REDUCE, OpType.BROADCAST}:
            return base + STEP[hw if m.nodes == 1 else "NET"][a][k]
        if m.nodes > 1:
            intra = max(intra, NET_OVERHEAD * (3 if p is Protocol.SIMPLE else 1))
        crossing = (m.nodes - 1) * (2 if op is OpType.ALLREDUCE else 1) if m.nodes > 1 else 0
        return base + (steps(op, n) - crossing) * intra + crossing * inter
    if a is NcclAlgorithm.TREE:
        return base + 2 * ((m.gpus - 1) * intra + log_nodes * inter)
    if a is NcclAlgorithm.NVLS:
        return intra
    if a is NcclAlgorithm.NVLS_TREE:
        return base + intra + 2 * log_nodes * inter
    return base + log_nodes * inter / 3.5 + n * 2.8


def _reported(m: NcclMachine) -> float:
    """Returns the µs of the network that its plugin reports."""
    if m.network is NcclNetwork.EFA and m.generation is Generation.BLACKWELL:
        return NET_LATENCY_NEW
    return NET_LATENCY.get(m.network, 0)


def _p2p(m: NcclMachine, g: ChannelGraphs, op: OpType, sizes: F8, forced: Forced) -> LibraryChoice:
    if forced.algorithm not in (None, NcclAlgorithm.P2P) or forced.protocol is Protocol.LL128:
        raise _impossible(m, op, forced)
    part = sizes if op is OpType.SENDRECV else sizes / m.ranks
    channels = p2p.channels(m, g, op, part)
    if forced.channels:
        channels[:] = forced.channels
    ll = p2p.takes_ll(m, part, channels) & (not _tcpx(m))
    if forced.protocol is not None:
        ll[:] = forced.protocol is Protocol.LL
    options = ((NcclAlgorithm.P2P, Protocol.SIMPLE), (NcclAlgorithm.P2P, Protocol.LL))
    return LibraryChoice(options, ll.astype(np.int64), channels)


def channels_of(
    m: NcclMachine, op: OpType, g: ChannelGraphs, a: NcclAlgorithm, p: Protocol, sizes: F8
) -> I8:
    """Returns the channels: fewer for small sizes (enqueue.cc topoGetAlgoInfo and
    scheduleCollTasksToPlan)."""
    if a in {NcclAlgorithm.NVLS, NcclAlgorithm.NVLS_TREE}:
        return np.full(len(sizes), g.nvls_channels)
    k = PROTOCOLS.index(p)
    threads = RCCL_THREADS if m.generation.amd else THREADS[k]
    threshold = THREAD_BYTES[k]
    if a is NcclAlgorithm.RING and p is Protocol.LL:
        threshold *= m.ranks
    by_threads = sizes // (threads * threshold)
    by_traffic = np.ceil(sizes * _traffic(op) * (4 if p is Protocol.LL else 1) / TRAFFIC)
    channels = np.minimum(by_threads, by_traffic)
    return np.clip(channels, 1, g.channels).astype(np.int64)


def _traffic(op: OpType) -> int:
    """Returns ncclFuncTrafficPerByte, for a size that counts all ranks' parts."""
    return 2 if op is OpType.ALLREDUCE else 1


def chunk_of(
    m: NcclMachine, op: OpType, a: NcclAlgorithm, p: Protocol, sizes: F8, channels: I8
) -> F8:
    """Returns the bytes that a channel moves in one step: enqueue.cc calcCollChunking."""
    k = PROTOCOLS.index(p)
    chunk = np.full(len(sizes), BUFFERS[k] / STEPS)
    if p is Protocol.LL:
        return chunk / 2
    if p is Protocol.LL128:
        return chunk * 120 / 128
    if a in {NcclAlgorithm.NVLS, NcclAlgorithm.NVLS_TREE}:
        heads = min(m.gpus, 32)
        tree = a is NcclAlgorithm.NVLS_TREE
        chunk[:] = NVLS_CHUNK if not tree or m.nodes < 4 else NVLS_CHUNK / 2
        bounds = ((4, 65536), (1, 32768)) if tree else ((64, 65536), (8, 32768), (2, 16384))
        for factor, smaller in bounds:
            small = (sizes < factor * channels * heads * chunk) & (chunk > smaller)
            chunk[small] = smaller
        return chunk
    if a is NcclAlgorithm.RING and op not in {OpType.BROADCAST, OpType.REDUCE}:
        return chunk * (STEPS / 2)
    return chunk
