"""binomial: the rooted collectives over a binomial tree.

Numbered from the root on, rank v has the children v + 2^k for all 2^k below v's lowest set bit, the
farthest served first; a subtree is a run of ranks, so that ranks numbered node by node cross nodes
early and seldom. ⌈log2 n⌉ steps. Broadcast and Reduce of N bytes send (n − 1) N; Gather and Scatter
send every block over each edge above it, N/2 · log2 n for a power of two.

Source: Thakur, Rabenseifner, Gropp (2005), §4.2 (Broadcast), §4.5 (Reduce); MPICH's gather and
scatter.
"""

from __future__ import annotations

import numpy as np

from hccc.ir.arrays import I8, places
from hccc.ir.collective import Collective, OpType, block_count
from hccc.ir.program import Op, Program
from hccc.ir.topology import Topology
from hccc.synth.common.transfer_table import backward, joined, transfers

OPS = (OpType.BROADCAST, OpType.REDUCE, OpType.GATHER, OpType.SCATTER)


def binomial(t: Topology, op: OpType, root: int = 0) -> Program:
    """Returns the Program of `op`, one of OPS, over a binomial tree of all ranks. O(transfers).

    Raises:
        UserError: E451 the tree needs a route that the cluster does not have.
    """
    n = len(t)
    parent, step = _tree(n)
    child = parent + (1 << (_height(n) - 1 - step))
    whole = op in (OpType.BROADCAST, OpType.REDUCE)
    below = np.minimum(n, 2 * child - parent) - child  # ranks of the child's subtree
    count = np.ones_like(child) if whole else below
    block = np.repeat(child, count) + places(count)
    chunk = np.zeros_like(block) if whole else (root + block) % n
    src, dst = (np.repeat((root + v) % n, count) for v in (parent, child))
    table = transfers(src, dst, np.repeat(step, count), chunk)
    if op in (OpType.REDUCE, OpType.GATHER):
        table = backward(table, Op.RRC if op is OpType.REDUCE else Op.RECV)
    return joined("Binomial", Collective(op, n, block_count(op, n), root), t, table)


def _height(n: int) -> int:
    return (n - 1).bit_length()


def _tree(n: int) -> tuple[I8, I8]:
    """Returns for each edge the parent, numbered from the root on, and the step that serves the
    child."""
    edges = [
        (parent, step)
        for step in range(_height(n))
        for parent in range(0, n - (1 << (_height(n) - 1 - step)), 1 << (_height(n) - step))
    ]
    parent, step = np.array(edges, np.int64).reshape(-1, 2).T
    return parent, step
