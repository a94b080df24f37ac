"""integer_programs: values of 0 and 1 of least cost, by HiGHS through SciPy."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from hccc.ir.arrays import I8
from hccc.ir.topology import F8

GAP = 0.05  # part of the cost by which an answer may miss the optimum


@contextmanager
def no_output() -> Iterator[None]:
    """Drops standard output meanwhile: HiGHS prints a line of its own now and then, in spite of its
    options, which must not get into a program written there."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def integers(cost: F8, entries: tuple[I8, I8, F8], low: F8, high: F8, *, nodes: int) -> I8 | None:
    """Returns values, 0 or 1, of least cost within some nodes of the search; None where it finds
    none. entries: row, column and value of the constraints' coefficients; low, high: f8[rows]."""
    from scipy.optimize import (  # type: ignore[import-untyped]
        Bounds,
        LinearConstraint,
        milp,
    )
    from scipy.sparse import csr_array  # type: ignore[import-untyped]

    rows, columns, values = entries
    matrix = csr_array((values, (rows, columns)), shape=(len(low), len(cost)))
    found = milp(
        cost,
        integrality=np.ones(len(cost)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, low, high),
        options={"node_limit": nodes, "mip_rel_gap": GAP},
    )
    return None if found.x is None else np.rint(found.x).astype(np.int64)
