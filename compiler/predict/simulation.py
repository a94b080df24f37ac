"""simulation: simulates a plan on a cluster, over sizes, beside alternatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hccc.base.diagnostics import Problem, UserError, fail
from hccc.base.interruptible import interruptible
from hccc.base.progress import far, tell
from hccc.base.shown import brief, frame, preformatted
from hccc.driver.compiled import Compiled, CompiledProgram
from hccc.driver.facts import Facts, made_by, plan_facts, provenance_facts, title
from hccc.driver.inputs import Input, XmlInput, recorded_cluster
from hccc.driver.options import Options, check_integer
from hccc.ir.catalogue import Range
from hccc.ir.collective import OpType
from hccc.ir.op_type import SKEWED
from hccc.ir.plan import Plan
from hccc.ir.text import size as size_text
from hccc.ir.topology import Topology
from hccc.predict import baselines
from hccc.predict.advice import advice
from hccc.predict.figures import Figures, critical_lines, figures_of, plans, table, versus
from hccc.predict.nccl.rows import (
    LibraryRow,
    VendorLibrary,
    library_of,
    machine_for,
    registered_rows,
)
from hccc.predict.nccl.rows import rows as rows_of
from hccc.predict.trials import Trial, evaluate
from hccc.shipped import find as shipped
from hccc.sim.costs import PROTOCOLS
from hccc.sim.estimates import estimates
from hccc.sim.machine import Machine, prepare
from hccc.sim.simulate import Request, Run, simulate

Adapt = Callable[[Request], Request]
MOST_SIZES = 1000
MOST_COST = 1_000_000  # µs
MICRO_BATCHES = tuple(1 << k for k in range(14, 23, 2))  # 16 KiB … 4 MiB


@dataclass(frozen=True, slots=True)
class Call:
    """How a call is made, except its size.

    micro_batch: bytes, 0: the runtime cuts the size, None: the best of that and MICRO_BATCHES;
    window: micro-batches, 0 all; times in µs; launch: None: the cluster's. Of an uneven
    collective: skew: how the lengths of its blocks are drawn (`hccc run --skew`), or lengths: bytes
    of each block, of Alltoallv those that rank 0 sends to rank 0, 1, …, then rank 1's. Sizes are of
    calls whose blocks are all as long as the longest; without both all are.

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
    skew: str | None = None
    lengths: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise fail("E410", f"protocol {self.protocol!r} is not one of {', '.join(PROTOCOLS)}")
        if self.skew is not None and self.skew not in SKEWED:
            raise fail("E410", f"skew {self.skew!r} is not one of {', '.join(SKEWED)}")
        if self.skew is not None and self.lengths is not None:
            raise fail("E410", "skew and lengths are both given", help="give one of them")
        for name in ("micro_batch", "window"):
            value = getattr(self, name)
            if value is not None:
                check_integer(name, value, 0, None)
        for name in ("launch", "step", "interpret", "contention"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= MOST_COST:
                raise fail("E410", f"{name} {value!r} is not 0 to {MOST_COST:,}")

    def request(self, size: int) -> Request:
        """Returns the request for a call of one size."""
        costs = replace(
            PROTOCOLS[self.protocol],
            launch=self.launch,
            step=self.step,
            interpret=self.interpret,
            contention=self.contention,
        )
        cut = self.micro_batch or 0, self.window
        blocks = self.skew or "", self.lengths
        return Request(size, *cut, self.in_place, costs, *blocks)

    @interruptible
    def settled(self, plan: Plan, topology: Topology, size: int) -> Request:
        """Returns the request for one size, with the best micro-batch if that is left open."""
        if self.micro_batch is not None:
            return self.request(size)
        return self.simulate(prepare(plan, topology), size, lambda request: request).request

    def simulate(self, machine: Machine, size: int, adapt: Adapt, *, free: bool = True) -> Run:
        """Simulates one call. free: whether it may choose its micro-batch, if that is left open."""
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

    @property
    def text(self) -> str:
        """The range as `Options.sizes` has it: `1024..1048576`."""
        from hccc.driver.tune.sizes import range_text

        return range_text(self.smallest, self.largest)

    def all(self) -> list[int]:
        """Returns the sizes, smallest first. Raises E415 for none, E418 for too many."""
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


AS_IT_IS = "as it is by default, by a model that is held to published measurements"
REGISTERED_NAME = "NCCL registered"
REGISTERED = (
    "NCCL with registered buffers (symmetric kernels; AllReduce and ReduceScatter sum floats), by "
    "its own model"
)
UNKNOWN = "the cluster does not say what its devices are, as `define device = H100` does"
NO_CLUSTER = "times are a cluster's: say which with --cluster FILE"


def no_cluster() -> UserError:
    """Returns the error E424: no cluster is known."""
    return fail("E424", NO_CLUSTER, help=shipped.LIST_CLUSTERS)


def check_cluster(given: Input, topology: Topology | None) -> None:
    """Checks before any work that a cluster is known. Raises E424 for MSCCL XML, which says nothing
    of nodes."""
    if topology is None and isinstance(given, XmlInput):
        raise no_cluster()


def cluster_of(compiled: Compiled, topology: Topology | None) -> Topology:
    """Returns the cluster to simulate: `topology`, or the one that the Plan was made for.

    Raises:
        UserError: E424 there is neither.
    """
    where = topology or recorded_cluster(compiled)
    if where is None:
        raise no_cluster()
    return where


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """hccc's Plan, or another to compare it with, on the cluster.

    adapt: changes a call to how this one is run; free: whether calls may choose their micro-batch.
    """

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
    library: VendorLibrary | None = None,
) -> Simulation:
    """Simulates a call of each size.

    vs: also the baselines, compiled with these options, and the prediction for `library`, None for
    that of the cluster's devices.

    Raises:
        UserError: the call cannot be simulated, or there are too many sizes.
    """
    each = sizes.all() if isinstance(sizes, Sizes) else checked_sizes(sizes)
    entries, missing = _baselines(compiled, topology, vs)
    rows: list[tuple[Figures, ...]] = []
    beside = beside_of(compiled.plan, topology, each, call.launch, library) if vs else Beside()
    notes: dict[str, str] = {}
    missing |= beside.missing
    last: Run | None = None
    machines = _Machines(compiled, topology, entries[0].machine)
    for k, size in enumerate(each):
        tell(f"Simulating {size_text(size)}")
        far(k, len(each))
        ours = replace(entries[0], machine=machines.at(size, call.in_place))
        runs = list(_runs([ours, *entries[1:]], call, size, missing))
        rows.append(tuple(figures_of(entry.name, run) for entry, run in runs))
        notes |= {entry.name: entry.note for entry, _ in runs}
        last = runs[0][1]
    return Simulation(
        title(compiled.catalogue),
        compiled.plan,
        topology.name,
        sizes,
        call,
        tuple(rows),
        vs is not None,
        notes | beside.notes,
        missing,
        critical_lines(last) if last else (),
        not isinstance(compiled, CompiledProgram),
        estimates(entries[0].machine, launch=call.launch is None),
        advice(compiled, topology, last) if last else (),
        beside.rows or (None,) * len(each),
        beside.registered or (None,) * len(each),
    )


