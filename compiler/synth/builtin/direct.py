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
from hccc.ir.demand import Demand
from hccc.ir.program import Op, Program
from hccc.ir.topology import F8, Topology
from hccc.network.routes import routes
from hccc.synth.common.demand_table import OP, demand_program, roots
from hccc.synth.common.transfer_table import backward, followed, joined, transfers

MOST_ROOTS = 16  # of a sum
TINY = 1e-9  # GB/s


def direct(t: Topology, op: OpType, root: int = 0) -> Program:
    """Returns the Program of `op` in as few steps as there can be. O(transfers).

    Raises:
        UserError: E451 two ranks have no route; E452 it is too large.
    """
    n = len(t)
    chunks = n if op is OpType.ALLREDUCE else block_count(op, n)
    return joined("Direct", Collective(op, n, chunks, root), t, _table(n, op, root))


def direct_demand(t: Topology, demand: Demand) -> Program:
    """Returns the Program of a demand in which each block comes straight from a rank that has it,
    the nearest and least busy one; a sum's pieces go to one that wants it, then the sum to the
    others. O(transfers · ranks).

    Raises:
        UserError: E451 two ranks have no route; E452 it is too large.
    """
    several = demand.wants[demand.sums].sum(1)
    per = min(MOST_ROOTS, int(several.max(initial=1)))
    root = roots(demand, per)
    sums, copies, load = list[tuple[int, ...]](), list[tuple[int, ...]](), np.zeros(len(t))
    bandwidth = _bandwidth(t)
    for chunk, r in enumerate(root.tolist()):
        has = np.flatnonzero(demand.has[chunk // per])
        wants = np.flatnonzero(demand.wants[chunk // per])
        if r >= 0:
            sums += [(u, r, 0, chunk) for u in has.tolist() if u != r]
            has = np.array([r])
        for v in np.setdiff1d(wants, has).tolist():
            u = int(has[np.argmin((load[has] + 1) / bandwidth[has, v])])
            load[u] += 1
            copies.append((u, v, (v - u) % len(t), chunk))
    tables = [np.array(rows, np.int64).reshape(-1, 4).T for rows in (sums, copies)]
    first, then = (transfers(*table) for table in tables)
    first[OP] = int(Op.RRC)
    return demand_program("Direct", t, demand, per, first, then)


def _bandwidth(t: Topology) -> F8:
    """Returns the GB/s between all ranks, next to nothing where they have no route: f8[n, n]."""
    src, dst = (rank.ravel().astype(np.int32) for rank in np.indices((len(t), len(t))))
    found: F8 = np.maximum(routes(t, src, dst).bandwidth, TINY).reshape(len(t), len(t))
    return found


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
