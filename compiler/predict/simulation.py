"""predict: `hccc sim`: what a plan would take on a cluster, over sizes, beside alternatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hccc import text as words
from hccc.cli import report
from hccc.diagnostics import UserError, fail
from hccc.driver import Options
from hccc.interruptible import interruptible
from hccc.ir.plan import Plan
from hccc.ir.topology import Topology
from hccc.lang.cluster import load as cluster
from hccc.predict import baselines as versus
from hccc.sim import critical, usage
from hccc.sim.costs import PROTOCOLS
from hccc.sim.machine import Machine, prepare
from hccc.sim.simulate import Request, Run, simulate

if TYPE_CHECKING:
    from hccc.inputs import Made

OnPhase = Callable[[str], None]
Adapt = Callable[[Request], Request]
MOST_SIZES = 1000
MICRO_BATCHES = tuple(1 << k for k in range(14, 23, 2))  # 16 KiB … 4 MiB


@dataclass(frozen=True, slots=True)
class Call:
    """How a call is made, but its size. micro_batch: bytes, 0 as the runtime cuts the size, None
    the best of that and MICRO_BATCHES; times in µs."""

    micro_batch: int | None = 0
    window: int = 0
    in_place: bool = False
    protocol: str = "Simple"
    launch: float = 0.0
    step: float = 0.0
    interpret: float = 0.0
    contention: float = 0.0

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
class Wanted:
    """The command line of `hccc sim`. Sizes in bytes; how: the options that made the plan."""

    call: Call
    minbytes: int
    maxbytes: int
    stepfactor: float
    how: Options
    vs: bool = False

    def sizes(self) -> list[int]:
        """The sizes asked for, smallest first; the smallest one in any case. E418 for too many."""
        found = [self.minbytes]
        while (size := max(int(found[-1] * self.stepfactor), found[-1] + 1)) <= self.maxbytes:
            found.append(size)
            if len(found) > MOST_SIZES:
                message = f"-f {self.stepfactor:g}: more than {MOST_SIZES:,} sizes"
                raise fail("E418", message, help="a larger -f, or a smaller -e")
        return found


def check_given(file: Path | None) -> None:
    """Raises E424 where no cluster was given."""
    if file is None:
        message = "times are a cluster's: say which with --cluster FILE"
        raise fail("E424", message, help="examples/clusters has forty")


@interruptible
def topology_of(made: Made, file: Path) -> Topology:
    """The cluster to simulate on."""
    return made.stops.dag.topology if made.stops else cluster.load(file)


@dataclass(frozen=True, slots=True, eq=False)
class Rival:
    """One way to run the collective on the cluster; adapt: a call as this way runs it; free:
    whether calls may choose their micro-batch."""

    name: str
    note: str
    machine: Machine
    adapt: Adapt
    free: bool = True


@interruptible
def run(made: Made, wanted: Wanted, file: Path, as_json: bool, on_phase: OnPhase) -> str:
    """The table, or JSON. Raises UserError for what cannot be simulated."""
    sizes = wanted.sizes()
    topology = topology_of(made, file)
    rivals, missing = _rivals(made, topology, wanted, on_phase)
    table = _Table(made, str(file), wanted, missing)
    for size in sizes:
        on_phase(f"Simulating {size:,} bytes")
        table.add(list(_runs(rivals, wanted.call, size, missing)))
    return report.dumps(table.facts()) if as_json else "\n".join(table.text())


def _rivals(
    made: Made, topology: Topology, wanted: Wanted, on_phase: OnPhase
) -> tuple[list[Rival], dict[str, str]]:
    """hccc, and with `--vs` all others; and why there is no plan of those there is none of."""
    rivals, missing = [], {}
    if not wanted.vs:
        machine = prepare(made.plan, topology)
        return [Rival("hccc", "as compiled", machine, lambda request: request)], {}
    for other in versus.alternatives(made, topology, wanted.how):
        on_phase(f"Compiling: {other.name}")
        try:
            machine = prepare(other.plan(), topology)
        except UserError as error:
            if other.name == "hccc":
                raise
            missing[other.name] = error.problem.message
            continue
        rivals.append(Rival(other.name, other.note, machine, other.adapt, other.free))
    return rivals, missing


def _runs(
    rivals: Sequence[Rival], call: Call, size: int, missing: dict[str, str]
) -> Iterator[tuple[Rival, Run]]:
    """What each rival takes; hccc's is first, and may not be missing."""
    for rival in rivals:
        try:
            yield rival, call.simulate(rival.machine, size, rival.adapt, free=rival.free)
        except UserError as error:
            if rival is rivals[0]:
                raise
            missing[f"{rival.name}, {size:,} bytes"] = error.problem.message


