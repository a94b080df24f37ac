"""HeteCCL's clusters whole, failed and degraded: speed-up over NCCL's rings, and the most there is.

    python -m benchmarks.faults [--cases NAME...] [--collectives allgather reducescatter allreduce]
                                [--size 1G] [--workers 2] [--json]

Each case is synthesised for what it is, compiled and simulated. *Over rings*: the time of NCCL's
rings for that cluster, scheduled as NCCL does, in the same simulator, over ours; *ceiling*: the
same over the bound, which no schedule exceeds. *Over an ideal ring*: the narrowest cut over a ring
that uses all NICs of the narrowest node and costs nothing besides: what the bandwidth of a schedule
alone can win. *Predicted*: NCCL's rings as its model has them (`hccc sim --baseline nccl
--algorithm ring`) over ours; it knows no limits between nodes.

HeteCCL App. E measured up to 3.25 times NCCL with GPUs failed and 2.61 times with the links of a
server at 18 Gbps, without saying on which cluster; whole clusters 1.2 to 2.8 (§6).
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product

from rich.console import Console
from rich.progress import track
from rich.table import Table

import hccc
from benchmarks import rivals
from benchmarks.candidates import compile_candidate
from benchmarks.programs import EXAMPLES
from hccc.base.diagnostics import UserError
from hccc.base.sizes import size_of
from hccc.driver.inputs import load_cluster
from hccc.ir.topology import BYTES_PER_US, Topology
from hccc.network.summary import limits
from hccc.predict.nccl import machine as library
from hccc.predict.nccl.choose import Forced
from hccc.predict.nccl.model import predict
from hccc.predict.nccl.tuning import NcclAlgorithm
from hccc.synth.synthesis import Synthesis

OPS = ("allgather", "reducescatter", "allreduce")
MIXED = "heteccl-h20-4x2+8"
Faults = tuple[str, tuple[str, ...], tuple[str, ...]]
FAULTS: dict[str, Faults] = {
    "one of 4 failed": (f"{MIXED}-fault-4", (), ()),
    "one of 8 failed": (f"{MIXED}-fault-8", (), ()),
    "one of 4, one of 8 failed": (f"{MIXED}-fault-4-8", (), ()),
    "one of each 4 failed": (f"{MIXED}-fault-4-4", (), ()),
    "a server at 18 Gbps": (f"{MIXED}-slow", (), ()),
    "node1-node2 at 18 Gbps": (MIXED, (), ("node1-node2=18Gbps",)),
    "node1-node3 at 18 Gbps": (MIXED, (), ("node1-node3=18Gbps",)),
    "a NIC of 4 failed": (MIXED, ("node1.nic0",), ()),
    "a NIC of 8 failed": (MIXED, ("node3.nic0",), ()),
}


@dataclass(frozen=True, slots=True)
class FaultRow:
    """One case and collective.

    algbw: GB/s; share: of the bound; rings: NCCL's time over ours, ceiling: over the bound,
    predicted: as NCCL's model has it (None: not known); ideal: the bound over an ideal ring;
    seconds: of the synthesis; refused: why there is no program.
    """

    case: str
    collective: str
    ranks: int = 0
    method: str = ""
    algbw: float = 0.0
    share: float = 0.0
    rings: float | None = None
    ceiling: float | None = None
    ideal: float | None = None
    predicted: float | None = None
    seconds: float = 0.0
    refused: str = ""


def cases() -> dict[str, Faults]:
    """Returns HeteCCL's clusters as they are, and one of them with faults."""
    whole = {
        path.stem.removeprefix("heteccl-"): (path.stem, (), ())
        for path in sorted((EXAMPLES / "clusters").glob("heteccl-[hv]*.cluster"))
        if "-fault-" not in path.stem and not path.stem.endswith("-slow")
    }
    return whole | FAULTS


def topology(case: str) -> Topology:
    """Loads the cluster of a case."""
    name, failed, degraded = cases()[case]
    return load_cluster(EXAMPLES / "clusters" / f"{name}.cluster", failed, degraded)


def row(given: tuple[str, str, int]) -> FaultRow:
    """Synthesizes and measures one case and collective."""
    case, op, size = given
    try:
        t = topology(case)
        begin = time.perf_counter()
        made = hccc.synthesize(t, op, size)
        seconds = time.perf_counter() - begin
        return measured(case, op, t, made, seconds)
    except UserError as error:
        return FaultRow(case, op, refused=error.problem.message)


def measured(case: str, op: str, t: Topology, made: Synthesis, seconds: float) -> FaultRow:
    """Compares what was synthesized with NCCL's rings, with an ideal ring and with the bound."""
    compiled, ours = compile_candidate(made.program, t, made.size)
    collective, bound = made.program.collective.op, made.bound.time
    ring = rivals.nccl_ring(compiled, t, made.size)
    ideal, cut = rivals.ideal_ring(t, collective), made.bound.cut
    return FaultRow(
        case,
        op,
        len(t),
        made.best.name,
        made.size / ours / BYTES_PER_US,
        bound / ours,
        ring and ring / ours,
        ring and ring / bound,
        float(cut.algbw) / ideal if ideal and cut else None,
        _predicted(t, made, ours),
        seconds,
    )


def _predicted(t: Topology, made: Synthesis, ours: float) -> float | None:
    if limits(t):
        return None
    forced = Forced(NcclAlgorithm.RING)
    try:
        op = made.program.collective.op
        return predict(library.of(t), op, [made.size], forced)[0].time_us / ours
    except UserError:
        return None


def table(rows: list[FaultRow]) -> Table:
    """Makes the table: a line for each row."""
    shown = Table("case", "collective", title="HeteCCL's clusters, over a simulated NCCL ring")
    for name in (
        "GPUs",
        "GB/s",
        "of the bound",
        "over rings",
        "ceiling",
        "over an ideal ring",
        "predicted",
        "seconds",
    ):
        shown.add_column(name, justify="right")
    shown.add_column("method")
    for one in rows:
        if one.refused:
            shown.add_row(one.case, one.collective, *[""] * 8, one.refused)
            continue
        times = (
            "" if x is None else f"{x:.3f}"
            for x in (one.rings, one.ceiling, one.ideal, one.predicted)
        )
        shown.add_row(
            one.case,
            one.collective,
            f"{one.ranks}",
            f"{one.algbw:.1f}",
            f"{one.share:.3f}",
            *times,
            f"{one.seconds:.1f}",
            one.method,
        )
    return shown


def main() -> None:
    """Measures all cases and prints them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--cases", nargs="+", choices=list(cases()), default=list(cases()), metavar="NAME"
    )
    parser.add_argument("--collectives", nargs="+", default=list(OPS))
    parser.add_argument("--size", type=size_of, default=1 << 30)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    wanted = list(product(given.cases, given.collectives, [given.size]))
    with ProcessPoolExecutor(given.workers) as pool:
        found = pool.map(row, wanted)
        rows = list(track(found, total=len(wanted), console=Console(stderr=True)))
    if given.json:
        print(json.dumps([asdict(one) for one in rows]))
        return
    Console(width=170).print(table(rows))


if __name__ == "__main__":
    main()
