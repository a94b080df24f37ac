"""From nothing to the first result: an AllReduce of a few ranks in Python, without any library.

    python -m benchmarks.first_call [--ranks 8] [--json]

Every rank is a process that imports NumPy and hccc, joins the communicator and reduces 1 MB of
float32; the result is checked. Seconds from the start of the processes to the end of the last:
with an empty cache (the runtime is compiled, the standard collective made), again, and without a
compiler; and what the call itself took at rank 0.
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
import time
import numpy as np
from hccc.runtime.communicator import Communicator

with Communicator.from_environment() as comm:
    x = np.full(1 << 18, comm.rank + 1, np.float32)
    begin = time.perf_counter()
    comm.all_reduce(x)
    seconds = time.perf_counter() - begin
    assert (x == comm.n_ranks * (comm.n_ranks + 1) / 2).all()
    print(seconds)
"""


@dataclass(frozen=True)
class FirstCallRow:
    """Seconds of a job, and of its call at rank 0; None: it failed, `error` says why."""

    case: str
    job: float
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
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    told = [one.communicate() for one in made]
    seconds = time.perf_counter() - begin
    if any(one.returncode for one in made):
        lines = [line for _, err in told for line in err.splitlines() if "error[" in line]
        return FirstCallRow(case, seconds, None, lines[0] if lines else "no word")
    return FirstCallRow(case, seconds, float(told[0][0]))


def rows(ranks: int) -> list[FirstCallRow]:
    """Runs all cases, in a cache of their own."""
    with tempfile.TemporaryDirectory() as place:
        cache = {"XDG_CACHE_HOME": place}
        none = {"CXX": "/nowhere/c++"}
        with tempfile.TemporaryDirectory() as empty:
            bare = job("empty cache, no compiler", ranks, {"XDG_CACHE_HOME": empty, **none})
        return [
            job("empty cache", ranks, cache),
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
    table = Table(
        "case", "job, s", "call, s", "", title=f"First AllReduce of {options.ranks} ranks"
    )
    for row in found:
        call = "" if row.call is None else f"{row.call:.3f}"
        table.add_row(row.case, f"{row.job:.2f}", call, row.error)
    Console().print(table)


if __name__ == "__main__":
    main()
