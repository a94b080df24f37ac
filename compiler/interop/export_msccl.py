"""export_msccl: writes a Plan as MSCCL XML that MSCCL's runtimes execute without a hang."""

from __future__ import annotations

from dataclasses import dataclass

from hccc.base.diagnostics import Source, fail
from hccc.base.interruptible import interruptible
from hccc.emit.msccl.xml import dumps
from hccc.interop.msccl_plan import to_plan
from hccc.ir.choices import PlanProtocol
from hccc.ir.plan import Plan
from hccc.lang.msccl.load import parse
from hccc.proofs.fifo import fifo


@dataclass(frozen=True, slots=True)
class XmlOptions:
    """How to write MSCCL XML. `in_place`: the kind of calls it serves, None for both; min_bytes,
    max_bytes: the sizes to use it for, None for any."""

    dialect: str = "executor"
    protocol: str = "Simple"
    in_place: bool | None = True
    min_bytes: int = 0
    max_bytes: int | None = None


@interruptible
def export_msccl(plan: Plan, options: XmlOptions) -> str:
    """Writes `plan` as MSCCL XML, with the window of sizes that the runtime's FIFOs carry.

    The text is read back and run through `fifo`, because the window follows from the steps that the
    runtime executes, not from the plan.

    Raises:
        UserError: E323 for packets; also as `dumps`.
    """
    largest = largest_message(plan, options)
    return _xml(plan, options, largest)


@interruptible
def largest_message(plan: Plan, options: XmlOptions) -> int | None:
    """Returns the largest size (bytes) whose messages the runtime's FIFOs hold; None for any."""
    if plan.protocol is PlanProtocol.LL:
        message = f"{plan.name}: packets of hccc's own protocol LL have no steps of MSCCL"
        raise fail(
            "E323", message, help="compile with --protocol simple; --xml-protocol is MSCCL's"
        )
    algo = parse(Source(f"{plan.name}.xml", _xml(plan, options, None)))
    return fifo(to_plan(algo), algo.protocol, algo.chunks_per_loop).largest


def _xml(plan: Plan, options: XmlOptions, largest: int | None) -> str:
    return dumps(
        plan,
        options.dialect,
        options.in_place,
        protocol=options.protocol,
        largest=largest,
        min_bytes=options.min_bytes,
        max_bytes=options.max_bytes,
    )
