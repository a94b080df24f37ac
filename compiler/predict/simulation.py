"""simulation: what a plan would take on a cluster, over sizes, beside alternatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hccc import text as words
from hccc.candidates import Candidate, evaluate
from hccc.diagnostics import Source, UserError, fail
from hccc.driver import Compiled
from hccc.facts import Facts, made_by, plan_facts, provenance_facts, title
from hccc.inputs import Kind, kind_of, recorded_cluster
from hccc.interruptible import interruptible
from hccc.ir.catalogue import Range
from hccc.ir.plan import Plan
from hccc.ir.topology import Topology
from hccc.library import shipped
from hccc.options import Options, check_integer
from hccc.predict import baselines
from hccc.sim import critical, usage
from hccc.sim.costs import PROTOCOLS
from hccc.sim.estimates import estimates
from hccc.sim.machine import Machine, prepare
from hccc.sim.simulate import Request, Run, simulate

OnPhase = Callable[[str], None]
Adapt = Callable[[Request], Request]
MOST_SIZES = 1000
MOST_COST = 1_000_000  # µs
MICRO_BATCHES = tuple(1 << k for k in range(14, 23, 2))  # 16 KiB … 4 MiB


@dataclass(frozen=True, slots=True)
class Call:
    """How a call is made, but its size. micro_batch: bytes, 0 as the runtime cuts the size, None
    the best of that and MICRO_BATCHES; window: micro-batches, 0 all; times in µs; launch: None as
    the cluster says.

    Raises:
        UserError: E410 for a value that a call cannot have.
    """

    micro_batch: int | None = 0
    window: int = 0
    in_place: bool = False
    protocol: str = "Simple"
    launch: float | None = None
    step: float = 0.0
    interpret: float = 0.0
    contention: float = 0.0

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise fail("E410", f"protocol {self.protocol!r} is not one of {', '.join(PROTOCOLS)}")
        for name in ("micro_batch", "window"):
            value = getattr(self, name)
            if value is not None:
                check_integer(name, value, 0, None)
        for name in ("launch", "step", "interpret", "contention"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= MOST_COST:
                raise fail("E410", f"{name} {value!r} is not 0 to {MOST_COST:,}")

    def request(self, size: int) -> Request:
        """The call of one size."""
        costs = replace(
            PROTOCOLS[self.protocol], launch=self.launch, step=self.step,
            interpret=self.interpret, contention=self.contention,
        )  # fmt: skip
        return Request(size, self.micro_batch or 0, self.window, self.in_place, costs)

    @interruptible
    def settled(self, plan: Plan, topology: Topology, size: int) -> Request:
        """The call of one size, with the best micro-batch where that is left open."""
        if self.micro_batch is not None:
            return self.request(size)
        return self.simulate(prepare(plan, topology), size, lambda request: request).request

    def simulate(self, machine: Machine, size: int, adapt: Adapt, *, free: bool = True) -> Run:
        """One call. free: whether it may choose its micro-batch, where that is left open."""
        request = adapt(self.request(size))
        if self.micro_batch is not None or not free:
            return simulate(machine, request)
        tried = (simulate(machine, replace(request, micro_batch=m)) for m in (0, *MICRO_BATCHES))
        return min(tried, key=lambda run: run.time)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Message sizes in bytes: from the smallest by a factor up to the largest (`-b -e -f`).

    Raises:
        UserError: E410 for a value that they cannot have.
    """

    smallest: int
    largest: int
    factor: float = 4.0

    def __post_init__(self) -> None:
        for name in ("smallest", "largest"):
            check_integer(name, getattr(self, name), 0, None)
        if not 1 < self.factor < float("inf"):
            raise fail("E410", f"factor {self.factor!r} is not more than 1")

    def all(self) -> list[int]:
        """The sizes, smallest first. Raises E415 for none, E418 for too many."""
        if self.smallest > self.largest:
            message = f"-b {self.smallest:,} is more than -e {self.largest:,}"
            raise fail("E415", message, help="a smaller -b, or a larger -e")
        sizes = [self.smallest]
        while (size := max(int(sizes[-1] * self.factor), sizes[-1] + 1)) <= self.largest:
            sizes.append(size)
            if len(sizes) > MOST_SIZES:
                message = f"-f {self.factor:g}: more than {MOST_SIZES:,} sizes"
                raise fail("E418", message, help="a larger -f, or a smaller -e")
        return sizes


