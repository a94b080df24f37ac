"""driver: drives Programs through all passes to a proved Plan, or to a Catalogue of several.

The passes are in `pass_manager`. For a cluster, structures of each program (`structures`) are made
and tried by simulated calls, and what suits the sizes asked is kept (`tune/`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, log
from pathlib import Path
from typing import TYPE_CHECKING

from hccc.analysis.redundant import redundant
from hccc.base.diagnostics import Problem, Source, fail
from hccc.base.interruptible import interruptible
from hccc.base.version import __version__
from hccc.driver.options import Options
from hccc.driver.pass_manager import BACK, FRONT, Hook, Ir, OnPass, OnPhase, Settings
from hccc.driver.structures import MOST_TRIED, axes, named, start
from hccc.ir import program
from hccc.ir.catalogue import Catalogue, Range, assembled
from hccc.ir.dag import Dag
from hccc.ir.micro_batch import GRAIN
from hccc.ir.names import source_name
from hccc.ir.pipeline import Pipeline
from hccc.ir.plan import Plan
from hccc.ir.program import Program
from hccc.ir.provenance import Cluster, Provenance
from hccc.ir.topology import Topology
from hccc.lang.cluster import printer
from hccc.lang.transfer import load as transfer
from hccc.proofs.proof import Proof
from hccc.proofs.prove import prove

if TYPE_CHECKING:
    from hccc.driver.tune.tune import Request, Tuned
    from hccc.emit.compare import Sources
    from hccc.validate.validated import Unvalidated, Validated

Where = Topology | Callable[[Program], Topology | None] | None
_INVARIANTS = "`hccc.ir.program` says what holds of one"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A Plan and how it came about.

    proofs: what was proved of it; seconds: by phase; warnings: what is odd about the program.
    scheduler, program, dag, pipeline: what the Plan was made from, None where the input was a plan
    already; topology: the cluster it was made for, None without one. directory: the directory of
    kernels it was read from, sources: what was found there, validated: what its texts do; changes:
    what rescheduling an imported schedule did to it, before and after.
    tuned: what was weighed; made_with: options that leave nothing open and make a plan again but
    for its window and grain, by its name. catalogue: several plans, each for sizes of its own, and
    `plan` the best alone for all (of one that was read, that of the largest sizes);
    catalogue_proofs: what was proved of each of them, in its order.
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
    catalogue: Catalogue | None = None
    catalogue_proofs: tuple[tuple[Proof, ...], ...] = ()
    made_with: Mapping[str, Options] = field(default_factory=dict)

    def at(self, size: int, in_place: bool) -> Compiled:
        """The same with the Plan that a call of `size` bytes runs."""
        if self.catalogue is None or in_place not in self.catalogue.modes:
            return self
        plan = self.catalogue.plan_of(self.catalogue.pick(size, in_place))
        return replace(self, plan=replace(plan, provenance=self.plan.provenance))

    def plan_names(self) -> list[str]:
        """Of all plans."""
        return [one.name for one in (self.catalogue.plans if self.catalogue else [self.plan])]

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
    topology: Where = None,
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
    topology: Where = None,
    *,
    on_phase: OnPhase = lambda _: None,
    on_pass: OnPass = lambda name, ir: None,
) -> CompiledProgram:
    """Compiles a program's text; otherwise as `compile_program`."""
    hook = Hook(options or Options(), on_phase, on_pass)
    with hook.phase("Parsing"):
        parsed = transfer.parse(source)
    return _compile([(parsed, Path(source.name).name)], options or Options(), topology, hook)


@interruptible
def compile_program(
    program: Program,
    options: Options | None = None,
    topology: Where = None,
    *,
    enough: float = 0.0,
    on_phase: OnPhase = lambda _: None,
    on_pass: OnPass = lambda name, ir: None,
) -> CompiledProgram:
    """Compiles a Program, whoever made it.

    topology: the cluster to schedule for, what makes it of the program, or None for what the
    program's header describes. enough: µs of a call that need not be beaten, where one size is
    asked: tuning ends there. on_phase: is told each phase; on_pass: each pass, what it returned.

    Raises:
        UserError: the program is wrong, does not fit the cluster, or a proof fails.
    """
    hook = Hook(options or Options(), on_phase, on_pass)
    given = [(program, program.name)]
    return _compile(given, options or Options(), topology, hook, enough=enough)


