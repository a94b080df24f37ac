"""hierarchical: inside nodes over their links, between nodes over all NICs, for unequal nodes too.

Every chunk has a *gateway* in each node, a rank with a NIC; only gateways send between nodes, and
chunks are spread over them evenly, so that all NICs carry alike.

| collective    | within a node, between nodes, within a node                             | steps |
|---------------|-------------------------------------------------------------------------|-------|
| Allgather     | a rank to a gateway in every other node; it and the rank to their nodes | 2     |
| Reducescatter | the reverse                                                             | 2     |
| Allreduce     | to the gateway; by a *home* node reduced and spread; from the gateway   | 4     |
| Broadcast     | root to gateways; to a home node and from it to all others; spread      | 4     |
| Reduce        | the reverse                                                             | 4     |
| Alltoall      | chunks for another node to gateways; from them to its ranks             | 2     |
| Scatter       | root to gateways of its node; from them to the others' ranks            | 2     |
| Gather        | the reverse                                                             | 2     |

N bytes (the larger buffer) cross a NIC as often as they must: of Allgather, a node's chunks leave
it once for each other node; of Alltoall, once. A home node of an Allreduce receives a chunk from
every other node, and any other node sends and receives it once. So homes are chosen such that the
busiest node, for its NICs, is as little busy as can be: where nodes are unequal, the fast ones are
home more often.

Source: HiCCL and BlueConnect (Cho et al. 2019) for the levels; NCCL PXN for Alltoall by gateways.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import lcm

import numpy as np

from hccc.ir.arrays import I8, places
from hccc.ir.collective import Collective, OpType, block_count
from hccc.ir.program import Op, Program
from hccc.ir.topology import F8, Level, Topology
from hccc.synth.common.transfer_table import backward, followed, joined, transfers

FINEST = 64  # chunks that the gateways of all nodes divide, at most
SPLIT = 8  # chunks of a rank of an Allgather, at most
NAME = "Hierarchical"


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """first, size: i8[N] the ranks of every node that has any; node, local: i8[n] of each rank;
    gateways: ranks with a NIC of each node (all its ranks, where none has); rate: f8[N] GB/s of a
    node's NICs, or its size where some node has none."""

    first: I8
    size: I8
    node: I8
    local: I8
    gateways: list[I8]
    rate: F8

    def gateway(self, node: int, part: I8, parts: int) -> I8:
        """Returns the gateway of `node` for each `part` of `parts`, consecutive parts together."""
        ranks = self.gateways[node]
        chosen: I8 = ranks[part * len(ranks) // parts]
        return chosen


def hierarchical(t: Topology, op: OpType, root: int = 0) -> Program:
    """Returns the Program of `op`, any but SendRecv. O(transfers).

    Raises:
        UserError: E451 a rank lacks a route within its node, or a gateway to another node.
    """
    nodes = _nodes(t)
    chunks, table = _MAKE[op](nodes, root)
    return joined(NAME, Collective(op, len(t), chunks * block_count(op, len(t)), root), t, table)


def _nodes(t: Topology) -> _Nodes:
    first = t.first_rank
    size = np.diff(first)
    first, size = first[:-1][size > 0], size[size > 0]
    nic = t.port[Level.NIC]
    gateways, rate = [], []
    for a, g in zip(first.tolist(), size.tolist(), strict=True):
        ranks = np.arange(a, a + g)
        with_nic = ranks[nic[ranks] >= 0]
        gateways.append(with_nic if len(with_nic) else ranks)
        rate.append(t.shared.capacity[np.unique(nic[with_nic])].sum())
    by_nic = np.array(rate) if min(rate) > 0 else size.astype(np.float64)
    node = np.repeat(np.arange(len(size)), size)
    return _Nodes(first, size, node, places(size), gateways, by_nic)


def _whole(nodes: _Nodes, homes: I8) -> tuple[I8, I8, list[I8]]:
    """Returns the chunks of a buffer, as many for each home node as `homes` says: (chunk, its home
    node, its gateway in every node)."""
    parts = lcm(*(len(g) for g in nodes.gateways))
    parts = parts if parts <= FINEST else max(len(g) for g in nodes.gateways)
    home = np.tile(np.repeat(np.arange(len(homes)), homes), parts)
    chunk = np.arange(len(home))
    part = chunk // int(homes.sum())
    return chunk, home, [nodes.gateway(i, part, parts) for i in range(len(nodes.size))]


def _within(nodes: _Nodes, owner: I8, step: int, chunk: I8) -> I8:
    """Returns transfers from each chunk's owner, rank by rank, to all others of its node, the next
    one first."""
    order = np.argsort(owner, kind="stable")
    owner, chunk = owner[order], chunk[order]
    node = nodes.node[owner]
    size = nodes.size[node]
    row = np.repeat(np.arange(len(owner)), size - 1)
    place = nodes.local[owner][row] + 1 + places(size - 1)
    dst = nodes.first[node][row] + place % size[row]
    return transfers(owner[row], dst, step, chunk[row])


def _allreduce(nodes: _Nodes, _: int) -> tuple[int, I8]:
    count = len(nodes.size)
    chunk, home, gateway = _whole(nodes, _homes(nodes.rate, np.arange(count), 1.0))
    at_home = np.stack(gateway)[home, chunk]
    parts = [_within(nodes, at_home, 0, chunk)]
    for i in range(count):
        away = np.flatnonzero(home != i)
        parts.append(transfers(at_home[away], gateway[i][away], 0, chunk[away]))
        parts.append(_within(nodes, gateway[i][away], 1, chunk[away]))
    down = np.concatenate(parts, axis=1)
    return len(chunk), followed(backward(down, Op.RRC), down)


def _broadcast(nodes: _Nodes, root: int) -> tuple[int, I8]:
    """Returns transfers by which chunks leave the root's node once, to homes among the other nodes
    that pass them on."""
    count, here = len(nodes.size), int(nodes.node[root])
    others = np.setdiff1d(np.arange(count), here)
    chunk, home, gateway = _whole(nodes, _homes(nodes.rate, others, 0.0))
    owner, at_home = gateway[here], np.stack(gateway)[home, chunk]
    handed = transfers(root, owner, 0, chunk)
    spread = _within(nodes, owner, 1, chunk)
    parts = [handed[:, owner != root], spread[:, spread[1] != root]]
    if len(others):
        parts.append(transfers(owner, at_home, 1, chunk))
        parts.append(_within(nodes, at_home, 2, chunk))
    for i in others.tolist():
        away = np.flatnonzero(home != i)
        parts.append(transfers(at_home[away], gateway[i][away], 2, chunk[away]))
        parts.append(_within(nodes, gateway[i][away], 3, chunk[away]))
    return len(chunk), np.concatenate(parts, axis=1)


def _homes(rate: F8, allowed: I8, own: float) -> I8:
    """Returns how many chunks of some number have each node as their home: i8[N].

    A node sends `own` bytes for each byte that is not at home there, and N − 2 more for each that
    is, over `rate`; of up to twice as many chunks as nodes the number that keeps the busiest node
    least busy, the smallest of equals.
    """
    count = len(rate)
    if not len(allowed):
        return np.ones(1, np.int64)
    best, least = np.zeros(count, np.int64), np.inf
    for total in range(len(allowed), 2 * len(allowed) + 1):
        homes = np.zeros(count, np.int64)
        if count == 2:
            homes[allowed] = 1
            return homes
        for _ in range(total):
            after = (own + (homes[allowed] + 1) * (count - 2) / total) / rate[allowed]
            homes[allowed[np.argmin(after)]] += 1
        busiest = ((own + homes * (count - 2) / total) / rate).max()
        if busiest < least * (1 - 1e-9):
            best, least = homes, busiest
    return best


def _allgather(nodes: _Nodes, _: int) -> tuple[int, I8]:
    """Returns transfers by which a rank's chunks spread over the gateways of every other node;
    chunks are split where that evens out."""
    sizes = [len(g) for g in nodes.gateways]
    split = lcm(*(b // np.gcd(int(a), b) for a in nodes.size for b in sizes))
    split = split if split <= SPLIT else 1
    chunk = np.arange(split * len(nodes.node))
    rank = chunk // split
    part = nodes.local[rank] * split + chunk % split
    parts = [_within(nodes, rank, 0, chunk)]
    for i in range(len(sizes)):
        for j in np.flatnonzero(np.arange(len(sizes)) != i).tolist():
            own = np.flatnonzero(nodes.node[rank] == j)
            to = nodes.gateway(i, part[own], int(nodes.size[j]) * split)
            parts.append(transfers(rank[own], to, 0, chunk[own]))
            parts.append(_within(nodes, to, 1, chunk[own]))
    return split, np.concatenate(parts, axis=1)


def _alltoall(nodes: _Nodes, _: int) -> tuple[int, I8]:
    """Returns transfers from each rank to a gateway of its node, and from there to the destination;
    gateways share the chunks from one node to another, those of one destination together.

    Every rank hands over first what goes to the next node: else all gateways had chunks for the
    first node alone, and other nodes' NICs waited.
    """
    n = len(nodes.node)
    src, dst = (x.ravel() for x in np.meshgrid(np.arange(n), np.arange(n), indexing="ij"))
    src, dst = src[src != dst], dst[src != dst]
    i, j = nodes.node[src], nodes.node[dst]
    part = nodes.local[dst] * nodes.size[i] + nodes.local[src]
    via = src.copy()
    for node in range(len(nodes.size)):
        leaves = np.flatnonzero((i == node) & (j != node))
        parts = nodes.size[node] * nodes.size[j[leaves]]
        ranks = nodes.gateways[node]
        via[leaves] = ranks[part[leaves] * len(ranks) // parts]
    place = (nodes.local[via] - nodes.local[src]) % nodes.size[i]
    apart = (j - i) % len(nodes.size)
    order = np.lexsort((dst, place, src, apart))
    src, dst, via = src[order], dst[order], via[order]
    chunk, away = src * n + dst, apart[order] > 0
    handed = away & (via != src)
    near = _within(nodes, np.arange(n), 0, np.arange(n))
    near[3] = near[0] * n + near[1]
    return 1, np.concatenate(
        [
            transfers(src[handed], via[handed], 0, chunk[handed]),
            near,
            transfers(via[away], dst[away], 1, chunk[away]),
        ],
        axis=1,
    )


def _scatter(nodes: _Nodes, root: int) -> tuple[int, I8]:
    """Returns transfers over the gateways of the root's node to the ranks of others."""
    here = nodes.node[root]
    rank = np.setdiff1d(np.arange(len(nodes.node)), root)
    near, far = rank[nodes.node[rank] == here], rank[nodes.node[rank] != here]
    ranks = nodes.gateways[int(here)]
    via = ranks[nodes.local[far] * len(ranks) // nodes.size[nodes.node[far]]]
    handed = via != root
    return 1, np.concatenate(
        [
            transfers(root, via[handed], 0, far[handed]),
            transfers(via, far, 1, far),
            transfers(root, near, 0, near),
        ],
        axis=1,
    )


_Make = Callable[[_Nodes, int], tuple[int, I8]]


def _reverse(make: _Make, op: Op) -> _Make:
    def reversed_(nodes: _Nodes, root: int) -> tuple[int, I8]:
        chunks, table = make(nodes, root)
        return chunks, backward(table, op)

    return reversed_


_MAKE: dict[OpType, _Make] = {
    OpType.ALLREDUCE: _allreduce,
    OpType.ALLGATHER: _allgather,
    OpType.REDUCESCATTER: _reverse(_allgather, Op.RRC),
    OpType.BROADCAST: _broadcast,
    OpType.REDUCE: _reverse(_broadcast, Op.RRC),
    OpType.ALLTOALL: _alltoall,
    OpType.SCATTER: _scatter,
    OpType.GATHER: _reverse(_scatter, Op.RECV),
}
OPS = tuple(_MAKE)
