"""From nothing to the first result: an AllReduce of a few ranks in Python, without any library.

    python -m benchmarks.first_call [--ranks 8] [--json]

Every rank is a process that imports NumPy and hccc, joins the communicator and reduces 1 MB of
float32; the result is checked. Seconds from the start of the processes to the end of the last:
with empty caches (the runtime is compiled, the standard collective made), again, and without a
compiler. Then at the slowest rank, in ms, once all have imported: joining and the first call,
without what a call takes afterwards (the median of 21), which is what a start costs where all is
found; and its first call.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

_RANK = """
import statistics, sys, time
import numpy as np
from hccc.runtime.communicator import Communicator

x = np.empty(1 << 18, np.float32)

def reduced(comm):
    x[:] = comm.rank + 1
    begin = time.perf_counter()
    comm.all_reduce(x)
    seconds = time.perf_counter() - begin
    assert (x == comm.n_ranks * (comm.n_ranks + 1) / 2).all()
    return seconds

print("ready", flush=True)
sys.stdin.readline()
begin = time.perf_counter()
with Communicator.from_environment() as comm:
    joined = time.perf_counter() - begin
    first = reduced(comm)
    plain = statistics.median(reduced(comm) for _ in range(21))
    print(joined + first - plain, first)
"""


@dataclass(frozen=True)
class FirstCallRow:
    """Seconds of a job, and at its slowest rank of the start and of the first call; None: it
    failed, `error` says why."""

    case: str
    job: float
    start: float | None
    call: float | None
    error: str = ""


def job(case: str, ranks: int, variables: Mapping[str, str]) -> FirstCallRow:
    """Runs a job of so many ranks."""
    shared = {**os.environ, "HCCC_PROGRESS": "off", "HCCC_JOB": uuid.uuid4().hex, **variables}
    begin = time.perf_counter()
    made = [
        subprocess.Popen(
            [sys.executable, "-c", _RANK],
            env={**shared, "HCCC_RANK": str(rank), "HCCC_NRANKS": str(ranks)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    for one in made:
        assert one.stdout
        one.stdout.readline()
    for one in made:
        assert one.stdin
        one.stdin.write("\n")
        one.stdin.flush()
    told = [one.communicate() for one in made]
    seconds = time.perf_counter() - begin
    if any(one.returncode for one in made):
        lines = [line for _, err in told for line in err.splitlines() if "error[" in line]
        return FirstCallRow(case, seconds, None, None, lines[0] if lines else "no word")
    starts, calls = zip(*(map(float, out.split()) for out, _ in told), strict=True)
    return FirstCallRow(case, seconds, max(starts), max(calls))


def caches(place: str) -> dict[str, str]:
    """Returns variables of caches in a place, of libraries and of hccc's compiled loops."""
    return {"XDG_CACHE_HOME": place, "NUMBA_CACHE_DIR": f"{place}/loops"}


def rows(ranks: int) -> list[FirstCallRow]:
    """Runs all cases, in caches of their own."""
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory() as empty:
        cache, none = caches(place), {"CXX": "/nowhere/c++"}
        bare = job("empty caches, no compiler", ranks, {**caches(empty), **none})
        return [
            job("empty caches", ranks, cache),
            job("again", ranks, cache),
            job("again, no compiler", ranks, {**cache, **none}),
            bare,
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = rows(options.ranks)
    if options.json:
        print(json.dumps([asdict(row) for row in found], indent=2))
        return
    title = f"First AllReduce of {options.ranks} ranks"
    table = Table("case", "job, s", "start, ms", "call, ms", "", title=title)
    for row in found:
        times = ("" if one is None else f"{1e3 * one:.1f}" for one in (row.start, row.call))
        table.add_row(row.case, f"{row.job:.2f}", *times, row.error)
    Console().print(table)


if __name__ == "__main__":
    main()
