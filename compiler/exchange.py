"""exchange: hccc's plans for other engines, each proved in the form that the engine reads.

An export is read back, and the proofs run on what was read. The largest message comes from that
too: the steps of the file decide what the engine's FIFOs carry, not the plan's primitives.
"""

from __future__ import annotations

from hccc import driver
from hccc.diagnostics import Source, fail
from hccc.emit import msccl_xml as writer
from hccc.ir.plan import Plan
from hccc.lang import msccl_plan
from hccc.lang import msccl_xml as reader
from hccc.passes.fifo import fifo, with_enough_slots
from hccc.passes.label import label


def msccl_xml(
    plan: Plan,
    dialect: str,
    in_place: bool | None,
    *,
    protocol: str = "Simple",
    max_bytes: int | None = None,
    op: str = "sum",
) -> str:
    """`plan` as MSCCL XML whose size window is what the FIFOs carry, proved by reading it back.

    Raises:
        UserError E52x: the format cannot express it (`emit.msccl_xml.dumps`); E30x: the file
        would hang, race or give a wrong result.
    """
    text = writer.dumps(plan, dialect, in_place, protocol=protocol, max_bytes=max_bytes, op=op)
    algo = reader.parse(Source(f"{plan.name}.xml", text))
    again = label(msccl_plan.to_plan(algo))
    found = fifo(again, protocol, algo.chunks_per_loop)
    if found.hangs:
        raise fail("E524", f"with {protocol} FIFOs this plan hangs whatever the message size")
    driver.check_plan(with_enough_slots(again))
    if found.largest is None:
        return text
    return writer.dumps(
        plan, dialect, in_place, protocol=protocol, largest=found.largest,
        max_bytes=max_bytes, op=op,
    )  # fmt: skip
