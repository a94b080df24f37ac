"""difference: where and why one algorithm is faster than another on a cluster.

Both are simulated at each size. The time of a call is its launch and its critical path, so what the
parts of both differ by adds up to the difference of the times (`sim/critical`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from hccc.base.diagnostics import fail
from hccc.base.interruptible import interruptible
from hccc.base.progress import far, tell
from hccc.base.shown import brief, preformatted
from hccc.driver.compiled import Compiled
from hccc.driver.facts import Facts, plan_facts, title
from hccc.ir import text as words
from hccc.ir.text import microseconds as us
from hccc.ir.text import percent
from hccc.ir.topology import Topology
from hccc.predict.figures import Figures, figures_of
from hccc.predict.gap import Bottleneck, bottleneck
from hccc.predict.simulation import Call, Sizes, checked_sizes
from hccc.sim import critical
from hccc.sim.machine import prepare

SAME = 0.005  # of the time: two calls that differ by less are as fast as each other
BYTES = "moving bytes"
NO_BYTES = ("launch", "latency", "reduction", "waiting for the network", "waiting")
CLEARLY = 0.95  # of a link's load: less tells
TELLS = 0.02  # of the slower time: a part that differs by less has no line


@dataclass(frozen=True, slots=True)
class Side:
    """One algorithm's call. launch: µs; steps: of its critical path; blocks: thread blocks of the
    rank with most; busiest: the link whose bytes take longest, None where nothing crosses one."""

    figures: Figures
    launch: float
    steps: int
    blocks: int
    busiest: Bottleneck | None

    @property
    def parts(self) -> dict[str, float]:
        """µs by cause, which add up to the time."""
        return {"launch": self.launch, **self.figures.critical_path}


@dataclass(frozen=True, slots=True)
class SizeDifference:
    """The calls of both algorithms at one size in bytes."""

    size: int
    one: Side
    other: Side

    @property
    def times(self) -> float:
        """How many times as long the first takes as the second."""
        return self.one.figures.time / max(self.other.figures.time, 1e-9)

    @property
    def faster(self) -> int:
        """0 or 1, the faster one; -1 where both are as fast."""
        if abs(self.times - 1) < SAME:
            return -1
        return int(self.times > 1)

    def parts(self) -> dict[str, float]:
        """Returns the µs by cause that the second takes more than the first, most different
        first."""
        one, other = self.one.parts, self.other.parts
        more = {name: other.get(name, 0.0) - one.get(name, 0.0) for name in {**one, **other}}
        return dict(sorted(more.items(), key=lambda part: -abs(part[1])))

    def facts(self) -> Facts:
        """Returns all figures, for JSON; times in µs."""
        return {
            "size": self.size,
            "times": self.times,
            "faster": self.faster,
            "parts": self.parts(),
            "sides": [asdict(self.one), asdict(self.other)],
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """Two algorithms of one collective on one cluster, at several sizes. names: what people call
    them."""

    names: tuple[str, str]
    compiled: tuple[Compiled, Compiled]
    cluster: str
    sizes: tuple[SizeDifference, ...]

    def __repr__(self) -> str:
        sizes = f"{len(self.sizes)} size{'s' * (len(self.sizes) != 1)}"
        return brief(self, f"{' and '.join(self.names)} on {self.cluster}, {sizes}")

    def _repr_html_(self) -> str:
        return preformatted(self.text())

    def facts(self) -> Facts:
        """Returns all figures, for JSON."""
        return {
            "cluster": self.cluster,
            "algorithms": [
                {"given": name, **plan_facts(one.plan)}
                for name, one in zip(self.names, self.compiled, strict=True)
            ],
            "sizes": [one.facts() for one in self.sizes],
        }

    def text(self) -> str:
        """Writes which is faster from which size on, then the parts at each size."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.compiled[0].catalogue.collective.title}, simulated on {self.cluster}"
        for letter, name, one in zip("AB", self.names, self.compiled, strict=True):
            yield f"  {letter}  {title(one.catalogue).partition(':')[0]}, of {name}"
        yield ""
        yield f"  {'size':>8}{'A (µs)':>14}{'B (µs)':>14}{'A/B':>8}  why"
        for at in self.sizes:
            times = f"{us(at.one.figures.time):>14}{us(at.other.figures.time):>14}"
            yield f"  {words.size(at.size):>8}{times}{at.times:>7.2f}×  {_why(at)}"
        for at in self.sizes:
            yield ""
            yield from _details(at)


