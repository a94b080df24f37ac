"""`hccc check`: what is proved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hccc.base.progress import tell
from hccc.cli import report
from hccc.cli.helps import HelpfulCommand
from hccc.cli.options import algorithm_argument, command_options, compile_options, given, load
from hccc.cli.progress import progress


@click.command(
    short_help="Prove that ALGO is right, and say what holds.",
    cls=HelpfulCommand,
    examples=[
        "hccc check ring.rccl",
        "hccc check kernels/",
        "hccc check algo.xml --cluster dgx-a100",
    ],
)
@algorithm_argument
@click.option("--orders", is_flag=True, help="Print the order of every sum, whole.")
@compile_options
def check(algorithm: Path, orders: bool, as_json: bool, time_phases: bool, **options: Any) -> None:
    """Prove that ALGO (.rccl, a plan's .json, MSCCL XML, or a directory of kernels) is right.

    It proves for every message size, in place and out of place, that the result is the
    collective's and that nothing deadlocks or races; and it says in which order each element is
    summed. Of a directory of kernels it proves the plan, compares every file with what that plan
    emits, and refuses other files; nothing of the directory is compiled. The kernels that the plan
    emits are run on the host, and all they do is held against the plan. A job's text needs
    --cluster; its steps are proved as a program's transfers are.
    """
    how = command_options(options)
    with progress():
        from hccc.cli import jobs
        from hccc.driver.inputs import opened

        what = opened(algorithm)
        found = jobs.job_in(what, how, given("orders", "time_phases"))
    if found is not None:
        jobs.check(found[0], as_json)
        return
    with progress():
        compiled = load(what, how, how.load_cluster(), checked=True)
        from hccc.driver.orders import declared_orders

        tell("Looking for the order of each sum")
        declared = declared_orders(compiled.catalogue)
    if as_json:
        from hccc.driver.facts import compiled_facts

        report.as_json(compiled_facts(compiled) | (declared.facts(orders) if declared else {}))
    else:
        report.proofs(compiled, declared, orders)
    if time_phases:
        report.phases(compiled.seconds)
