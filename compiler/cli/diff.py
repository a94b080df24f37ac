"""`hccc diff`: where and why one algorithm is faster than another on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hccc.cli import report
from hccc.cli.helps import HelpfulCommand
from hccc.cli.options import (
    call,
    call_options,
    command_options,
    compile_options,
    load_simulated,
    size_options,
)
from hccc.cli.progress import progress
from hccc.cli.types import AlgorithmFile


@click.command(
    short_help="Say where and why one ALGO is faster than another on a cluster.",
    cls=HelpfulCommand,
    examples=[
        "hccc diff ring.rccl tree.rccl --cluster dgx-h100",
        "hccc diff mine.rccl kernels/ --cluster my.cluster -b 64K -e 64M -f 32",
    ],
)
@click.argument("algorithms", type=AlgorithmFile(), metavar="A B", nargs=2)
@size_options("1K", "1G", 64)
@call_options
@compile_options
def diff(
    algorithms: tuple[Path, Path],
    minbytes: int,
    maxbytes: int,
    stepfactor: float,
    as_json: bool,
    time_phases: bool,
    **options: Any,
) -> None:
    """Say where and why A is faster than B, or B than A (programs, plans, MSCCL XML, directories).

    Both are simulated at each size. It prints their times, what lies on their critical paths (the
    parts add up to the times), their thread blocks, and their busiest links.
    """
    how = command_options(options)
    with progress():
        loaded = [load_simulated(one, how) for one in algorithms]
        from hccc.api import functions as api
        from hccc.predict.simulation import Sizes

        (one, topology), (other, _) = loaded
        found = api.diff(
            one,
            other,
            Sizes(minbytes, maxbytes, stepfactor),
            call(options),
            cluster=topology,
            names=(str(algorithms[0]), str(algorithms[1])),
        )
    if as_json:
        report.as_json(found.facts())
    else:
        print(found.text())
    if time_phases:
        for compiled in (one, other):
            report.phases(compiled.seconds)
