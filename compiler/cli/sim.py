"""`hccc sim`: how long before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hccc.cli import report
from hccc.cli.options import (
    algorithm_argument,
    call,
    call_options,
    chosen,
    compile_options,
    load_simulated,
    size_options,
)


@click.command(short_help="Predict what ALGO takes on a cluster.")
@algorithm_argument
@size_options("1K", "4G")
@click.option(
    "--vs",
    is_flag=True,
    help="Beside NCCL's rings and trees, MSCCL, and others.",
)
@call_options
@compile_options
def sim(
    algorithm: Path,
    minbytes: int,
    maxbytes: int,
    stepfactor: float,
    vs: bool,
    as_json: bool,
    time_phases: bool,
    **options: Any,
) -> None:
    """Predict what ALGO (program, plan, MSCCL XML, or a directory of kernels) takes on a cluster.

    The plan is executed event by event: thread blocks in order, waits, slots, micro-batches; links
    and what they share are divided among the transfers in flight. Needs --cluster, or a plan that
    was compiled for one.
    """
    how = chosen(options)
    with report.progress() as on_phase:
        compiled, topology = load_simulated(algorithm, how, on_phase)
        from hccc import api
        from hccc.predict.simulation import Sizes

        simulation = api.simulate(
            compiled, Sizes(minbytes, maxbytes, stepfactor), call(options),
            cluster=topology, vs=vs, options=how.options, on_phase=on_phase,
        )  # fmt: skip
    if as_json:
        report.as_json(simulation.facts())
    else:
        print(simulation.text())
    if time_phases:
        report.phases(compiled.seconds)
