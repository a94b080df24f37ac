"""picture: `hccc show` and `--report`: what there is, drawn into a file.

A file is a picture (.svg, .png) or the page with all of them (.html). A cluster has a topology, a
program everything, a plan that was made before no DAG and no pipeline; times need a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hccc import text as words
from hccc.cli import report
from hccc.diagnostics import Source, UserError, fail
from hccc.driver import Options
from hccc.files.writing import check_place, write_whole
from hccc.inputs import Made
from hccc.interruptible import interruptible
from hccc.ir.topology import Topology, uniform
from hccc.lang.cluster import load as cluster
from hccc.predict import explanation as explain
from hccc.show import trace
from hccc.show.bandwidth import bandwidth
from hccc.show.canvas import Picture
from hccc.show.dag import dag
from hccc.show.html import Page, Proof, Table, html
from hccc.show.pipeline import pipeline
from hccc.show.timeline import timeline
from hccc.show.topology import topology
from hccc.sim import critical, usage
from hccc.sim.machine import Machine, check_ranks, prepare
from hccc.sim.simulate import Request, Run, simulate

OnPhase = Callable[[str], None]
WHATS = ("topology", "dag", "pipeline", "timeline")
SUFFIXES = (".svg", ".png", ".html")
SIZES = (1 << 16, 1 << 20, 1 << 24, 1 << 28)
INSTANCES = 1 << 22  # of a size in the table of sizes; more is left out
EXPLAINED = 20_000  # instances: an explanation is some thirty runs more
_NO_CLUSTER = "Times are a cluster's: say which with --cluster FILE."
_PLAN = "the input is a plan already: what it was made from is not in it."


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to write: `output` a picture or a page, `what` one of WHATS, `trace`; bytes of the
    timeline; `file`, the cluster's, if given; `how` the input was compiled, `options`: in words."""

    output: Path | None
    what: str | None = None
    size: int = 64 << 20
    trace: Path | None = None
    file: Path | None = None
    how: Options | None = None
    options: Sequence[tuple[str, str]] = ()

    def check(self, algorithm: Path) -> None:
        """Raises E431, E433 for names that cannot be written or are no picture's: before any work.

        algorithm: the input, which stays as it is."""
        if self.output is None and self.trace is None:
            raise fail("E415", "say where to: -o FILE, or --trace FILE", help="`-o out.html`")
        if self.output is not None and self.output.suffix.lower() not in SUFFIXES:
            help = "a picture is .svg or .png, the page with all of them .html"
            raise fail("E433", f"-o {self.output}: neither .svg, .png nor .html", help=help)
        for path in (self.output, self.trace):
            if path is not None:
                check_place(path, algorithm, self.file)
        if self.output and self.trace and self.output.resolve() == self.trace.resolve():
            raise fail("E415", f"-o and --trace are both {self.output}", help="give two names")


def show_cluster(source: Source, wanted: Wanted) -> None:
    """Draws a `.cluster`."""
    if wanted.what not in (None, "topology") or wanted.trace:
        what = "trace" if wanted.trace else wanted.what
        help = "give the program, and --cluster with this file"
        raise fail("E434", f"{source.name}: a cluster has no {what}", help=help)
    t, name = interruptible(cluster.parse)(source), Path(source.name).stem
    picture = interruptible(topology)(t, name)
    figures = [
        ("ranks", f"{len(t):,}"), ("nodes", f"{t.n_nodes:,}"),
        ("failed GPUs", f"{len(t.failed):,}"), ("direct links", f"{len(t.links):,}"),
        ("shared groups", f"{len(t.shared):,}"), ("chunk", words.size(t.chunk)),
    ]  # fmt: skip
    summary = f"The cluster that {source.name} describes."
    _write(wanted, picture, lambda: Page(name, summary, figures=figures, pictures=[picture]))


