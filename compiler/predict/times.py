"""times: the predicted times of a plan and of NCCL or RCCL, as a table that programs of NCCL load.

    hccc times 1
    collective Allreduce 8 -1      # ranks, and the root of a rooted one
    library nccl
    rows 2
    1024 6.91 10.52                # bytes, and µs: of the plan, of the library
    1048576 24.8 19.3

A row is of calls from its size up to the next one's; sizes are of a rank's largest buffer.
docs/nccl.md §3 says what calls make of it.
"""

from __future__ import annotations

from hccc.base.diagnostics import fail
from hccc.ir.topology import Topology
from hccc.predict.simulation import UNKNOWN, Simulation, beside_of


def dumps(of: Simulation, topology: Topology) -> str:
    """Writes the table of what was simulated on a cluster, beside the library of its devices.

    Raises:
        UserError: E463 for a cluster that the model of the libraries is not for.
    """
    c = of.plan.collective
    sizes = [ours.size for ours in of.results]
    beside = beside_of(of.plan, topology, sizes, of.call.launch)
    rows = [(ours, theirs) for ours, theirs in zip(of.results, beside.rows, strict=False) if theirs]
    if not rows:
        raise fail("E463", next(iter(beside.missing.values()), UNKNOWN))
    lines = [
        "hccc times 1",
        f"collective {c.name} {c.n_ranks} {c.root if c.rooted else -1}",
        f"library {rows[0][1].library}",
        f"rows {len(rows)}",
        *(f"{ours.size} {ours.time:.6g} {theirs.time:.6g}" for ours, theirs in rows),
    ]
    return "\n".join(lines) + "\n"