@interruptible
def compile_library(
    sources: Sequence[Source | Program],
    options: Options | None = None,
    topology: Where = None,
    *,
    name: str = "",
    on_phase: OnPhase = lambda _: None,
    on_pass: OnPass = lambda name, ir: None,
) -> CompiledProgram:
    """Compiles several algorithms of one collective into one library: each size takes the best.

    sources: texts or Programs; name: of the library, without one the collective's. Otherwise as
    `compile_program`.

    Raises:
        UserError: also E321 where they are not of one collective, or nothing can tell which is
            best.
    """
    hook = Hook(options or Options(), on_phase, on_pass)
    with hook.phase("Parsing"):
        given = [
            (s, s.name) if isinstance(s, Program) else (transfer.parse(s), Path(s.name).name)
            for s in sources
        ]
    name = name or given[0][0].collective.op.value.lower()
    return _compile(given, options or Options(), topology, hook, name)


@dataclass(frozen=True, slots=True)
class _Front:
    """A program before any choice."""

    settings: Settings
    program: Program
    dag: Dag


@dataclass(frozen=True, slots=True)
class _Lowered:
    """What every pass from `schedule` on returned with these settings; its Plan."""

    front: _Front
    settings: Settings
    irs: dict[str, Ir]

    @property
    def plan(self) -> Plan:
        plan = self.irs["limit_window"]
        assert isinstance(plan, Plan)
        return plan


def _compile(
    given: Sequence[tuple[Program, str]],
    options: Options,
    where: Where,
    hook: Hook,
    name: str = "",
    enough: float = 0.0,
) -> CompiledProgram:
    """given: programs, and how plans call what they came from."""
    topology = where(given[0][0]) if callable(where) else where
    if len(given) > 1:
        _check_alike([one for one, _ in given], options, topology)
    fronts = [_front(one, Settings(options, topology, source_name(s)), hook) for one, s in given]
    made, tuned = _structures(fronts, hook, enough)
    chosen = tuned.candidates[tuned.one][0] if tuned else 0
    best, plan = made[chosen], made[chosen].plan
    if tuned:
        plan = tuned.plan(tuned.one)
    cluster = None if topology is None else recorded(topology)
    how = Provenance(__version__, options.as_text(), best.settings.options.scheduler, cluster)
    catalogue = None
    if tuned and options.plans > 1:
        library = _library(tuned, name or plan.name, how)
        catalogue = library if isinstance(library, Catalogue) else None
        plan = library if isinstance(library, Plan) else plan
    if tuned and catalogue is None and options.plans == 1:
        tuned = tuned.alone()
    kernels = [k for k, _ in tuned.kernels()] if tuned and catalogue else []
    proofs = _proofs(made, dict.fromkeys([chosen, *kernels]), options, hook)
    with hook.phase("Analysis"):
        warnings = redundant(best.front.program) if options.prove else ()
    if tuned:
        warnings += _given_way(fronts, tuned, options)
    ordered = best.irs["schedule"]
    assert isinstance(ordered, Pipeline)
    return CompiledProgram(
        plan=replace(plan, provenance=how),
        proofs=proofs[chosen],
        seconds=hook.seconds,
        warnings=warnings,
        scheduler=best.settings.options.scheduler,
        program=best.front.program,
        dag=best.front.dag,
        pipeline=ordered,
        topology=topology,
        tuned=tuned,
        made_with=_made_with(made, plan, tuned, catalogue),
        catalogue=catalogue,
        catalogue_proofs=tuple(proofs[k] for k in kernels),
    )


def _front(given: Program, settings: Settings, hook: Hook) -> _Front:
    if problems := program.check(given):  # what no language made may be anything
        raise fail("E206", f"this is no Program: {'; '.join(problems)}", help=_INVARIANTS)
    options = settings.options
    changed = replace(
        given,
        channels=options.channels or given.channels,
        warps=options.warps or given.warps,
    )
    irs = hook.run_all(FRONT, changed, settings)
    verified, tasks = irs["verify"], irs["depend"]
    assert isinstance(verified, Program)
    assert isinstance(tasks, Dag)
    return _Front(settings, verified, tasks)


def _check_alike(given: Sequence[Program], options: Options, topology: Topology | None) -> None:
    """Whether several programs can be one library."""
    first, *others = given
    for other in others:
        if program.call_form(other) != program.call_form(first):
            message = f"{program.call_form_text(other)}, and {program.call_form_text(first)}"
            help = "one library does one collective; give the others a directory each"
            raise fail("E321", message, help=help)
    if topology is None or options.tune == "off" or options.plans == 1:
        help = "give --cluster, and leave out --tune off and --plans 1"
        raise fail("E321", "several algorithms, and nothing to choose among them by", help=help)