@dataclass(frozen=True, slots=True)
class Beside:
    """A library's row for each size, as it is by default and with registered buffers, their
    descriptions, and the reasons if there are none."""

    rows: tuple[LibraryRow | None, ...] = ()
    registered: tuple[LibraryRow | None, ...] = ()
    notes: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def beside_of(
    plan: Plan,
    topology: Topology,
    sizes: Sequence[int],
    launch: float | None,
    asked: VendorLibrary | None = None,
) -> Beside:
    """Predicts a library's calls. launch: µs of a launch, None as the cluster says.

    Raises:
        UserError: E466 for a requested library that does not run there.
    """
    library = asked or library_of(topology)
    if plan.collective.op is OpType.CUSTOM:
        return Beside()
    if library is None:
        return Beside(missing={"NCCL": UNKNOWN})
    try:
        machine = machine_for(library, topology)
        more = _launch(topology, launch) - max(device.launch for device in topology.devices)
        calls = replace(machine, floor=0.0), plan.collective.op, [s or 1 for s in sizes]
        made = rows_of(*calls, more=max(0.0, more))
        buffers, why = registered_rows(*calls, more=max(0.0, more))
    except UserError as error:
        if asked:
            raise
        return Beside(missing={library.upper(): error.problem.message})
    notes, missing = {library.upper(): AS_IT_IS}, dict[str, str]()
    if any(buffers):
        notes[REGISTERED_NAME] = REGISTERED
    if why is not None and library is VendorLibrary.NCCL:
        missing[REGISTERED_NAME] = why
    found = tuple(r if size else None for r, size in zip(made, sizes, strict=True))
    buffers = tuple(r if size else None for r, size in zip(buffers, sizes, strict=True))
    return Beside(found, buffers, notes, missing)


