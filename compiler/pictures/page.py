"""page: `hccc show` and `--report`: draws a cluster, a program or a plan into a file.

A file is a picture (.svg, .png) or the page with all of them (.html). A cluster has a topology, a
program everything, a plan that was made before no DAG and no pipeline; times need a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hccc.base.diagnostics import UserError, fail
from hccc.base.files.writing import Write, write_whole
from hccc.base.interruptible import interruptible
from hccc.base.progress import far, tell
from hccc.driver.compiled import Compiled, CompiledProgram
from hccc.driver.facts import compiled_facts, figures, title
from hccc.driver.inputs import recorded_cluster
from hccc.driver.options import Options, check_integer
from hccc.ir import text as words
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from hccc.ir.plan_check import check_ranks
from hccc.ir.topology import Topology, uniform
from hccc.pictures import drawer as drawers
from hccc.pictures import trace
from hccc.pictures.choices import ShowOptions, check_what
from hccc.pictures.drawer import Drawer, draw
from hccc.pictures.html import HeadlineFigure, Page, PageTable, ProgramLine, ProofLine, html
from hccc.pictures.svg_picture import Curve, SvgPicture
from hccc.predict.explanation import Explanation, explain
from hccc.predict.gap import least_times
from hccc.predict.simulation import NO_CLUSTER, beside_of, no_cluster
from hccc.sim import critical, usage
from hccc.sim.machine import Machine, prepare
from hccc.sim.simulate import Request, Run, simulate
from hccc.sim.transfers import as_packets_cross

if TYPE_CHECKING:
    from hccc.pictures.canvas import Picture

SIZES = tuple(1 << k for k in range(10, 33, 2))  # 1 KiB … 4 GiB
INSTANCES = 1 << 22  # of a size in the table of sizes; more is left out
EXPLAINED = 20_000  # instances: to look for what would help is some thirty runs more
RECOMPILED = 500  # transfers: a change of options compiles the program again
LINES = 400  # of the program; of a longer one those with transfers
ORDER = ("timeline", "topology", "pipeline", "dag")  # of the page
FIGURES = {  # what the names of `facts` leave open
    "thread_blocks": "thread blocks, all channels",
    "thread_blocks_per_rank": "thread blocks per rank, all channels",
    "primitives": "primitives per channel",
    "waits": "waits per channel",
    "sub_pipelines": "sub-pipelines",
    "flags_per_rank": "flags per rank and channel",
}
_PLAN = "the input is a plan already: what it was made from is not in it."


def show_cluster(t: Topology, options: ShowOptions) -> None:
    """Draws a cluster into a file. Raises E434 for a picture that a cluster does not have."""
    picture = draw_cluster(t, "trace" if options.trace else options.what)
    figures = [
        ("ranks", f"{len(t):,}"),
        ("nodes", f"{t.n_nodes:,}"),
        ("failed GPUs", f"{len(t.failed):,}"),
        ("direct links", f"{len(t.links):,}"),
        ("shared groups", f"{len(t.shared):,}"),
        ("chunk", words.size(t.chunk)),
    ]
    summary = f"The cluster that {t.name} describes."
    name = Path(t.name).stem
    if options.output is not None:
        page = partial(Page, name, summary, figures=figures, pictures=[picture])
        write_whole(options.output, _written(options.output, picture, page))


@interruptible
def draw_cluster(t: Topology, what: str | None = None) -> Picture:
    """Returns the picture of a cluster. Raises E434 for one that a cluster does not have."""
    check_what(what if what != "trace" else None)
    if what not in (None, "topology"):
        help = "give the program, and --cluster with this file"
        raise fail("E434", f"{t.name}: a cluster has no {what}", help=help)
    return draw("topology", t, Path(t.name).stem)


def show(
    compiled: Compiled,
    options: ShowOptions,
    where: Topology | None = None,
) -> None:
    """Draws a compiled program into a file, and writes its trace.

    where: the cluster to simulate on, by default the one that the Plan was made for.

    Raises:
        UserError: E424, E434 for a picture that is impossible; any error of the simulator.
    """
    subject = Subject(compiled, where, options.size)
    write = _drawn(subject, options)
    if options.trace is not None:
        run = subject.run()
        tell("Writing the trace")
        write_whole(options.trace, partial(trace.write, run))
    if options.output is not None:
        write_whole(options.output, write)


def _drawn(subject: Subject, options: ShowOptions) -> Write:
    """Draws everything; returns the function that writes it."""
    if options.output is None:
        return lambda file: None
    if options.output.suffix.lower() == ".html" and options.what is None:
        text = html(subject.page())
        return lambda file: file.write(text)
    picture = subject.picture(options.what)
    return _written(options.output, picture, lambda: subject.page((picture,)))


def write_picture(output: Path, picture: Picture) -> None:
    """Writes one picture to an .svg or .png, whole or not at all."""
    suffix = output.suffix.lower()
    pixels = picture.png() if suffix == ".png" else picture.svg.encode()
    write_whole(output, lambda file: file.buffer.write(pixels))


def _written(output: Path, picture: Picture, page: Callable[[], Page]) -> Write:
    """Returns the function that writes one picture in the form of the file's name."""
    suffix = output.suffix.lower()
    if suffix == ".png":
        pixels = picture.png()
        return lambda file: file.buffer.write(pixels)
    drawn = picture.svg if suffix == ".svg" else html(page())
    return lambda file: file.write(drawn)


