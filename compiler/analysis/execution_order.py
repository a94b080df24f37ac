"""execution_order: the primitives of a Plan in one order in which they can run."""

from __future__ import annotations

from hccc.analysis.clocks import topological
from hccc.ir.arrays import I4, Csr
from hccc.ir.plan import Plan


def execution_order(plan: Plan, waits: Csr) -> I4:
    """Returns the primitives in one order they can run in; shorter than the Plan if they cannot.

    O(primitives + waits). waits: `analysis/waits.enforced(plan)`.
    """
    return topological(plan.tb_ptr, waits)