def _launch(topology: Topology, launch: float | None) -> float:
    """Returns the µs of a launch; a library's time includes the usual launch."""
    return float(topology.launch[:, 0].max()) if launch is None else launch


class _Machines:
    """The machine of each plan of a catalogue, or of the only plan, made once."""

    def __init__(self, compiled: Compiled, topology: Topology, only: Machine) -> None:
        self._compiled, self._topology, self._only = compiled, topology, only
        self._made: dict[Range, Machine] = {}

    def at(self, size: int, in_place: bool) -> Machine:
        """Returns the machine of the plan for a call of `size` bytes."""
        library = self._compiled.catalogue
        if library.alone or in_place not in library.modes:
            return self._only
        one = library.pick(size, in_place)
        if one not in self._made:
            self._made[one] = prepare(library.plan_of(one), self._topology)
        return self._made[one]


def checked_sizes(sizes: Sequence[int]) -> list[int]:
    """Returns message sizes as integers. Raises UserError E410 for anything else."""
    return [check_integer("size", size, 0, None) for size in sizes]


def _baselines(
    compiled: Compiled, topology: Topology, vs: Options | None
) -> tuple[list[Baseline], dict[str, str]]:
    """Returns hccc, and with `vs` all others, and the reasons of those without a plan."""
    if vs is None:
        machine = prepare(compiled.plan, topology)
        return [Baseline("hccc", "as compiled", machine, lambda request: request)], {}
    others = {other.name: other for other in baselines.alternatives(compiled, topology, vs)}
    plans = [Trial(o.name, o.plan, required=o.name == "hccc") for o in others.values()]
    made, missing = evaluate(
        plans, lambda plan: prepare(plan, topology), lambda name: tell(f"Compiling: {name}")
    )
    entries = [
        Baseline(
            one.name,
            others[one.name].note,
            one.value,
            others[one.name].adapt,
            others[one.name].free,
        )
        for one in made
    ]
    return entries, missing


def _runs(
    entries: Sequence[Baseline], call: Call, size: int, missing: dict[str, str]
) -> Iterator[tuple[Baseline, Run]]:
    """Yields the run of each; hccc's is first, and must succeed."""
    for entry in entries:
        try:
            yield entry, call.simulate(entry.machine, size, entry.adapt, free=entry.free)
        except UserError as error:
            if entry is entries[0]:
                raise
            missing[f"{entry.name}, {size:,} bytes"] = error.problem.message


_RECORDED = (
    *("name", "size", "time", "algbw", "busbw", "micro_batch", "micro_batches"),
    *("utilisation", "plan"),
)
_CHOSEN = ("name", "size", "time", "algbw", "busbw", "algorithm", "protocol", "channels")


