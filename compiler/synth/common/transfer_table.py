"""transfer_table: Programs from arrays of transfers.

Most built-in algorithms are made of one table: whole chunks spread from their owners. Its reverse
reduces or gathers them; the reverse, then the table, is an Allreduce.
"""

from __future__ import annotations

import numpy as np

from hccc.base.diagnostics import fail
from hccc.ir.arrays import I8
from hccc.ir.collective import Collective
from hccc.ir.program import TRANSFER, Op, Program
from hccc.ir.topology import Level, Topology
from hccc.network.routes import unreachable

WARPS = 16
MOST_TRANSFERS = 1 << 25  # as many as a program's text may make
COLUMNS = ("src", "dst", "step", "chunk", "op")
_STEP = COLUMNS.index("step")


def transfers(src: I8 | int, dst: I8 | int, step: I8 | int, chunk: I8 | int) -> I8:
    """Returns the columns of copies, of any shapes that broadcast: i8[5, transfers]."""
    columns = np.broadcast_arrays(src, dst, step, chunk, int(Op.RECV))
    return np.stack([column.ravel() for column in columns]).astype(np.int64)


def backward(table: I8, op: Op) -> I8:
    """Returns every transfer the other way round, the last step first: where `table` spreads a
    chunk this reduces it (RRC), where it scatters chunks this gathers them (RECV)."""
    src, dst, step, chunk, _ = table
    last = step.max(initial=0)
    return np.stack([dst, src, last - step, chunk, np.full_like(src, int(op))])


def followed(first: I8, second: I8) -> I8:
    """Returns both tables, one after the other."""
    later = second.copy()
    later[_STEP] += first[_STEP].max(initial=-1) + 1
    return np.concatenate([first, later], axis=1)


def joined(name: str, c: Collective, t: Topology, table: I8, channels: int = 1) -> Program:
    """Returns the Program of `table`, if the cluster has the routes.

    Raises:
        UserError: E451 it has not; E452 there are more transfers than a program may have.
    """
    pairs = np.unique(table[0] * len(t) + table[1])
    src, dst = (pairs // len(t)).astype(np.int32), (pairs % len(t)).astype(np.int32)
    if len(bad := unreachable(t, src, dst)):
        u, v = t.describe(int(src[bad[0]])), t.describe(int(dst[bad[0]]))
        raise fail(
            "E451",
            f"{name} over this cluster needs a route from {u} to {v}",
            help="another built-in may do without: see `hccc builtin list`",
        )
    return program(name, c, t, channels, dict(zip(COLUMNS, table, strict=True)))


def check_size(name: str, n_ranks: int, size: int) -> None:
    """Raises UserError E452 where `size` transfers are more than a program may have."""
    if size > MOST_TRANSFERS:
        message = f"{name} over {n_ranks} ranks needs {size:,} transfers"
        raise fail("E452", message, help=f"at most {MOST_TRANSFERS:,} are possible")


def program(
    name: str, c: Collective, t: Topology, channels: int, columns: dict[str, I8 | int]
) -> Program:
    """Returns the Program of these transfers (src, dst, step, chunk, op; any shapes that
    broadcast).

    Its header says what it can of `t`: nodes of unequal size count as one.

    Raises:
        UserError: E452 there are more transfers than a program may have.
    """
    shaped = np.broadcast_arrays(*columns.values())
    size = shaped[0].size
    check_size(name, c.n_ranks, size)
    rows = np.zeros(size, TRANSFER)
    for key, values in zip(columns, shaped, strict=True):
        rows[key] = values.ravel()
    rows = rows[np.argsort(rows["step"], kind="stable")]
    gpus, nics = _shape(t)
    return Program(name, c, channels, WARPS, gpus, nics, rows)


def _shape(t: Topology) -> tuple[int, int]:
    """Returns the GPUs and the NICs of a node; of all where nodes differ in size."""
    size = np.diff(t.first_rank)
    size = size[size > 0]
    if (size != size[0]).any():
        return len(t), len(t)
    nic = t.port[Level.NIC]
    pairs = np.unique(np.stack([t.node, nic])[:, nic >= 0], axis=1)
    return int(size[0]), int(np.bincount(pairs[0]).max(initial=1))
