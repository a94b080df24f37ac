"""recursive: recursive halving and doubling, for any number of ranks.

Ranks at distance 1, 2, 4, … exchange all that they have (doubling); the other way round they halve
what is left to reduce. Of n ranks the largest power of two, p, takes part. Of the first 2 (n − p)
ranks every odd one leaves its work to the rank before it: it hands that its input and gets the
result (the published way to deal with other numbers of ranks).

For N bytes (the larger buffer), n = p:

| collective    | steps     | bytes each rank sends |
|---------------|-----------|-----------------------|
| Allgather     | log2 n    | (n − 1)/n · N         |
| Reducescatter | log2 n    | (n − 1)/n · N         |
| Allreduce     | 2 log2 n  | 2 (n − 1)/n · N       |

Others take 2 steps more, Allreduce 3: there, the two of a pair first reduce one half of the buffer
each, then the odd one hands over its half.

Source: Thakur, Rabenseifner, Gropp (2005), §4.1, §4.3, §4.5 (Rabenseifner's algorithm).
"""

from __future__ import annotations

import numpy as np

from hccc.ir.arrays import I8, places
from hccc.ir.collective import Collective, OpType
from hccc.ir.program import Op, Program
from hccc.ir.topology import Topology
from hccc.synth.common.transfer_table import backward, followed, joined, transfers

OPS = (OpType.ALLREDUCE, OpType.ALLGATHER, OpType.REDUCESCATTER)
NAME = "RecursiveHalvingDoubling"


def recursive(t: Topology, op: OpType, root: int = 0) -> Program:
    """Returns the Program of `op`, one of OPS. O(transfers).

    Raises:
        UserError: E451 two ranks that must exchange have no route.
    """
    n = len(t)
    p = 1 << (n.bit_length() - 1)
    if op is OpType.ALLREDUCE:
        return joined(NAME, Collective(op, n, p), t, _allreduce(n, p))
    gather = _allgather(n, p)
    table = gather if op is OpType.ALLGATHER else backward(gather, Op.RRC)
    return joined(NAME, Collective(op, n, n), t, table)


def _ranks(n: int, p: int) -> I8:
    """Returns the ranks that take part: i8[p]."""
    place = np.arange(p)
    return place + np.minimum(place, n - p)


def _doubling(rank: I8, first: I8) -> I8:
    """Returns transfers after which all p ranks have all chunks; place i begins with chunks
    first[i] to first[i + 1]."""
    p = len(rank)
    rounds: list[I8] = [np.zeros((5, 0), np.int64)]
    for step in range(p.bit_length() - 1):
        place, width = np.arange(p), 1 << step
        begin = place // width * width
        count = first[begin + width] - first[begin]
        src, dst = (np.repeat(r, count) for r in (rank, rank[place ^ width]))
        chunk = np.repeat(first[begin], count) + places(count)
        rounds.append(transfers(src, dst, step, chunk))
    return np.concatenate(rounds, axis=1)


def _allgather(n: int, p: int) -> I8:
    rank = _ranks(n, p)
    first = np.append(rank, n)
    odd = 2 * np.arange(n - p) + 1
    handed = transfers(odd, odd - 1, 0, odd)
    every = np.arange(n)
    back = transfers(odd[:, None] - 1, odd[:, None], 0, every)
    back = back[:, back[1] != back[3]]
    doubled = _doubling(rank, first)
    return followed(followed(handed, doubled), back) if n > p else doubled


def _allreduce(n: int, p: int) -> I8:
    """Returns transfers of p chunks; the i-th rank that takes part reduces chunk i."""
    doubled = _doubling(_ranks(n, p), np.arange(p + 1))
    halved = backward(doubled, Op.RRC)
    if n == p:
        return followed(halved, doubled)
    even = 2 * np.arange(n - p)[:, None]
    low, high = np.arange(p // 2), np.arange(p // 2, p)
    shared = np.concatenate(
        [transfers(even, even + 1, 0, high), transfers(even + 1, even, 0, low)], axis=1
    )
    shared[4] = int(Op.RRC)
    handed = transfers(even + 1, even, 0, high)
    back = transfers(even, even + 1, 0, np.arange(p))
    table = followed(shared, handed)
    for then in (halved, doubled, back):
        table = followed(table, then)
    return table
