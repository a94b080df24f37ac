"""`hccc compile`, or `hccc ALGO`: an algorithm into a directory of kernels, or one IR printed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from hccc.base.diagnostics import fail
from hccc.cli import report
from hccc.cli.helps import HelpfulCommand
from hccc.cli.options import (
    CALLS,
    CommandOptions,
    command_options,
    compile_options,
    given,
    load,
    load_library,
    overwrite_option,
    refuse,
    with_reductions,
)
from hccc.cli.progress import progress
from hccc.cli.types import AlgorithmFile, File, ReductionText, Words
from hccc.driver.compiled import Compiled, CompiledProgram
from hccc.driver.options import BEFORE_THE_PLAN, TARGETS, Output
from hccc.ir.transport import Transport
from hccc.sim.costs import PROTOCOLS

if TYPE_CHECKING:
    from hccc.driver.inputs import Input
    from hccc.interop.export_msccl import XmlOptions

# Made as the header says without --cluster: the same on every cluster, or for other tools, which
# cannot express all that might be chosen.
AS_WRITTEN = (Output.PROGRAM, Output.DAG, Output.MSCCL_XML, Output.MSCCLPP_JSON)
NOTHING_CHOSEN = "as the program's header says, without --cluster"
STEPS_ARE_STAGED = "MSCCL's steps send and receive: compiled with --transport staged"


@click.command(
    name="compile",
    short_help="Compile ALGO into a directory of kernels.",
    cls=HelpfulCommand,
    examples=[
        "hccc ring.rccl -o kernels/",
        "hccc ring.rccl -o kernels/ --cluster my.cluster --target cuda,cpu",
        "hccc small.rccl large.rccl -o kernels/ --name allreduce",
        "hccc ring.rccl --emit plan -o ring.json",
        "hccc job.rccl --cluster my.cluster -o job.table",
    ],
)
@click.argument("algorithms", type=AlgorithmFile(), metavar="ALGO...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=File(),
    help="Directory to write; with --emit the file, `-` for stdout. A directory of msccl-xml has "
    "a file for each plan and its sizes.",
)
@click.option("--target", type=Words(TARGETS), default="all", help="Any of cuda,hip,cpu, or all.")
@click.option(
    "--emit",
    type=click.Choice([one.value for one in Output]),
    help="Print this instead of writing kernels.",
)
@click.option(
    "--dialect",
    type=click.Choice(["executor", "msccl"]),
    default="executor",
    help="Of msccl-xml: Azure's executor and RCCL, or microsoft/msccl.",
)
@click.option(
    "--xml-protocol",
    type=click.Choice(tuple(PROTOCOLS)),
    default="Simple",
    help="Of msccl-xml: the protocol whose FIFOs bound the message size.",
)
@click.option(
    "--calls", type=click.Choice(list(CALLS)), default="in-place", help="That XML or JSON serves."
)
@click.option(
    "--name", default="", show_default=False, help="Of the library, instead of the ALGO's."
)
@click.option(
    "--report",
    "page",
    type=File(),
    metavar="FILE",
    help="Also write a page of pictures (.html).",
)
@click.option(
    "--validate",
    is_flag=True,
    help="Run the generated text on the host first, and hold all it does against the plan.",
)
@overwrite_option
@click.option(
    "--op",
    "reductions",
    type=ReductionText(),
    multiple=True,
    metavar="TEXT|FILE",
    help="A reduction of one's own, as 'absmin: abs(a) < abs(b) ? a : abs(b) < abs(a) ? b : "
    "min(a, b)', or a file with one on each line; may be given again.",
)
@compile_options
def compile_command(
    algorithms: tuple[Path, ...],
    output: Path | None,
    target: tuple[str, ...],
    emit: str | None,
    dialect: str,
    xml_protocol: str,
    calls: str,
    name: str,
    page: Path | None,
    validate: bool,
    overwrite: bool,
    reductions: tuple[tuple[str, ...], ...],
    as_json: bool,
    time_phases: bool,
    **options: Any,
) -> None:
    """Compile ALGO (.rccl, a plan's .json, MSCCL XML) into a directory of kernels.

    The directory builds with cmake where hccc is not installed, and `hccc run DIR` runs it. Several
    programs of one collective become one library, the best for each message size. A job becomes a
    file, its table.
    """
    from hccc.driver.inputs import JobInput, opened

    what = opened(algorithms[0]) if len(algorithms) == 1 else None
    if isinstance(what, JobInput):
        from hccc.cli import jobs

        unused = given("target", "emit", "name", "page", "validate", "overwrite", "reductions")
        return jobs.save(what, command_options(options), unused, output, as_json)
    if output is None and emit is None:
        help = "`hccc x.rccl -o kernels/`, `hccc x.rccl --emit=plan`"
        raise fail("E415", "say where to: -o DIR, or --emit", help=help)
    if emit is None and str(output) == "-":
        raise fail("E415", "-o -: kernels are a directory, which stdout is not", help="-o DIR")
    _check_unused(emit)
    _check_places(algorithms, output, emit, page, options["cluster"])
    asked = command_options(options, prove=emit not in BEFORE_THE_PLAN or page is not None)
    asked = with_reductions(asked, reductions)
    how = _for_msccl(asked) if emit == "msccl-xml" else asked
    with progress():
        compiled = _compiled(algorithms, what, how, name, (emit,) if emit else target)
        from hccc.api import functions as api
        from hccc.driver.outputs import Written

        written = Written({}, {})
        if output and not emit:
            written = api.write(compiled, output, target, validate=validate, overwrite=overwrite)
        if page is not None:
            api.draw(compiled, page)
    if isinstance(compiled, CompiledProgram):
        notes = [STEPS_ARE_STAGED] if how is not asked else []
        if emit in AS_WRITTEN[2:] and not how.cluster and how.options.tune != "off":
            notes.append(NOTHING_CHOSEN)
        if notes:
            click.echo(f"note: {'; '.join(notes)}", err=True)
    if emit:
        _emit(compiled, emit, output, (dialect, xml_protocol, CALLS[calls]))
    elif as_json:
        from hccc.driver.facts import compiled_facts, file_facts, validated_facts

        facts = compiled_facts(compiled) | file_facts(written.files)
        facts |= validated_facts(written.validated)
        report.as_json(facts | {"seconds": {**compiled.seconds, **written.seconds}})
    else:
        report.summary(compiled, str(output), written)
    if time_phases:
        report.phases({**compiled.seconds, **written.seconds})


def _compiled(
    algorithms: Sequence[Path],
    only: Input | None,
    how: CommandOptions,
    name: str,
    targets: Sequence[str],
) -> Compiled:
    """Compiles or reads the algorithms. only: the only one, read; None: there are several;
    targets: the outputs."""
    from hccc.driver.assumed import as_written

    site = as_written if targets[0] in AS_WRITTEN and not how.cluster else how.where(*targets)
    if only is None:
        refuse(["reschedule"] * how.reschedule, "several are compiled together", "leave it out")
        return load_library(algorithms, how, site, name)
    from hccc.driver.load import check_name, renamed

    check_name(name)
    return renamed(load(only, how, site), name)


def _for_msccl(how: CommandOptions) -> CommandOptions:
    """Returns options whose plan MSCCL's steps can express, if the transport is left open."""
    if how.options.transport is not Transport.AUTO or not how.options.simple:
        return how
    options = replace(how.options, transport=Transport.STAGED)
    if "allocator" not in how.given:
        options = replace(options, allocator="connection")
    return replace(how, options=options)


def _check_unused(emit: str | None) -> None:
    """Refuses options of an output that is not the one asked for."""
    if emit != "msccl-xml":
        refuse(given("dialect", "xml_protocol"), "it is of --emit=msccl-xml", "leave it out")
    if emit not in ("msccl-xml", "mscclpp-json"):
        refuse(given("calls"), "it is of --emit=msccl-xml and mscclpp-json", "leave it out")
    if emit:
        why = f"--emit={emit} writes no directory of kernels"
        refuse(given("target", "validate", "overwrite"), why, "leave it out")
        refuse(["json"] if given("as_json") else [], f"--emit={emit} is no report", "leave it out")


def _check_places(
    algorithms: Sequence[Path],
    output: Path | None,
    emit: str | None,
    page: Path | None,
    cluster: Path | None,
) -> None:
    """Refuses files that cannot be written, before any work."""
    from hccc.base.files.writing import check_place
    from hccc.ir.names import file_read

    read = [file_read(one) for one in algorithms]
    if (
        emit
        and output is not None
        and str(output) != "-"
        and not (emit == "msccl-xml" and _is_directory(output))
    ):
        check_place(output, *read, cluster)
    if output is not None and not emit:
        new = not os.path.lexists(output) and os.access(output.parent, os.W_OK)
        if not new:
            from hccc.driver.outputs import check_directory  # takes its time to load

            check_directory(output)
    if page is None:
        return
    if page.suffix.lower() != ".html":
        raise fail("E433", f"--report {page}: not .html", help="a report is a page: out.html")
    place = None if output is None or str(output) == "-" else output.resolve()
    if place == page.resolve():
        raise fail("E415", f"-o and --report are both {page}", help="give two names")
    if emit or place != page.resolve().parent or page.exists():
        check_place(page, *read, cluster)  # else it is written after its directory


def _emit(
    compiled: Compiled, name: str, output: Path | None, xml: tuple[str, str, bool | None]
) -> None:
    """Prints one output, or writes it into a file, whole or not at all."""
    from hccc.base.files.writing import write_whole
    from hccc.interop.export_msccl import XmlOptions

    dialect, protocol, in_place = xml
    options = XmlOptions(dialect, protocol, in_place)
    if name == "msccl-xml" and output is not None and _is_directory(output):
        from hccc.driver.outputs import write_xml

        for file in write_xml(compiled, output, options):
            print(output / file)
    elif output is None or str(output) == "-":
        _print(compiled, name, options, sys.stdout)
    else:
        write_whole(output, lambda file: _print(compiled, name, options, file))
        print(f"{output}: {output.stat().st_size:,} bytes")


def _is_directory(output: Path) -> bool:
    """Tells whether `output` means a directory of XML files: it is one, or has no suffix and does
    not exist."""
    return output.is_dir() or not (output.suffix or output.exists() or str(output) == "-")


def _print(compiled: Compiled, name: str, options: XmlOptions, file: TextIO) -> None:
    from hccc.driver.outputs import OUTPUTS as PRINTERS

    for line in PRINTERS[name](compiled, options):
        file.write(line + "\n")
