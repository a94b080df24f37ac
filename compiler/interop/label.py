"""label: fills in the fields that MSCCL XML does not give: each primitive's chunk, and the
reductions that complete a value. A symbolic run that tolerates errors finds both; `result` then
proves them.

A primitive that combines several chunks, or reads memory that holds nothing, gets the shortest
chunk: `result` will refuse it, but until then it stays inside its buffers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hccc.analysis.contributions import Words, full_set
from hccc.analysis.execution_order import execution_order
from hccc.analysis.locations import Locations, locate
from hccc.analysis.waits import enforced
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I4, U1
from hccc.ir.plan import Plan
from hccc.proofs.result import begin


def label(plan: Plan) -> Plan:
    """Returns `plan` with `chunk` and `final`. O(operands · R/64) time, O(locations · R/8)
    bytes."""
    order = execution_order(plan, enforced(plan))
    where = locate(plan, in_place=plan.in_place)
    reduces = plan.collective.reduces
    full = full_set(plan.n_ranks) if reduces else np.ones(1, np.uint64)
    c = plan.collective
    chunk, final = _run(order, where, full, reduces, c.n_chunks, c.chunks_per_block)
    return replace(plan, chunk=chunk, final=final if reduces else plan.final)


@njit
def _run(
    order: I4, where: Locations, full: Words, reduces: bool, n_chunks: int, per: int
) -> tuple[I4, U1]:
    """Returns the chunk of each primitive, and whether it completes a value; `per`: chunks per
    block."""
    src_ptr, src, dst_ptr, dst = where.src_ptr, where.src, where.dst_ptr, where.dst
    n = len(src_ptr) - 1
    chunk, final = np.full(n, n_chunks - 1, np.int32), np.zeros(n, np.uint8)
    held = where.start.copy()
    state = np.empty((len(held), len(full)), np.uint64)
    for x in range(len(held)):
        begin(state[x], where, x, 0, reduces)
    value = np.zeros(len(full), np.uint64)
    for i in order:
        value[:] = 0
        name = -1
        for k in range(src_ptr[i], src_ptr[i + 1]):
            value |= state[src[k]]
            other = held[src[k]]
            if other >= 0 and (name < 0 or other % per > name % per):
                name = other
        if name >= 0:
            chunk[i] = name
        final[i] = src_ptr[i + 1] - src_ptr[i] > 1 and np.all(value == full)
        for k in range(dst_ptr[i], dst_ptr[i + 1]):
            state[dst[k]] = value
            held[dst[k]] = name
    return chunk, final
