"""cli_explain: `hccc explain`, the command that says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hccc import report
from hccc.command import Size
from hccc.options import algorithm_argument, road_options, walk


@click.command(short_help="Say why ALGO takes its time on a cluster, and what would help.")
@algorithm_argument
@click.option("-b", "--bytes", "size", type=Size(), default="64M", help="Bytes of the call.")
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
@road_options
def explain(
    algorithm: Path,
    size: int,
    micro_batch: int,
    window: int,
    in_place: bool,
    protocol: str,
    launch: float,
    as_json: bool,
    time_phases: bool,
    **options: Any,
) -> None:
    """Say why ALGO (program, plan, MSCCL XML, or a directory of kernels) takes its time.

    The plan is simulated; what no schedule can beat on the cluster is computed; what lies between
    is taken apart, part by part; and the call is simulated again with one thing changed at a time.
    Needs --cluster.
    """
    with report.progress() as on_phase:
        from dataclasses import replace

        from hccc import explain as explaining
        from hccc import predict
        from hccc.driver import Options
        from hccc.ir.primitives import Transport
        from hccc.sim.costs import PROTOCOLS
        from hccc.sim.simulate import Request

        predict.check_given(options["cluster"])
        kept = {name: value for name, value in options.items() if name != "reschedule"}
        how = Options(**{**kept, "transport": Transport[kept["transport"].upper()]})
        made = walk(algorithm, options, on_phase, simulated=True)
        costs = replace(PROTOCOLS[protocol], launch=launch)
        request = Request(size, micro_batch, window, in_place, costs)
        wanted = explaining.Wanted(request, how.cluster or Path(), how)
        text = explaining.run(made, wanted, as_json, on_phase)
    print(text)
    if time_phases:
        report.phases(made.seconds)
