"""options: what the commands of the command line have in common.

Options are parsed once, into frozen dataclasses. What is slow to import (the language, the
passes, NumPy and numba below them) is imported by the commands that need it, so that
`hccc --help` answers at once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from hccc.cli.types import MicroBatch, Number, Size

if TYPE_CHECKING:
    from hccc.diagnostics import Source
    from hccc.driver import Options
    from hccc.inputs import Made

TARGETS = ("cuda", "hip", "cpu")
STOPS = (
    "program", "dag", "pipeline", "plan", "cpu", "cuda", "hip", "msccl-xml", "mscclpp-json",
)  # fmt: skip
CALLS = {"in-place": True, "out-of-place": False, "both": None}
COLLECTIVES = (
    "allgather", "allreduce", "reducescatter", "broadcast", "reduce", "gather", "scatter",
    "alltoall", "sendrecv",
)  # fmt: skip
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}
Command = TypeVar("Command", bound=Callable[..., Any])

ROAD: dict[str, Any] = {
    "scheduler": click.option(
        "--scheduler",
        type=click.Choice(["auto", "hpds", "list", "round-robin"]),
        default="auto",
        help="Order of the tasks: ResCCL's HPDS, list scheduling, or (auto) the faster of the two "
        "on the --cluster, up to 32,768 transfers, else HPDS; round-robin to compare.",
    ),
    "allocator": click.option(
        "--allocator",
        type=click.Choice(["state", "connection", "stage"]),
        default="state",
        help="Blocks shared by connections idle in turn, one for each, or one for each stage.",
    ),
    "fuse": click.option(
        "--fuse",
        type=click.Choice(["auto", "none", "reduce", "full"]),
        default="auto",
        help="How far to fuse primitives.",
    ),
    "transport": click.option(
        "--transport",
        type=click.Choice(["direct", "staged"]),
        default="direct",
        help="One-sided put and get, or send and receive through slots.",
    ),
    "slots": click.option(
        "--slots", type=click.IntRange(1, 1 << 16), default=2, help="Slots of a staged queue."
    ),
    "channels": click.option(
        "--channels", type=click.IntRange(1, 64), help="Lanes, instead of the program's nChannels."
    ),
    "warps": click.option(
        "--warps", type=click.IntRange(1, 32), help="Per block, instead of the program's nWarps."
    ),
    "max_blocks": click.option(
        "--max-blocks", type=click.IntRange(1), help="Most thread blocks of a rank."
    ),
    "reschedule": click.option(
        "--reschedule", is_flag=True, help="Raise MSCCL XML to a program and schedule that."
    ),
    "cluster": click.option(
        "--cluster",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Schedule for this .cluster instead of what the program's header describes.",
    ),
    "verify_each": click.option(
        "--verify-each", is_flag=True, help="Check the invariants after every pass."
    ),
}
time_phases_option = click.option(
    "--time-phases", is_flag=True, help="Print the time of each phase on stderr."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Report as JSON, errors too.")
algorithm_argument = click.argument("algorithm", type=click.Path(path_type=Path), metavar="ALGO")


def road_options(command: Command) -> Command:
    """The options that every command takes."""
    for option in reversed([*ROAD.values(), time_phases_option, json_option]):
        command = option(command)
    return command


def size_options(smallest: str, largest: str, factor: float = 4) -> Callable[[Command], Command]:
    """`-b -e -f` of nccl-tests."""

    def add(command: Command) -> Command:
        for option in (
            click.option(
                "-f", "--stepfactor", type=Number(1, 1000, min_open=True), default=factor,
                help="Between sizes.",
            ),
            click.option("-e", "--maxbytes", type=Size(), default=largest, help="Largest size."),
            click.option("-b", "--minbytes", type=Size(), default=smallest, help="Smallest size."),
        ):  # fmt: skip
            command = option(command)
        return command

    return add


_MICROSECONDS = Number(0, 1_000_000)
_CALL: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--micro-batch",
        type=MicroBatch(),
        default=0,
        metavar="SIZE|best",
        help="Bytes of a lane; 0: as the runtime cuts the size; best: of several.",
    ),
    click.option("--window", type=click.IntRange(0), default=0, help="Micro-batches; 0: all."),
    click.option("--in-place", is_flag=True, help="Calls in place."),
    click.option(
        "--protocol",
        type=click.Choice(["Simple", "LL", "LL128"]),
        default="Simple",
        help="Flags beside the data, or in every 16 or 128 bytes.",
    ),
    click.option("--launch", type=_MICROSECONDS, default=0, help="µs before the first step."),
    click.option("--step", type=_MICROSECONDS, default=0, help="µs more of every step."),
    click.option("--interpret", type=_MICROSECONDS, default=0, help="µs more, of an interpreter."),
    click.option(
        "--contention",
        type=Number(0, 1000),
        default=0,
        help="Capacity lost where thread blocks offer a link more than it takes (ResCCL Eq. 1).",
    ),
)
CALL = (
    "micro_batch", "window", "in_place", "protocol", "launch", "step", "interpret", "contention",
)  # fmt: skip


def call_options(command: Command) -> Command:
    """How a simulated call is made: the fields of `predict.Call`."""
    for option in reversed(_CALL):
        command = option(command)
    return command


def compilation(chosen: dict[str, Any], *, prove: bool = True) -> Options:
    """The options of ROAD as the driver takes them."""
    from hccc.driver import Options
    from hccc.ir.primitives import Transport

    kept = {name: value for name, value in chosen.items() if name != "reschedule"}
    return Options(**{**kept, "transport": Transport[kept["transport"].upper()], "prove": prove})


def walk(
    algorithm: Path | Source,
    options: dict[str, Any],
    on_phase: Callable[[str], None],
    *,
    prove: bool = True,
    simulated: bool = False,
) -> Made:
    """Reads `algorithm` and makes its Plan. simulated: `--cluster` also says where to simulate."""
    on_phase("Starting")
    from hccc import inputs as road

    given, again = given_options(simulated), options["reschedule"]
    how = compilation(options, prove=prove)
    return road.walk(algorithm, how, given, on_phase, reschedule=again)


def given_options(simulated: bool) -> list[str]:
    """The options on the command line that change how a plan is made."""
    source = click.get_current_context().get_parameter_source
    free = {"verify_each", "reschedule", *(["cluster"] if simulated else [])}
    return [n for n in ROAD if n not in free and source(n) is not ParameterSource.DEFAULT]
