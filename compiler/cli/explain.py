"""cli_explain: `hccc explain`, the command that says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hccc.cli import report
from hccc.cli.options import CALL, algorithm_argument, call_options, compilation, road_options, walk
from hccc.cli.types import Size


@click.command(short_help="Say why ALGO takes its time on a cluster, and what would help.")
@algorithm_argument
@click.option("-b", "--bytes", "size", type=Size(), default="64M", help="Bytes of the call.")
@call_options
@road_options
def explain(algorithm: Path, size: int, as_json: bool, time_phases: bool, **options: Any) -> None:
    """Say why ALGO (program, plan, MSCCL XML, or a directory of kernels) takes its time.

    The plan is simulated; what no schedule can beat on the cluster is computed; what lies between
    is taken apart, part by part; and the call is simulated again with one thing changed at a time.
    Needs --cluster.
    """
    call = {name: options.pop(name) for name in CALL}
    with report.progress() as on_phase:
        on_phase("Starting")
        from hccc.predict import explanation as explaining
        from hccc.predict import simulation as predict

        predict.check_given(options["cluster"])
        how = compilation(options)
        made = walk(algorithm, options, on_phase, simulated=True)
        topology = predict.topology_of(made, options["cluster"])
        request = predict.Call(**call).settled(made.plan, topology, size)
        wanted = explaining.Wanted(request, how.cluster or Path(), how)
        text = explaining.run(made, wanted, as_json, on_phase)
    print(text)
    if time_phases:
        report.phases(made.seconds)
