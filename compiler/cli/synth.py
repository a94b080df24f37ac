"""`hccc synth`: an algorithm for a cluster, made by hccc."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hccc.cli import report
from hccc.cli.options import COLLECTIVES, json_option
from hccc.cli.types import ClusterFile, File, Number, Size
from hccc.diagnostics import fail
from hccc.options import TARGETS

if TYPE_CHECKING:
    from hccc.synthesis import Synthesis


@click.command(short_help="Make an algorithm for CLUSTER.")
@click.argument("cluster", type=ClusterFile(), metavar="CLUSTER")
@click.option("--collective", type=click.Choice(COLLECTIVES), required=True, help="What to do.")
@click.option("-b", "--bytes", "size", type=Size(), default="64M", help="Bytes of the call.")
@click.option("--root", type=click.IntRange(0), default=0, help="Of rooted collectives.")
@click.option(
    "--method", default="auto", metavar="NAME",
    help="A built-in algorithm (`hccc builtin list`), greedy, greedy shortened by a solver "
    "(repair), HeteCCL's cegis, or what is composed of one node of each kind (compose); auto: the "
    "fastest of all but solvers, simulated.",
)  # fmt: skip
@click.option(
    "--time-limit", type=Number(0, 1_000_000), default=60, show_default=True,
    help="Seconds of a solver; then, or at Ctrl-C, the best so far.",
)  # fmt: skip
@click.option("--explain", is_flag=True, help="Also what a solver was asked, call by call.")
@click.option("--seed", type=click.IntRange(0, 1 << 30), default=0, help="Of ties in greedy.")
@click.option(
    "--fail", "failed", multiple=True, metavar="NODE.GPU",
    help="Without this GPU, node2.gpu3; may be given again.",
)  # fmt: skip
@click.option(
    "--degrade", "degraded", multiple=True, metavar="WHAT=RATE",
    help="Slower than the cluster says: node1.nic=18Gbps, node1.nic0=2.25, leaf1=50.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=File(), metavar="FILE|DIR",
    help="A program, x.rccl; or a directory of kernels. Without it the program goes to stdout.",
)  # fmt: skip
@json_option
def synth(
    cluster: Path,
    collective: str,
    size: int,
    root: int,
    method: str,
    seed: int,
    time_limit: float,
    explain: bool,
    failed: tuple[str, ...],
    degraded: tuple[str, ...],
    output: Path | None,
    as_json: bool,
) -> None:
    """Make an algorithm of one collective for CLUSTER and calls of so many bytes.

    Schedules that hccc searches and its built-in algorithms are weighed by simulated time; the
    fastest is printed as a program, with how near it comes to what no schedule can beat. The same
    seed gives the same program. `hccc synth ... | hccc run -` runs it.
    """
    from hccc import api
    from hccc.inputs import load_cluster
    from hccc.synthesis import program_text

    to_directory = output is not None and str(output) != "-" and output.suffix != ".rccl"
    if as_json and (output is None or str(output) == "-"):
        raise fail("E415", "--json and the program are both for stdout", help="-o x.rccl")
    if output is not None and not to_directory and str(output) != "-":
        from hccc.files.writing import check_place

        check_place(output, cluster)
    with report.progress() as on_phase:
        t = load_cluster(cluster, failed, degraded)
        made = api.synthesize(
            t, collective, size, root=root, method=method, seed=seed, time_limit=time_limit,
            on_phase=on_phase,
        )  # fmt: skip
        if to_directory:
            assert output is not None
            compiled = api.compile(made.program, cluster=t, on_phase=on_phase)
            api.write(compiled, output, TARGETS, on_phase=on_phase)
    if output is None or str(output) == "-":
        click.echo(program_text(made), nl=False)
        click.echo(made.text(explain=explain), err=True)
        return
    if not to_directory:
        from hccc.files.writing import write_whole

        write_whole(output, lambda file: file.write(program_text(made)))
    _say(made, explain, as_json)


def _say(made: Synthesis, explain: bool, as_json: bool) -> None:
    if as_json:
        report.as_json(made.facts())
    else:
        print(made.text(explain=explain))
