"""Seconds of `hccc synth`, whole and of the engine alone, and memory, beside what is published.

Run by `python -m benchmarks.synthesis --speed`. *Whole*: the command in a process of its own, the
second of two runs (compiled loops are on disk by then). *Engine*: bound, schedules and built-in
programs alone, without what compiles and simulates them, in a process of its own too, the second
time. Peak memory is of the whole command. Clusters are made here: mixes of H20 nodes as HeteCCL's.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from benchmarks.programs import EXAMPLES

SIZE = 1 << 30
PORTS = "define bandwidth = {port => [((0..7) -> 450)]}\n"
MESH = "define bandwidth = {mesh => [((0..3) -> 150)]}\n"
FOUR = "define nic = [" + ", ".join(f"(({i}) -> 50)" for i in range(4)) + "]\n"
EIGHT = "define nic = [" + ", ".join(f"(({i},{i + 1}) -> 50)" for i in range(0, 8, 2)) + "]\n"
MIXES = {16: (2, 1), 32: (4, 2), 48: (4, 4), 64: (8, 4)}  # nodes of 4, and of 8 GPUs
HETECCL = {16: "0.9 (TE-CCL 2.2)", 32: "6.9 (24.7)", 48: "5.5 (497)", 64: "105.3 (33,990)"}
# A process forked from a large one counts its memory as its own; this one is small.
LAUNCHER = (
    "import json, resource, subprocess, sys, time\n"
    "begin = time.perf_counter()\n"
    "try:\n"
    "    code = subprocess.call(sys.argv[2:], timeout=float(sys.argv[1]), stdout=2)\n"
    "except subprocess.TimeoutExpired:\n"
    "    code = 'longer'\n"
    "print(json.dumps([code, time.perf_counter() - begin,"
    " resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**10]))\n"
)


@dataclass(frozen=True, slots=True)
class SpeedCase:
    """One synthesis. cluster: its text; published: seconds of others; reach: the seconds that are
    wanted."""

    name: str
    collective: str
    cluster: str
    published: str
    reach: float


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """One case. whole, engine: seconds, None where it took too long; memory: MiB; share: of the
    bound; refused: what failed."""

    name: str
    collective: str
    published: str
    reach: float
    whole: float = 0.0
    engine: float | None = None
    memory: float = 0.0
    share: float = 0.0
    method: str = ""
    refused: str = ""


def mix(fours: int, eights: int) -> str:
    """Writes a cluster of H20 nodes of 4 GPUs and of 8, as
    `examples/clusters/heteccl-h20-*.cluster`."""
    return (
        "define network = InfiniBand\ndefine device = H20\n"
        f"define node1 = {fours} * 4\n{MESH}{FOUR}"
        f"define node{fours + 1} = {eights} * 8\n{PORTS}{EIGHT}"
    )


def cases() -> list[SpeedCase]:
    """Returns the cases of HeteCCL's Table 1 and of SyCCL's Table 5."""
    found = [
        SpeedCase(f"{n} H20", "allgather", mix(*MIXES[n]), f"HeteCCL {HETECCL[n]}", 1.0)
        for n in MIXES
    ]
    h800 = {n: (EXAMPLES / "clusters" / f"syccl-h800-{n}.cluster").read_text() for n in (64, 512)}
    return [
        *found,
        SpeedCase("64 H800", "allgather", h800[64], "SyCCL 0.4-10.8", 10.0),
        SpeedCase("512 H800", "allgather", h800[512], "SyCCL 85-14,146; TACOS 7-129", 10.0),
        SpeedCase("64 H800", "alltoall", h800[64], "SyCCL 1.3-29.8, mean 5.7", 1.0),
        SpeedCase("512 H800", "alltoall", h800[512], "none", 30.0),
    ]


def row(case: SpeedCase, limit: float) -> SpeedRow:
    """Measures one case, no command longer than `limit` seconds."""
    head = case.name, case.collective, case.published, case.reach
    with tempfile.TemporaryDirectory() as folder:
        cluster, out = Path(folder) / "x.cluster", Path(folder) / "x.rccl"
        cluster.write_text(case.cluster)
        command = [
            sys.executable,
            "-m",
            "hccc",
            "synth",
            str(cluster),
            "--collective",
            case.collective,
            "--bytes",
            str(SIZE),
            "-o",
            str(out),
        ]
        code, first, _ = timed(command, limit)
        if code != 0:
            return SpeedRow(*head, whole=first, refused=f"{code}, after {first:.0f} s")
        code, whole, memory = timed(command, limit)
        if code != 0:
            return SpeedRow(
                *head, whole=whole, refused=f"{code}, after {whole:.0f} s; {first:.0f} before"
            )
        engine = _engine_apart(cluster, case.collective, limit)
        share, method = comments(out.read_text())
    return SpeedRow(*head, whole, engine, memory, share, method)


def _engine_apart(cluster: Path, collective: str, limit: float) -> float | None:
    """Runs `engine` in a process of its own; returns None where it takes longer than `limit` or
    fails."""
    try:
        told = subprocess.run(
            [sys.executable, "-m", "benchmarks.speed", "--engine", str(cluster), collective],
            stdout=subprocess.PIPE,
            text=True,
            timeout=limit,
            check=True,
        )
    except subprocess.SubprocessError:
        return None
    return float(told.stdout)


def timed(command: list[str], limit: float) -> tuple[int | str, float, float]:
    """Runs a command; returns its exit code (or "longer"), its seconds, and its peak MiB."""
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, str(limit), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    code, seconds, memory = json.loads(done.stdout)
    return code, seconds, memory


def comments(program: str) -> tuple[float, str]:
    """Returns the share of the bound, and the method, from the comments of a program."""
    said: dict[str, str] = {}
    for line in program.splitlines():
        if line.startswith("# ") and ":" in line:
            key, _, value = line[2:].partition(":")
            said[key] = value.strip()
    simulated = _number(said.get("Simulated", "0"))
    least = next((_number(k.partition("less than ")[2]) for k in said if "less than" in k), 0.0)
    return (least / simulated if simulated else 0.0), said.get("Method", "").partition(";")[0]


def _number(text: str) -> float:
    word = text.strip().partition(" ")[0]
    return float(word.replace(",", "").rstrip("."))


def engine(path: Path, collective: str) -> float:
    """Returns the seconds that making all candidates takes, the second time."""
    from hccc.driver.inputs import load_cluster
    from hccc.ir.collective import collective_named
    from hccc.synth.candidates import candidates, request

    t, op, seconds = load_cluster(path), collective_named(collective), 0.0
    for _ in range(2):
        begin = time.perf_counter()
        candidates(request(t, op, SIZE))
        seconds = time.perf_counter() - begin
    return seconds


def table(rows: list[SpeedRow]) -> Table:
    """Makes the table: a line for each row."""
    shown = Table("GPUs", "collective", title="hccc synth, 1 GiB")
    for name in ("whole s", "engine s", "reach s", "MiB", "of the bound"):
        shown.add_column(name, justify="right")
    shown.add_column("method")
    shown.add_column("published s")
    for one in rows:
        cells = ("", "", f"{one.reach:g}", "", "", one.refused)
        if not one.refused:
            alone = "" if one.engine is None else f"{one.engine:.3f}"
            cells = (
                f"{one.whole:.2f}",
                alone,
                f"{one.reach:g}",
                f"{one.memory:.0f}",
                f"{one.share:.3f}",
                one.method,
            )
        shown.add_row(one.name, one.collective, *cells, one.published)
    return shown


if __name__ == "__main__":
    if sys.argv[1:2] == ["--engine"]:
        print(engine(Path(sys.argv[2]), sys.argv[3]))
