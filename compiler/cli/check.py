"""`hccc check`: what is proved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hccc.cli import report
from hccc.cli.options import (
    algorithm_argument,
    road_options,
    walk,
)

if TYPE_CHECKING:
    from hccc.inputs import Made


@click.command(short_help="Prove that ALGO is right, and say what holds.")
@algorithm_argument
@road_options
def check(algorithm: Path, as_json: bool, time_phases: bool, **options: Any) -> None:
    """Prove that ALGO (.rccl, a plan's .json, MSCCL XML, or a directory of kernels) is right.

    Proved are the collective's result, that nothing deadlocks, and that nothing races, for
    every message size, in place and out of place. Of a directory it is the plan that is proved,
    and its sources must be what that plan emits.
    """
    with report.progress() as on_phase:
        made = walk(algorithm, options, on_phase)
        made = _compared(made, on_phase)
    if as_json:
        report.as_json(report.facts(made))
    else:
        report.proofs(made)
    if time_phases:
        report.phases(made.seconds)


def _compared(made: Made, on_phase: Callable[[str], None]) -> Made:
    from hccc import inputs as road

    return road.compared(made, on_phase)