class _Table:
    """The rows as they come: one Run for each rival."""

    def __init__(self, made: Made, cluster: str, wanted: Wanted, missing: dict[str, str]) -> None:
        self._made, self._cluster, self._wanted = made, cluster, wanted
        self._missing = missing
        self._rows: list[list[_Figures]] = []
        self._notes: dict[str, str] = {}
        self._largest: list[str] = []

    def add(self, runs: Sequence[tuple[Rival, Run]]) -> None:
        """One more size; of Runs only figures are kept."""
        self._rows.append([_figures(rival.name, run) for rival, run in runs])
        self._notes |= {rival.name: rival.note for rival, _ in runs}
        self._largest = _critical_lines(runs[0][1])

    def facts(self) -> report.Facts:
        """Everything, for JSON."""
        rows = [[asdict(figures) for figures in row] for row in self._rows]
        vs = self._wanted.vs
        return {
            **report.plan_facts(self._made.plan),
            "cluster": self._cluster,
            "call": asdict(self._wanted.call),
            "results": [{**row[0], **({"vs": row[1:]} if vs else {})} for row in rows],
            **({"notes": self._notes, "missing": self._missing} if vs else {}),
        }

    def text(self) -> Iterator[str]:
        """The table, then the critical path of the largest size."""
        w = self._wanted
        yield f"# {report.title(self._made.plan)}, simulated on {self._cluster}"
        yield f"# minBytes {w.minbytes} maxBytes {w.maxbytes} step: {w.stepfactor:g}(factor)"
        yield "#"
        yield from _versus(self._rows) if w.vs else _rows(self._rows)
        yield "#"
        if w.vs:
            yield from (f"# {name}: {note}" for name, note in self._notes.items())
            yield from (f"# {name}: none, {why}" for name, why in self._missing.items())
        yield from self._largest


@dataclass(frozen=True, slots=True)
class _Figures:
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


def _figures(name: str, run: Run) -> _Figures:
    path = critical.breakdown(run, critical.critical_path(run))
    return _Figures(
        name, run.size, run.time, run.algbw, run.busbw, round(run.payload), run.batches,
        usage.utilisation(run), usage.links(run), usage.blocks(run), path,
    )  # fmt: skip


_HEAD = (
    ("size", "time", "algbw", "busbw", "micro-batch", "links", "busiest", "", "blocks", "busy",
     "idle", "most"),
    ("(B)", "(us)", "(GB/s)", "(GB/s)", "(B)", "(%)", "(%)", "", "/rank", "(%)", "(%)", "idle (%)"),
)  # fmt: skip
_LINE = "{:>13}  {:>10}  {:>7}  {:>7}  {:>11}  {:>6}  {:>7} {:<7} {:>6}  {:>6}  {:>6}  {:>8}"


def _rows(rows: Sequence[Sequence[_Figures]]) -> Iterator[str]:
    for head in _HEAD:
        yield ("#" + _LINE.format(*head)[1:]).rstrip()
    for (f,) in rows:
        top = f.links[0] if f.links else usage.Links("none", 0, 0.0, 0.0, "")
        cells = (f.size, _us(f.time), f"{f.algbw:.2f}", f"{f.busbw:.2f}", f.micro_batch)
        shares = (_percent(f.utilisation), _percent(top.most), top.kind)
        b = f.blocks
        idle = (b.per_rank, _percent(b.busy), _percent(b.idle), _percent(b.most_idle))
        yield _LINE.format(*cells, *shares, *idle)


_VERSUS = "{:>13}  {:<12}  {:>10}  {:>7}  {:>7}  {:>11}  {:>6}  {:>6}  {:>6}  {:>8}  {:>9}"
_VERSUS_HEAD = (
    ("size", "as", "time", "algbw", "busbw", "micro-batch", "links", "blocks", "idle", "most",
     "of hccc's"),
    ("(B)", "", "(us)", "(GB/s)", "(GB/s)", "(B)", "(%)", "/rank", "(%)", "idle (%)", "time"),
)  # fmt: skip


def _versus(rows: Sequence[Sequence[_Figures]]) -> Iterator[str]:
    """For every size a line each: time, bandwidth, how many times hccc's time it takes."""
    for head in _VERSUS_HEAD:
        yield ("#" + _VERSUS.format(*head)[1:]).rstrip()
    for row in rows:
        for f in row:
            cells = (f.name, _us(f.time), f"{f.algbw:.2f}", f"{f.busbw:.2f}", f.micro_batch)
            shares = (_percent(f.utilisation), f.blocks.per_rank)
            idle = (_percent(f.blocks.idle), _percent(f.blocks.most_idle))
            times = f.time / row[0].time if row[0].time else 1.0
            size = f.size if f is row[0] else ""
            yield _VERSUS.format(size, *cells, *shares, *idle, f"{times:.2f}×")


def _critical_lines(run: Run) -> list[str]:
    path = critical.critical_path(run)
    parts = critical.breakdown(run, path)
    total = sum(parts.values()) or 1.0
    shares = ", ".join(
        f"{name} {_percent(us / total)} %"
        for name, us in sorted(parts.items(), key=lambda item: -item[1])
        if us > 0.0005 * total
    )
    head = f"# critical path of {run.size:,} bytes: {words.count(len(path), 'step')}"
    return [f"{head}; {shares}" if shares else head]


def _us(time: float) -> str:
    return f"{time:.2f}" if time < 1e6 else f"{time:.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"
