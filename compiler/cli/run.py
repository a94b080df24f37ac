"""`hccc run`: all ranks on real data, checked and timed."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hccc.base.diagnostics import fail
from hccc.base.dtypes import ALIASES, NAMES, OPS
from hccc.cli import report
from hccc.cli.helps import HelpfulCommand
from hccc.cli.options import (
    CommandOptions,
    algorithm_argument,
    command_options,
    compile_options,
    given,
    hosts_options,
    load,
    refuse,
    size_options,
    with_reductions,
)
from hccc.cli.progress import progress
from hccc.cli.types import File, Number, Operations, RanksOfVendors, Size, Speed, Words

if TYPE_CHECKING:
    from hccc.ir.collective import Collective
from hccc.ir.op_type import SKEWED

EMULATED = {"ptx": "cuda", "gcn": "hip"}  # and the target of each


@click.command(
    short_help="Run all ranks of ALGO on real data, and check and time it.",
    cls=HelpfulCommand,
    examples=[
        "hccc run ring.rccl",
        "hccc run kernels/ -b 1K -e 64M -d float32,bfloat16",
        "hccc run ring.rccl --procs 4",
        "hccc run ring.rccl --hosts a:4,b:4",
        "hccc run job.rccl --vendors oneccl:4,mpich:2",
    ],
)
@algorithm_argument
@size_options("1K", "1M")
@click.option("-i", "--stepbytes", type=Size(), help="The step between sizes, instead of a factor.")
@click.option(
    "-d",
    "--datatype",
    "dtypes",
    type=Words(NAMES, ALIASES),
    default="float32",
    help="Comma list of types, or all.",
)
@click.option(
    "-o",
    "--op",
    "ops",
    type=Operations(OPS),
    multiple=True,
    default=("sum",),
    help="Comma list, or all; or your own, 'absmin: abs(a) < abs(b) ? a : abs(b) < abs(a) "
    "? b : min(a, b)', or a file of such; may be given again.",
)
@click.option("-n", "--iters", type=click.IntRange(1), default=20, help="Timed launches.")
@click.option("-w", "--warmup-iters", type=click.IntRange(0), default=5, help="Launches before.")
@click.option("-c", "--check", "checks", type=click.IntRange(0), default=1, help="0: no check.")
@click.option("--window", type=click.IntRange(0), default=0, help="Micro-batches; 0: all.")
@click.option("--micro-batch", type=Size(), default=0, help="Bytes; 0: by the size.")
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda", "hip", *EMULATED]),
    default="cpu",
    help="ptx, gcn: cuda, hip, emulated.",
)
@click.option("--arch", help="Of ptx and gcn. [default: sm_90, gfx942]")
@click.option("-r", "--root", type=click.IntRange(0), help="Must be ALGO's: a program has one.")
@click.option(
    "-J",
    "--output-file",
    "file",
    type=File(),
    metavar="FILE",
    help="The report as JSON in FILE, too.",
)
@click.option(
    "--threads",
    "--workers",
    "workers",
    type=click.IntRange(0),
    default=0,
    help="All ranks in this process, with so many threads on the CPU; 0: as useful.",
)
@click.option(
    "--procs",
    type=click.IntRange(0),
    default=0,
    help="Processes for the ranks; 0: this one, or with --hosts one for each rank.",
)
@hosts_options
@click.option(
    "--vendors",
    type=RanksOfVendors(),
    default=(),
    metavar="NAME:N,...",
    help="Of a job's ranks, as mpich:4,own:2.",
)
@click.option(
    "--network",
    type=Speed(),
    help="Between nodes, on the CPU: GB/s of each NIC and latency, as 12.5GB/s,5us.",
)
@click.option(
    "--timeout",
    type=Number(0, 86_400),
    envvar="HCCC_TIMEOUT",
    default=30.0,
    help="Seconds a launch may wait, else HCCC_TIMEOUT; 0: for ever.",
)
@click.option(
    "--skew",
    type=click.Choice(SKEWED),
    help="Lengths of the blocks of an uneven collective; sizes are of the longest.",
)
@click.option(
    "--trace",
    type=File(),
    metavar="FILE",
    help="Record launches for Perfetto, with --cluster beside the prediction.",
)
@compile_options
def run(
    algorithm: Path,
    as_json: bool,
    time_phases: bool,
    file: Path | None,
    root: int | None,
    **options: Any,
) -> None:
    """Run all ranks of ALGO (program, plan, XML, kernels, or job) on real data.

    It prints nccl-tests' table, with the plan of each row where there are several. A job runs over
    the vendor clusters of --cluster or --vendors. The exit code is 1 if any element is wrong.
    """
    _check_files(algorithm, file, options["trace"])
    from hccc.cli import jobs
    from hccc.driver.inputs import name_of, opened

    if options["device"] in EMULATED:
        options |= {name: few for name, few in _FEW.items() if not given(name)}
    how = with_reductions(command_options(options), options["ops"])
    options["ops"] = tuple(dict.fromkeys(op for some in options["ops"] for op in some))
    what = opened(algorithm)
    if (job := jobs.runnable(what, how, options["vendors"])) is not None:
        _check_root(root, job[0].collective)
        click.get_current_context().exit(1 if jobs.run(job, options, as_json, file) else 0)
    refuse(given("vendors"), f"{name_of(what)} is no job", "leave it out")
    with progress():
        cluster = how.load_cluster()
        how = _for_sizes(how, options["minbytes"], options["maxbytes"])
        compiled = load(what, how, cluster or how.where(_target(options["device"])))
    _check_root(root, compiled.plan.collective)
    if compiled.plan.max_bytes and not given("maxbytes"):
        options["maxbytes"] = min(options["maxbytes"], compiled.plan.max_bytes)
    from hccc.cli.tables import Table, of_library
    from hccc.launch.measure import RunOptions, measure
    from hccc.launch.tracing import Tracer

    wanted = RunOptions(**{f.name: options[f.name] for f in fields(RunOptions)})
    tracer = Tracer(compiled.catalogue) if wanted.trace else None
    with progress():
        rows = measure(compiled, wanted, tracer)
        library = compiled.catalogue
        speed = wanted.network_of(library)
        about = of_library(library, wanted.where(library.n_ranks), speed)
        table = Table(about, wanted.schedule(library), as_json)
        for row in rows:
            table.add(row)
    table.finish(file)
    if tracer and wanted.trace:
        from hccc.cli import launch_trace

        report.warnings(launch_trace.write(wanted.trace, tracer.launches, cluster))
    if time_phases:
        report.phases(compiled.seconds)
    click.get_current_context().exit(1 if table.wrong else 0)


def _for_sizes(how: CommandOptions, smallest: int, largest: int) -> CommandOptions:
    """Returns options that choose for the sizes of the calls, but with --sizes or --tune off."""
    if "sizes" in how.given or how.options.tune == "off":
        return how
    from hccc.driver.tune.sizes import range_text

    return replace(how, options=replace(how.options, sizes=range_text(smallest, largest)))


# What is run without a GPU unless it is said: some thousand threads, one instruction at a time.
_FEW = {"maxbytes": 16 << 10, "iters": 2, "warmup_iters": 0}


def _target(device: str) -> str:
    """Returns the target that kernels for a device are of."""
    return EMULATED.get(device, device)


def _check_files(algorithm: Path, *files: Path | None) -> None:
    """Raises UserError where one cannot be written, or two are one."""
    given = [file for file in files if file is not None]
    if not given:
        return
    from hccc.base.files.writing import check_place

    for file in given:
        if str(file) == "-":
            raise fail("E415", "a report or a trace cannot go to stdout", help="give a file")
        check_place(file, algorithm)
    if len(given) > 1 and given[0].resolve() == given[1].resolve():
        raise fail("E415", f"-J and --trace are both {given[0]}", help="give two names")


def _check_root(root: int | None, collective: Collective) -> None:
    """Raises UserError E415 for another root than the program's."""
    if root is None or (collective.rooted and root == collective.root):
        return
    has = f"its root is rank {collective.root}" if collective.rooted else "it has no root"
    help = "Root= in the program's header says which" if collective.rooted else "leave -r out"
    raise fail("E415", f"-r {root}: {collective.op.value}, and {has}", help=help)
