"""direct: every chunk in one transfer from where it starts to where it must end.

For n ranks and N bytes (the larger buffer of a rank):

| collective    | steps | bytes on the wire, in all |
|---------------|-------|---------------------------|
| Allgather     | 1     | (n − 1) N                 |
| Reducescatter | 1     | (n − 1) N                 |
| Allreduce     | 2     | 2 (n − 1) N               |
| Alltoall      | n − 1 | (n − 1) N                 |
| Broadcast     | 1     | (n − 1) N                 |
| Reduce        | 1     | (n − 1) N                 |
| Gather        | 1     | (n − 1)/n · N             |
| Scatter       | 1     | (n − 1)/n · N             |
| SendRecv      | 1     | n N                       |

Allreduce is the two-shot one: every rank reduces one chunk, then sends it to all. In step s of
Alltoall every rank sends to the one s + 1 places on, so that no rank gets two messages at a time.

A one-shot Allreduce, in which every rank reads the pieces of all and reduces them itself, is no
Program: a rank has one value of a chunk, and it would reduce into the value that the others have
still to read (E204); a step later that would be added twice (E203).

Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH"
(2005), §4; MSCCL++ `allreduce` kernels (two-shot, "allpairs").
"""

from __future__ import annotations

import numpy as np

from hccc.ir.arrays import I8
from hccc.ir.collective import Collective, OpType, block_count
from hccc.ir.program import Op, Program
from hccc.ir.topology import Topology
from hccc.synth.common.transfer_table import backward, followed, joined, transfers


def direct(t: Topology, op: OpType, root: int = 0) -> Program:
    """Returns the Program of `op` in as few steps as there can be. O(transfers).

    Raises:
        UserError: E451 two ranks have no route; E452 it is too large.
    """
    n = len(t)
    chunks = n if op is OpType.ALLREDUCE else block_count(op, n)
    return joined("Direct", Collective(op, n, chunks, root), t, _table(n, op, root))


def two_shot(t: Topology, op: OpType = OpType.ALLREDUCE, root: int = 0) -> Program:
    """Returns the direct Allreduce."""
    return direct(t, op, root)


def _table(n: int, op: OpType, root: int) -> I8:
    rank = np.arange(n)
    others = (root + 1 + np.arange(n - 1)) % n
    match op:
        case OpType.ALLTOALL:
            away = np.arange(1, n)[:, None]
            peer = (rank + away) % n
            return transfers(rank, peer, away - 1, rank * n + peer)
        case OpType.SENDRECV:
            return transfers(rank, (rank + 1) % n, 0, rank)
        case OpType.BROADCAST | OpType.REDUCE:
            spread = transfers(root, others, 0, 0)
        case OpType.SCATTER | OpType.GATHER:
            spread = transfers(root, others, 0, others)
        case _:
            peer = (rank[:, None] + np.arange(1, n)) % n
            spread = transfers(rank[:, None], peer, 0, rank[:, None])
    if op is OpType.GATHER:
        return backward(spread, Op.RECV)
    if op is OpType.ALLREDUCE:
        return followed(backward(spread, Op.RRC), spread)
    return backward(spread, Op.RRC) if op in (OpType.REDUCE, OpType.REDUCESCATTER) else spread
