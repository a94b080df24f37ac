"""`hccc explain`: why an algorithm takes its time on a cluster, and what would help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hccc.cli import report
from hccc.cli.helps import HelpfulCommand
from hccc.cli.options import (
    CALL_OF_PLANS,
    algorithm_argument,
    call,
    call_options,
    command_options,
    compile_options,
    given,
    load_simulated,
)
from hccc.cli.progress import progress, say
from hccc.cli.types import Size


@click.command(
    short_help="Say why ALGO takes its time on a cluster, and what would help.",
    cls=HelpfulCommand,
    examples=["hccc explain ring.rccl --cluster dgx-h100 -b 64M"],
)
@algorithm_argument
@click.option("-b", "--bytes", "size", type=Size(), default="64M", help="Bytes of the call.")
@call_options
@compile_options
def explain(algorithm: Path, size: int, as_json: bool, time_phases: bool, **options: Any) -> None:
    """Say why ALGO (program, plan, MSCCL XML, or a directory of kernels) takes its time.

    The plan is simulated, and compared with what no schedule can beat on the cluster: the report
    says where the rest of the time goes. Then the call is simulated again with one thing changed at
    a time.
    """
    how = command_options(options)
    with progress():
        from hccc.cli import jobs
        from hccc.driver.inputs import opened

        what = opened(algorithm)
        found = jobs.job_in(what, how, given("time_phases", *CALL_OF_PLANS))
        if found is not None:
            from hccc.predict.job_explanation import explain_job

            of_job = explain_job(*jobs.located(found), size, options["skew"] or "")
            say(report.dumps(of_job.facts()) if as_json else of_job.text())
            return
        compiled, topology = load_simulated(what, how)
        if compiled.plan.max_bytes and not given("size"):
            size = min(size, compiled.plan.max_bytes)
        from hccc.api import functions as api

        explanation = api.explain(
            compiled,
            size,
            call(options),
            cluster=topology,
            options=how.options,
        )
    if as_json:
        report.as_json(explanation.facts())
    else:
        print(explanation.text())
        report.warnings(explanation.warnings)
    if time_phases:
        report.phases(compiled.seconds)
