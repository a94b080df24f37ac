"""cli_predict: the commands that see before anything runs: `hccc sim`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hccc import report
from hccc.command import Size
from hccc.options import ROAD, algorithm_argument, road_options, size_options, walk


@click.command(short_help="Predict what ALGO takes on a cluster.")
@algorithm_argument
@size_options("1K", "4G")
@click.option("--micro-batch", type=Size(), default=0, help="Bytes of a lane; 0: the cluster's.")
@click.option("--window", type=click.IntRange(0), default=0, help="Micro-batches; 0: all.")
@click.option("--in-place", is_flag=True, help="Calls in place.")
@click.option(
    "--protocol",
    type=click.Choice(["Simple", "LL", "LL128"]),
    default="Simple",
    help="Flags beside the data, or in every 16 or 128 bytes.",
)
@click.option("--launch", type=click.FloatRange(0), default=0, help="µs before the first step.")
@click.option("--step", type=click.FloatRange(0), default=0, help="µs more of every step.")
@click.option(
    "--interpret", type=click.FloatRange(0), default=0, help="µs more, of an interpreter."
)
@click.option(
    "--contention",
    type=click.FloatRange(0),
    default=0,
    help="Capacity lost where thread blocks offer a link more than it takes (ResCCL Eq. 1).",
)
@road_options
def sim(algorithm: Path, as_json: bool, time_phases: bool, **options: Any) -> None:
    """Predict what ALGO (program, plan, MSCCL XML, or a directory of kernels) takes on a cluster.

    The plan is executed event by event: thread blocks in order, waits, slots, micro-batches; links
    and what they share are divided among the transfers in flight. Needs --cluster.
    """
    chosen = {name: options.pop(name) for name in ROAD}
    with report.progress() as on_phase:
        from hccc import predict

        file = chosen["cluster"]
        predict.check_given(file)
        made = walk(algorithm, chosen, on_phase, simulated=True)
        text = predict.run(made, predict.Wanted(**options), file, as_json, on_phase)
    print(text)
    if time_phases:
        report.phases(made.seconds)
