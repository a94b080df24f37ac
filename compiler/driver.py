"""driver: drives a Program through all passes to a proved Plan.

`PASSES` is the order; between any two passes stands one hook (`_Hook`) that times them, checks the
invariants of what they return (`--verify-each`), and hands it to who wants to look
(`--print-after`). Phases are those of ResCCL Fig. 10a (Parsing, Analysis, Scheduling, Lowering),
Proof, and Tuning: simulated calls that choose a scheduler and a micro-batch for a cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hccc import __version__
from hccc.analysis.redundant import redundant
from hccc.diagnostics import InternalError, Problem, Source, UserError, fail
from hccc.emit.compare import Sources
from hccc.interruptible import interruptible
from hccc.ir import blocks, dag, pipeline, plan_check, primitives, program, topology
from hccc.ir.blocks import Blocks
from hccc.ir.catalogue import Catalogue
from hccc.ir.dag import Dag
from hccc.ir.names import source_name
from hccc.ir.pipeline import Pipeline
from hccc.ir.plan import Plan
from hccc.ir.primitives import Primitives
from hccc.ir.program import Program
from hccc.ir.provenance import Cluster, Provenance
from hccc.ir.topology import Topology
from hccc.ir.transport import Transport
from hccc.lang.cluster import printer
from hccc.lang.transfer import load as transfer
from hccc.options import Options
from hccc.passes.allocate import allocate
from hccc.passes.check_reachable import check_reachable
from hccc.passes.depend import depend
from hccc.passes.fuse import fuse
from hccc.passes.hpds import hpds
from hccc.passes.limit_window import limit_window
from hccc.passes.list_schedule import list_schedule
from hccc.passes.lower import chosen as chosen_transport
from hccc.passes.lower import lower
from hccc.passes.place import place
from hccc.passes.round_robin import round_robin
from hccc.passes.sync import sync
from hccc.passes.verify import verify
from hccc.proofs.proof import Proof
from hccc.proofs.prove import prove
from hccc.validate.validated import Unvalidated, Validated

if TYPE_CHECKING:
    from hccc.tune.tune import Request, Tuned

SCHEDULERS = {"hpds": hpds, "list": list_schedule, "round-robin": round_robin}
# What is tried of an option that is left open, for a cluster; the first without one.
SCHEDULERS_TRIED = ("hpds", "list")
NETWORK_TRIED = ("put", "slots")
FUSION_TRIED = ("auto", "full", "none")
MOST_TRIED = 1 << 13  # transfers, of which everything is tried
MOST_SCHEDULED = 1 << 15  # transfers, of which schedulers are
_INVARIANTS = "`hccc.ir.program` says what holds of one"
PHASES = ("Parsing", "Analysis", "Scheduling", "Lowering", "Proof")  # of every compilation
OnPhase = Callable[[str], None]
Ir = Program | Dag | Pipeline | Primitives | Blocks | Plan
OnPass = Callable[[str, Ir], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """What the passes of one compilation are given besides the IR. source: how the Plan calls what
    it came from; topology: None for what the program's header describes; blocks: most thread blocks
    of a rank and channel, None for as many as its connections need."""

    options: Options
    topology: Topology | None
    source: str
    blocks: int | None = None


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass. phase: one of PHASES; run: the IR before it to the IR after it."""

    name: str
    phase: str
    run: Callable[[Any, Settings], Ir]


