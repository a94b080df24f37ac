"""p2p: channels and protocol of sends and receives (enqueue.cc addP2pToPlan, graph/paths.cc)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hccc.ir.collective import OpType
from hccc.predict.nccl.channels import ChannelGraphs, link_rate
from hccc.predict.nccl.machine import NcclLink, NcclMachine
from hccc.predict.nccl.tuning import NVLINK_SHARE, P2P_CHUNK, P2P_LL, P2P_NET

F8 = NDArray[np.float64]
B1 = NDArray[np.bool_]
I8 = NDArray[np.int64]


def total(g: ChannelGraphs) -> int:
    """Returns the channels that sends share: a power of two."""
    return min(64, 1 << max(0, g.channels - 1).bit_length())


def per_peer(m: NcclMachine, g: ChannelGraphs, op: OpType) -> tuple[int, int]:
    """Returns the fewest and most channels of one send."""
    if m.generation.amd or m.link is NcclLink.PCIE:
        most = 2 if m.link is NcclLink.PCIE else max(2, 32 // max(1, m.gpus - 1))
    else:
        link = 50 * NVLINK_SHARE[m.generation] if m.wire >= 800 else 25 * NVLINK_SHARE[m.generation]
        share = m.gpus - 1 if m.link.mesh and m.gpus > 1 else 1
        most = 2 * max(1, int(link_rate(m) / share / link + 1e-6)) if m.gpus > 1 else total(g)
    if m.nodes > 1:
        per_gpu = m.node_wire / m.gpus
        most = min(most, max(2, int(np.ceil(per_gpu / P2P_NET))))
    most = min(1 << (most - 1).bit_length(), total(g))
    peers = m.ranks
    least = most
    while least > 1 and least * peers > total(g):
        least //= 2
    return least, most


def channels(m: NcclMachine, g: ChannelGraphs, op: OpType, part: F8) -> I8:
    """Returns the channels of one send of `part` bytes."""
    least, most = per_peer(m, g, op)
    chunk = P2P_CHUNK[m.nodes > 1 or m.link is NcclLink.PCIE]
    smallest, largest = (chunk / 2, chunk) if m.nodes > 1 else (chunk / 8, chunk * 32)
    n = np.minimum(least, np.maximum(1, np.ceil(part / smallest)))
    for _ in range(6):
        more = (part / n > largest) & (n <= most / 2)
        n = np.where(more, 2 * n, n)
    return n.astype(np.int64)


def takes_ll(m: NcclMachine, part: F8, n: I8) -> B1:
    """Tells whether a send of `part` bytes over n channels takes LL."""
    ll: B1 = part <= n * P2P_LL
    return ll
