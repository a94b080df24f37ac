"""`hccc profile`: this machine as a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from hccc.cli.options import TARGETS, json_option
from hccc.cli.types import Duration, Words


@click.command(short_help="Measure this machine into a .cluster.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Instead of stdout."
)
@click.option(
    "--device", "devices", type=Words(TARGETS), help="Any of cpu,cuda,hip. [default: those present]"
)
@click.option("--ranks", type=click.IntRange(4, 16), default=8, help="Of the programs launched.")
@click.option(
    "--time", "seconds", type=Duration(), default="10s", help="How long on each device: 30s, 10m."
)
@json_option
def profile(
    output: Path | None,
    devices: tuple[str, ...] | None,
    ranks: int,
    seconds: float,
    as_json: bool,
) -> None:
    """Measure this machine: α, launches, thread blocks, reductions, links; write it as a .cluster.

    With several devices each has a file of its own: FILE-cpu, FILE-cuda.
    """
    from hccc.profile import measure as profiling

    profiling.run(profiling.Wanted(output, devices, ranks, seconds), as_json)
