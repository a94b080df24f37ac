"""`hccc profile`: this machine as a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hccc.cli.options import (
    TARGETS,
    json_option,
)
from hccc.cli.types import Duration, Words

if TYPE_CHECKING:
    pass


@click.command(short_help="Measure this machine into a .cluster.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Instead of stdout."
)
@click.option(
    "--device", "devices", type=Words(TARGETS), help="Any of cpu,cuda,hip. [default: those present]"
)
@click.option("--ranks", type=click.IntRange(4, 16), default=8, help="Of the programs launched.")
@click.option(
    "--time", "seconds", type=Duration(), default="10s", help="To launch for, on each device."
)
@json_option
def profile(
    output: Path | None,
    devices: tuple[str, ...] | None,
    ranks: int,
    seconds: float,
    as_json: bool,
) -> None:
    """Measure this machine: α, thread blocks, reductions, links; write it as a .cluster.

    With several devices each has a file of its own: FILE-cpu, FILE-cuda.
    """
    from hccc.profile import measure as profiling

    profiling.run(profiling.Wanted(output, devices, ranks, seconds), as_json)