PASSES = (
    # What is wrong with a program is told before anything is made of it.
    Pass("verify", "Analysis", lambda ir, s: verify(ir)),
    Pass("check_reachable", "Analysis", lambda ir, s: check_reachable(ir, s.topology)),
    # What must come before what: the only order that later passes have to keep.
    Pass("depend", "Analysis", lambda ir, s: depend(ir, s.topology)),
    # One total order of all tasks, in sub-pipelines without a link used twice.
    Pass("schedule", "Scheduling", lambda ir, s: SCHEDULERS[s.options.scheduler](ir)),
    # Tasks to primitives, which `fuse` may merge as long as they have no place in memory.
    Pass(
        "lower",
        "Lowering",
        lambda ir, s: lower(ir, s.options.transport, s.options.network_lowering),
    ),
    Pass("fuse", "Lowering", lambda ir, s: fuse(ir, s.options.fuse)),
    Pass("place", "Lowering", lambda ir, s: place(ir)),
    # Thread blocks last: which primitives share one decides which waits are needed.
    Pass("allocate", "Lowering", lambda ir, s: allocate(ir, s.options.allocator, s.blocks)),
    Pass("sync", "Lowering", lambda ir, s: sync(ir, s.source, s.options.slots)),
    # What blocks and waits came out as says which windows queues can carry.
    Pass("limit_window", "Lowering", lambda ir, s: limit_window(ir)),
)
_SCHEDULE = next(i for i, p in enumerate(PASSES) if p.name == "schedule")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A Plan and how it came about.

    proofs: what was proved of it; seconds: by phase; warnings: what is odd about the program.
    scheduler, program, dag, pipeline: what the Plan was made from, None where the input was a plan
    already; topology: the cluster it was made for, None without one. directory: the directory of
    kernels it was read from, sources: what was found there, validated: what its texts do; changes:
    what rescheduling an imported schedule did to it, before and after.
    catalogue: of several plans, of which `plan` is that of the largest sizes; catalogue_proofs:
    what was proved of each of them, in its order.
    """

    plan: Plan
    proofs: tuple[Proof, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()
    scheduler: str | None = None
    program: Program | None = None
    dag: Dag | None = None
    pipeline: Pipeline | None = None
    topology: Topology | None = None
    directory: Path | None = None
    sources: Sources | None = None
    validated: Validated | Unvalidated | None = None
    changes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    tuned: Tuned | None = None
    made_with: Options | None = None
    catalogue: Catalogue | None = None
    catalogue_proofs: tuple[tuple[Proof, ...], ...] = ()

    @property
    def library(self) -> Plan | Catalogue:
        """What kernels are written of."""
        return self.catalogue or self.plan


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledProgram(Compiled):
    """What a program was compiled to: every IR on the way is there."""

    # Required here, and of narrower types; pyright would have the defaults again.
    scheduler: str  # pyright: ignore[reportGeneralTypeIssues]
    program: Program  # pyright: ignore[reportGeneralTypeIssues]
    dag: Dag  # pyright: ignore[reportGeneralTypeIssues]
    pipeline: Pipeline  # pyright: ignore[reportGeneralTypeIssues]


@interruptible
def compile_file(
    path: Path | str,
    options: Options | None = None,
    topology: Topology | None = None,
    *,
    on_phase: OnPhase = lambda _: None,
    on_pass: OnPass = lambda name, ir: None,
) -> CompiledProgram:
    """Compiles a program file. Raises `UserError` for anything wrong with it."""
    return compile_text(transfer.read(path), options, topology, on_phase=on_phase, on_pass=on_pass)


@interruptible
def compile_text(
    source: Source,
    options: Options | None = None,
    topology: Topology | None = None,
    *,
    on_phase: OnPhase = lambda _: None,
    on_pass: OnPass = lambda name, ir: None,
) -> CompiledProgram:
    """Compiles a program's text; otherwise as `compile_program`."""
    hook = _Hook(options or Options(), on_phase, on_pass)
    with hook.phase("Parsing"):
        parsed = transfer.parse(source)
    return _compile(parsed, Path(source.name).name, options or Options(), topology, hook)


@interruptible
def compile_program(
    program: Program,
    options: Options | None = None,
    topology: Topology | None = None,
    *,
    on_phase: OnPhase = lambda _: None,
    on_pass: OnPass = lambda name, ir: None,
) -> CompiledProgram:
    """Compiles a Program, whoever made it.

    topology: the cluster to schedule for, None for what the program's header describes. on_phase:
    is told each phase; on_pass: the name of each pass, and what it returned.

    Raises:
        UserError: the program is wrong, does not fit the cluster, or a proof fails.
    """
    hook = _Hook(options or Options(), on_phase, on_pass)
    return _compile(program, program.name, options or Options(), topology, hook)


