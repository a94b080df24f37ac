"""table: what the builtin algorithms have in common: a Program from arrays of transfers."""

from __future__ import annotations

import numpy as np

from hccc.diagnostics import fail
from hccc.ir.arrays import I8
from hccc.ir.collective import Collective
from hccc.ir.program import TRANSFER, Program
from hccc.ir.topology import Level, Topology

WARPS = 16
MOST_TRANSFERS = 1 << 25  # as many as a program's text may make


def program(
    name: str, c: Collective, t: Topology, channels: int, columns: dict[str, I8 | int]
) -> Program:
    """The Program of these transfers (src, dst, step, chunk, op; any shapes that broadcast).

    Its header says what it can of `t`: nodes of unequal size count as one.

    Raises:
        UserError: E452 there are more transfers than a program may have.
    """
    shaped = np.broadcast_arrays(*columns.values())
    size = shaped[0].size
    if size > MOST_TRANSFERS:
        message = f"{name} over {c.n_ranks} ranks needs {size:,} transfers"
        raise fail("E452", message, help=f"at most {MOST_TRANSFERS:,} are possible")
    rows = np.zeros(size, TRANSFER)
    for key, values in zip(columns, shaped, strict=True):
        rows[key] = values.ravel()
    rows = rows[np.argsort(rows["step"], kind="stable")]
    gpus, nics = _shape(t)
    return Program(name, c, channels, WARPS, gpus, nics, rows)


def _shape(t: Topology) -> tuple[int, int]:
    """GPUs and NICs of a node."""
    size = np.diff(t.first_rank)
    size = size[size > 0]
    if (size != size[0]).any():
        return len(t), len(t)
    nic = t.port[Level.NIC]
    pairs = np.unique(np.stack([t.node, nic])[:, nic >= 0], axis=1)
    return int(size[0]), int(np.bincount(pairs[0]).max(initial=1))