NO_CLUSTER = "times are a cluster's: say which with --cluster FILE"


def no_cluster() -> UserError:
    """The error E424: nothing says where to simulate."""
    return fail("E424", NO_CLUSTER, help=shipped.LIST_CLUSTERS)


def check_cluster(given: Path | Source, topology: Topology | None) -> None:
    """What can be known before any work. Raises E424 for an input that names no cluster itself."""
    compiled = isinstance(given, Path) or kind_of(given.text, given.name) is Kind.PLAN
    if topology is None and not compiled:
        raise no_cluster()


def cluster_of(compiled: Compiled, topology: Topology | None) -> Topology:
    """Where to simulate: `topology`, or the cluster that the Plan was made for.

    Raises:
        UserError: E424 where there is neither.
    """
    where = topology or recorded_cluster(compiled)
    if where is None:
        raise no_cluster()
    return where


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """hccc's Plan, or another to compare it with, on the cluster. adapt: changes a call to how this
    one is run; free: whether calls may choose their micro-batch."""

    name: str
    note: str
    machine: Machine
    adapt: Adapt
    free: bool = True


@interruptible
def simulate_sizes(
    compiled: Compiled,
    topology: Topology,
    sizes: Sizes | Sequence[int],
    call: Call,
    vs: Options | None = None,
    on_phase: OnPhase = lambda _: None,
) -> Simulation:
    """Simulates a call of each size. vs: also the baselines, compiled with these options.

    Raises:
        UserError: what cannot be simulated, or too many sizes.
    """
    each = sizes.all() if isinstance(sizes, Sizes) else checked_sizes(sizes)
    entries, missing = _baselines(compiled, topology, vs, on_phase)
    rows: list[tuple[Figures, ...]] = []
    notes: dict[str, str] = {}
    last: Run | None = None
    machines = _Machines(compiled, topology, entries[0].machine)
    for size in each:
        on_phase(f"Simulating {size:,} bytes")
        ours = replace(entries[0], machine=machines.at(size, call.in_place))
        runs = list(_runs([ours, *entries[1:]], call, size, missing))
        rows.append(tuple(_figures(entry.name, run) for entry, run in runs))
        notes |= {entry.name: entry.note for entry, _ in runs}
        last = runs[0][1]
    return Simulation(
        title(compiled.library), compiled.plan, topology.name, sizes, call, tuple(rows),
        vs is not None, notes, missing,
        _critical_lines(last) if last else (), compiled.program is None,
        estimates(entries[0].machine, launch=call.launch is None),
    )  # fmt: skip


class _Machines:
    """The machine of each plan of a catalogue, or of the only one, made once."""

    def __init__(self, compiled: Compiled, topology: Topology, only: Machine) -> None:
        self._compiled, self._topology, self._only = compiled, topology, only
        self._made: dict[Range, Machine] = {}

    def at(self, size: int, in_place: bool) -> Machine:
        """The one that runs a call of `size` bytes."""
        library = self._compiled.catalogue
        if library is None or in_place not in library.modes:
            return self._only
        one = library.pick(size, in_place)
        if one not in self._made:
            self._made[one] = prepare(library.plan_of(one), self._topology)
        return self._made[one]


def checked_sizes(sizes: Sequence[int]) -> list[int]:
    """Message sizes as integers. Raises UserError E410 for what is no number of bytes."""
    return [check_integer("size", size, 0, None) for size in sizes]