def show(made: Made, wanted: Wanted, on_phase: OnPhase) -> None:
    """Draws what was made of an input, and writes its trace.

    Raises:
        UserError: E424, E434 for a picture that there cannot be; whatever the simulator refuses.
    """
    subject = _Subject(made, wanted, on_phase)
    if wanted.trace is not None:
        run = subject.run()
        on_phase("Writing the trace")
        write_whole(wanted.trace, partial(trace.write, run))
    if wanted.output is None:
        return
    whole = wanted.output.suffix.lower() == ".html" and wanted.what is None
    if whole:
        page = subject.page()
        write_whole(wanted.output, lambda file: file.write(html(page)))
        return
    picture = subject.picture(wanted.what or ("pipeline" if made.stops else "topology"))
    _write(wanted, picture, lambda: subject.page((picture,)))


def _write(wanted: Wanted, picture: Picture, page: Callable[[], Page]) -> None:
    if wanted.output is not None:
        suffix = wanted.output.suffix.lower()
        if suffix == ".png":
            pixels = picture.png()
            write_whole(wanted.output, lambda file: file.buffer.write(pixels))
            return
        drawn = picture.svg if suffix == ".svg" else html(page())
        write_whole(wanted.output, lambda file: file.write(drawn))


class _Subject:
    """An input and what can be drawn of it, each made when it is asked for."""

    def __init__(self, made: Made, wanted: Wanted, on_phase: OnPhase) -> None:
        self.made, self.wanted, self.on_phase = made, wanted, on_phase
        self.where = self._topology()
        self._machine: Machine | None = None
        self._run: Run | None = None

    def _topology(self) -> Topology:
        plan = self.made.plan
        if self.made.stops:
            return self.made.stops.dag.topology
        if self.wanted.file:
            topology = cluster.load(self.wanted.file)
            check_ranks(plan, topology)
            return topology
        return uniform(plan.n_ranks, plan.gpus_per_node, plan.nics_per_node)

    def machine(self) -> Machine:
        """The plan on its cluster; E424 without."""
        if self.wanted.file is None:
            raise fail("E424", _NO_CLUSTER.rstrip("."), help="examples/clusters has forty")
        if self._machine is None:
            self.on_phase("Simulating")
            self._machine = prepare(self.made.plan, self.where)
        return self._machine

    @interruptible
    def run(self, size: int = 0) -> Run:
        """The simulated call, by default of the size asked for."""
        if size and size != self.wanted.size:
            return simulate(self.machine(), self._request(size))
        if self._run is None:
            self._run = simulate(self.machine(), self._request(self.wanted.size))
        return self._run

    def _request(self, size: int) -> Request:
        return Request(size, in_place=not self.made.plan.out_of_place)

    @interruptible
    def picture(self, what: str) -> Picture:
        """One picture. Raises E434 where there cannot be one."""
        stops = self.made.stops
        if what == "timeline":
            run = self.run()
            self.on_phase("Drawing the timeline")
            return timeline(run, f"Simulated on {self.wanted.file}.")
        self.on_phase(f"Drawing the {what}")
        if what == "topology":
            file = self.wanted.file
            note = "" if file else "No cluster was given: rates are nominal, of no hardware."
            return topology(self.where, file.stem if file else "header", note)
        if stops is None:
            raise fail("E434", f"no {what}: {_PLAN.rstrip('.')}", help="show the program instead")
        return dag(stops.dag) if what == "dag" else pipeline(stops.pipeline)

    @interruptible
    def page(self, pictures: Sequence[Picture] = ()) -> Page:
        """The report; with `pictures`, of those only."""
        plan, wanted = self.made.plan, self.wanted
        missing: list[tuple[str, str]] = []
        tables: list[Table] = []
        explanation = ""
        if not pictures:
            possible = [w for w in WHATS if w in ("topology", "timeline") or self.made.stops]
            missing = [(w, _PLAN) for w in WHATS if w not in possible]
            if wanted.file is None:
                possible.remove("timeline")
                missing.append(("timeline", _NO_CLUSTER))
            pictures = [self.picture(what) for what in possible]
            if wanted.file is not None:
                more, tables = self._predicted()
                pictures = [*pictures, *more]
                explanation = self._explanation(wanted.file)
        source = plan.source or "a program"
        on = f" for {wanted.file}" if wanted.file else ""
        return Page(
            title=report.title(plan), summary=f"Compiled by hccc from {source}{on}.",
            options=wanted.options, figures=_figures(self.made), proofs=_proofs(self.made),
            pictures=pictures, missing=missing, tables=tables, explanation=explanation,
        )  # fmt: skip

    def _predicted(self) -> tuple[list[Picture], list[Table]]:
        """What the simulator says, over sizes and of the timeline."""
        rows: list[tuple[int, float, float]] = []
        cells = []
        left_out = []
        for size in sorted({*SIZES, self.wanted.size}):
            self.on_phase(f"Simulating {size:,} bytes")
            if (run := self._small(size)) is None:
                left_out.append(words.size(size))
                continue
            rows.append((run.size, run.time, run.busbw))
            cells.append(_row(run))
        note = f"Left out, as it takes long: {', '.join(left_out)}." if left_out else ""
        head = ("size", "time", "algbw GB/s", "busbw GB/s", "micro-batches", "links used",
                "blocks busy")  # fmt: skip
        tables = [Table("Over sizes", head, cells, note), *_use(self.run())]
        name = self.made.plan.name
        return ([bandwidth(rows, name)] if len(rows) > 1 else []), tables

    def _explanation(self, file: Path) -> str:
        """What `hccc explain` says of the timeline; nothing where it would take long."""
        if len(self.run().end) > EXPLAINED:
            return ""
        how = self.wanted.how or Options()
        wanted = explain.Wanted(self._request(self.wanted.size), file, how)
        return explain.run(self.made, wanted, False, self.on_phase)

    def _small(self, size: int) -> Run | None:
        """A call, unless it would have too many instances."""
        lane = size / self.made.plan.collective.n_chunks / self.made.plan.channels
        if size != self.wanted.size and len(self.made.plan) * lane / self.where.chunk > INSTANCES:
            return None
        try:
            return self.run(size)
        except UserError:
            if size == self.wanted.size:
                raise
            return None


