"""Ranks that are stopped or killed in the middle of calls: are they named, and in time?

    python -m benchmarks.stops [--trials 500] [--deadlines 2,3] [--at-once 4] [--seed 0] [--json]

Each trial is a job of 2 to 16 ranks, on this host or on two (network namespaces; needs root), whose
calls go on until one fails. At a random moment one rank is stopped (SIGSTOP) or killed, or all
ranks of a host are stopped, or the host is cut off. Then every other rank's call must return within
its deadline and 2 s and name a rank that was struck. Printed: how many did, by what was done; the
longest time beyond the deadline; and the ranks whose call did not return.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import secrets
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import namespaces
from benchmarks.namespaces import DEVICE, Host
from benchmarks.programs import hierarchical_mesh, ring_allreduce
from hccc.base.building.build import build_once
from hccc.base.diagnostics import Source
from hccc.driver.compilation import compile_text
from hccc.driver.options import Options
from hccc.driver.outputs import kernels
from hccc.emit.targets import CPU
from hccc.runtime.communicator.kernels import built
from hccc.runtime.communicator.runtime_library import ROOMS, build

HERE = Path(__file__).resolve().parent
SIZES = (2, 3, 5, 8, 16)  # of jobs on one host
NODES = {2: (2, 1), 4: (2, 2), 8: (2, 4), 16: (2, 8)}  # on two
GRACE_S, HUNG_S, READY_S = 2.0, 15.0, 60.0
LATEST_S = 0.4  # after all are ready, in which they are struck
KINDS = {1: ("stop", "stop", "stop", "kill"), 2: ("stop", "stop", "kill", "freeze", "cut")}
_NAMES = re.compile(r"\branks? (\d+(?:(?:, | and )\d+)*)")


@dataclass(frozen=True, slots=True)
class Trial:
    """One job: what is done to it, to which ranks, how many seconds after all are ready."""

    hosts: int
    ranks: int
    kind: str  # stop, kill: one rank; freeze, cut: one host
    struck: tuple[int, ...]
    after: float
    deadline: float
    seed: int


@dataclass(slots=True)
class Outcome:
    """The survivors of a trial. over: the longest time beyond the deadline, in seconds; left: the
    longest that it took to destroy the communicator; unnamed: errors that name no struck rank."""

    trial: Trial
    survivors: int = 0
    named: int = 0
    hung: int = 0
    over: float = -1e9
    left: float = 0.0
    unnamed: list[str] = field(default_factory=list)


def drawn(seed: int, deadline: float, hosts: int) -> Trial:
    """Draws a trial."""
    chance = random.Random(seed)
    n = chance.choice(SIZES if hosts == 1 else tuple(NODES))
    kind = chance.choice(KINDS[hosts])
    struck: tuple[int, ...] = (chance.randrange(n),)
    if kind in ("freeze", "cut"):
        first = chance.choice((0, n // 2))
        struck = tuple(range(first, first + n // 2))
    return Trial(hosts, n, kind, struck, chance.uniform(0, LATEST_S), deadline, seed)


def libraries(place: Path, wanted: Set[tuple[int, int]]) -> dict[tuple[int, int], Path]:
    """Builds the AllReduces of jobs of so many hosts and ranks."""
    texts = {(1, n): ring_allreduce(n) for n in SIZES}
    texts |= {(2, n): hierarchical_mesh("allreduce", *shape, 1) for n, shape in NODES.items()}
    found = {}
    for hosts, n in sorted(wanted):
        text = texts[hosts, n]
        compiled = compile_text(Source("stops.rccl", text), Options(tune="off"))
        directory = place / f"{hosts}_{n}"
        for name, content in kernels(compiled.catalogue, [CPU]).items():
            file = directory / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
        found[hosts, n] = built(directory, ["float32"], ["sum"])
    return found


def program() -> Path:
    """Builds the program of a rank."""
    library = build()
    include = ROOMS / "communicator" / "include"
    command = ["g++", "-std=c++17", "-O2", f"-I{include}", str(HERE / "stops_rank.cpp")]
    command += [str(library), f"-Wl,-rpath,{library.parent}"]
    return build_once(
        Path(command[4]), f"stops_rank-{library.stem[-20:]}", "", command, library.parent
    )


class Job:
    """The processes of a trial."""

    def __init__(
        self, trial: Trial, command: Sequence[str], ends: Sequence[Host], run: Path
    ) -> None:
        self.trial, self._ends = trial, ends
        words = [str(trial.seed), str(trial.deadline)]
        said = {
            "PATH": os.environ["PATH"],
            "XDG_RUNTIME_DIR": str(run),
            "HCCC_JOB": secrets.token_hex(8),
            "HCCC_NRANKS": str(trial.ranks),
            "HCCC_TIMEOUT": f"{READY_S:g}",
            "HCCC_HEAP_BYTES": str(1 << 28),
        }
        if ends:
            said |= {
                "HCCC_ROOT": f"{ends[0].address}:{20000 + random.randrange(10000)}",
                "HCCC_SECRET": secrets.token_hex(16),
                "HCCC_NETWORK": DEVICE,
                "UCX_TLS": "tcp,self",
            }
        self._processes = [
            subprocess.Popen(
                [*(self._end(rank).before() if ends else ()), *command, *words],
                env=said | {"HCCC_RANK": str(rank)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(trial.ranks)
        ]

    def _end(self, rank: int) -> Host:
        return self._ends[rank * len(self._ends) // self.trial.ranks]

    def _lines(self, rank: int) -> Iterator[str]:
        stream = self._processes[rank].stdout
        assert stream
        return iter(stream.readline, "")

    def wait_until_ready(self) -> None:
        """Waits until all ranks make calls."""
        for rank in range(self.trial.ranks):
            first = next(self._lines(rank), "").strip()
            if first != "ready":
                raise RuntimeError(f"rank {rank} of {self.trial}: {first}")

    def strike(self) -> None:
        """Does what the trial says."""
        if self.trial.kind == "cut":
            end = self._end(self.trial.struck[0]).namespace
            subprocess.run(["ip", "-n", end, "link", "set", DEVICE, "down"], check=True)
            return
        kind = signal.SIGKILL if self.trial.kind == "kill" else signal.SIGSTOP
        for rank in self.trial.struck:
            self._processes[rank].send_signal(kind)

    def outcome(self) -> Outcome:
        """Waits for the survivors."""
        found = Outcome(self.trial)
        until = time.monotonic() + self.trial.deadline + HUNG_S
        for rank, process in enumerate(self._processes):
            if rank in self.trial.struck:
                continue
            found.survivors += 1
            if ended(process, max(0.01, until - time.monotonic())):
                self._read(rank, found)
            else:
                found.hung += 1
        return found

    def _read(self, rank: int, found: Outcome) -> None:
        for line in self._lines(rank):
            word, _, rest = line.strip().partition(" ")
            if word == "left":
                found.left = max(found.left, float(rest))
            if word != "FAILED":
                continue
            seconds, _, text = rest.partition(" ")
            found.over = max(found.over, float(seconds) - self.trial.deadline)
            if named(text) & set(self.trial.struck):
                found.named += 1
            else:
                found.unnamed.append(f"rank {rank}: {text}")

    def end(self) -> None:
        """Kills what is left."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


