"""depth: how many primitives a Plan executes one after the other, at the least.

The longest chain through program order and waits: the steps that a chunk-sized message takes
when every primitive takes one.
"""

from __future__ import annotations

import numpy as np

from hccc.analysis.execution_order import execution_order
from hccc.analysis.waits import enforced
from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I4, I8
from hccc.ir.plan import Plan


def depth(plan: Plan) -> int:
    """The longest chain of `plan`, which must have passed `deadlock`. O(primitives + waits)."""
    waits = enforced(plan)
    first = np.zeros(len(plan) + 1, np.bool_)
    first[plan.tb_ptr] = True
    return _longest(execution_order(plan, waits), first, waits.ptr, waits.index)


@njit
def _longest(order: I4, first: B1, ptr: I8, preds: I4) -> int:
    level = np.zeros(len(order), np.int64)
    longest = 0
    for i in order:
        before = 0 if first[i] else level[i - 1]
        for k in range(ptr[i], ptr[i + 1]):
            before = max(before, level[preds[k]])
        level[i] = before + 1
        longest = max(longest, level[i])
    return longest
