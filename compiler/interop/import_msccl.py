"""import_msccl: MSCCL XML to a Plan, and the message sizes that its runtimes' FIFOs carry."""

from __future__ import annotations

from hccc.base.diagnostics import Source
from hccc.base.interruptible import interruptible
from hccc.interop.assign_domains import assign_domains
from hccc.interop.label import label
from hccc.interop.msccl_plan import to_plan
from hccc.interop.relocate import relocate
from hccc.ir.plan import Plan
from hccc.ir.topology import Topology
from hccc.lang.msccl.load import Algo, parse
from hccc.proofs.fifo import fifo, with_enough_slots
from hccc.proofs.proof import Proof
from hccc.proofs.prove import prove


@interruptible
def import_msccl(source: Source, topology: Topology | None = None) -> tuple[Plan, Proof]:
    """Reads MSCCL XML as a Plan; also returns a proof of the largest message its runtimes' FIFOs
    carry.

    The Plan gets the queue slots it needs to run here; MSCCL's own runtimes have a fixed number,
    which is why a schedule can be right and still hang there for long messages. topology: the
    cluster it runs on, None for one memory domain.

    Raises:
        UserError E5xx: the XML is wrong; E130: the cluster has another number of GPUs than the plan
        has ranks.
    """
    return import_parsed(parse(source), topology)


def import_parsed(algo: Algo, topology: Topology | None = None) -> tuple[Plan, Proof]:
    """Builds the Plan of parsed MSCCL XML; otherwise like `import_msccl`."""
    plan = label(to_plan(algo))
    carried = fifo(plan, algo.protocol, algo.chunks_per_loop)
    plan = _relocated(with_enough_slots(plan))
    if topology is not None:
        plan = assign_domains(plan, topology)
    limit = {
        "protocol": algo.protocol,
        "largest message": "none" if carried.hangs else carried.largest or "any",
        "slots needed": plan.queue_slots,
    }
    claim = f"MSCCL's FIFOs ({algo.protocol}) carry messages of every size"
    if carried.largest is not None:
        claim = f"MSCCL's FIFOs ({algo.protocol}) carry up to {carried.largest:,} bytes, then hang"
    return plan, Proof("fifo", claim, limit)


def _relocated(plan: Plan) -> Plan:
    """Returns `plan` with every value in a slot that is long enough.

    A moved value can neither race nor stay where another belongs. So if any is moved, the schedule
    is proved as it was written, too.
    """
    moved = relocate(plan)
    if moved is not plan:
        prove(plan)
    return moved