def _compile(
    given: Program, source: str, options: Options, topology: Topology | None, hook: _Hook
) -> CompiledProgram:
    settings = Settings(options, topology, source_name(source))
    if problems := program.check(given):  # what no language made may be anything
        raise fail("E206", f"this is no Program: {'; '.join(problems)}", help=_INVARIANTS)
    program_in = replace(
        given,
        channels=options.channels or given.channels,
        warps=options.warps or given.warps,
    )
    front = hook.run_all(PASSES[:_SCHEDULE], program_in, settings)
    verified, tasks = front["verify"], front["depend"]
    assert isinstance(verified, Program)
    assert isinstance(tasks, Dag)
    made, tuned = _scheduled(tasks, settings, hook)
    back = made.irs
    plan, ordered = back["limit_window"], back["schedule"]
    assert isinstance(plan, Plan)
    assert isinstance(ordered, Pipeline)
    proofs: tuple[Proof, ...] = (_verified(verified),)
    warnings: tuple[Problem, ...] = ()
    if options.prove:
        with hook.phase("Proof"):
            proofs += prove(plan)
        with hook.phase("Analysis"):
            warnings = redundant(verified)
    scheduler = made.settings.options.scheduler
    cluster = None if topology is None else recorded(topology)
    how = Provenance(__version__, options.as_text(), scheduler, cluster)
    plan = replace(plan, provenance=how)
    return CompiledProgram(
        plan=plan, proofs=proofs, seconds=hook.seconds, warnings=warnings,
        scheduler=scheduler, program=verified, dag=tasks, pipeline=ordered, topology=topology,
        tuned=tuned, made_with=_made_with(made),
    )  # fmt: skip


def _scheduled(tasks: Dag, settings: Settings, hook: _Hook) -> tuple[_Lowered, Tuned | None]:
    """What every pass from `schedule` on returned, with what suits the cluster best for the sizes
    asked; and what was weighed."""
    start, axes = _start(settings, tasks), _axes(settings, tasks)
    if settings.topology is None or settings.options.tune == "off":
        return _lowered(tasks, start, hook), None
    from hccc.tune.explore import explore  # the simulator takes its time to load
    from hccc.tune.tune import Tuner

    tuner, made = Tuner(settings.topology, _asked(settings)), list[_Lowered]()

    def probe(choice: Settings) -> float:
        made.append(_lowered(tasks, choice, hook))
        with hook.phase("Tuning"):
            return tuner.probe(_named(choice), made[-1].plan)

    explore(start, axes, probe)
    with hook.phase("Tuning"):
        tuned = tuner.finish()
        best = tuned.one()
    chosen, _ = tuned.candidates[best]
    return made[chosen].run_as(tuned.plan(best)), tuned


@dataclass(frozen=True, slots=True)
class _Lowered:
    """What every pass from `schedule` on returned with these settings; its Plan."""

    settings: Settings
    irs: dict[str, Ir]

    @property
    def plan(self) -> Plan:
        plan = self.irs["limit_window"]
        assert isinstance(plan, Plan)
        return plan

    def run_as(self, plan: Plan) -> _Lowered:
        """The same, with another Plan of the same structure."""
        return replace(self, irs={**self.irs, "limit_window": plan})


def _lowered(tasks: Dag, settings: Settings, hook: _Hook) -> _Lowered:
    return _Lowered(settings, hook.run_all(PASSES[_SCHEDULE:], tasks, settings))


def _made_with(made: _Lowered) -> Options:
    """Options with which nothing is left open, and which make the same Plan again but for its
    window and grain."""
    options, channels = made.settings.options, made.plan.channels
    blocks = made.settings.blocks
    most = options.max_sms if blocks is None else blocks * channels
    return replace(options, tune="off", channels=channels, max_sms=most)