def _row(run: Run) -> tuple[str, ...]:
    return (
        words.size(run.size), words.time(run.time), words.number(run.algbw),
        words.number(run.busbw), f"{run.batches:,}", _percent(usage.utilisation(run)),
        _percent(usage.blocks(run).busy),
    )  # fmt: skip


def _use(run: Run) -> list[Table]:
    """Where the time of the timeline went."""
    path = critical.critical_path(run)
    parts = critical.breakdown(run, path)
    total = max(sum(parts.values()), 1e-12)
    ordered = sorted(parts.items(), key=lambda item: -item[1])
    went = [(k, words.time(us), _percent(us / total)) for k, us in ordered]
    of = f"Of {words.size(run.size)}: {words.count(len(path), 'step')} one after the other."
    links = [
        (x.kind, f"{x.count:,}", _percent(x.mean), _percent(x.most), x.busiest)
        for x in usage.links(run)
    ]
    head = ("kind", "that carry", "mean use", "most", "the busiest")
    return [
        Table("Critical path", ("spent on", "time", "share"), went, of),
        Table("Links", head, links, f"Of {words.size(run.size)}; each direction is one."),
    ]


def _percent(share: float) -> str:
    return f"{words.fixed(100 * share, 1)} %"


def _figures(made: Made) -> list[tuple[str, str]]:
    plain = {k: v for k, v in report.facts(made).items() if isinstance(v, int | str)}
    return [
        (name.replace("_", " "), f"{value:,}" if isinstance(value, int) else words.clean(value))
        for name, value in plain.items()
        if name != "name"
    ]


def _proofs(made: Made) -> list[Proof]:
    return [
        Proof(
            p.name, p.claim,
            ", ".join(f"{v:,} {k}" if isinstance(v, int) else f"{k} {v}"
                      for k, v in p.detail.items()),
        )
        for p in made.proofs
    ]  # fmt: skip
