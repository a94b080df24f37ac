"""`hccc run`: all ranks on real data, checked and timed."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from hccc.cli import report
from hccc.cli.options import (
    algorithm_argument,
    chosen,
    compile_options,
    load,
    size_options,
)
from hccc.cli.types import Number, Size, Speed, Words
from hccc.dtypes import ALIASES, NAMES, OPS


@click.command(short_help="Run all ranks of ALGO on real data, and check and time it.")
@algorithm_argument
@size_options("1K", "1M")
@click.option("-i", "--stepbytes", type=Size(), help="Between sizes, instead of a factor.")
@click.option(
    "-d",
    "--datatype",
    "dtypes",
    type=Words(NAMES, ALIASES),
    default="float32",
    help="Comma list of types, or all.",
)
@click.option("-o", "--op", "ops", type=Words(OPS), default="sum", help="Comma list, or all.")
@click.option("-n", "--iters", type=click.IntRange(1), default=20, help="Timed launches.")
@click.option("-w", "--warmup-iters", type=click.IntRange(0), default=5, help="Launches before.")
@click.option("-c", "--check", "checks", type=click.IntRange(0), default=1, help="0: no check.")
@click.option("--window", type=click.IntRange(0), default=0, help="Micro-batches; 0: all.")
@click.option("--micro-batch", type=Size(), default=0, help="Bytes; 0: by the size.")
@click.option("--device", type=click.Choice(["cpu", "cuda", "hip"]), default="cpu")
@click.option("--workers", type=click.IntRange(0), default=0, help="CPU threads; 0: as useful.")
@click.option(
    "--network",
    type=Speed(),
    help="Between nodes, on the CPU: GB/s of each NIC and latency, as 12.5GB/s,5us.",
)
@click.option(
    "--timeout", type=Number(0, 86_400), default=30.0, help="Seconds a wait has; 0: for ever."
)
@compile_options
def run(algorithm: Path, as_json: bool, time_phases: bool, **options: Any) -> None:
    """Run all ranks of ALGO (program, plan, MSCCL XML, or a directory of kernels) on real data.

    Prints the table of nccl-tests, for a directory of several plans with the plan that each row
    is of. Exits with 1 if any element is wrong.
    """
    how = chosen(options)
    with report.progress() as on_phase:
        compiled = load(algorithm, how, how.load_cluster(), on_phase)
    from hccc.cli.tables import Table
    from hccc.launch.measure import RunOptions, measure

    wanted = RunOptions(**{f.name: options[f.name] for f in fields(RunOptions)})
    with report.progress() as on_phase:
        rows = measure(compiled, wanted, on_phase)
    library = compiled.library
    speed = wanted.network_of(library)
    table = Table(library, wanted.device, wanted.schedule(library), as_json, speed)
    for row in rows:
        table.add(row)
    table.finish()
    if time_phases:
        report.phases(compiled.seconds)
    click.get_current_context().exit(1 if table.wrong else 0)
