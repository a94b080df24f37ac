"""`hccc show`: pictures of a program, a plan or a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hccc.base.progress import tell
from hccc.cli import jobs, report
from hccc.cli.helps import HelpfulCommand
from hccc.cli.options import command_options, compile_options, given, load, refuse
from hccc.cli.progress import progress
from hccc.cli.types import AnyFile, File, Size
from hccc.pictures.choices import WHATS

if TYPE_CHECKING:
    from hccc.driver.compiled import Compiled
    from hccc.ir.topology import Topology


@click.command(
    short_help="Draw ALGO, a plan or a cluster.",
    cls=HelpfulCommand,
    examples=[
        "hccc show ring.rccl -o ring.html",
        "hccc show dgx-h100 -o cluster.svg",
        "hccc show ring.rccl --cluster dgx-h100 -b 1M -o timeline.svg --what timeline",
    ],
)
@click.argument("algorithm", type=AnyFile(), metavar="ALGO|PLAN|CLUSTER")
@click.option(
    "-o",
    "--output",
    type=File(),
    help="out.svg, out.png, or out.html with everything.",
)
@click.option("--what", type=click.Choice(WHATS), help="One picture only.")
@click.option(
    "-b",
    "--bytes",
    "--size",
    "size",
    type=Size(),
    default="64M",
    help="Of the call in the timeline.",
)
@click.option(
    "--trace",
    type=File(),
    metavar="FILE",
    help="Write the predicted timeline for Perfetto (JSON).",
)
@compile_options
def show(
    algorithm: Path,
    output: Path | None,
    what: str | None,
    size: int,
    trace: Path | None,
    as_json: bool,
    time_phases: bool,
    **options: Any,
) -> None:
    """Draw a program, plan, MSCCL XML, directory of kernels, or a .cluster.

    Pictures are the topology, the dependencies of a chunk, the pipeline, and the predicted
    timeline. An .svg or .png holds one of them, an .html all. A job has only a timeline, with two
    lanes for each vendor cluster.
    """
    how = command_options(options)
    with progress():
        tell("Starting")
        from hccc.driver import inputs
        from hccc.pictures.choices import ShowOptions

        ShowOptions(output, what, size, trace).check(algorithm, how.cluster)
        if what is None and output is not None and output.suffix.lower() == ".html":
            from hccc.pictures import drawer

            drawer.begin()
        shown, topology = inputs.opened(algorithm), None
        if (found := jobs.job_in(shown, how, given("time_phases"))) is not None:
            jobs.draw(*jobs.located(found), output, what, trace, size)
            _print_written(output, None, as_json)
            return
        if isinstance(shown, inputs.ClusterInput):
            unused = [*how.given, *given("reschedule", "verify_each", "size")]
            why = f"{inputs.name_of(shown)} is a cluster"
            refuse({*unused}, why, "give the program, and --cluster")
            subject: Compiled | Topology = inputs.cluster_of(shown)
        else:
            topology = how.load_cluster()
            subject = load(shown, how, topology or how.where(), simulated=True)
            if subject.plan.max_bytes and not given("size"):
                size = min(size, subject.plan.max_bytes)
        from hccc.api import functions as api

        api.draw(subject, output, what, trace=trace, size=size, cluster=topology)
    _print_written(output, trace, as_json)
    if time_phases:
        report.phases(getattr(subject, "seconds", {}))


def _print_written(output: Path | None, trace: Path | None, as_json: bool) -> None:
    """Prints the files written, and their bytes."""
    from hccc.driver.facts import file_facts

    written = {str(path): path.stat().st_size for path in (output, trace) if path is not None}
    if as_json:
        report.as_json(file_facts(written))
        return
    for path, size in written.items():
        print(f"{path}: {size:,} bytes")
