"""`hccc sim`: how long before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hccc.cli import report
from hccc.cli.options import (
    CALL,
    algorithm_argument,
    call_options,
    chosen,
    compile_options,
    load,
    size_options,
)


@click.command(short_help="Predict what ALGO takes on a cluster.")
@algorithm_argument
@size_options("1K", "4G")
@click.option("--vs", is_flag=True, help="Beside NCCL's ring and tree, MSCCL, and other ways.")
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
        on_phase("Starting")
        from hccc.inputs import opened
        from hccc.predict.simulation import Call, Sizes, check_cluster, cluster_of, simulate_sizes

        given, topology = opened(algorithm), how.load_cluster()
        check_cluster(given, topology)
        call = Call(**{name: options[name] for name in CALL})
        sizes = Sizes(minbytes, maxbytes, stepfactor)
        compiled = load(given, how, topology, on_phase, simulated=True)
        where = cluster_of(compiled, topology)
        simulation = simulate_sizes(
            compiled, where, sizes, call, how.options if vs else None, on_phase
        )
    if as_json:
        report.as_json(simulation.facts())
    else:
        print(simulation.text())
    if time_phases:
        report.phases(compiled.seconds)
