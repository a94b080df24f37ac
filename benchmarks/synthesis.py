"""What `hccc synth` reaches on the clusters that ship: of the bound, and beside NCCL, simulated.

    python -m benchmarks.synthesis [--clusters NAME...] [--collectives LIST] [--sizes 1M 1G]
                                   [--most-ranks 64] [--workers 2] [--json]
    python -m benchmarks.synthesis --shares [--sizes 1G]              (shares.py)
    python -m benchmarks.synthesis --speed [--seconds 120]         (speed.py)
    python -m benchmarks.synthesis --steps [--chunks 1 2 4] [--seconds 60]  (steps.py)
    python -m benchmarks.synthesis --sketches [--unpruned relays]          (sketches.py)
    python -m benchmarks.synthesis --over-sizes [--sizes 1K ... 4G]  (over_sizes.py)

*Of the bound*: the least time that any schedule takes (`hccc bound`) over that of the program that
was chosen, compiled and simulated for that size; 1 is the most there is. *NCCL over it*: NCCL or
RCCL as it is by default, without in-switch reduction, where its model knows the devices. Seconds
are of the whole synthesis, candidates and all.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import hccc
from benchmarks import over_sizes, shares, sketches, speed, steps
from benchmarks.programs import EXAMPLES
from hccc.base.sizes import size_of
from hccc.predict.nccl import machine as library
from hccc.predict.nccl.model import predict

OPS = ("allgather", "reducescatter", "allreduce", "alltoall", "broadcast")
SIZES = (1 << 20, 1 << 30)
Case = tuple[str, str, int]
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class SynthesisRow:
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


def row(case: Case) -> SynthesisRow:
    """Synthesizes one case, and predicts NCCL's time for it."""
    name, op, size = case
    t = hccc.load_cluster(EXAMPLES / "clusters" / f"{name}.cluster")
    try:
        made = hccc.synthesize(t, op, size)
    except hccc.UserError as error:
        return SynthesisRow(name, op, size, refused=error.problem.message)
    time = made.best.time or float("nan")
    try:
        machine = replace(library.of(t), nvls=False)
        nccl = predict(machine, made.program.collective.op, [size])[0].time_us / time
    except hccc.UserError:
        nccl = None
    return SynthesisRow(name, op, size, made.best.name, made.share(), nccl, made.seconds)


def cases(given: argparse.Namespace) -> list[Case]:
    """Returns all cases: clusters of at most `most_ranks` ranks, collectives, sizes."""
    names = given.clusters or sorted(f.stem for f in (EXAMPLES / "clusters").glob("*.cluster"))
    small = [
        name
        for name in names
        if 2
        <= len(hccc.load_cluster(EXAMPLES / "clusters" / f"{name}.cluster"))
        <= given.most_ranks
    ]
    return list(product(small, given.collectives, given.sizes))


def table(rows: list[SynthesisRow]) -> Table:
    """Makes the table: a line for each row."""
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


def shown(rows: Sequence[Any], made: Table, *, as_json: bool) -> None:
    """Prints a table, or its rows as JSON."""
    if as_json:
        print(json.dumps([asdict(one) for one in rows]))
    else:
        Console(width=170).print(made)


def parallel(do: Callable[[T], R], wanted: Sequence[T], workers: int) -> list[R]:
    """Returns `do` of each of `wanted`, in order, by several processes, with a progress bar."""
    with ProcessPoolExecutor(workers) as pool:
        done = pool.map(do, wanted)
        return list(track(done, total=len(wanted), console=Console(stderr=True)))


def _speed(given: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    every = {one.name.replace(" ", "-"): None for one in speed.cases()}
    if wrong := set(given.clusters or ()) - set(every):
        parser.error(f"no {min(wrong)}; there are {', '.join(every)}")
    wanted = [
        one
        for one in speed.cases()
        if one.name.replace(" ", "-") in (given.clusters or every)
        and one.collective in given.collectives
    ]
    rows = [
        speed.row(one, given.seconds)
        for one in track(wanted, "Timing", console=Console(stderr=True))
    ]
    shown(rows, speed.table(rows), as_json=given.json)


def _steps(given: argparse.Namespace) -> None:
    wanted = [
        (name, chunks, given.seconds)
        for name, chunks in product(given.clusters or steps.NAMES, given.chunks)
    ]
    rows = parallel(steps.row, wanted, given.workers)
    shown(rows, steps.table(rows), as_json=given.json)


def _shares(given: argparse.Namespace) -> None:
    rows = parallel(shares.row, cases(given), given.workers)
    shown(rows, shares.table(rows), as_json=given.json)
    if rows and not given.json:
        print(shares.summary(rows))


def _sketches(given: argparse.Namespace) -> None:
    every = product(given.clusters or sketches.NAMES, given.collectives, given.sizes)
    wanted = [(*case, tuple(given.unpruned), given.seconds) for case in every]
    rows = parallel(sketches.row, wanted, given.workers)
    shown(rows, sketches.table(rows), as_json=given.json)


def _over_sizes(given: argparse.Namespace) -> None:
    rows = parallel(over_sizes.row, cases(given), given.workers)
    shown(rows, over_sizes.table(rows), as_json=given.json)
    gains = [one.gain for one in rows if not one.refused]
    slower = sum(gain < 1 for gain in gains)
    if gains and not given.json:
        print(f"slower than the best rival in {slower} of {len(gains)}, at least {min(gains):.3f}")


def main() -> None:
    """Measures and prints what the options ask for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--shares", action="store_true", help="of the optimum, cluster by cluster")
    mode.add_argument("--speed", action="store_true", help="seconds and memory of the command")
    mode.add_argument("--steps", action="store_true", help="N_step over the integer bound")
    mode.add_argument("--sketches", action="store_true", help="SyCCL's, beside all methods")
    mode.add_argument("--over-sizes", action="store_true", help="over the best of the rivals")
    parser.add_argument(
        "--clusters", nargs="+", help="names; of --speed 16-H20, 512-H800; of --steps h20-4+8"
    )
    parser.add_argument("--collectives", nargs="+")
    parser.add_argument("--sizes", nargs="+", type=size_of)
    parser.add_argument("--chunks", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--unpruned", nargs="+", default=[], help="prunings of sketches, off")
    parser.add_argument("--most-ranks", type=int, default=64)
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="of one command, or of a solver"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    given.sizes = given.sizes or (
        over_sizes.SIZES
        if given.over_sizes
        else sketches.SIZES
        if given.sketches
        else (1 << 30,)
        if given.shares
        else SIZES
    )
    given.collectives = given.collectives or list(
        shares.OPS if given.shares else sketches.OPS if given.sketches else OPS
    )
    if given.shares:
        return _shares(given)
    if given.speed:
        return _speed(given, parser)
    if given.steps:
        return _steps(given)
    if given.sketches:
        return _sketches(given)
    if given.over_sizes:
        return _over_sizes(given)
    rows = parallel(row, cases(given), given.workers)
    shown(rows, table(rows), as_json=given.json)
    reached = [one.share for one in rows if not one.refused]
    if reached and not given.json:
        print(f"median {np.median(reached):.3f} of the bound, least {min(reached):.3f}")


if __name__ == "__main__":
    main()