@dataclass(frozen=True, slots=True)
class Simulation:
    """The simulated calls of several sizes.

    rows: for each size the Figures of hccc, then (vs) of the baselines; notes: describe each;
    missing: why some could not be simulated; critical_path: of the largest size, in words; loaded:
    whether the plan was compiled before; estimates: figures that are estimated, not measured, and
    that times depend on, in words; library: the prediction for NCCL or RCCL at each size, as it is
    by default; registered: for NCCL with registered buffers, None where it has no kernel for them.
    """

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
    warnings: tuple[Problem, ...] = ()
    library: tuple[LibraryRow | None, ...] = ()
    registered: tuple[LibraryRow | None, ...] = ()

    def __repr__(self) -> str:
        sizes = f"{len(self.rows)} size{'s' * (len(self.rows) != 1)}"
        return brief(self, f"{self.title}, on {self.cluster}, {sizes}")

    def _repr_html_(self) -> str:
        return preformatted(self.text())

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Figures]:
        """Yields the figures of hccc's plan at each size, as `results`."""
        return iter(self.results)

    def records(self) -> list[dict[str, object]]:
        """Returns what the text has in rows: for each size hccc, then (vs) the library's choice,
        by default and with registered buffers, its rings and trees and the other baselines. name,
        size (bytes), time (µs), algbw and busbw (GB/s), micro_batch (bytes), micro_batches,
        utilisation (0 to 1), plan; of the library's choice algorithm, protocol and channels instead
        of the last four."""
        made = list[dict[str, object]]()
        for k, row in enumerate(self.rows):
            found = [{key: getattr(one, key) for key in _RECORDED} for one in row]
            found[1:1] = [{key: getattr(one, key) for key in _CHOSEN} for one in self.beside(k)]
            made += found
        return made

    def beside(self, k: int) -> list[LibraryRow]:
        """Returns the library's rows at the k-th size: by default, then with registered buffers."""
        return [one for row in (self.library, self.registered) if row and (one := row[k])]

    def to_frame(self) -> Any:
        """Returns `records` as a DataFrame of pandas. Raises UserError E477 where there is none."""
        return frame(self.records())

    @property
    def results(self) -> tuple[Figures, ...]:
        """The figures of hccc's plan, one for each size."""
        return tuple(row[0] for row in self.rows)

    def facts(self) -> Facts:
        """Returns all figures, for JSON."""
        rows = [[asdict(figures) for figures in row] for row in self.rows]
        for k, row in enumerate(rows):
            row[1:1] = [{"name": one.name, **asdict(one)} for one in self.beside(k)]
        return {
            **plan_facts(self.plan),
            **provenance_facts(self.plan.provenance),
            "cluster": self.cluster,
            "estimates": self.estimates,
            "warnings": [problem.as_json() for problem in self.warnings],
            "call": asdict(self.call),
            "results": [{**row[0], **({"vs": row[1:]} if self.vs else {})} for row in rows],
            **({"notes": self.notes, "missing": self.missing} if self.vs else {}),
        }

    def text(self) -> str:
        """Writes the table, then the critical path of the largest size."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"# {self.title}, simulated on {self.cluster}"
        if self.loaded and (made := made_by(self.plan.provenance)):
            yield f"# compiled {made}"
        if isinstance(s := self.sizes, Sizes):
            yield f"# minBytes {s.smallest} maxBytes {s.largest} step: {s.factor:g}(factor)"
        if self.estimates:
            yield f"# estimates: {'; '.join(self.estimates)}"
        yield "#"
        beside = [self.beside(k) for k in range(len(self.rows))]
        yield from versus(self.rows, beside) if self.vs else table(self.rows)
        yield "#"
        yield from plans(self.results)
        if self.vs:
            yield from (f"# {name}: {note}" for name, note in self.notes.items())
            yield from (f"# {name}: none, {why}" for name, why in self.missing.items())
        yield from self.critical_path
