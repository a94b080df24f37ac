"""prove: all proofs over a Plan, in an order in which each may rely on the ones before."""

from __future__ import annotations

from hccc.base.interruptible import interruptible
from hccc.ir import plan_check
from hccc.ir.choices import PlanProtocol
from hccc.ir.plan import Plan
from hccc.proofs.deadlock import deadlock
from hccc.proofs.proof import Proof
from hccc.proofs.race import race
from hccc.proofs.result import result
from hccc.proofs.reuse import reuse


@interruptible
def check_plan(plan: Plan) -> tuple[Proof, ...]:
    """Checks and proves a Plan of any origin.

    Raises:
        UserError: E31x it is not well formed (`plan_check`), E30x the first proof that fails.
    """
    plan_check.check(plan)
    return prove(plan)


def prove(plan: Plan) -> tuple[Proof, ...]:
    """Proves a well-formed Plan; the proofs index memory with its numbers unchecked."""
    hangs = deadlock(plan)
    again = (reuse(plan),) if plan.protocol is PlanProtocol.LL else ()
    return (hangs, *again, race(plan), result(plan))