def _baselines(
    compiled: Compiled, topology: Topology, vs: Options | None, on_phase: OnPhase
) -> tuple[list[Baseline], dict[str, str]]:
    """hccc, and with `vs` all others; and why there is no plan of those there is none of."""
    if vs is None:
        machine = prepare(compiled.plan, topology)
        return [Baseline("hccc", "as compiled", machine, lambda request: request)], {}
    others = {other.name: other for other in baselines.alternatives(compiled, topology, vs)}
    plans = [Candidate(o.name, o.plan, required=o.name == "hccc") for o in others.values()]
    made, missing = evaluate(
        plans, lambda plan: prepare(plan, topology), lambda name: on_phase(f"Compiling: {name}")
    )
    entries = [
        Baseline(one.name, others[one.name].note, one.value, others[one.name].adapt,
              others[one.name].free)
        for one in made
    ]  # fmt: skip
    return entries, missing


def _runs(
    entries: Sequence[Baseline], call: Call, size: int, missing: dict[str, str]
) -> Iterator[tuple[Baseline, Run]]:
    """What each of them takes; hccc's is first, and may not be missing."""
    for entry in entries:
        try:
            yield entry, call.simulate(entry.machine, size, entry.adapt, free=entry.free)
        except UserError as error:
            if entry is entries[0]:
                raise
            missing[f"{entry.name}, {size:,} bytes"] = error.problem.message


@dataclass(frozen=True, slots=True)
class Figures:
    """One line: what a Run came to. Shares are 0 to 1."""

    name: str
    size: int
    time: float
    algbw: float
    busbw: float
    micro_batch: int
    micro_batches: int
    utilisation: float
    links: list[usage.Links]
    blocks: usage.Blocks
    critical_path: dict[str, float]
    plan: str = ""