class Subject:
    """A compiled program and its pictures, each drawn when it is asked for."""

    def __init__(self, compiled: Compiled, where: Topology | None, size: int) -> None:
        self.compiled = compiled
        self.made = compiled if isinstance(compiled, CompiledProgram) else None
        self.size = check_integer("size", size, 0, None)
        self.cluster = where or recorded_cluster(compiled)
        if self.cluster is not None:
            check_ranks(compiled.plan, self.cluster)
        self._machine: Machine | None = None
        self._run: Run | None = None

    @property
    def _drawn(self) -> Topology:
        """The cluster, or the one that the program's header describes."""
        plan = self.compiled.plan
        header = self.made.dag.topology if self.made else None
        return (
            self.cluster or header or uniform(plan.n_ranks, plan.gpus_per_node, plan.nics_per_node)
        )

    def machine(self) -> Machine:
        """Returns the plan on its cluster; raises E424 without one."""
        if self.cluster is None:
            raise no_cluster()
        if self._machine is None:
            tell("Simulating")
            self._machine = prepare(self.compiled.plan, self.cluster)
        return self._machine

    @interruptible
    def run(self, size: int = 0) -> Run:
        """Returns the simulated call, by default of the chosen size."""
        if size and size != self.size:
            machine, made = self.machine(), self.compiled.at(size, in_place=False)
            if made is not self.compiled:
                machine = prepare(made.plan, machine.topology)
            return simulate(machine, self._request(size))
        if self._run is None:
            self._run = simulate(self.machine(), self._request(self.size))
        return self._run

    def _request(self, size: int) -> Request:
        return Request(size, in_place=not self.compiled.plan.out_of_place)

    @interruptible
    def picture(self, what: str | None = None) -> Picture:
        """Returns one picture; None: the one that suits. Raises E434 if it is impossible."""
        check_what(what)
        name, *of = self._of_picture(what or ("pipeline" if self.made else "topology"))
        tell(f"Drawing the {name}")
        return draw(name, *of)

    def _of_picture(self, what: str) -> tuple[Any, ...]:
        """Returns the name of a picture and what it shows. Raises E434 if it is impossible."""
        if what == "timeline":
            note = f"Simulated on {_named(self.cluster)}."
            return what, self.run(), note, self.made.program if self.made else None
        if what == "topology":
            if self.cluster is None:
                note = "No cluster was given: rates are nominal, of no hardware."
                return what, self._drawn, "header", note
            return what, self.cluster, Path(_named(self.cluster)).stem
        if self.made is None:
            raise fail("E434", f"no {what}: {_PLAN.rstrip('.')}", help="show the program instead")
        return what, self.made.dag if what == "dag" else self.made.pipeline

    @interruptible
    def page(self, pictures: Sequence[SvgPicture] = ()) -> Page:
        """Returns the report; with `pictures`, of those only."""
        if pictures:
            return self._page(pictures, None)
        drawer = drawers.begun()
        try:
            return self._page((), drawer)
        finally:
            if drawer is not None:
                drawer.close()

    def _page(self, pictures: Sequence[SvgPicture], drawer: Drawer | None) -> Page:
        plan = self.compiled.plan
        missing: list[tuple[str, str]] = []
        tables = _plans(self.compiled.catalogue)
        explained: Explanation | None = None
        if not pictures:
            possible = [w for w in ORDER if w in ("topology", "timeline") or self.made]
            missing = [(w, _PLAN) for w in ORDER if w not in possible]
            if self.cluster is None:
                possible.remove("timeline")
                missing.append(("timeline", f"{NO_CLUSTER[:1].upper()}{NO_CLUSTER[1:]}."))
            begun = [_begun_picture(drawer, *self._of_picture(what)) for what in possible]
            if self.cluster is not None:
                explained = self._explained(self.cluster)
                chart, predicted = self._predicted(self.cluster)
                tables = [*predicted, *tables]
                begun.insert(1, _begun_picture(drawer, *chart))
            pictures = [picture() for picture in begun]
        source = plan.source or "a program"
        on = f" for {_named(self.cluster)}" if self.cluster else ""
        return Page(
            title=title(self.compiled.catalogue),
            summary=f"Compiled by {_compiler(plan)} from {source}{on}.",
            headline=_headline(explained) if explained else (),
            program=_program(self.made) if self.made else (),
            options=_options(plan),
            figures=_figures(self.compiled),
            proofs=_proofs(self.compiled),
            pictures=pictures,
            missing=missing,
            tables=tables,
            explanation=self._explanation(explained) if explained else "",
        )

    def _predicted(self, cluster: Topology) -> tuple[tuple[Any, ...], list[PageTable]]:
        """Returns what the simulator's chart shows (`_of_picture`), and tables, over sizes and of
        the timeline."""
        c = self.compiled.plan.collective
        sizes = sorted({*SIZES, self.size})
        runs: list[Run] = []
        left_out = []
        for k, size in enumerate(sizes):
            tell(f"Simulating {words.size(size)}")
            far(k, len(sizes))
            if (run := self._small(size)) is None:
                left_out.append(words.size(size))
            else:
                runs.append(run)
        bounds = least_times(as_packets_cross(self.compiled.plan, cluster), c, sizes)
        beside = beside_of(self.compiled.plan, cluster, sizes, None)
        libraries = [[row for row in rows if row] for rows in (beside.rows, beside.registered)]
        others = [Curve(x[0].name, {row.size: row.time for row in x}) for x in libraries if x]
        others.append(Curve("lower bound", bounds))
        curves = [Curve("hccc", {run.size: run.time for run in runs}), *others]
        note = f"Left out, as it takes long: {', '.join(left_out)}. " if left_out else ""
        note += " ".join(f"No curve of {who}: {why}." for who, why in beside.missing.items())
        head = ("size", "time", *(curve.name for curve in others), "algbw GB/s")
        head += "busbw GB/s", "micro-batches", "links used", "blocks busy"
        cells = [_row(run, [curve.times.get(run.size) for curve in others]) for run in runs]
        tables = [PageTable("Over sizes", head, cells, note.strip()), *_use(self.run())]
        return ("bandwidth", curves, c.bus_factor(), self.compiled.plan.name), tables

    def _explained(self, cluster: Topology) -> Explanation:
        """Explains the timeline; what would take long to try is left out."""
        made = self.compiled.plan.provenance
        options = Options.from_text(made.options) if made else Options()
        small = self.made is not None and len(self.made.program) <= RECOMPILED
        request = self._request(self.size)
        return explain(self.compiled, cluster, request, options, most=EXPLAINED, recompile=small)

    def _explanation(self, explained: Explanation) -> str:
        """Returns the text of an explanation, and what it leaves out."""
        if self.made is None or len(self.made.program) <= RECOMPILED:
            return explained.text()
        more = "options that compile the program again are not tried here, but by `hccc explain`"
        return f"{explained.text()}\n\n  {more}"

    def _small(self, size: int) -> Run | None:
        """Simulates a call, unless it would have too many instances."""
        part = size / self.compiled.plan.collective.n_chunks / self.compiled.plan.channels
        if size != self.size and len(self.compiled.plan) * part / self._drawn.chunk > INSTANCES:
            return None
        try:
            return self.run(size)
        except UserError:
            if size == self.size:
                raise
            return None


