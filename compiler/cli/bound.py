"""`hccc bound`: what no schedule can beat on a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from hccc.base.progress import tell
from hccc.cli import report
from hccc.cli.helps import HelpfulCommand
from hccc.cli.options import faults_options, json_option
from hccc.cli.progress import progress
from hccc.cli.types import ClusterFile, Size, Words
from hccc.ir.op_type import NAMES as COLLECTIVES


@click.command(
    short_help="Say what no schedule of a collective can beat on CLUSTER.",
    cls=HelpfulCommand,
    examples=["hccc bound dgx-h100", "hccc bound my.cluster --collective allreduce -b 1G"],
)
@click.argument("cluster", type=ClusterFile(), metavar="CLUSTER")
@click.option(
    "--collective",
    "collectives",
    type=Words(COLLECTIVES),
    metavar="LIST",
    help="Any of allreduce,allgather,...  [default: all but sendrecv]",
)
@click.option("-b", "--bytes", "size", type=Size(), default="64M", help="Bytes of the call.")
@click.option("--root", type=click.IntRange(0), default=0, help="Of rooted collectives.")
@click.option(
    "--max-sms",
    type=click.IntRange(1),
    help="Thread blocks of a rank; where left out as many as `synth` takes at most.",
)
@faults_options
@json_option
def bound(
    cluster: Path,
    collectives: tuple[str, ...] | None,
    size: int,
    root: int,
    max_sms: int | None,
    failed: tuple[str, ...],
    degraded: tuple[str, ...],
    as_json: bool,
) -> None:
    """Say what no schedule of a collective can beat on CLUSTER, and what holds it up.

    A schedule takes at least the latency of the longest of the shortest paths, and at least the
    time in which what must cross a cut can cross it. `over trees` is the best rate there is: of an
    Allgather and a Reducescatter, of all schedules; of an Allreduce, of those that reduce each byte
    to a root, whichever, and broadcast it from there. `over paths` is the best rate of an Alltoall,
    a Gather and a Scatter, of all schedules: cuts that bind together are in it. Where so many
    thread blocks a rank (`--max-sms`) take longer to copy what there is to copy, that limits.
    """
    from hccc.api import functions as api
    from hccc.driver.inputs import load_cluster

    with progress():
        tell("Looking for the narrowest cut")
        site = load_cluster(cluster, failed, degraded)
        found = api.bound(site, collectives, size, root=root, max_sms=max_sms)
    if as_json:
        report.as_json(found.facts())
    else:
        print(found.text())
