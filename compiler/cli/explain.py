"""`hccc explain`: why an algorithm takes its time on a cluster, and what would help."""

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
)
from hccc.cli.types import Size


@click.command(short_help="Say why ALGO takes its time on a cluster, and what would help.")
@algorithm_argument
@click.option("-b", "--bytes", "size", type=Size(), default="64M", help="Bytes of the call.")
@call_options
@compile_options
def explain(algorithm: Path, size: int, as_json: bool, time_phases: bool, **options: Any) -> None:
    """Say why ALGO (program, plan, MSCCL XML, or a directory of kernels) takes its time.

    The plan is simulated; what no schedule can beat on the cluster is computed; what lies between
    is taken apart, part by part; and the call is simulated again with one thing changed at a time.
    Needs --cluster, or a plan that was compiled for one.
    """
    how = chosen(options)
    with report.progress() as on_phase:
        on_phase("Starting")
        from hccc.inputs import opened
        from hccc.predict import explanation
        from hccc.predict.simulation import Call, check_cluster, cluster_of

        given, topology = opened(algorithm), how.load_cluster()
        check_cluster(given, topology)
        compiled = load(given, how, topology, on_phase, simulated=True)
        where = cluster_of(compiled, topology)
        call = Call(**{name: options[name] for name in CALL})
        request = call.settled(compiled.plan, where, size)
        page = explanation.explain(compiled, where, request, how.options, on_phase)
    if as_json:
        report.as_json(page.facts())
    else:
        print(page.text())
    if time_phases:
        report.phases(compiled.seconds)
