"""levels: an Allreduce in two levels, within nodes and over trees between them, for any number of
nodes.

A node's GPUs with NICs are its *gateways*, and divide the buffer; in a node with fewer of them than
others some have several parts. Each gateway reduces its part over the node, straight from every
GPU. The gateways of one part, one of each node and on rails of one rail, reduce and spread it over
a double binary tree (`tree`), a half over each of both trees. Each sends the result to its node.

For n GPUs in N nodes with up to G gateways each, and B bytes: 4 + 2 ⌈log2 N⌉ steps at most, none of
which waits for a chain through a node as `tree` does; 2 B / G bytes over a NIC each way where all
nodes have G, of which 2 (N − 1) / N · B / G must cross it; and 4 G (n − 1) transfers: twice as many
nodes need twice as many, while `hierarchical` and `compose`, whose chunks have a home node each,
need four times as many.

Source: BlueConnect (Cho et al. 2019) for the levels; Sanders, Speck, Träff (2009) for the trees.
"""

from __future__ import annotations

import numpy as np

from hccc.ir.arrays import I8, starts
from hccc.ir.collective import Collective, OpType
from hccc.ir.program import Op, Program
from hccc.ir.topology import Level, Topology
from hccc.synth.builtin.tree import double, tree_levels
from hccc.synth.common.transfer_table import backward, check_size, followed, joined, transfers

NAME = "Levels"
CHANNELS = 8  # of nodes with a NIC for each GPU, in four thread blocks each


def levels(t: Topology) -> Program:
    """Returns the Allreduce in levels on `t`. O(transfers).

    Raises:
        UserError: E451 a route is missing; E452 there are more transfers than a program may have.
    """
    node = np.unique(t.node, return_inverse=True)[1]
    gateway = _gateways(t, node)
    nodes, parts = gateway.shape
    check_size(NAME, len(t), 4 * parts * (len(t) - 1))
    parent = np.stack(double(nodes)) if nodes > 1 else np.full((1, 1), -1)
    depth = tree_levels(parent)[0]
    every = [_spread(k, gateway, node, parent[k], depth[k]) for k in range(len(parent))]
    spread = np.concatenate(every, axis=1)
    c = Collective(OpType.ALLREDUCE, len(t), len(parent) * parts)
    table = followed(backward(spread, Op.RRC), spread)
    return joined(NAME, c, t, table, CHANNELS if nodes > 1 else 1)


def _gateways(t: Topology, node: I8) -> I8:
    """Returns the gateway of each node for each part, as many parts as the most gateways of a node:
    i8[nodes, parts]. node: i8[n], from 0."""
    with_nic = t.port[Level.NIC] >= 0
    able = np.flatnonzero(with_nic | ~np.isin(node, node[with_nic]))  # all, of a node without any
    count = np.bincount(node[able])
    parts = int(count.max())
    place = np.arange(parts) * count[:, None] // parts
    gateway: I8 = able[starts(count)[:-1, None] + place]
    return gateway


def _spread(tree: int, gateway: I8, node: I8, parent: I8, depth: I8) -> I8:
    """Returns transfers that spread a chunk of each part from the root of one tree to all ranks.
    parent, depth: i8[nodes]."""
    parts = gateway.shape[1]
    chunk = tree * parts + np.arange(parts)
    child = np.flatnonzero(parent >= 0)
    down = transfers(gateway[parent[child]], gateway[child], depth[child, None] - 1, chunk)
    rank = np.arange(len(node))
    size = np.bincount(node)[node][:, None]
    src = gateway[node]
    apart = (rank[:, None] - src) % size
    within = transfers(src, rank[:, None], depth[node][:, None], chunk)
    order = np.argsort(apart.ravel(), kind="stable")  # every gateway sends to the next one first
    order = order[apart.ravel()[order] > 0]
    return np.concatenate([down, within[:, order]], axis=1)
