"""tree: NCCL's double binary tree Allreduce as a Program.

The GPUs of a node are a chain that ends at a head beside a NIC; heads form two binary trees over
the nodes, every node but one or two a leaf in one and inside the other. Values are reduced up the
tree and their sum is copied down it. For every circuit of the cluster (`circuits`) there is such a
pair with heads beside other NICs, and each tree carries an equal share of the bytes.

For n ranks in N nodes of g GPUs and B bytes: 2 (g − 1 + ⌈log2 N⌉ or one more) steps, and 2(n − 1) B
bytes on the wire in all, 2(n − 1)/n · B a rank on average.

Source: NCCL `src/graph/{trees,connect}.cc`, `src/device/all_reduce.h`; Sanders, Speck, Träff,
"Two-tree algorithms for full bandwidth broadcast, reduction and scan" (2009).
"""

from __future__ import annotations

import numpy as np

from hccc.base.diagnostics import fail
from hccc.ir.arrays import I4, I8
from hccc.ir.collective import Collective, OpType
from hccc.ir.program import Op, Program
from hccc.ir.topology import Topology
from hccc.network.routes import unreachable
from hccc.synth.builtin.chains import Chains, chains
from hccc.synth.builtin.circuits import CHANNELS_OF_ONE, channels_of, circuits
from hccc.synth.common.transfer_table import program


def tree(t: Topology, channels: int | None = None) -> Program:
    """Returns the double binary tree Allreduce on `t`.

    channels: how many each tree has; as many as NCCL would take if None.
    O(transfers), plus `circuits` and `chains`.

    Raises:
        UserError: E451 a tree needs a route that the cluster does not have.
    """
    orders = circuits(t)
    parents = np.concatenate([_trees(t, c) for c in chains(t, orders)])
    _check(t, parents)
    c = Collective(OpType.ALLREDUCE, len(t), len(parents))
    copies = max(1, -(-channels_of(t, orders) // CHANNELS_OF_ONE))
    return program("Tree", c, t, channels or copies, _columns(parents))


def binary(n: int) -> I8:
    """Returns the parent of every node in one binary tree over n, −1 for node 0: i8[n].

    Node 0 has one child, the largest power of two below n; the others are numbered in order, so
    that odd ones are leaves. A parent beyond n − 1 gives way to the one above it.
    """
    node = np.arange(n)
    low = node & -node
    parent = (node - low) | (low << 1)
    parent = np.where(parent >= n, node - low, parent)
    parent[0] = -1
    return parent


def double(n: int) -> tuple[I8, I8]:
    """Returns two binary trees over n nodes; the second mirrored for even n, shifted by one for
    odd."""
    first = binary(n)
    if n % 2:
        second = np.roll(np.where(first >= 0, (first + 1) % n, -1), 1)
    else:
        second = np.where(first >= 0, n - 1 - first, -1)[::-1]
    return first, second


def _trees(t: Topology, c: Chains) -> I4:
    """Returns the parent of every rank in each tree over one set of chains: i4[2, n], one tree for
    one node."""
    up = np.full(len(t), -1, np.int32)
    for chain in c.chains:
        up[chain[1:]] = chain[:-1]
    if len(c.chains) == 1:
        return up[None]
    heads = np.array([chain[0] for chain in c.chains])
    both = []
    for parent in double(len(heads)):
        tree = up.copy()
        child = np.flatnonzero(parent >= 0)
        left = child < parent[child]
        tree[heads[child]] = np.where(left, c.second[parent[child]], heads[parent[child]])
        both.append(tree)
    return np.stack(both)


def _check(t: Topology, parents: I4) -> None:
    child = np.broadcast_to(np.arange(len(t), dtype=np.int32), parents.shape)[parents >= 0]
    parent = parents[parents >= 0]
    for src, dst in ((child, parent), (parent, child)):
        if len(bad := unreachable(t, src, dst)):
            u, v = t.describe(int(src[bad[0]])), t.describe(int(dst[bad[0]]))
            raise fail("E451", f"a tree over this cluster needs a route from {u} to {v}")


def _columns(parents: I4) -> dict[str, I8 | int]:
    """Returns transfers up the trees, as soon as all children have sent, then down level by
    level."""
    depth, height = tree_levels(parents)
    tree, child = np.nonzero(parents >= 0)
    parent = parents[tree, child]
    top = height.max(axis=1)[tree]
    up, down = height[tree, child], top + depth[tree, child] - 1
    ones = np.ones(len(tree), np.int64)
    return {
        "src": np.concatenate([child, parent]),
        "dst": np.concatenate([parent, child]),
        "step": np.concatenate([up, down]),
        "chunk": np.concatenate([tree, tree]),
        "op": np.concatenate([ones * Op.RRC, ones * Op.RECV]),
    }


def tree_levels(parents: I4) -> tuple[I8, I8]:
    """Returns how far below the root, and above its farthest leaf, each rank is: i8[trees, n]
    each."""
    row = np.arange(len(parents))[:, None]
    depth = np.zeros(parents.shape, np.int64)
    at = parents
    while (at >= 0).any():
        depth += at >= 0
        at = np.where(at >= 0, parents[row, at], -1)
    height = np.zeros(parents.shape, np.int64)
    for level in range(int(depth.max()), 0, -1):
        tree, child = np.nonzero(depth == level)
        np.maximum.at(height, (tree, parents[tree, child]), height[tree, child] + 1)
    return depth, height
