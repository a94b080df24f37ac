"""predict: `hccc sim`: what a plan would take on a cluster, over sizes, beside alternatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hccc import report
from hccc.diagnostics import fail
from hccc.ir.topology import Topology
from hccc.lang import cluster
from hccc.sim import critical, usage
from hccc.sim.costs import PROTOCOLS
from hccc.sim.machine import Machine, prepare
from hccc.sim.simulate import Request, Run, simulate

if TYPE_CHECKING:
    from hccc.road import Made

OnPhase = Callable[[str], None]
MOST_SIZES = 1000


@dataclass(frozen=True, slots=True)
class Wanted:
    """The command line of `hccc sim`. Sizes in bytes, times in µs."""

    minbytes: int
    maxbytes: int
    stepfactor: float
    micro_batch: int = 0
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
        return Request(size, self.micro_batch, self.window, self.in_place, costs)

    def sizes(self) -> Iterator[int]:
        """The sizes asked for, smallest first."""
        size = self.minbytes
        for _ in range(MOST_SIZES):
            yield size
            size = max(int(size * self.stepfactor), size + 1)
            if size > self.maxbytes:
                return


@dataclass(frozen=True, slots=True)
class Rival:
    """One way to run the collective: its name, the machine, what its runtime changes in a call."""

    name: str
    machine: Machine
    adapt: Callable[[Request], Request] = field(default=lambda request: request)


def check_given(file: Path | None) -> None:
    """Raises E424 where no cluster was given."""
    if file is None:
        message = "times are a cluster's: say which with --cluster FILE"
        raise fail("E424", message, help="examples/clusters has forty")


def topology_of(made: Made, file: Path) -> Topology:
    """The cluster to simulate on."""
    return made.stops.dag.topology if made.stops else cluster.load(file)


def run(made: Made, wanted: Wanted, file: Path, as_json: bool, on_phase: OnPhase) -> str:
    """The table, or JSON. Raises UserError for what cannot be simulated."""
    topology = topology_of(made, file)
    on_phase("Simulating")
    rivals = [Rival("hccc", prepare(made.plan, topology))]
    table = _Table(made, str(file), wanted, rivals)
    for size in wanted.sizes():
        on_phase(f"Simulating {size:,} bytes")
        request = wanted.request(size)
        table.add([simulate(rival.machine, rival.adapt(request)) for rival in rivals])
    return report.dumps(table.facts()) if as_json else "\n".join(table.text())


class _Table:
    """The rows as they come: one Run for each rival."""

    def __init__(self, made: Made, cluster: str, wanted: Wanted, rivals: Sequence[Rival]) -> None:
        self._made, self._cluster, self._wanted = made, cluster, wanted
        self._rivals = list(rivals)
        self._rows: list[list[_Figures]] = []
        self._largest: list[str] = []

    def add(self, runs: Sequence[Run]) -> None:
        """One more size; of Runs only figures are kept."""
        self._rows.append(
            [_figures(r.name, run) for r, run in zip(self._rivals, runs, strict=True)]
        )
        self._largest = _critical_lines(runs[0])

    def facts(self) -> report.Facts:
        """Everything, for JSON."""
        rows = [[asdict(figures) for figures in row] for row in self._rows]
        return {
            **report.plan_facts(self._made.plan),
            "cluster": self._cluster,
            "request": asdict(self._wanted),
            "results": [{**row[0], **({"vs": row[1:]} if len(row) > 1 else {})} for row in rows],
        }

    def text(self) -> Iterator[str]:
        """The table, then the critical path of the largest size."""
        w = self._wanted
        yield f"# {report.title(self._made.plan)}, simulated on {self._cluster}"
        yield f"# minBytes {w.minbytes} maxBytes {w.maxbytes} step: {w.stepfactor:g}(factor)"
        yield "#"
        yield from _rows(self._rows) if len(self._rivals) == 1 else _versus(self._rows)
        yield "#"
        yield from self._largest


@dataclass(frozen=True, slots=True)
class _Figures:
    """One line: what a Run came to. Shares are 0 to 1."""

    name: str
    size: int
    time: float
    algbw: float
    busbw: float
    micro_batches: int
    utilisation: float
    links: list[usage.Links]
    blocks: usage.Blocks
    critical_path: dict[str, float]


def _figures(name: str, run: Run) -> _Figures:
    path = critical.breakdown(run, critical.critical_path(run))
    return _Figures(
        name, run.size, run.time, run.algbw, run.busbw, run.batches,
        usage.utilisation(run), usage.links(run), usage.blocks(run), path,
    )  # fmt: skip


_HEAD = (
    ("size", "time", "algbw", "busbw", "links", "busiest", "", "blocks", "busy", "idle", "most"),
    ("(B)", "(us)", "(GB/s)", "(GB/s)", "(%)", "(%)", "", "/rank", "(%)", "(%)", "idle (%)"),
)
_LINE = "{:>13}  {:>10}  {:>7}  {:>7}  {:>6}  {:>7} {:<7} {:>7}  {:>6}  {:>6}  {:>8}"


def _rows(rows: Sequence[Sequence[_Figures]]) -> Iterator[str]:
    for head in _HEAD:
        yield ("#" + _LINE.format(*head)[1:]).rstrip()
    for (f,) in rows:
        top = f.links[0] if f.links else usage.Links("none", 0, 0.0, 0.0, "")
        cells = (f.size, _us(f.time), f"{f.algbw:.2f}", f"{f.busbw:.2f}", _percent(f.utilisation))
        b = f.blocks
        idle = (_percent(b.busy), _percent(b.idle), _percent(b.most_idle))
        yield _LINE.format(*cells, _percent(top.most), top.kind, b.per_rank, *idle)


def _versus(rows: Sequence[Sequence[_Figures]]) -> Iterator[str]:
    """For every size a line each: time, bandwidth, how many times hccc's time it takes."""
    line = "{:>13}  {:<18}  {:>10}  {:>7}  {:>7}  {:>6}  {:>7}  {:>8}  {:>6}  {:>9}"
    heads = (
        ("size", "as", "time", "algbw", "busbw", "links", "blocks", "idle", "most", "of hccc's"),
        ("(B)", "", "(us)", "(GB/s)", "(GB/s)", "(%)", "/rank", "(%)", "(%)", "time"),
    )
    for head in heads:
        yield ("#" + line.format(*head)[1:]).rstrip()
    for row in rows:
        for f in row:
            cells = (f.name, _us(f.time), f"{f.algbw:.2f}", f"{f.busbw:.2f}")
            shares = (_percent(f.utilisation), f.blocks.per_rank)
            idle = (_percent(f.blocks.idle), _percent(f.blocks.most_idle))
            times = f.time / row[0].time if row[0].time else 1.0
            yield line.format(
                f.size if f is row[0] else "", *cells, *shares, *idle, f"{times:.2f}×"
            )


def _critical_lines(run: Run) -> list[str]:
    path = critical.critical_path(run)
    parts = critical.breakdown(run, path)
    total = sum(parts.values()) or 1.0
    shares = ", ".join(
        f"{name} {_percent(us / total)} %"
        for name, us in sorted(parts.items(), key=lambda item: -item[1])
        if us > 0.0005 * total
    )
    head = f"# critical path of {run.size:,} bytes: {len(path):,} steps"
    return [f"{head}; {shares}" if shares else head]


def _us(time: float) -> str:
    return f"{time:.2f}" if time < 1e6 else f"{time:.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"
