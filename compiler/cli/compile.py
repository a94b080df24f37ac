"""`hccc compile`, or `hccc ALGO`: an algorithm into a directory of kernels, or one stop printed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hccc.cli import report
from hccc.cli import show as cli_show
from hccc.cli.options import (
    CALLS,
    STOPS,
    TARGETS,
    algorithm_argument,
    road_options,
    walk,
)
from hccc.cli.types import Words
from hccc.diagnostics import fail

if TYPE_CHECKING:
    from hccc.inputs import Made


@click.command(name="compile", short_help="Compile ALGO into a directory of kernels.")
@algorithm_argument
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Directory to write.")
@click.option("--target", type=Words(TARGETS), default="all", help="Any of cuda,hip,cpu, or all.")
@click.option("--emit", type=click.Choice(STOPS), help="Print a stop of the road instead.")
@click.option(
    "--dialect",
    type=click.Choice(["executor", "msccl"]),
    default="executor",
    help="Of msccl-xml: Azure's executor and RCCL, or microsoft/msccl.",
)
@click.option(
    "--protocol",
    type=click.Choice(["Simple", "LL", "LL128"]),
    default="Simple",
    help="Of msccl-xml: its FIFOs bound the message size.",
)
@click.option(
    "--calls", type=click.Choice(list(CALLS)), default="in-place", help="That XML or JSON serves."
)
@click.option(
    "--report", "page", type=click.Path(path_type=Path), metavar="FILE",
    help="Also write a page of pictures and figures (.html).",
)  # fmt: skip
@road_options
def compile_command(
    algorithm: Path,
    output: Path | None,
    target: tuple[str, ...],
    emit: str | None,
    dialect: str,
    protocol: str,
    calls: str,
    page: Path | None,
    as_json: bool,
    time_phases: bool,
    **options: Any,
) -> None:
    """Compile ALGO (.rccl, a plan's .json, or MSCCL XML) into a directory of kernels.

    The directory builds with cmake where hccc is not installed, and `hccc run DIR` runs it.
    """
    if (output is None) == (emit is None):
        message = "either -o DIR or --emit, not both" if emit else "say where to: -o DIR, or --emit"
        raise fail("E415", message, help="`hccc x.rccl -o kernels/`, `hccc x.rccl --emit=plan`")
    paged = cli_show.paged(page, options, algorithm, output)
    with report.progress() as on_phase:
        made = walk(algorithm, options, on_phase, prove=emit not in STOPS[:3] or page is not None)
        files = _write(made, output, target, on_phase) if output else {}
        paged(made, on_phase)
    if emit:
        _emit(made, emit, dialect, protocol, CALLS[calls])
    elif as_json:
        report.as_json(report.facts(made) | report.file_facts(files))
    else:
        report.summary(made, str(output), files)
    if time_phases:
        report.phases(made.seconds)


def _write(
    made: Made, output: Path, targets: tuple[str, ...], on_phase: Callable[[str], None]
) -> dict[str, int]:
    from hccc import inputs as road

    return road.write(made, output, targets, on_phase)


def _emit(made: Made, name: str, dialect: str, protocol: str, in_place: bool | None) -> None:
    from hccc import inputs as road
    from hccc.driver import XmlOptions

    for line in road.stop(made, name, XmlOptions(dialect, protocol, in_place)):
        sys.stdout.write(line + "\n")
