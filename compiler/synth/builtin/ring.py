"""ring: NCCL's rings as Programs: every circuit of the cluster carries its share.

For n ranks and N bytes (the larger buffer of a rank), over all circuits together:

| collective    | steps    | bytes each rank sends | chunks per circuit |
|---------------|----------|-----------------------|--------------------|
| Allreduce     | 2(n − 1) | 2(n − 1)/n · N        | n                  |
| Allgather     | n − 1    | (n − 1)/n · N         | n                  |
| Reducescatter | n − 1    | (n − 1)/n · N         | n                  |
| Broadcast     | n − 1    | N, but for the last   | 1                  |
| Reduce        | n − 1    | N, but for the root   | 1                  |

Chunk c is on circuit c mod `count`. Source: NCCL `src/device/{all_reduce,all_gather,
reduce_scatter,broadcast,reduce}.h`.
"""

from __future__ import annotations

import numpy as np

from hccc.base.diagnostics import fail
from hccc.ir.arrays import I4, I8
from hccc.ir.collective import Collective, OpType
from hccc.ir.program import Op, Program
from hccc.ir.topology import Topology
from hccc.synth.builtin.circuits import channels_of, circuits
from hccc.synth.common.transfer_table import program

Columns = dict[str, I8 | int]
PER_RANK = (OpType.ALLREDUCE, OpType.ALLGATHER, OpType.REDUCESCATTER)
OPS = (*PER_RANK, OpType.BROADCAST, OpType.REDUCE)


def ring(t: Topology, op: OpType, root: int = 0, channels: int | None = None) -> Program:
    """Returns the ring algorithm for `op` on `t`.

    channels: how many each circuit has; as many as NCCL would take if None.
    O(transfers), plus `circuits`.

    Raises:
        UserError: E451 no ring joins the cluster, or NCCL has none for `op`; E452 it is too large.
    """
    if op not in OPS:
        raise fail("E451", f"there is no ring for {op.value}")
    orders = circuits(t)
    n, count = len(t), len(orders)
    c = Collective(op, n, count * (n if op in PER_RANK else 1), root)
    columns = _chain(orders, c) if op not in PER_RANK else _round(orders, c)
    return program("Ring", c, t, channels or channels_of(t, orders), columns)


def count_of(p: Program) -> int:
    """Returns the number of circuits of a ring Program."""
    c = p.collective
    return c.n_chunks // (c.n_ranks if c.op in PER_RANK else 1)


def _round(orders: I4, c: Collective) -> Columns:
    """Returns transfers by which at every step every rank passes on the chunk of the step before:
    [step, circuit, place]."""
    count, n = orders.shape
    steps = 2 * (n - 1) if c.op is OpType.ALLREDUCE else n - 1
    s = np.arange(steps)[:, None, None]
    place = np.arange(n)[None, None, :]
    reduces = s < (n - 1 if c.reduces else 0)
    # What place p sends at step s set out from place p − s, or, once whole, is whole at p + 1 − s.
    begins = {OpType.REDUCESCATTER: 1, OpType.ALLREDUCE: 0, OpType.ALLGATHER: 0}[c.op]
    owner = (place - begins - s) % n
    circuit = np.arange(count)[None, :, None]
    # Allreduce: the place numbers the chunk. Else its rank does: the block that it is of.
    block = owner if c.op is OpType.ALLREDUCE else orders[circuit, owner]
    op = np.where(reduces, Op.RRC, Op.RECV)
    after = np.roll(orders, -1, axis=1)
    return {
        "src": orders[None],
        "dst": after[None],
        "step": s,
        "chunk": block * count + circuit,
        "op": op,
    }


def _chain(orders: I4, c: Collective) -> Columns:
    """Returns transfers from the root once round, or once round to the root: [hop, circuit]."""
    count, n = orders.shape
    at = np.argmax(orders == c.root, axis=1)
    first = at + 1 if c.reduces else at
    place = (first[None, :] + np.arange(n)[:, None]) % n
    line = orders[np.arange(count)[None, :], place]
    return {
        "src": line[:-1],
        "dst": line[1:],
        "step": np.arange(n - 1)[:, None],
        "chunk": np.arange(count)[None, :],
        "op": int(Op.RRC if c.reduces else Op.RECV),
    }
