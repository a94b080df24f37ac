"""`hccc sim`: how long before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hccc.base.diagnostics import fail
from hccc.cli import report
from hccc.cli.helps import HelpfulCommand
from hccc.cli.options import (
    CALL,
    CALL_OF_PLANS,
    call,
    call_options,
    command_options,
    compile_options,
    given,
    load_simulated,
    refuse,
    size_options,
)
from hccc.cli.progress import progress, say
from hccc.cli.types import AlgorithmFile, File, one_of
from hccc.driver.options import selectable
from hccc.ir.op_type import NAMES as COLLECTIVES

ALGORITHMS = ("Ring", "Tree", "NVLS", "NVLSTree", "PAT")


@click.command(
    short_help="Predict what ALGO, NCCL or RCCL takes on a cluster.",
    cls=HelpfulCommand,
    examples=[
        "hccc sim ring.rccl --cluster dgx-h100 -b 1K -e 1G",
        "hccc sim ring.rccl --cluster my.cluster --vs",
        "hccc sim ring.rccl --cluster my.cluster --skew zipf",
        "hccc sim kernels/ --cluster my.cluster -o kernels/times.table",
    ],
)
@click.argument("algorithm", type=AlgorithmFile(), metavar="[ALGO]", required=False)
@size_options("1K", "4G")
@click.option(
    "--vs",
    is_flag=False,
    flag_value="auto",
    type=click.Choice(("auto", "nccl", "rccl")),
    help="Show also what others take: NCCL or RCCL (auto: as the devices are) by default and with "
    "registered buffers, NCCL's rings and trees, MSCCL and more.",
)
@click.option(
    "--baseline",
    type=click.Choice(("nccl", "rccl")),
    help="Say what the library takes, instead of ALGO: by its own choice or as forced below.",
)
@click.option(
    "--collective",
    metavar="NAME",
    help=f"For --baseline: {', '.join(COLLECTIVES)}.",
    shell_complete=one_of(lambda: COLLECTIVES),
)
@click.option(
    "--algorithm",
    "library_algorithm",
    type=click.Choice(ALGORITHMS, case_sensitive=False),
    help="For --baseline, forced as by NCCL_ALGO; --protocol is forced as by NCCL_PROTO, "
    "--channels at every size.",
)
@click.option(
    "--registered",
    is_flag=True,
    help="For --baseline nccl: with registered buffers, for which NCCL has symmetric kernels.",
)
@click.option(
    "-o",
    "--output",
    type=File(),
    metavar="FILE",
    help="Write the times of ALGO and of NCCL or RCCL as a table, by which programs of NCCL choose "
    "between the two (docs/nccl.md).",
)
@call_options
@compile_options
def sim(
    algorithm: Path | None,
    minbytes: int,
    maxbytes: int,
    stepfactor: float,
    vs: str | None,
    output: Path | None,
    as_json: bool,
    time_phases: bool,
    **options: Any,
) -> None:
    """Predict what ALGO (program, plan, MSCCL XML, or a directory of kernels) takes on a cluster.

    The plan is executed event by event: thread blocks in order, waits, slots, micro-batches; links
    and what they share are divided among the transfers in flight. With --baseline, what NCCL or
    RCCL takes, by its own choice of algorithm, protocol and channels and a model of its speed that
    is compared with published measurements.
    """
    if options["baseline"]:
        refuse(given("output"), "--baseline has no ALGO", "leave out --baseline")
        _baseline(algorithm, minbytes, maxbytes, stepfactor, as_json, options)
        return
    refuse(
        given("collective", "library_algorithm", "registered"),
        "there is no --baseline",
        "add --baseline nccl",
    )
    if algorithm is None:
        raise fail("E467", "there is nothing to predict", help="give an ALGO, or --baseline nccl")
    how = command_options(options)
    with progress():
        from hccc.cli import jobs
        from hccc.driver.inputs import opened

        what = opened(algorithm)
        found = jobs.job_in(what, how, given("vs", "output", "time_phases", *CALL_OF_PLANS))
        if found is not None:
            from hccc.predict.jobs import simulate_job
            from hccc.predict.simulation import Sizes

            sizes = Sizes(minbytes, maxbytes, stepfactor)
            of_job = simulate_job(*jobs.located(found), sizes, options["skew"] or "")
            say(report.dumps(of_job.facts()) if as_json else of_job.text())
            return
        from hccc.base.files.writing import check_place, write_whole

        if output is not None:
            check_place(output, algorithm, how.cluster)
        compiled, topology = load_simulated(what, how)
        if compiled.plan.max_bytes and not given("maxbytes"):
            maxbytes = min(maxbytes, compiled.plan.max_bytes)
        from hccc.api import functions as api
        from hccc.predict import times
        from hccc.predict.simulation import Sizes, cluster_of

        simulation = api.simulate(
            compiled,
            Sizes(minbytes, maxbytes, stepfactor),
            call(options),
            cluster=topology,
            vs=vs or False,
            options=how.options,
        )
        if output is not None:
            table = times.dumps(simulation, cluster_of(compiled, topology))
            write_whole(output, lambda file: file.write(table))
    if as_json:
        report.as_json(simulation.facts())
    else:
        print(simulation.text())
        report.warnings(simulation.warnings)
    if time_phases:
        report.phases(compiled.seconds)


def _baseline(
    algorithm: Path | None,
    minbytes: int,
    maxbytes: int,
    stepfactor: float,
    as_json: bool,
    options: dict[str, Any],
) -> None:
    """Predicts the time of NCCL or RCCL. Raises UserError for options that a library does not
    have."""
    own = {"protocol", "channels", "cluster", "launch"}
    unused = {*CALL, *(f.name for f in selectable()), "reschedule", "print_after", "vs"} - own
    refuse(given(*unused), "a library is predicted", "leave it out")
    if options["registered"]:
        forced_by = given("library_algorithm", "protocol", "channels")
        refuse(forced_by, "NCCL chooses a symmetric kernel itself", "leave it out")
    if algorithm is not None:
        raise fail("E467", "ALGO and --baseline are both given", help="give one of them")
    if not options["collective"] or options["cluster"] is None:
        missing = "--collective NAME" if not options["collective"] else "--cluster FILE"
        raise fail("E467", f"--baseline needs {missing}", help=f"add {missing}")
    from hccc.driver.inputs import load_cluster
    from hccc.ir.collective import collective_named
    from hccc.predict.nccl.calls import calls
    from hccc.predict.nccl.choose import Forced
    from hccc.predict.nccl.rows import VendorLibrary
    from hccc.predict.nccl.tuning import NcclAlgorithm, Protocol
    from hccc.predict.simulation import Sizes

    asked = options["library_algorithm"]
    forced = Forced(
        NcclAlgorithm(asked) if asked else None,
        Protocol(options["protocol"]) if given("protocol") else None,
        options["channels"] if given("channels") else None,
    )
    with progress(f"Predicting {options['baseline'].upper()}"):
        predicted = calls(
            VendorLibrary(options["baseline"]),
            collective_named(options["collective"]),
            load_cluster(options["cluster"]),
            Sizes(minbytes, maxbytes, stepfactor),
            forced,
            options["launch"],
            registered=options["registered"],
        )
    if as_json:
        report.as_json(predicted.facts())
    else:
        print(predicted.text())
