"""How long the first commands of a new user take, with empty caches and again.

    python -m benchmarks.start [--runs 3] [--tree DIR] [--json FILE]

Installs a tree (this one, if none is given) with `pip install` into a virtual environment of its
own, and runs README's first commands there with a home of their own, so that no cache is left of
earlier runs. "first" is the first call on this machine, "again" the median of the calls after it.
Seconds are wall seconds, and CPU seconds (user and system, of children too); on a machine that does
something else only the latter mean anything.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

TREE = Path(__file__).resolve().parents[1]
COMMANDS = (
    ("-h",),
    ("check", "examples/ring_allreduce.rccl"),
    ("examples/hm_allreduce.rccl", "-o", "kernels/"),
    ("sim", "examples/hm_allreduce.rccl", "--cluster", "resccl-topo4"),
    ("synth", "heteccl-h20-4+8", "--collective", "allgather", "-b", "1G", "-o", "a.rccl"),
)


class Seconds(NamedTuple):
    """Time of a command. wall, cpu: seconds."""

    wall: float
    cpu: float


def timed(command: list[str | Path], place: Path, environment: dict[str, str]) -> Seconds:
    """Runs a command, which must succeed, and returns the time it took."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Seconds(wall, cpu)


def measured(tree: Path, runs: int) -> dict[str, tuple[Seconds, Seconds | None]]:
    """Returns for `pip install` and each command the first time, and the median of `runs` more."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        home = place / "home"
        home.mkdir()
        shutil.copytree(tree / "examples", place / "examples")
        hidden = ("PYTHON", "HCCC", "NUMBA", "XDG", "VIRTUAL_ENV")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
        environment = kept | {"HOME": str(home)}
        subprocess.run([sys.executable, "-m", "venv", place / "venv"], check=True)
        pip = place / "venv" / "bin" / "pip"
        install: list[str | Path] = [pip, "install", "--quiet", tree]
        found: dict[str, tuple[Seconds, Seconds | None]] = {
            "pip install .": (timed(install, place, environment), None)
        }
        for words in COMMANDS:
            command: list[str | Path] = [place / "venv" / "bin" / "hccc", *words]
            first, *again = [timed(command, place, environment) for _ in range(1 + runs)]
            walls, cpus = [one.wall for one in again], [one.cpu for one in again]
            medians = Seconds(statistics.median(walls), statistics.median(cpus)) if again else None
            found[" ".join(("hccc", *words))] = (first, medians)
        return found


def main() -> None:
    """Measures and prints a table, and JSON where a file is given."""
    parser = argparse.ArgumentParser(description="First commands: seconds with empty caches.")
    parser.add_argument("--runs", type=int, default=3, help="calls after the first")
    parser.add_argument("--tree", type=Path, default=TREE, help="what to install")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    options = parser.parse_args()
    found = measured(options.tree.resolve(), options.runs)
    table = Table("command", *("first, wall", "first, CPU", "again, wall", "again, CPU"))
    for name, times in found.items():
        cells = [f"{value:.2f}" for one in times if one is not None for value in one]
        table.add_row(name, *cells)
    Console(width=100).print(table)
    if options.json:
        rows = {
            name: {
                kind: one._asdict()
                for kind, one in zip(("first", "again"), times, strict=True)
                if one is not None
            }
            for name, times in found.items()
        }
        options.json.write_text(json.dumps({"cores": os.cpu_count(), "seconds": rows}, indent=2))


if __name__ == "__main__":
    main()