def _why(at: SizeDifference) -> str:
    """Says in a line which one is faster, and by what most of all."""
    if at.faster < 0:
        return "both take as long"
    slow, fast = (at.one, at.other) if at.faster else (at.other, at.one)
    saved = dict[str, float]()
    for part, more in at.parts().items():  # whatever sets the pace of bytes, they move
        name = part if part in NO_BYTES else BYTES
        saved[name] = saved.get(name, 0.0) + (-more if at.faster else more)
    name, most = max(saved.items(), key=lambda part: part[1])
    reason = f"{'AB'[at.faster]} has {us(most)} µs less of {name}"
    if name == "latency" and fast.steps < slow.steps:
        return f"{reason}: {fast.steps} steps follow each other, not {slow.steps}"
    if name == BYTES and _load(fast) < CLEARLY * _load(slow):
        return f"{reason}: {_bytes(fast)} over its busiest link, not {_bytes(slow)}"
    if name == BYTES and fast.blocks > slow.blocks:
        return f"{reason}: {fast.blocks} thread blocks a rank, not {slow.blocks}"
    return reason


def _load(side: Side) -> float:
    return side.busiest.load if side.busiest else 0.0


def _details(at: SizeDifference) -> Iterator[str]:
    """Yields the parts of the times at one size, then what carries the bytes."""
    sides = at.one, at.other
    least = TELLS * max(side.figures.time for side in sides)
    yield f"  {words.size(at.size):<24}{'A':>14}{'B':>14}{'B - A':>14}"
    more = at.other.figures.time - at.one.figures.time
    yield _row("time (µs)", [us(side.figures.time) for side in sides], _signed(more))
    for name, more in at.parts().items():
        took = [side.parts.get(name, 0.0) for side in sides]
        if max(took) >= least:
            yield _row(f"  {name}", [us(one) for one in took], _signed(more))
    yield _row("steps of the path", [str(side.steps) for side in sides])
    yield _row("thread blocks a rank", [str(side.blocks) for side in sides])
    yield _row("micro-batches", [f"{side.figures.micro_batches:,}" for side in sides])
    yield _row("links used (%)", [percent(side.figures.utilisation) for side in sides])
    for letter, side in zip("AB", sides, strict=True):
        if (b := side.busiest) is not None:
            share = percent(min(1.0, b.load / max(side.figures.time, 1e-9)))
            of = f"{b.name}: {_bytes(side)}"
            yield f"    busiest of {letter}  {of}, at its rate {share} % of the time"


def _row(name: str, values: Sequence[str], more: str = "") -> str:
    return f"    {name:<22}{values[0]:>14}{values[1]:>14}{more:>14}".rstrip()


def _signed(more: float) -> str:
    """Writes a difference in µs with its sign."""
    return f"{'-' if more < 0 else '+'}{us(abs(more))}"


def _bytes(side: Side) -> str:
    return words.size(side.busiest.bytes) if side.busiest else "nothing"


@interruptible
def compare(
    names: tuple[str, str],
    compiled: tuple[Compiled, Compiled],
    topology: Topology,
    sizes: Sizes | Sequence[int],
    call: Call,
) -> Difference:
    """Simulates both algorithms at each size.

    Raises:
        UserError: E479 they are not of one collective; a call cannot be simulated.
    """
    one, other = (each.catalogue.collective for each in compiled)
    if (one.op, one.n_ranks, one.root) != (other.op, other.n_ranks, other.root):
        raise fail(
            "E479",
            f"{names[0]} is {one.title}, and {names[1]} is {other.title}",
            help="compare two algorithms of one collective, of as many ranks and the same root",
        )
    each = sizes.all() if isinstance(sizes, Sizes) else checked_sizes(sizes)
    found = list[SizeDifference]()
    for k, size in enumerate(each):
        tell(f"Simulating {words.size(size)}")
        far(k, len(each))
        sides = [
            _side(plans, name, topology, size, call)
            for plans, name in zip(compiled, names, strict=True)
        ]
        found.append(SizeDifference(size, *sides))
    return Difference(names, compiled, topology.name or "a cluster", tuple(found))


def _side(compiled: Compiled, name: str, topology: Topology, size: int, call: Call) -> Side:
    machine = prepare(compiled.at(size, call.in_place).plan, topology)
    run = call.simulate(machine, size, lambda request: request)
    steps = len(critical.critical_path(run))
    blocks = machine.plan.blocks_per_rank
    return Side(figures_of(name, run), float(run.launch), steps, blocks, bottleneck(run))
