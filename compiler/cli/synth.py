"""`hccc synth`: an algorithm for a cluster, made by hccc, or several for a range of sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from hccc.base.diagnostics import fail
from hccc.cli import report
from hccc.cli.helps import HelpfulCommand
from hccc.cli.options import (
    collective_or_demand,
    demand_of,
    demand_option,
    faults_options,
    given,
    json_option,
    overwrite_option,
    refuse,
)
from hccc.cli.progress import progress
from hccc.cli.synth_sizes import (
    PROGRAMS,
    check_directory,
    library_facts,
    print_sizes,
    write_programs,
)
from hccc.cli.types import ClusterFile, File, Number, Size, one_of
from hccc.driver.options import TARGETS
from hccc.ir.op_type import NAMES as COLLECTIVES

if TYPE_CHECKING:
    from hccc.ir.collective import Collective
    from hccc.ir.demand import Demand
    from hccc.ir.topology import Topology
    from hccc.synth.synthesis import SizesSynthesis

Kind = Literal["stdout", "program", "programs", "kernels"]
JobFacts = dict[str, object]
INTERRUPTED = "interrupted: the best of what was weighed so far"
PRUNINGS = ("isomorphic", "inconsistent", "relays")
SECONDS, OF_SIZES = 10.0, 60.0  # of --seconds


def _methods() -> list[str]:
    """Returns what --method may be."""
    from hccc.ir.collective import OpType
    from hccc.synth.candidates import methods

    return list(dict.fromkeys(["auto", *(name for op in OpType for name in methods(op))]))


@click.command(
    short_help="Make an algorithm for CLUSTER.",
    cls=HelpfulCommand,
    examples=[
        "hccc synth my.cluster --collective allgather -b 64M -o allgather.rccl",
        "hccc synth dgx-h100 --collective allreduce --sizes 1K..1G -o programs/",
        "hccc synth my.cluster --collective allreduce -b 64M --fail node2.gpu3",
        "hccc synth my.cluster --demand my.demand -b 64M -o mine.rccl",
        "hccc synth my.cluster --collective allgather --sketch my.sketch -b 64M",
    ],
)
@click.argument("cluster", type=ClusterFile(), metavar="CLUSTER")
@click.option("--collective", type=click.Choice(COLLECTIVES), help="What to do.")
@demand_option
@click.option("-b", "--bytes", "size", type=Size(), default="64M", help="Bytes of the call.")
@click.option(
    "--sizes",
    metavar="A..B",
    help="Instead of -b a range, 1K..4G: several algorithms, each for the sizes it is best at.",
)
@click.option("--plans", type=click.IntRange(1, 16), default=4, help="Most algorithms of --sizes.")
@click.option(
    "--max-sms",
    "most_sms",
    type=click.IntRange(1),
    help="Most thread blocks of a rank; each takes an SM. By default the larger of 32 (NCCL's "
    "most) and a quarter of the SMs, but at most half of them.",
)
@click.option("--root", type=click.IntRange(0), default=0, help="Of rooted collectives.")
@click.option(
    "--method",
    default="auto",
    metavar="NAME",
    shell_complete=one_of(_methods),
    help="A built-in algorithm (`hccc builtin list`), pack (trees), routed (relays), compose (of "
    "one node of each kind), sketch (SyCCL's), greedy, repair (greedy, shortened by a solver), or "
    "cegis (HeteCCL's). auto: the fastest in simulation of all but repair and cegis.",
)
@click.option(
    "--sketch",
    type=File(),
    metavar="FILE",
    help="Sketches of your own instead of those that hccc finds: which groups of ranks pass data "
    "on, stage by stage.",
)
@click.option(
    "--unpruned",
    type=click.Choice(PRUNINGS),
    multiple=True,
    help="Also sketches that a pruning of SyCCL's leaves out: those that are others with ranks "
    "renamed, that treat groups of a dimension unlike, or that cross dimensions several times. May "
    "be repeated.",
)
@click.option(
    "--time-limit",
    type=Number(0, 1_000_000),
    default=60,
    show_default=True,
    help="Seconds of a solver; then, or at Ctrl-C, the best so far.",
)
@click.option(
    "--seconds",
    type=Number(0, 1_000_000),
    envvar="HCCC_SECONDS",
    show_default=f"{SECONDS:g}; of --sizes {OF_SIZES:g}",
    help="Of all, without a solver's; then the best so far, of one candidate at the least.",
)
@click.option("--explain", is_flag=True, help="Also what a solver was asked, call by call.")
@click.option("--seed", type=click.IntRange(0, 1 << 30), default=0, help="Of ties in greedy.")
@faults_options
@click.option(
    "-o",
    "--output",
    type=File(),
    metavar="FILE|DIR",
    help="A program, x.rccl; a directory of kernels; or 'DIR/*.rccl', which hccc names. Without it "
    "the program goes to stdout.",
)
@overwrite_option
@json_option
def synth(
    cluster: Path,
    collective: str | None,
    demand: Path | None,
    output: Path | None,
    as_json: bool,
    failed: tuple[str, ...],
    degraded: tuple[str, ...],
    size: int,
    sizes: str | None,
    plans: int,
    most_sms: int | None,
    explain: bool,
    overwrite: bool,
    method: str,
    sketch: Path | None,
    unpruned: tuple[str, ...],
    **how: Any,
) -> None:
    """Make an algorithm of one collective, or of a demand, for CLUSTER and calls of so many bytes.

    Schedules that hccc searches and its built-in algorithms are weighed by simulated time; the
    fastest is printed as a program, with how near it comes to what no schedule can beat. Where the
    --seconds suffice the same seed gives the same program. `hccc synth ... | hccc run -` runs it.
    Ctrl-C, once something was simulated, ends with the best so far.
    """
    kind = _kind(output)
    collective_or_demand(collective, demand, one=True)
    _check(kind, output, cluster, as_json)
    other = sketch is not None and method not in ("auto", "sketch")
    refuse(["sketch"] if other else [], "it is for --method auto and sketch", "leave it out")
    own = sketch is not None or method not in ("auto", "sketch")
    refuse(given("unpruned") if own else [], "it is of sketches that hccc finds", "leave it out")
    how |= {"method": method, "sketch": sketch, "unpruned": unpruned}
    if sizes is None:
        refuse(given("plans"), "one size has one algorithm", "leave it out, or give --sizes")
    with progress():
        from hccc.sim.library import begin_building

        begin_building()
        from hccc.driver.inputs import load_cluster
        from hccc.driver.options import Options
        from hccc.synth.cegis.programs import METHODS as SOLVED

        options = Options(max_sms=most_sms)
        how["options"] = options
        if how["seconds"] is None:
            how["seconds"] = SECONDS if sizes is None else OF_SIZES
        if how["method"] in SOLVED:
            how["seconds"] += how["time_limit"]
        site = load_cluster(cluster, failed, degraded)
        what = demand_of(demand, len(site)) if demand else collective or ""
        if sizes is not None:
            how["options"] = replace(options, sizes=sizes, plans=plans)
            say = _several(site, what, sizes, how, kind, output, as_json, overwrite)
        else:
            say = _one(site, what, size, how, kind, output, as_json, overwrite, explain)
    say()


def _kind(output: Path | None) -> Kind:
    if output is None or str(output) == "-":
        return "stdout"
    if output.name == PROGRAMS:
        return "programs"
    return "program" if output.suffix == ".rccl" else "kernels"


def _check(kind: Kind, output: Path | None, cluster: Path, as_json: bool) -> None:
    """Refuses options that contradict each other, before any work."""
    from hccc.base.files.writing import check_place

    if given("size") and given("sizes"):
        help = "-b 64M for one size; --sizes 1K..4G for a range"
        raise fail("E415", "-b is one size and --sizes a range of them", help=help)
    if given("sizes"):
        refuse(given("explain"), "it is of one size", "leave it out, or give -b")
        if kind in ("stdout", "program"):
            help = "-o kernels/, or -o 'DIR/*.rccl'"
            raise fail("E415", "--sizes makes several programs, and -o has room for one", help=help)
    if as_json and kind == "stdout":
        raise fail("E415", "--json and the program are both for stdout", help="-o x.rccl")
    if kind == "program" and output is not None:
        check_place(output, cluster)
    if kind == "programs" and output is not None:
        check_directory(output.parent)
    if kind == "kernels" and output is not None:
        from hccc.driver import outputs

        outputs.check_directory(output)


def _one(
    site: Topology,
    collective: str | Demand,
    size: int,
    how: dict[str, Any],
    kind: Kind,
    output: Path | None,
    as_json: bool,
    overwrite: bool,
    explain: bool,
) -> Callable[[], None]:
    """Makes and writes an algorithm for one size; what then tells of it."""
    from hccc.api import functions as api
    from hccc.base.files.writing import write_whole
    from hccc.synth.synthesis import program_text

    made = api.synthesize(site, collective, size, **how)
    _stopped(made, how["seconds"])
    line, of_job = _as_job(site, made.program.collective, {size: made.best.time or 0.0})
    match kind:
        case "stdout":
            text = program_text(made)
            return lambda: _print(text, made.text(explain=explain) + line)
        case "kernels":
            compiled = api.compile(made.program, how["options"], cluster=site)
            api.write(compiled, output or "", TARGETS, overwrite=overwrite)
        case "program" if output is not None:
            write_whole(output, lambda file: file.write(program_text(made)))
        case _ if output is not None:
            write_programs({made.file_name(): program_text(made)}, output.parent)
    if as_json:
        facts = made.facts() | ({"job": of_job[0]} if of_job else {})
        return lambda: report.as_json(facts)
    return lambda: print(made.text(explain=explain) + line)


def _as_job(site: Topology, c: Collective, at: Mapping[int, float]) -> tuple[str, list[JobFacts]]:
    """Weighs HetCCL's job for each size, where ranks have several vendors: lines of the report, and
    facts for JSON. at: µs of the programs, by size."""
    if len({device.vendor for device in site.devices}) < 2:
        return "", []
    from hccc.ir.text import size as size_text
    from hccc.predict.jobs import hetccl_of

    several, lines, facts = len(at) > 1, "", list[JobFacts]()
    for size, time in at.items():
        found = hetccl_of(site, c, size)
        if found is None:
            return "", []
        job, run = found
        faster = run.time < time
        than = "faster: `hccc builtin hetccl` writes it" if faster else "slower"
        of = f" of {size_text(size)}" if several else ""
        over = f"{len(job.clusters)} vendor clusters, by their libraries"
        name = "" if lines else "as a job"
        lines += f"\n  {name:<{14 if several else 12}} {run.time:,.2f} µs{of} over {over}; {than}"
        facts.append({"time": run.time, "vendor_clusters": len(job.clusters), "faster": faster})
    return lines, facts


def _several(
    site: Topology,
    collective: str | Demand,
    sizes: str,
    how: dict[str, Any],
    kind: Kind,
    output: Path | None,
    as_json: bool,
    overwrite: bool,
) -> Callable[[], None]:
    """Makes and writes algorithms for a range of sizes; what then tells of them."""
    from hccc.api import functions as api
    from hccc.synth.synthesis import program_text

    assert output is not None  # `_check`
    made = api.synthesize_sizes(site, collective, sizes, **how)
    _stopped(made, how["seconds"])
    compiled = None
    if kind == "programs":
        write_programs({c.file_name(): program_text(made, c) for c in made.chosen}, output.parent)
    else:
        compiled = api.compile(made.programs, how["options"], cluster=site)
        api.write(compiled, output, TARGETS, overwrite=overwrite)
    chosen = [made.chosen_at(k) for k in range(len(made.at))]
    times = {
        at.size: one.estimate if one.time is None else one.time
        for at, one in zip(made.at, chosen, strict=True)
    }
    lines, of_jobs = _as_job(site, made.programs[0].collective, times)
    if as_json:
        facts = made.facts() | library_facts(compiled)
        jobs = [{"size": size, **one} for size, one in zip(times, of_jobs, strict=False)]
        return lambda: report.as_json(facts | ({"jobs": jobs} if jobs else {}))
    return lambda: print_sizes(made, compiled, lines)


def _stopped(made: SizesSynthesis, seconds: float) -> None:
    if made.interrupted:
        click.echo(INTERRUPTED, err=True)
    elif made.late:
        said = f"after {seconds:g} s: the best of what was weighed so far"
        click.echo(f"{said}; --seconds {6 * max(seconds, 1):g} weighs more", err=True)


def _print(program: str, text: str) -> None:
    click.echo(program, nl=False)
    click.echo(text, err=True)
