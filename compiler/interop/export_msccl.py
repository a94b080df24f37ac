"""export_msccl: a Plan as MSCCL XML that its runtimes execute without a hang."""

from __future__ import annotations

from dataclasses import dataclass

from hccc.diagnostics import Source
from hccc.emit.msccl.xml import dumps
from hccc.interop.msccl_plan import to_plan
from hccc.interruptible import interruptible
from hccc.ir.plan import Plan
from hccc.lang.msccl.load import parse
from hccc.proofs.fifo import fifo


@dataclass(frozen=True, slots=True)
class XmlOptions:
    """How to write MSCCL XML. `in_place`: which calls it serves, None for both."""

    dialect: str = "executor"
    protocol: str = "Simple"
    in_place: bool | None = True
    max_bytes: int | None = None


@interruptible
def export_msccl(plan: Plan, options: XmlOptions) -> str:
    """`plan` as MSCCL XML whose size window is what the runtime's FIFOs carry.

    What is written is read back and run through `fifo`: the window belongs to the steps that the
    runtime will execute, not to the plan they were made from.
    """
    draft = _xml(plan, options, None)
    algo = parse(Source(f"{plan.name}.xml", draft))
    carried = fifo(to_plan(algo), algo.protocol, algo.chunks_per_loop)
    return draft if carried.largest is None else _xml(plan, options, carried.largest)


def _xml(plan: Plan, options: XmlOptions, largest: int | None) -> str:
    return dumps(
        plan,
        options.dialect,
        options.in_place,
        protocol=options.protocol,
        largest=largest,
        max_bytes=options.max_bytes,
    )