def ended(process: subprocess.Popen[str], seconds: float) -> bool:
    """Waits for the end of a process, without asking again and again."""
    fd = os.pidfd_open(process.pid)
    try:
        return bool(select.select([fd], [], [], seconds)[0])
    finally:
        os.close(fd)


def named(text: str) -> set[int]:
    """Returns the ranks that an error names."""
    found = (word for match in _NAMES.finditer(text) for word in re.findall(r"\d+", match[1]))
    return {int(word) for word in found}


def run(trial: Trial, command: Sequence[str]) -> Outcome:
    """Runs a trial."""
    with ExitStack() as stack:
        run = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        run.chmod(0o700)
        ends = stack.enter_context(namespaces.hosts(2, "10gbit")) if trial.hosts == 2 else []
        job = Job(trial, command, ends, run)
        stack.callback(job.end)
        job.wait_until_ready()
        time.sleep(trial.after)
        job.strike()
        return job.outcome()


def measured(trials: Sequence[Trial], at_once: int) -> list[Outcome]:
    """Runs trials, so many at a time."""
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(at_once) as pool:
        found = libraries(Path(place), {(t.hosts, t.ranks) for t in trials})
        worker = program()
        done = pool.map(lambda t: run(t, [str(worker), str(found[t.hosts, t.ranks])]), trials)
        return list(track(done, total=len(trials), console=Console(stderr=True)))


def table(outcomes: Sequence[Outcome]) -> Table:
    """Makes the table: a line for what was done, on one host and on two."""
    shown = Table("hosts", "what", title="Survivors of ranks and hosts that stop")
    for name in ("jobs", "survivors", "named", "longest over the deadline", "longest end", "hung"):
        shown.add_column(name, justify="right")
    keys = sorted({(one.trial.hosts, one.trial.kind) for one in outcomes})
    for hosts, kind in [*keys, (0, "all")]:
        rows = [o for o in outcomes if (o.trial.hosts, o.trial.kind) == (hosts, kind) or not hosts]
        survivors, got = sum(o.survivors for o in rows), sum(o.named for o in rows)
        shown.add_row(
            str(hosts or ""),
            kind,
            str(len(rows)),
            str(survivors),
            f"{got / max(1, survivors):.2%}",
            f"{max(o.over for o in rows):.2f} s",
            f"{max(o.left for o in rows):.2f} s",
            str(sum(o.hung for o in rows)),
        )
    return shown


def main() -> None:
    """Runs all trials and prints what became of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--deadlines", default="2,3", help="seconds, a comma list")
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    deadlines = [float(word) for word in given.deadlines.split(",")]
    why = namespaces.missing()
    if why:
        print(f"one host only: {why}")
    trials = [
        drawn(given.seed + k, deadlines[k % len(deadlines)], 1 if why or k % 3 else 2)
        for k in range(given.trials)
    ]
    outcomes = measured(trials, given.at_once)
    if given.json:
        print(json.dumps([asdict(one) for one in outcomes]))
        return
    Console(width=120).print(table(outcomes))
    for one in outcomes:
        if one.unnamed or one.hung or one.over > GRACE_S:
            print(
                one.trial, f"over {one.over:.2f} s, hung {one.hung}", *one.unnamed[:2], sep="\n    "
            )


if __name__ == "__main__":
    main()
