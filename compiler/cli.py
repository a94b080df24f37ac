"""cli: the commands. `hccc x.rccl -o DIR` compiles, `hccc check` proves, `hccc run` runs,
`hccc fuzz` attacks, `hccc profile` measures this machine; those that predict are in
`cli_sim`, the one that draws in `cli_show`, common options in `options`."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from hccc import __version__, cli_explain, cli_show, cli_sim, report
from hccc.command import (
    EXIT_INTERRUPTED,
    DefaultGroup,
    Duration,
    Size,
    Words,
    execute,
    leave,
    open_streams,
)
from hccc.diagnostics import fail
from hccc.options import (
    CALLS,
    COLLECTIVES,
    DTYPES,
    HELP,
    NCCL_NAMES,
    OPS,
    ROAD,
    STOPS,
    TARGETS,
    algorithm_argument,
    json_option,
    road_options,
    size_options,
    walk,
)

if TYPE_CHECKING:
    from hccc.road import Made


@click.group(cls=DefaultGroup, context_settings=HELP, no_args_is_help=True)
@click.version_option(__version__, prog_name="hccc", message="%(prog)s %(version)s")
def cli() -> None:
    """Compiles collective-communication algorithms into proved CUDA, HIP and CPU kernels.

    `hccc ALGO -o DIR` is short for `hccc compile ALGO -o DIR`.
    """


@cli.command(name="compile", short_help="Compile ALGO into a directory of kernels.")
@algorithm_argument
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Directory to write.")
@click.option("--target", type=Words(TARGETS), default="all", help="Any of cuda,hip,cpu, or all.")
@click.option("--emit", type=click.Choice(STOPS), help="Print a stop of the road instead.")
@click.option(
    "--dialect",
    type=click.Choice(["executor", "msccl"]),
    default="executor",
    help="Of msccl-xml: Azure's executor and RCCL, or microsoft/msccl.",
)
@click.option(
    "--protocol",
    type=click.Choice(["Simple", "LL", "LL128"]),
    default="Simple",
    help="Of msccl-xml: its FIFOs bound the message size.",
)
@click.option(
    "--calls", type=click.Choice(list(CALLS)), default="in-place", help="That XML or JSON serves."
)
@click.option(
    "--report", "page", type=click.Path(path_type=Path), metavar="FILE",
    help="Also write a page of pictures and figures (.html).",
)  # fmt: skip
@road_options
def compile_command(
    algorithm: Path,
    output: Path | None,
    target: tuple[str, ...],
    emit: str | None,
    dialect: str,
    protocol: str,
    calls: str,
    page: Path | None,
    as_json: bool,
    time_phases: bool,
    **options: Any,
) -> None:
    """Compile ALGO (.rccl, a plan's .json, or MSCCL XML) into a directory of kernels.

    The directory builds with cmake where hccc is not installed, and `hccc run DIR` runs it.
    """
    if (output is None) == (emit is None):
        message = "either -o DIR or --emit, not both" if emit else "say where to: -o DIR, or --emit"
        raise fail("E415", message, help="`hccc x.rccl -o kernels/`, `hccc x.rccl --emit=plan`")
    paged = cli_show.paged(page, options, algorithm, output)
    with report.progress() as on_phase:
        made = walk(algorithm, options, on_phase, prove=emit not in STOPS[:3] or page is not None)
        files = _write(made, output, target, on_phase) if output else {}
        paged(made, on_phase)
    if emit:
        _emit(made, emit, dialect, protocol, CALLS[calls])
    elif as_json:
        report.as_json(report.facts(made) | report.file_facts(files))
    else:
        report.summary(made, str(output), files)
    if time_phases:
        report.phases(made.seconds)


@cli.command(short_help="Prove that ALGO is right, and say what holds.")
@algorithm_argument
@road_options
def check(algorithm: Path, as_json: bool, time_phases: bool, **options: Any) -> None:
    """Prove that ALGO (.rccl, a plan's .json, MSCCL XML, or a directory of kernels) is right.

    Proved are the collective's result, that nothing deadlocks, and that nothing races, for
    every message size, in place and out of place. Of a directory it is the plan that is proved,
    and its sources must be what that plan emits.
    """
    with report.progress() as on_phase:
        made = walk(algorithm, options, on_phase)
        made = _compared(made, on_phase)
    if as_json:
        report.as_json(report.facts(made))
    else:
        report.proofs(made)
    if time_phases:
        report.phases(made.seconds)


@cli.command(short_help="Run all ranks of ALGO on real data, and check and time it.")
@algorithm_argument
@size_options("1K", "1M")
@click.option("-i", "--stepbytes", type=Size(), help="Between sizes, instead of a factor.")
@click.option(
    "-d",
    "--datatype",
    "dtypes",
    type=Words(DTYPES, NCCL_NAMES),
    default="float32",
    help="Comma list of types, or all.",
)
@click.option("-o", "--op", "ops", type=Words(OPS), default="sum", help="Comma list, or all.")
@click.option("-n", "--iters", type=click.IntRange(1), default=20, help="Timed launches.")
@click.option("-w", "--warmup-iters", type=click.IntRange(0), default=5, help="Launches before.")
@click.option("-c", "--check", "checks", type=click.IntRange(0), default=1, help="0: no check.")
@click.option("--window", type=click.IntRange(0), default=0, help="Micro-batches; 0: all.")
@click.option("--micro-batch", type=Size(), default=0, help="Bytes; 0: by the size.")
@click.option("--device", type=click.Choice(["cpu", "cuda", "hip"]), default="cpu")
@click.option("--workers", type=click.IntRange(0), default=0, help="CPU threads; 0: as useful.")
@click.option("--timeout", type=click.FloatRange(0.001), default=30.0, help="Seconds a wait has.")
@road_options
def run(algorithm: Path, as_json: bool, time_phases: bool, **options: Any) -> None:
    """Run all ranks of ALGO (program, plan, MSCCL XML, or a directory of kernels) on real data.

    Prints the table of nccl-tests. Exits with 1 if any element is wrong.
    """
    with report.progress() as on_phase:
        made = walk(algorithm, {name: options[name] for name in ROAD}, on_phase)
    from hccc import bench

    wanted = bench.Wanted(**{k: v for k, v in options.items() if k not in ROAD})
    wrong = bench.run(made, wanted, as_json)
    if time_phases:
        report.phases(made.seconds)
    click.get_current_context().exit(1 if wrong else 0)


@cli.command(short_help="Attack hccc, or one ALGO, with random programs and runs.")
@click.argument("algorithm", type=click.Path(path_type=Path), metavar="[ALGO]", required=False)
@click.option("--collective", type=Words(COLLECTIVES), help="Random programs of this one only.")
@click.option("--examples", type=click.IntRange(1), help="How many; 1,000 without --time.")
@click.option("--seed", type=click.IntRange(0), default=0, help="Same seed, same examples.")
@click.option("--time", "seconds", type=Duration(), help="How long: 30s, 10m, 1h.")
@click.option("--kernels/--no-kernels", default=True, help="Also build and run CPU kernels.")
@json_option
def fuzz(
    algorithm: Path | None,
    collective: tuple[str, ...] | None,
    examples: int | None,
    seed: int,
    seconds: float | None,
    kernels: bool,
    as_json: bool,
) -> None:
    """Attack hccc with random programs, or ALGO with random mutations, ways and runs.

    What it finds is shrunk and printed as a program, with the command that replays it; the exit
    code is then 1.
    """
    from hccc import attack

    budget = examples if examples or seconds else 1000
    wanted = attack.Wanted(algorithm, collective, budget, seed, seconds, kernels)
    found = attack.run(wanted, as_json)
    click.get_current_context().exit(1 if found else 0)


@cli.command(short_help="Measure this machine into a .cluster.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Instead of stdout."
)
@click.option(
    "--device", "devices", type=Words(TARGETS), help="Any of cpu,cuda,hip. [default: those present]"
)
@click.option("--ranks", type=click.IntRange(4, 16), default=8, help="Of the programs launched.")
@click.option(
    "--time", "seconds", type=Duration(), default="10s", help="To launch for, on each device."
)
@json_option
def profile(
    output: Path | None,
    devices: tuple[str, ...] | None,
    ranks: int,
    seconds: float,
    as_json: bool,
) -> None:
    """Measure this machine: α, thread blocks, reductions, links; write it as a .cluster.

    With several devices each has a file of its own: FILE-cpu, FILE-cuda.
    """
    from hccc import profile as profiling

    profiling.run(profiling.Wanted(output, devices, ranks, seconds), as_json)


def _compared(made: Made, on_phase: Callable[[str], None]) -> Made:
    from hccc import road

    return road.compared(made, on_phase)


def _write(
    made: Made, output: Path, targets: tuple[str, ...], on_phase: Callable[[str], None]
) -> dict[str, int]:
    from hccc import road

    return road.write(made, output, targets, on_phase)


def _emit(made: Made, name: str, dialect: str, protocol: str, in_place: bool | None) -> None:
    from hccc import road
    from hccc.driver import XmlOptions

    for line in road.stop(made, name, XmlOptions(dialect, protocol, in_place)):
        sys.stdout.write(line + "\n")


cli.add_command(cli_sim.sim)
cli.add_command(cli_explain.explain)
cli.add_command(cli_show.show)


def main() -> NoReturn:
    """The entry point `hccc`."""
    open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    code = execute(cli, sys.argv[1:])
    if code == EXIT_INTERRUPTED:
        leave(code)  # a computation that is left to itself may not let the interpreter end
    sys.exit(code)
