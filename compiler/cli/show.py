"""cli_show: the command that draws: `hccc show`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hccc.cli import report
from hccc.cli.options import ROAD, compilation, road_options, walk
from hccc.cli.types import Size
from hccc.diagnostics import fail

if TYPE_CHECKING:
    from hccc.inputs import Made

OnPhase = Callable[[str], None]
WHATS = ("topology", "dag", "pipeline", "timeline")


@click.command(short_help="Draw ALGO, a plan or a cluster.")
@click.argument("algorithm", type=click.Path(path_type=Path), metavar="ALGO|PLAN|CLUSTER")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="out.svg, out.png, or out.html with everything.",
)
@click.option("--what", type=click.Choice(WHATS), help="One picture only.")
@click.option("-b", "--size", type=Size(), default="64M", help="Of the predicted timeline.")
@click.option(
    "--trace", type=click.Path(path_type=Path), metavar="FILE",
    help="Write the predicted timeline for Perfetto (JSON).",
)  # fmt: skip
@road_options
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
    timeline; that and --trace need --cluster. An .svg or .png holds one of them, an .html all.
    """
    chosen = {name: options.pop(name) for name in ROAD}
    with report.progress() as on_phase:
        on_phase("Starting")
        from hccc import inputs as road
        from hccc.show import page as picture

        cluster, words = chosen["cluster"], made_with(chosen)
        wanted = picture.Wanted(output, what, size, trace, cluster, compilation(chosen), words)
        wanted.check(algorithm)
        text = None if algorithm.is_dir() else road.read(algorithm)
        if text and road.kind_of(text.text) is road.Kind.CLUSTER:
            picture.show_cluster(text, wanted)
            return _tell(wanted.output, None, as_json)
        made = walk(text or algorithm, chosen, on_phase, simulated=True)
        picture.show(made, wanted, on_phase)
    _tell(output, trace, as_json)
    if time_phases:
        report.phases(made.seconds)


def paged(
    file: Path | None, chosen: dict[str, Any], algorithm: Path, output: Path | None
) -> Callable[[Made, OnPhase], None]:
    """What writes `--report FILE` once the plan is made; its name is looked at now.

    output: the directory of kernels, which may become its directory."""
    if file is None:
        return lambda made, on_phase: None
    if file.suffix.lower() != ".html":
        raise fail("E433", f"--report {file}: not .html", help="a report is a page: out.html")
    if file.parent != output:
        from hccc.files.writing import check_place

        check_place(file, algorithm, chosen["cluster"])
    options, how, cluster = made_with(chosen), compilation(chosen), chosen["cluster"]

    def write(made: Made, on_phase: OnPhase) -> None:
        from hccc.show import page as picture

        wanted = picture.Wanted(file, file=cluster, how=how, options=options)
        picture.show(made, wanted, on_phase)

    return write


def made_with(chosen: dict[str, Any]) -> list[tuple[str, str]]:
    """The options of a compilation, for people."""
    plain = {k: v for k, v in chosen.items() if v is not None and not isinstance(v, bool)}
    return [(f"--{name.replace('_', '-')}", str(value)) for name, value in plain.items()]


def _tell(output: Path | None, trace: Path | None, as_json: bool) -> None:
    """What was written, and how large it is."""
    written = {str(path): path.stat().st_size for path in (output, trace) if path is not None}
    if as_json:
        report.as_json(report.file_facts(written))
        return
    for path, size in written.items():
        print(f"{path}: {size:,} bytes")
