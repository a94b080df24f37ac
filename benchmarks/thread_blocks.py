"""Thread blocks per rank (and channel) of the expert algorithms on Topo1-4 (ResCCL Table 3).

    python -m benchmarks.thread_blocks

State-based allocation beside stage-based and connection-based, unfused as ResCCL and MSCCL run
them (staged send / recv), one-sided unfused, and as hccc compiles them by default. ResCCL needs
8 / 16 / 8 / 16; MSCCL, with a block for each connection of each stage, 14 / 30 / 14 / 30.
"""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console
from rich.table import Table

from benchmarks.programs import hierarchical_mesh
from hccc.base.diagnostics import Source
from hccc.driver.compilation import compile_text
from hccc.driver.options import Options
from hccc.ir.primitives import Transport

TOPOLOGIES = {"Topo1": (2, 4), "Topo2": (2, 8), "Topo3": (4, 4), "Topo4": (4, 8)}
PUBLISHED = {"Topo1": 8, "Topo2": 16, "Topo3": 8, "Topo4": 16}
MSCCL = {"Topo1": 14, "Topo2": 30, "Topo3": 14, "Topo4": 30}
ALLOCATORS = ("state", "stage", "connection")
MODES = {
    "staged": Options(transport=Transport.STAGED),
    "one-sided": Options(fuse="none"),
    "default": Options(),
}


def blocks(op: str, topology: str, allocator: str, mode: str) -> int:
    """Returns the most thread blocks of any rank, per channel."""
    text = hierarchical_mesh(op, *TOPOLOGIES[topology], channels=1)
    options = replace(MODES[mode], allocator=allocator)
    return int(compile_text(Source("benchmark.rccl", text), options).plan.n_tb.max())


def main() -> None:
    """Prints the table."""
    table = Table(title=f"Thread blocks per rank: {' / '.join(ALLOCATORS)}")
    for name in ("algorithm", "topology", "MSCCL", "ResCCL", *MODES):
        table.add_column(name, justify="right")
    for op in ("allreduce", "allgather"):
        for topology in TOPOLOGIES:
            cells = [" / ".join(str(blocks(op, topology, a, m)) for a in ALLOCATORS) for m in MODES]
            table.add_row(
                f"HM {op}", topology, str(MSCCL[topology]), str(PUBLISHED[topology]), *cells
            )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
