"""`hccc standard`: the library of a standard collective, which communicators make."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from hccc.base.dtypes import NAMES as DTYPES
from hccc.base.dtypes import OPS
from hccc.cli.helps import HelpfulCommand
from hccc.cli.progress import progress
from hccc.cli.types import File, HostRanks
from hccc.ir.op_type import NAMES, UNEVEN_NAMES

_PLATFORMS = ("cpu", "cuda", "hip")
_COMBINE = "combine"


@click.command(
    short_help="Make the library of a standard collective.",
    cls=HelpfulCommand,
    examples=["hccc standard --ranks 4 --collective allreduce"],
)
@click.option(
    "--ranks",
    type=HostRanks(),
    required=True,
    help="Of one host, or of each of several: 2+2; or which: 0,2+1,3.",
)
@click.option(
    "--collective",
    type=click.Choice([*NAMES, *UNEVEN_NAMES, _COMBINE]),
    required=True,
    help="The collective; combine: the reduction of two arrays on a GPU, of jobs.",
)
@click.option("--root", type=click.IntRange(0), default=0, help="The root, where there is one.")
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", help="The type of elements.")
@click.option(
    "--op", type=click.Choice(OPS), default="sum", help="The reduction, where there is one."
)
@click.option(
    "--platform", type=click.Choice(_PLATFORMS), default="cpu", help="What the kernels run on."
)
@click.option("-o", "--output", type=File(), metavar="FILE", help="Copy the library to a file.")
def standard(
    ranks: tuple[tuple[int, ...], ...],
    collective: str,
    root: int,
    dtype: str,
    op: str,
    platform: str,
    output: Path | None,
) -> None:
    """Make the library of a standard collective for the CPUs of one host, or of several that a
    network joins, or for the GPUs of one, and print its file.

    A communicator runs this when a call has no library: built-in algorithms, proved, the best for
    each size by the figures of HCCC_CLUSTER (a file of `hccc profile --device cpu`), or usual ones.
    """
    from hccc.ir.collective import OpType, spelled
    from hccc.standard.libraries import build_standard

    n_ranks = sum(map(len, ranks))
    if root >= n_ranks:
        raise click.BadParameter(f"{root} is no rank of {n_ranks}.", param_hint="'--root'")
    if platform != "cpu" and len(ranks) > 1:
        raise click.BadParameter("GPUs are of one host.", param_hint="'--ranks'")
    if collective == _COMBINE and platform == "cpu":
        raise click.BadParameter("combine is for GPUs.", param_hint="'--platform'")
    with progress():
        if collective == _COMBINE:
            from hccc.runtime.communicator.gpu_kernels import build_combine

            made = build_combine(platform, dtype, op)
        else:
            of, uneven = spelled(collective) or (OpType.ALLREDUCE, False)
            made = build_standard(of, ranks, [dtype], [op], root, uneven=uneven, platform=platform)
        if output is not None:
            from hccc.base.files.writing import beside, check_place, named_errors

            check_place(output)
            with named_errors(output):
                copy = Path(shutil.copyfile(made, beside(output)))
                copy.chmod(0o700)
                copy.replace(output)
    click.echo(made if output is None else output)