def _start(settings: Settings, tasks: Dag) -> Settings:
    """What stands where nothing is tried."""
    options = settings.options
    if options.scheduler == "auto":
        options = replace(options, scheduler=SCHEDULERS_TRIED[0])
    most = None
    if options.max_sms is not None and (settings.topology is None or options.tune == "off"):
        most = max(1, options.max_sms // tasks.program.channels)
    if settings.topology is not None and options.network_lowering == "auto":
        options = replace(options, network_lowering=NETWORK_TRIED[0])
    return replace(settings, options=options, blocks=most)


def _axes(settings: Settings, tasks: Dag) -> list[Callable[[Settings], Sequence[Settings]]]:
    """What else to try of each option that is left open, where it does not take long.

    The estimate that `lower` and `fuse` choose by without a cluster does not know that proxies work
    on their own.
    """
    options = settings.options
    mixed = chosen_transport(tasks, options.transport) is Transport.MIXED
    several = len(tasks) <= MOST_TRIED

    def other(name: str, values: Sequence[str]) -> Callable[[Settings], Sequence[Settings]]:
        def choices(best: Settings) -> Sequence[Settings]:
            change: Any = replace
            return [replace(best, options=change(best.options, **{name: v})) for v in values]

        return choices

    axes = []
    if options.network_lowering == "auto" and mixed and several:
        axes.append(other("network_lowering", NETWORK_TRIED[1:]))
    if options.scheduler == "auto" and len(tasks) <= MOST_SCHEDULED:
        axes.append(other("scheduler", SCHEDULERS_TRIED[1:]))
    if options.fuse == "auto" and several:
        axes.append(other("fuse", FUSION_TRIED[1:]))
    if several:
        axes.append(lambda best: [replace(best, blocks=1)])
    return axes


def _asked(settings: Settings) -> Request:
    from hccc.tune.setting import most_blocks
    from hccc.tune.sizes import parsed
    from hccc.tune.tune import Request

    options = settings.options
    assert settings.topology is not None
    return Request(
        parsed(options.sizes), options.max_sms or most_blocks(settings.topology), options.channels,
        options.tune,
    )  # fmt: skip


def _named(settings: Settings) -> str:
    """A structure, for people."""
    o = settings.options
    few = ", one block" if settings.blocks == 1 else ""
    return f"{o.scheduler}, fuse {o.fuse}, {o.network_lowering}{few}"


def recorded(topology: Topology) -> Cluster:
    """A cluster as plan files have it."""
    return Cluster(source_name(topology.name), "\n".join(printer.lines(topology)) + "\n")


def _verified(program: Program) -> Proof:
    c = program.collective
    detail: dict[str, int | str] = {
        "transfers": len(program),
        "ranks": c.n_ranks,
        "chunks": c.n_chunks,
    }
    return Proof("program", f"the transfers perform {c.op.value}", detail)


class _Hook:
    """What stands between passes: times them, checks and shows what they return."""

    def __init__(self, options: Options, on_phase: OnPhase, on_pass: OnPass) -> None:
        self.seconds: dict[str, float] = {}
        self._verify_each = options.verify_each
        self._on_phase, self._on_pass = on_phase, on_pass

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Times what is done in it."""
        self._on_phase(name)
        begin = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin

    def run_all(self, passes: Sequence[Pass], ir: Ir, settings: Settings) -> dict[str, Ir]:
        """Runs `passes` one after the other; what each of them returned."""
        returned: dict[str, Ir] = {}
        for one in passes:
            with self.phase(one.phase):
                ir = returned[one.name] = one.run(ir, settings)
            if self._verify_each:
                _check(one.name, ir)
            self._on_pass(one.name, ir)
        return returned


def _check(name: str, ir: Ir) -> None:
    """`--verify-each`: the pass that returned `ir` has a bug when it breaks an invariant."""
    problems: list[str] = []
    match ir:
        case Program():
            problems = program.check(ir)
        case Dag():
            problems = [*topology.check(ir.topology), *dag.check(ir)]
        case Pipeline():
            problems = pipeline.check(ir)
        case Primitives():
            problems = primitives.check(ir)
        case Blocks():
            problems = blocks.check(ir)
        case Plan():
            try:
                plan_check.check(ir)
            except UserError as error:
                problems = [error.problem.message]
    if problems:
        raise InternalError(f"{name}: {type(ir).__name__}: {'; '.join(problems)}")