def _structures(
    fronts: Sequence[_Front], hook: Hook, enough: float
) -> tuple[list[_Lowered], Tuned | None]:
    """The structures that were made, and what was weighed; a single one where nothing is chosen."""
    settings = fronts[0].settings
    if settings.topology is None or settings.options.tune == "off":
        return [_lowered(fronts[0], start(settings, fronts[0].dag), hook)], None
    from hccc.driver.tune.explore import explore  # the simulator takes its time to load
    from hccc.driver.tune.tune import Tuner

    large = max(len(front.dag) for front in fronts) > MOST_TRIED
    request = replace(_asked(settings, large), enough=enough)
    tuner, made = Tuner(settings.topology, request), list[_Lowered]()
    names = [front.program.name for front in fronts]
    for front in fronts:
        own = names.count(front.program.name) == 1
        of = f"{front.program.name if own else front.settings.source}: " if len(fronts) > 1 else ""

        def probe(choice: Settings, front: _Front = front, of: str = of) -> float:
            made.append(_within(tuner.request.blocks, front, choice, hook))
            with hook.phase("Tuning"):
                return tuner.probe(of + named(made[-1].settings, made[-1].plan), made[-1].plan)

        ways = axes(front.settings, front.dag)
        explore(start(front.settings, front.dag), ways, probe, log(enough) if enough else -inf)
    with hook.phase("Tuning"):
        return made, tuner.finish()


def _lowered(front: _Front, settings: Settings, hook: Hook) -> _Lowered:
    return _Lowered(front, settings, hook.run_all(BACK, front.dag, settings))


def _within(blocks: int, front: _Front, settings: Settings, hook: Hook) -> _Lowered:
    """As `_lowered`, with so few blocks a channel that all channels there must be have `blocks`."""
    made = _lowered(front, settings, hook)
    most = max(1, blocks // (settings.options.channels or 1))
    fits = made.plan.blocks_per_rank <= most * made.plan.channels
    return made if fits else _lowered(front, replace(settings, blocks=most), hook)


def _library(tuned: Tuned, name: str, how: Provenance) -> Catalogue | Plan:
    """What serves each size best of what was weighed."""
    kernels = tuned.kernels()
    plans = [replace(tuned.plans[k], channels=channels, grain=GRAIN) for k, channels in kernels]
    ranges = []
    for in_place, begin, candidate in tuned.ranges:
        setting = tuned.candidates[candidate][1]
        kernel = kernels.index(tuned.kernel(candidate))
        ranges.append(Range(in_place, begin, kernel, setting.window, setting.grain))
    return assembled(name, plans, ranges, how)


def _proofs(
    made: Sequence[_Lowered], used: Iterable[int], options: Options, hook: Hook
) -> dict[int, tuple[Proof, ...]]:
    """What is proved of each structure that is used. How many channels it has does not matter."""
    found: dict[int, tuple[Proof, ...]] = {k: (_verified(made[k].front.program),) for k in used}
    if not options.prove:
        return found
    with hook.phase("Proof"):
        return {k: (*proofs, *prove(made[k].plan)) for k, proofs in found.items()}


def _given_way(fronts: Sequence[_Front], tuned: Tuned, options: Options) -> tuple[Problem, ...]:
    """W403, where headers ask for several channels, and others are faster."""
    asked = max(front.program.channels for front in fronts)
    now = sorted({channels for _, channels in tuned.kernels()})
    if options.channels or asked == 1 or now == [asked]:
        return ()
    text = f"the header's nChannels={asked} gives way to {' and '.join(map(str, now))}"
    help = f"for --cluster hccc chooses what is fastest; --channels {asked} keeps it"
    return (Problem("W403", text, help=help, severity="warning"),)


def _made_with(
    made: Sequence[_Lowered], plan: Plan, tuned: Tuned | None, library: Catalogue | None
) -> dict[str, Options]:
    """`Compiled.made_with` of the Plan, and of those of a catalogue."""
    if tuned is None:
        return {plan.name: _fixed(made[0].settings, plan.channels)}
    one, kernels = tuned.kernel(tuned.one), tuned.kernels()
    plans = {plan.name: one}
    if library:
        plans |= dict(zip((p.name for p in library.plans), kernels, strict=True))
    return {name: _fixed(made[k].settings, channels) for name, (k, channels) in plans.items()}


def _fixed(settings: Settings, channels: int) -> Options:
    options, blocks = settings.options, settings.blocks
    most = options.max_sms if blocks is None else blocks * channels
    return replace(options, tune="off", channels=channels, max_sms=most)


def _asked(settings: Settings, large: bool) -> Request:
    """large: calls take long to simulate, so few sizes are tried."""
    from hccc.driver.tune.setting import most_blocks
    from hccc.driver.tune.sizes import parsed
    from hccc.driver.tune.tune import Request, spread

    options = settings.options
    assert settings.topology is not None
    sizes = parsed(options.sizes)
    if options.channels and options.max_sms and options.channels > options.max_sms:
        raise fail("E410", f"--channels {options.channels}: each has a block; --max-sms is less")
    return Request(
        spread(sizes) if large else sizes,
        options.max_sms or most_blocks(settings.topology),
        options.channels,
        options.plans,
        options.tune,
    )


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