@dataclass(frozen=True, slots=True)
class Simulation:
    """What calls of several sizes take. rows: of each size the Figures of hccc, then (vs) of the
    baselines; notes: what each is; missing: why some could not be simulated; critical_path: of
    the largest size, in words; loaded: whether the plan was compiled before; estimates: the figures
    that nobody measured and that times rest on, in words."""

    title: str
    plan: Plan
    cluster: str
    sizes: Sizes | Sequence[int]
    call: Call
    rows: tuple[tuple[Figures, ...], ...]
    vs: bool
    notes: Mapping[str, str]
    missing: Mapping[str, str]
    critical_path: tuple[str, ...]
    loaded: bool = False
    estimates: tuple[str, ...] = ()

    @property
    def results(self) -> tuple[Figures, ...]:
        """The figures of hccc's plan, one for each size."""
        return tuple(row[0] for row in self.rows)

    def facts(self) -> Facts:
        """Everything, for JSON."""
        rows = [[asdict(figures) for figures in row] for row in self.rows]
        return {
            **plan_facts(self.plan),
            **provenance_facts(self.plan),
            "cluster": self.cluster,
            "estimates": self.estimates,
            "call": asdict(self.call),
            "results": [{**row[0], **({"vs": row[1:]} if self.vs else {})} for row in rows],
            **({"notes": self.notes, "missing": self.missing} if self.vs else {}),
        }

    def text(self) -> str:
        """The table, then the critical path of the largest size."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"# {self.title}, simulated on {self.cluster}"
        if self.loaded and (made := made_by(self.plan)):
            yield f"# compiled {made}"
        if isinstance(s := self.sizes, Sizes):
            yield f"# minBytes {s.smallest} maxBytes {s.largest} step: {s.factor:g}(factor)"
        if self.estimates:
            yield f"# estimates: {'; '.join(self.estimates)}"
        yield "#"
        yield from _versus(self.rows) if self.vs else _rows(self.rows)
        yield "#"
        yield from _plans(self.results)
        if self.vs:
            yield from (f"# {name}: {note}" for name, note in self.notes.items())
            yield from (f"# {name}: none, {why}" for name, why in self.missing.items())
        yield from self.critical_path


def _figures(name: str, run: Run) -> Figures:
    path = critical.breakdown(run, critical.critical_path(run))
    return Figures(
        name, run.size, run.time, run.algbw, run.busbw, round(run.payload), run.batches,
        usage.utilisation(run), usage.links(run), usage.blocks(run), path, run.machine.plan.name,
    )  # fmt: skip


def _plans(results: Sequence[Figures]) -> Iterator[str]:
    """Which plan each size runs, where there are several."""
    names = [figures.plan for figures in results]
    if len(set(names)) > 1:
        first = [k for k, name in enumerate(names) if not k or names[k - 1] != name]
        told = ", ".join(f"{names[k]} from {words.size(results[k].size)}" for k in first)
        yield f"# plans: {told}"


_HEAD = (
    ("size", "time", "algbw", "busbw", "micro-batch", "links", "busiest", "", "blocks", "busy",
     "idle", "most"),
    ("(B)", "(us)", "(GB/s)", "(GB/s)", "(B)", "(%)", "(%)", "", "/rank", "(%)", "(%)", "idle (%)"),
)  # fmt: skip
_LINE = "{:>13}  {:>10}  {:>7}  {:>7}  {:>11}  {:>6}  {:>7} {:<7} {:>6}  {:>6}  {:>6}  {:>8}"


def _rows(rows: Sequence[Sequence[Figures]]) -> Iterator[str]:
    for head in _HEAD:
        yield ("#" + _LINE.format(*head)[1:]).rstrip()
    for (f,) in rows:
        top = f.links[0] if f.links else usage.Links("none", 0, 0.0, 0.0, "")
        cells = (
            f.size,
            _us(f.time),
            f"{f.algbw:.2f}",
            f"{f.busbw:.2f}",
            f.micro_batch,
        )
        shares = (_share(f.utilisation), _share(top.most), top.kind)
        b = f.blocks
        idle = (b.per_rank, _share(b.busy), _share(b.idle), _share(b.most_idle))
        yield _LINE.format(*cells, *shares, *idle)


_VERSUS = "{:>13}  {:<12}  {:>10}  {:>7}  {:>7}  {:>11}  {:>6}  {:>6}  {:>6}  {:>8}  {:>9}"
_VERSUS_HEAD = (
    ("size", "as", "time", "algbw", "busbw", "micro-batch", "links", "blocks", "idle", "most",
     "of hccc's"),
    ("(B)", "", "(us)", "(GB/s)", "(GB/s)", "(B)", "(%)", "/rank", "(%)", "idle (%)", "time"),
)  # fmt: skip


def _versus(rows: Sequence[Sequence[Figures]]) -> Iterator[str]:
    """For every size a line each: time, bandwidth, how many times hccc's time it takes."""
    for head in _VERSUS_HEAD:
        yield ("#" + _VERSUS.format(*head)[1:]).rstrip()
    for row in rows:
        for f in row:
            cells = (
                f.name,
                _us(f.time),
                f"{f.algbw:.2f}",
                f"{f.busbw:.2f}",
                f.micro_batch,
            )
            shares = (_share(f.utilisation), f.blocks.per_rank)
            idle = (_share(f.blocks.idle), _share(f.blocks.most_idle))
            times = f.time / row[0].time if row[0].time else 1.0
            size = f.size if f is row[0] else ""
            yield _VERSUS.format(size, *cells, *shares, *idle, f"{times:.2f}×")


def _critical_lines(run: Run) -> tuple[str, ...]:
    path = critical.critical_path(run)
    parts = critical.shares(critical.breakdown(run, path))
    shares = ", ".join(f"{p.name} {_share(p.share)} %" for p in parts if p.counts)
    head = f"# critical path of {run.size:,} bytes: {words.count(len(path), 'step')}"
    return (f"{head}; {shares}" if shares else head,)


def _share(share: float) -> str:
    return words.plain(100 * share, 1)


def _us(time: float) -> str:
    return words.plain(time, 2 if time < 1e6 else 0)