def _begun_picture(drawer: Drawer | None, name: str, *of: object) -> Callable[[], SvgPicture]:
    """Has a picture drawn, here if there is no other process; returns the function that gets
    it."""
    if drawer is None:
        tell(f"Drawing the {name}")
        picture = draw(name, *of)
        return lambda: picture
    drawn = drawer.ask(name, *of)

    def awaited() -> SvgPicture:
        tell(f"Drawing the {name}")
        return drawn()

    return awaited


def _headline(explained: Explanation) -> list[HeadlineFigure]:
    """Returns the time, how near it is to the bound, and what limits it."""
    run, least, busiest = explained.gap.run, explained.gap.bound, explained.gap.bottleneck
    at = f"{words.size(run.size)}: busbw {words.number(run.busbw)} GB/s, predicted"
    found = [HeadlineFigure("Time", words.time(run.time), at)]
    if run.time and least.time:
        of = f"No schedule takes less than {words.time(least.time)}: {least.binding}."
        share = f"{words.percent(least.time / run.time)} %"
        found.append(HeadlineFigure("Share of the bound", share, of))
    if parts := critical.shares(explained.path):
        much = f"{words.percent(parts[0].share)} % of the critical path"
        if busiest is not None:
            use = words.percent(busiest.active / run.time)
            much += f"; the busiest link, {busiest.name}, is in use {use} % of the time"
        found.append(HeadlineFigure("Limited by", parts[0].name, f"{much}."))
    for other in (explained.library, explained.registered):
        if other is not None and run.time:
            times = f"{words.number(other.time / run.time)} times this, by {other.choice}"
            found.append(HeadlineFigure(other.name, words.time(other.time), f"{times}; predicted"))
    return found


