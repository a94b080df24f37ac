"""What `hccc synth` reaches on the clusters that ship: of the bound, and beside NCCL, simulated.

    python benchmarks/synthesis.py [--clusters NAME...] [--collectives LIST] [--sizes 1M 1G]
                                   [--most-ranks 64] [--workers 2] [--json]

*Of the bound*: the least time that any schedule takes (`hccc bound`) over that of the program that
was chosen, compiled and simulated for that size; 1 is the most there is. *NCCL over it*: NCCL or
RCCL as it would choose, without in-switch reduction, where its model knows the devices. Seconds are
of the whole synthesis, candidates and all.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import product

import numpy as np
from programs import EXAMPLES
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sizes import size_of

import hccc
from hccc.predict.nccl import machine as library
from hccc.predict.nccl.model import predict

OPS = ("allgather", "reducescatter", "allreduce", "alltoall", "broadcast")
Case = tuple[str, str, int]


@dataclass(frozen=True)
class Row:
    """share: of the bound; nccl: its time over ours, None where it is not known; seconds: of the
    synthesis; refused: why there is no program."""

    cluster: str
    collective: str
    size: int
    method: str = ""
    share: float = 0.0
    nccl: float | None = None
    seconds: float = 0.0
    refused: str = ""


def row(case: Case) -> Row:
    """One synthesis."""
    name, op, size = case
    t = hccc.load_cluster(EXAMPLES / "clusters" / f"{name}.cluster")
    try:
        made = hccc.synthesize(t, op, size)
    except hccc.UserError as error:
        return Row(name, op, size, refused=error.problem.message)
    time = made.best.time or float("nan")
    try:
        machine = replace(library.of(t), nvls=False)
        nccl = predict(machine, made.program.collective.op, [size])[0].time_us / time
    except hccc.UserError:
        nccl = None
    return Row(name, op, size, made.best.name, made.share(), nccl, made.seconds)


def cases(given: argparse.Namespace) -> list[Case]:
    """Every cluster of no more ranks, collective and size."""
    names = given.clusters or sorted(f.stem for f in (EXAMPLES / "clusters").glob("*.cluster"))
    small = [
        name for name in names
        if 2 <= len(hccc.load_cluster(EXAMPLES / "clusters" / f"{name}.cluster"))
        <= given.most_ranks
    ]  # fmt: skip
    sizes = [size_of(text) for text in given.sizes]
    return list(product(small, given.collectives, sizes))


def table(rows: list[Row]) -> Table:
    """A line each."""
    found = Table("cluster", "collective", title="hccc synth, simulated")
    for name in ("bytes", "of the bound", "NCCL over it", "seconds"):
        found.add_column(name, justify="right")
    found.add_column("method")
    for one in rows:
        nccl = "" if one.nccl is None else f"{one.nccl:.2f}"
        cells = ("", "", "") if one.refused else (f"{one.share:.3f}", nccl, f"{one.seconds:.1f}")
        what = one.method or one.refused
        found.add_row(one.cluster, one.collective, f"{one.size:,}", *cells, what)
    return found


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clusters", nargs="+")
    parser.add_argument("--collectives", nargs="+", default=list(OPS))
    parser.add_argument("--sizes", nargs="+", default=["1M", "1G"])
    parser.add_argument("--most-ranks", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    wanted = cases(given)
    with ProcessPoolExecutor(given.workers) as pool:
        rows = list(track(pool.map(row, wanted), total=len(wanted), console=Console(stderr=True)))
    if given.json:
        print(json.dumps([asdict(one) for one in rows]))
        return
    Console(width=140).print(table(rows))
    shares = [one.share for one in rows if not one.refused]
    print(f"median {np.median(shares):.3f} of the bound, least {min(shares):.3f}")


if __name__ == "__main__":
    main()
