"""cli_sim: `hccc sim`, the command that says how long before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hccc.cli import report
from hccc.cli.options import (
    CALL,
    ROAD,
    algorithm_argument,
    call_options,
    compilation,
    road_options,
    size_options,
    walk,
)


@click.command(short_help="Predict what ALGO takes on a cluster.")
@algorithm_argument
@size_options("1K", "4G")
@click.option("--vs", is_flag=True, help="Beside NCCL's ring and tree, MSCCL, and other ways.")
@call_options
@road_options
def sim(algorithm: Path, as_json: bool, time_phases: bool, **options: Any) -> None:
    """Predict what ALGO (program, plan, MSCCL XML, or a directory of kernels) takes on a cluster.

    The plan is executed event by event: thread blocks in order, waits, slots, micro-batches; links
    and what they share are divided among the transfers in flight. Needs --cluster.
    """
    chosen = {name: options.pop(name) for name in ROAD}
    call = {name: options.pop(name) for name in CALL}
    with report.progress() as on_phase:
        on_phase("Starting")
        from hccc.predict import simulation as predict

        file = chosen["cluster"]
        predict.check_given(file)
        wanted = predict.Wanted(predict.Call(**call), how=compilation(chosen), **options)
        made = walk(algorithm, chosen, on_phase, simulated=True)
        text = predict.run(made, wanted, file, as_json, on_phase)
    print(text)
    if time_phases:
        report.phases(made.seconds)
