"""explanation: explains the time of a plan on a cluster, and what would reduce it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from hccc.base.diagnostics import Problem
from hccc.base.interruptible import interruptible
from hccc.base.progress import tell
from hccc.base.shown import brief, preformatted
from hccc.driver.compiled import Compiled, CompiledProgram
from hccc.driver.facts import Facts, made_by, plan_facts, provenance_facts, title
from hccc.driver.options import Options
from hccc.driver.tune import report
from hccc.driver.tune.tune import Tuned
from hccc.ir import text as words
from hccc.ir.catalogue import Catalogue
from hccc.ir.choices import PlanProtocol
from hccc.ir.plan import Plan
from hccc.ir.text import microseconds as us
from hccc.ir.text import percent
from hccc.ir.topology import Topology
from hccc.network.resource_names import names
from hccc.predict import what_if
from hccc.predict.advice import advice
from hccc.predict.gap import Gap, gap
from hccc.predict.nccl.rows import LibraryRow
from hccc.predict.simulation import beside_of
from hccc.sim import critical
from hccc.sim.estimates import estimates
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, simulate
from hccc.sim.transfers import as_packets_cross
from hccc.synth.bounds.bound import Bound, limits

MORE = 1.01  # times the least latency
HELPS = 0.02  # of the time: less is not worth a line
MOST_INSTANCES = 1 << 22  # beyond that about thirty more runs would take minutes


@interruptible
def explain(
    compiled: Compiled,
    topology: Topology,
    request: Request,
    options: Options | None = None,
    *,
    most: int = MOST_INSTANCES,
    recompile: bool = True,
) -> Explanation:
    """Explains the time of a call, and what would reduce it.

    options: how the program was compiled, for the changes that compile it again; most: instances
    of a call that changes are tried for; recompile: whether to try those that compile it again.

    Raises:
        UserError: the call cannot be simulated.
    """
    made = compiled if isinstance(compiled, CompiledProgram) else None
    machine = prepare(compiled.plan, topology)
    tell("Simulating")
    run = simulate(machine, request)
    tell("Looking for the narrowest cut")
    c = compiled.plan.collective
    taken = gap(run, limits(as_packets_cross(compiled.plan, topology), c.op, c.root))
    changes: list[what_if.ChangeOutcome] | None = None
    if len(run.end) <= most:
        program = made.program if made and recompile else None
        chosen = made.options if made else options or Options()
        changes = what_if.outcomes(run, program, chosen)
    path = critical.critical_path(run)
    breakdown = critical.breakdown(run, path)
    guessed = estimates(machine, launch=request.costs.launch is None)
    beside = beside_of(compiled.plan, topology, [request.size], request.costs.launch)
    return Explanation(
        compiled.plan,
        topology.name,
        taken,
        changes,
        len(path),
        breakdown,
        made is None,
        guessed,
        advice(compiled, topology, run),
        made.tuned if made else None,
        tuple(compiled.plan_names()),
        beside.rows[0] if beside.rows else None,
        beside.registered[0] if beside.registered else None,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """The explanation of one call.

    changes: None if there are too many instances to try any; estimates: figures that are estimated,
    not measured, and that the time depends on, in words; tuned: the alternatives compared for all
    sizes; plans: the names of the plans chosen; library: what NCCL or RCCL would take as it is by
    default; registered: what NCCL would take with registered buffers.
    """

    plan: Plan
    cluster: str
    gap: Gap
    changes: list[what_if.ChangeOutcome] | None
    steps: int
    path: dict[str, float]
    loaded: bool = False
    estimates: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()
    tuned: Tuned | None = None
    plans: tuple[str, ...] = ()
    library: LibraryRow | None = None
    registered: LibraryRow | None = None

    def __repr__(self) -> str:
        run = self.gap.run
        return brief(
            self,
            f"{self.plan.name} on {self.cluster}: {words.size(run.size)} in {words.time(run.time)}",
        )

    def _repr_html_(self) -> str:
        return preformatted(self.text())

    def facts(self) -> Facts:
        """Returns all figures, for JSON."""
        run, least = self.gap.run, self.gap.bound
        cut = least.cut
        return {
            **plan_facts(self.plan),
            **provenance_facts(self.plan.provenance),
            "cluster": self.cluster,
            "estimates": self.estimates,
            "size": run.size,
            "time": run.time,
            "algbw": run.algbw,
            "busbw": run.busbw,
            "micro_batches": run.batches,
            "bound": {
                "time": least.time,
                "latency": least.latency,
                "head": least.head,
                "bandwidth": least.bandwidth,
                "binding": least.binding,
                "cut": None
                if cut is None
                else {
                    "name": cut.name,
                    "share": cut.share,
                    "capacity": cut.capacity,
                    "parts": cut.parts,
                    "resources": names(run.machine.topology, cut.resources),
                },
            },
            "library": None if self.library is None else asdict(self.library),
            "registered": None if self.registered is None else asdict(self.registered),
            "bottleneck": asdict(self.gap.bottleneck) if self.gap.bottleneck else None,
            "parts": self.gap.parts,
            "critical_path": {"steps": self.steps, **self.path},
            "warnings": [problem.as_json() for problem in self.warnings],
            **({"tuned": report.facts(self.tuned)} if self.tuned else {}),
            "what_if": None if self.changes is None else [asdict(c) for c in self.changes],
        }

    def text(self) -> str:
        """Writes the page."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        run, least = self.gap.run, self.gap.bound
        yield f"{title(Catalogue.of(self.plan))}, {run.size:,} bytes on {self.cluster}"
        if self.loaded and (made := made_by(self.plan.provenance)):
            yield f"  compiled     {made}"
        rates = f"algbw {run.algbw:.2f}, busbw {run.busbw:.2f} GB/s"
        cut = f"{words.count(run.batches, 'micro-batch')} of {words.size(run.payload)}"
        blocks = words.count(self.plan.blocks_per_rank, "thread block")
        yield f"  time         {us(run.time)} µs, {rates}; {cut}, {blocks} a rank"
        share = least.time / run.time if run.time else 1.0
        links = _LINKS if self.plan.multicast is not None else ""
        what = f"{us(least.time)} µs{links}, {percent(share)} % of it"
        yield f"  lower bound  {what}: {_why(least)}"
        yield from self._library()
        if (b := self.gap.bottleneck) is not None:
            took = f"{us(b.load)} µs at its {b.capacity:g} GB/s, in use for {us(b.active)} µs"
            yield f"  bottleneck   {b.name}: {_bytes(b.bytes)}, {took}"
        if self.estimates:
            yield f"  estimates    {'; '.join(self.estimates)}"
        yield ""
        yield from self._parts()
        yield ""
        yield from self._critical()
        yield ""
        yield from self._help()
        if self.tuned:
            yield ""
            yield from self._weighed(self.tuned)

    def _library(self) -> Iterator[str]:
        """Yields the time of NCCL or RCCL, and a remedy where flags in the data make it less."""
        time = self.gap.run.time
        found = [other for other in (self.library, self.registered) if other and time]
        for other in found:
            name = "registered" if other.registered else other.name
            by = "NCCL with registered buffers, " if other.registered else ""
            times = f"{other.time / time:.2f} times this"
            yield f"  {name:<11}  {us(other.time)} µs, {times}, by {by}{other.choice}"
        flagged = [o for o in found if o.time < time and "LL" in o.protocol.upper()]
        op = self.plan.collective.op.value.lower()
        if flagged:
            have = "`--protocol ll` has it too."
            yield (
                f"               {flagged[0].protocol} has flags in the data, so a step has less "
                f"latency{'.' if self.plan.protocol is PlanProtocol.LL else '; ' + have}"
            )
        if flagged and self.steps > 1 and self._latency > MORE * self.gap.bound.latency:
            yield (
                "               Fewer steps help: "
                f"`hccc synth CLUSTER --collective {op} -b {self.gap.run.size}` looks for some"
            )

    @property
    def _latency(self) -> float:
        """The µs of latency on the critical path."""
        return self.path.get("latency", 0.0)

    def _weighed(self, tuned: Tuned) -> Iterator[str]:
        taken = report.what_blocks_take(self.gap.run.machine.topology)
        yield "  chosen"
        yield from (f"    {line}" for line in report.range_lines(tuned, self.plans, taken))
        yield f"  weighed: {report.WEIGHED}"
        yield from (f"    {line}" for line in report.structure_lines(tuned))

    def _parts(self) -> Iterator[str]:
        yield f"  {'where the time goes':<20}{'µs':>12}{'%':>7}"
        why = _reasons(self.gap)
        for name, time in self.gap.parts.items():
            if time >= 0.0005 * self.gap.run.time:
                share = percent(time / self.gap.run.time)
                yield f"  {name:<20}{us(time):>12}{share:>7}  {why.get(name, '')}".rstrip()

    def _critical(self) -> Iterator[str]:
        parts = critical.shares(self.path)
        shares = ", ".join(f"{p.name} {percent(p.share)} %" for p in parts if p.counts)
        yield f"  critical path  {words.count(self.steps, 'step')}: {shares}"

    def _help(self) -> Iterator[str]:
        if self.changes is None:
            count = f"{len(self.gap.run.end):,} steps to simulate for each"
            yield f"  what would help: not tried, {count}; a smaller -b or larger --micro-batch"
            return
        better = [c for c in self.changes if c.saves > HELPS]
        blocks = self.plan.blocks_per_rank
        if not better:
            yield f"  what would help: none of {len(self.changes)} changes saves {HELPS:.0%}"
            return
        yield f"  {'what would help':<34}{'µs':>12}{'saves':>8}"
        for c in better:
            name = f"{c.name}{us(c.time):>{max(46 - len(c.name), 1)}}"
            other = f", {c.blocks} thread blocks a rank" if c.blocks != blocks else ""
            yield f"  {name}{percent(c.saves):>7}%  {c.option}{other}".rstrip()


