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
from functools import partial
from pathlib import Path
from typing import Any

from hccc import __version__
from hccc.analysis.redundant import redundant
from hccc.candidates import Candidate, Evaluated, evaluate, pick
from hccc.diagnostics import InternalError, Problem, Source, UserError, fail
from hccc.emit.compare import Sources
from hccc.interruptible import interruptible
from hccc.ir import blocks, dag, pipeline, plan_check, primitives, program, topology
from hccc.ir.blocks import Blocks
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

SCHEDULERS = {"hpds": hpds, "list": list_schedule, "round-robin": round_robin}
TRIED = ("hpds", "list")  # of a program for a cluster, where simulating both takes seconds at most
NETWORK_TRIED = ("put", "slots")  # of a mixed plan, likewise
MOST_TRIED = 1 << 15  # transfers
MOST_MIXED_TRIED = 1 << 13  # transfers, of which a mixed plan is tried four ways
_INVARIANTS = "`hccc.ir.program` says what holds of one"
PHASES = ("Parsing", "Analysis", "Scheduling", "Lowering", "Proof")  # of every compilation
OnPhase = Callable[[str], None]
Ir = Program | Dag | Pipeline | Primitives | Blocks | Plan
OnPass = Callable[[str, Ir], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """What the passes of one compilation are given besides the IR. source: how the Plan calls what
    it came from; topology: None for what the program's header describes."""

    options: Options
    topology: Topology | None
    source: str


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
    Pass("allocate", "Lowering", lambda ir, s: allocate(ir, s.options.allocator, _blocks(ir, s))),
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
    scheduler, back = _scheduled(tasks, settings, hook)
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
    if topology is not None:
        plan = _tuned(plan, topology, hook)
    cluster = None if topology is None else recorded(topology)
    made = Provenance(__version__, options.as_text(), scheduler, cluster)
    plan = replace(plan, provenance=made)
    return CompiledProgram(
        plan=plan, proofs=proofs, seconds=hook.seconds, warnings=warnings,
        scheduler=scheduler, program=verified, dag=tasks, pipeline=ordered, topology=topology,
    )  # fmt: skip


def _scheduled(tasks: Dag, settings: Settings, hook: _Hook) -> tuple[str, dict[str, Ir]]:
    """What every pass from `schedule` on returned, with the choices that are fastest.

    One choice after the other, each with the best of those before it.
    """
    axes = _axes(settings, tasks)
    options = replace(settings.options, **{name: values[0] for name, values in axes})
    if all(len(values) == 1 for _, values in axes):
        return options.scheduler, _lowered(tasks, settings, options, hook).irs
    from hccc.sim.choice import CLOSE

    (best,) = _scored(tasks, settings, [options], hook)
    for name, values in axes:
        others = [replace(best.candidate.options, **{name: value}) for value in values[1:]]
        best = pick([best, *_scored(tasks, settings, others, hook)], CLOSE)
    return best.candidate.options.scheduler, best.candidate.irs


@dataclass(frozen=True, slots=True)
class _Lowered:
    """What every pass from `schedule` on returned with these options; its Plan."""

    options: Options
    irs: dict[str, Ir]

    @property
    def plan(self) -> Plan:
        plan = self.irs["limit_window"]
        assert isinstance(plan, Plan)
        return plan


def _lowered(tasks: Dag, settings: Settings, options: Options, hook: _Hook) -> _Lowered:
    chosen = replace(settings, options=options)
    return _Lowered(options, hook.run_all(PASSES[_SCHEDULE:], tasks, chosen))


def _scored(
    tasks: Dag, settings: Settings, choices: Sequence[Options], hook: _Hook
) -> list[Evaluated[_Lowered, float]]:
    """The choices, each simulated."""
    from hccc.sim.choice import score  # the simulator takes its time to load

    def scored(made: _Lowered) -> float:
        with hook.phase("Tuning"):
            return score(made.plan, tasks.topology)

    candidates = [
        Candidate(o.scheduler, partial(_lowered, tasks, settings, o, hook), required=True)
        for o in choices
    ]
    return evaluate(candidates, scored)[0]


def _axes(settings: Settings, tasks: Dag) -> list[tuple[str, Sequence[Any]]]:
    """What to try of each option that is left open, the default first.

    Without a cluster, and where it would take long, there is nothing to tell them apart by. The
    estimate that `lower` and `fuse` choose by else does not know that proxies work on their own.
    """
    options, topology = settings.options, settings.topology
    schedulers: Sequence[str] = (options.scheduler,)
    if options.scheduler == "auto":
        tried = topology is not None and len(tasks) <= MOST_TRIED
        schedulers = TRIED if tried else TRIED[:1]
    ways: Sequence[str] = (options.network_lowering,)
    levels: Sequence[str] = (options.fuse,)
    mixed = chosen_transport(tasks, options.transport) is Transport.MIXED
    if topology is not None and mixed and len(tasks) <= MOST_MIXED_TRIED:
        ways = NETWORK_TRIED if ways == ("auto",) else ways
        levels = ("auto", "none") if levels == ("auto",) else levels
    return [("network_lowering", ways), ("scheduler", schedulers), ("fuse", levels)]


def _tuned(plan: Plan, topology: Topology, hook: _Hook) -> Plan:
    """`plan` with the micro-batches that suit the cluster."""
    from hccc.sim.grain import with_grain

    with hook.phase("Tuning"):
        return with_grain(plan, topology)


def _blocks(ir: Primitives, settings: Settings) -> int | None:
    """Most thread blocks of a rank and channel: the option is about all channels of a rank."""
    most = settings.options.max_blocks
    return None if most is None else max(1, most // ir.dag.program.channels)


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
