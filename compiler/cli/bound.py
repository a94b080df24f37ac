"""`hccc bound`: what no schedule can beat on a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from hccc.base.progress import tell
from hccc.cli import report
from hccc.cli.helps import HelpfulCommand
from hccc.cli.options import (
    collective_or_demand,
    demand_of,
    demand_option,
    faults_options,
    json_option,
)
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
@demand_option
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
    demand: Path | None,
    size: int,
    root: int,
    max_sms: int | None,
    failed: tuple[str, ...],
    degraded: tuple[str, ...],
    as_json: bool,
) -> None:
    """Say what no schedule of a collective can beat on CLUSTER, and what holds it up.

    A schedule takes at least the latency between the two ranks that are farthest apart, and at
    least the time in which all that must cross a cut can cross it. `over trees` is the best rate of
    any schedule of an Allgather or a Reducescatter; of an Allreduce, of any that reduces each byte
    to some root and broadcasts it from there. `over paths` is the best rate of any schedule of an
    Alltoall, a Gather or a Scatter, where several cuts may bind together. Where the thread blocks
    of a rank (`--max-sms`) need longer to copy what there is to copy, they are the limit.
    """
    from hccc.api import functions as api
    from hccc.driver.inputs import load_cluster

    collective_or_demand(collectives, demand, one=False)
    with progress():
        tell("Looking for the narrowest cut")
        site = load_cluster(cluster, failed, degraded)
        what = demand_of(demand, len(site)) if demand else collectives
        found = api.bound(site, what, size, root=root, max_sms=max_sms)
    if as_json:
        report.as_json(found.facts())
    else:
        print(found.text())