_LINKS = " without the switch"


def _why(least: Bound) -> str:
    """Describes the parts of the lower bound."""
    cut = least.cut
    if cut is None or least.latency >= least.head + least.bandwidth:
        return f"{least.latency:.2f} µs of latency over the longest shortest path"
    what = f"{_bytes(cut.share * least.size)} {cut.name} at {cut.capacity:g} GB/s"
    return f"{what}; latency alone {us(least.latency)} µs"


def _reasons(g: Gap) -> dict[str, str]:
    """Describes each part of the time, in figures."""
    b, cut = g.bottleneck, g.bound.cut
    reasons = {
        "bound": "no schedule takes less" + (_LINKS if g.run.machine.plan.multicast else ""),
        "launch": "of kernels, and of ranks that meet, or load and store what they exchange",
    }
    if b is None or cut is None:
        return reasons
    few = f"{b.flight:.1f} transfers at a time, whose {b.movers} move {b.offered:.1f} GB/s at most"
    held = f"{b.flight:.1f} transfers at a time: uneven over time, or other links hold them up"
    scarce = b.offered < b.capacity
    after = g.run.time - g.run.launch - b.end
    counted = b.begin + after - g.parts["fill and drain"]  # of the bound's latency, above all
    outside = f"{us(b.begin)} before its first byte and {us(after)} after its last"
    if words.fixed(counted, 2) != "0.00":
        outside += f", less {us(counted)} that the bound has"
    return reasons | {
        "extra bytes": f"more goes {cut.name} than must",
        "imbalance": f"{b.name} has more to carry than the cut on average",
        "below capacity": few if scarce else held,
        "bubbles": "nothing crosses the bottleneck, between its first byte and its last",
        "fill and drain": outside,
    }


def _bytes(size: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size:.4g} B"
