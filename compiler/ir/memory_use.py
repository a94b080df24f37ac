"""memory_use: the memory that a call touches, which decides how much of it a cache can hold."""

from __future__ import annotations

import numpy as np

from hccc.ir.arrays import I8
from hccc.ir.plan import Plan


def bytes_touched(plan: Plan, block: int, *, in_place: bool) -> I8:
    """Returns the bytes of each rank's buffers and scratch memory in a call with blocks of `block`
    bytes: i8[n]."""
    c, ranks = plan.collective, range(plan.n_ranks)
    send = np.array([c.input_blocks(r) for r in ranks], np.int64)
    receive = np.array([c.output_blocks(r) for r in ranks], np.int64)
    user = np.maximum(send, receive) if in_place else send + receive
    slots = plan.scratch_slots + (plan.stage_slots if in_place else 0)
    touched: I8 = user * block + slots.astype(np.int64) * block // c.chunks_per_block
    return touched