def _program(made: CompiledProgram) -> list[ProgramLine]:
    """Returns the text that the plan was compiled from; of a long one the lines with transfers."""
    source = made.program.origin.source if made.program.origin and len(made.program) else None
    if source is None or Path(source.name).name != made.plan.source:
        return []
    lines = source.text.rstrip().split("\n")
    if len(lines) <= LINES:
        return [ProgramLine(i + 1, line.rstrip()) for i, line in enumerate(lines)]
    used = np.unique(made.program.transfers["line"])[:LINES].tolist()
    found = [ProgramLine(i, lines[i - 1].rstrip()) for i in used]
    for line in reversed([i for i in range(1, len(used)) if used[i] > used[i - 1] + 1]):
        left_out = used[line] - used[line - 1] - 1
        found.insert(line, ProgramLine(0, f"{words.count(left_out, 'line')}", gap=True))
    return found


def _plans(catalogue: Catalogue) -> list[PageTable]:
    """Returns a table of the plan that serves each range of sizes, if there are several."""
    if catalogue.alone:
        return []
    head = ("calls", "from", "plan", "of", "channels", "thread blocks", "window", "grain")
    cells = []
    for one in catalogue.ranges:
        plan = catalogue.plans[one.plan]
        cells.append(
            (
                "in place" if one.in_place else "out of place",
                words.size(one.begin),
                plan.name,
                _clean(plan.source),
                f"{plan.channels}",
                f"{plan.blocks_per_rank}",
                f"{one.window}" if one.window else "all",
                words.size(one.grain),
            )
        )
    note = "Figures, proofs, timeline and explanation are those of one of them."
    return [PageTable("Plans by size", head, cells, note)]


def _row(run: Run, others: Sequence[float | None]) -> tuple[str, ...]:
    return (
        words.size(run.size),
        *("–" if us is None else words.time(us) for us in (run.time, *others)),
        words.number(run.algbw),
        words.number(run.busbw),
        f"{run.batches:,}",
        *_shares(usage.utilisation(run), usage.blocks(run).busy),
    )


def _use(run: Run) -> list[PageTable]:
    """Returns tables of where the time of the timeline went."""
    path = critical.critical_path(run)
    parts = critical.shares(critical.breakdown(run, path))
    went = [(p.name, words.time(p.us), f"{words.percent(p.share)} %") for p in parts]
    of = f"Of {words.size(run.size)}: {words.count(len(path), 'step')} one after the other."
    links = [
        (x.kind, f"{x.count:,}", *_shares(x.mean, x.most), x.busiest) for x in usage.links(run)
    ]
    head = ("kind", "that carry", "mean use", "most", "the busiest")
    return [
        PageTable("Critical path", ("spent on", "time", "share"), went, of),
        PageTable("Links", head, links, f"Of {words.size(run.size)}; each direction is one."),
    ]


def _shares(*shares: float) -> list[str]:
    return [f"{words.percent(share)} %" for share in shares]


def _named(cluster: Topology | None) -> str:
    return (cluster and cluster.name) or "a cluster"


def _compiler(plan: Plan) -> str:
    """Returns the hccc that made the plan, if its file tells."""
    return f"hccc {plan.provenance.version}" if plan.provenance else "hccc"


def _options(plan: Plan) -> list[tuple[str, str]]:
    """Returns the options that the plan was made with, as given."""
    made = plan.provenance
    if made is None:
        return []
    given = [(f"--{name.replace('_', '-')}", str(value)) for name, value in made.options.items()]
    cluster = [("--cluster", _clean(made.cluster.name))] if made.cluster else []
    return [*given, *cluster, *([("scheduled by", made.scheduler)] if made.scheduler else [])]


def _clean(name: str) -> str:
    return words.clean(name)


def _figures(compiled: Compiled) -> list[tuple[str, str]]:
    plain = {k: v for k, v in compiled_facts(compiled).items() if isinstance(v, int | str)}
    return [
        (
            FIGURES.get(name, name.replace("_", " ")),
            f"{value:,}" if isinstance(value, int) else words.clean(value),
        )
        for name, value in plain.items()
        if name != "name"
    ]


def _proofs(compiled: Compiled) -> list[ProofLine]:
    return [ProofLine(p.name, p.claim, figures(p)) for p in compiled.proofs]
