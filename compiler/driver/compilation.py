"""compilation: drives Programs through all passes to a library of proved Plans.

The passes are in `pass_manager`; which structures are made, and which are kept, in `choice`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hccc.analysis.redundant import redundant
from hccc.base.diagnostics import Problem, Source, fail
from hccc.base.dtypes import named
from hccc.base.interruptible import interruptible
from hccc.base.jit.compiled import expect
from hccc.base.reductions.laws import checked
from hccc.base.reductions.parse import checked_names
from hccc.base.version import __version__
from hccc.driver.choice import Analysed, Choice, Structure, choose
from hccc.driver.compiled import CompiledProgram
from hccc.driver.headers import unlike
from hccc.driver.options import Options
from hccc.driver.orders import require_one_order
from hccc.driver.pass_manager import PassRunner, Settings, analyse
from hccc.ir import program
from hccc.ir.catalogue import Catalogue
from hccc.ir.names import source_name
from hccc.ir.plan import Plan
from hccc.ir.program import Program
from hccc.ir.provenance import Cluster, Provenance
from hccc.ir.topology import Topology
from hccc.lang.cluster import printer
from hccc.lang.transfer import load as transfer
from hccc.proofs.proof import Proof
from hccc.proofs.prove import prove

Where = Topology | Callable[[Program], Topology | None] | None
PLAIN = 1e-4  # s of loops in plain Python, at least, for each transfer of a program that is tuned
_INVARIANTS = "`hccc.ir.program` says what holds of one"


@interruptible
def compile_text(
    source: Source,
    options: Options | None = None,
    topology: Where = None,
) -> CompiledProgram:
    """Compiles a program's text; otherwise as `compile_program`."""
    runner = PassRunner(options or Options())
    with runner.phase("Parsing"):
        parsed = transfer.parse(source)
    return _compile([(parsed, Path(source.name).name)], options or Options(), topology, runner)


@interruptible
def compile_program(
    program: Program,
    options: Options | None = None,
    topology: Where = None,
    *,
    enough: float = 0.0,
) -> CompiledProgram:
    """Compiles a Program, whoever made it.

    topology: the cluster to schedule for, what makes it of the program, or None for what the
    program's header describes. enough: µs of a call that need not be beaten, where one size is
    asked: tuning ends there.

    Raises:
        UserError: the program is wrong, does not fit the cluster, or a proof fails.
    """
    runner = PassRunner(options or Options())
    given = [(program, program.name)]
    return _compile(given, options or Options(), topology, runner, enough=enough)


@interruptible
def compile_library(
    sources: Sequence[Source | Program],
    options: Options | None = None,
    topology: Where = None,
    *,
    name: str = "",
) -> CompiledProgram:
    """Compiles several algorithms of one collective into one library: each size takes the best.

    sources: texts or Programs; name: of the library, without one the collective's. Otherwise as
    `compile_program`.

    Raises:
        UserError: also E321 where they are not of one collective, or nothing can tell which is
            best.
    """
    runner = PassRunner(options or Options())
    with runner.phase("Parsing"):
        given = [
            (s, s.name) if isinstance(s, Program) else (transfer.parse(s), Path(s.name).name)
            for s in sources
        ]
    name = name or given[0][0].collective.name.lower()
    return _compile(given, options or Options(), topology, runner, name)


def _compile(
    given: Sequence[tuple[Program, str]],
    options: Options,
    where: Where,
    runner: PassRunner,
    name: str = "",
    enough: float = 0.0,
) -> CompiledProgram:
    """Compiles programs. given: each with the name of the file or program it came from."""
    for one, _ in given:
        if problems := program.check(one):  # what no language made may be anything
            raise fail("E206", f"this is no Program: {'; '.join(problems)}", help=_INVARIANTS)
    topology = where(given[0][0]) if callable(where) else where
    if options.tuned and topology is not None:
        expect(PLAIN * sum(len(one) for one, _ in given))
    if len(given) > 1:
        _check_alike([one for one, _ in given], options, topology)
    programs = [
        _analysed(one, Settings(options, topology, source_name(source)), runner)
        for one, source in given
    ]
    choice = choose(programs, name, enough, runner)
    best = choice.best.structure
    proofs = _proofs(choice.structures, options, runner)
    with runner.phase("Analysis"):
        warnings = redundant(best.program) if options.prove else ()
    warnings += _given_way(programs, choice)
    if topology is not None:
        warnings += unlike([one.program for one in programs], topology)
    made = Provenance(
        __version__,
        options.as_text(),
        best.settings.options.scheduler,
        None if topology is None else recorded(topology),
    )
    plan = _with_reductions(replace(choice.plan, provenance=made), options)
    alone = choice.catalogue.alone
    catalogue = Catalogue.of(plan) if alone else replace(choice.catalogue, provenance=made)
    if not alone:
        plans = tuple(_with_reductions(one, options) for one in catalogue.plans)
        catalogue = replace(catalogue, plans=plans)
    if options.deterministic:
        with runner.phase("Proof"):
            require_one_order(catalogue)
    names = (one.name for one in catalogue.plans)
    made_with = {plan.name: choice.best.options} | {
        plan_name: kernel.options for plan_name, kernel in zip(names, choice.kernels, strict=True)
    }
    return CompiledProgram(
        catalogue=catalogue,
        catalogue_proofs=tuple(proofs[kernel.structure] for kernel in choice.kernels),
        plan=plan,
        proofs=proofs[best],
        seconds=runner.seconds,
        topology=topology,
        warnings=warnings,
        pipeline=best.pipeline,
        tuned=choice.tuned,
        made_with=made_with,
    )


def _with_reductions(plan: Plan, options: Options) -> Plan:
    """Returns a plan with the reductions of one's own that are asked for.

    Raises:
        UserError: E330 to E332 for one that is none, or breaks a law; E416 where nothing is
            reduced.
    """
    if not options.reductions:
        return plan
    if not plan.reduces:
        message = f"--op {named(options.reductions[0])}: {plan.collective.name} reduces nothing"
        raise fail("E416", message, help="leave it out")
    texts = tuple(checked(text).text for text in options.reductions)
    checked_names(texts)
    return replace(plan, reductions=texts)


def _analysed(given: Program, settings: Settings, runner: PassRunner) -> Analysed:
    """Returns a program before any choice. Raises UserError for anything wrong with it."""
    options = settings.options
    changed = replace(
        given,
        channels=options.channels or given.channels,
        warps=options.warps or given.warps,
    )
    return Analysed(settings, analyse(changed, settings, runner))


def _check_alike(given: Sequence[Program], options: Options, topology: Topology | None) -> None:
    """Raises UserError E321 where several programs cannot be one library."""
    first, *others = given
    for other in others:
        if program.call_form(other) != program.call_form(first):
            message = f"{program.call_form_text(other)}, and {program.call_form_text(first)}"
            help = "one library does one collective; give the others a directory each"
            raise fail("E321", message, help=help)
    if topology is None or not options.tuned or options.plans == 1:
        help = "give --cluster, and leave out --tune off and --plans 1"
        raise fail("E321", "several algorithms, and nothing to choose among them by", help=help)


def _proofs(
    structures: Sequence[Structure], options: Options, runner: PassRunner
) -> dict[Structure, tuple[Proof, ...]]:
    """Proves each structure that is used. How many channels it has does not matter."""
    proofs: dict[Structure, tuple[Proof, ...]]
    proofs = {made: (_verified(made.program),) for made in structures}
    if options.prove:
        with runner.phase("Proof"):
            proofs = {made: (*known, *prove(made.plan)) for made, known in proofs.items()}
    return proofs


def _given_way(programs: Sequence[Analysed], choice: Choice) -> tuple[Problem, ...]:
    """Warns (W403) where headers ask for several channels, and tuning chose others."""
    asked = max(one.program.channels for one in programs)
    now = sorted({kernel.channels for kernel in choice.kernels})
    fixed = programs[0].settings.options.channels
    if choice.tuned is None or fixed or asked == 1 or now == [asked]:
        return ()
    text = f"the header's nChannels={asked} gives way to {' and '.join(map(str, now))}"
    where = programs[0].settings.topology
    on = where.name if where and where.name else "the cluster"
    help = f"hccc chooses what is fastest on {on}; --channels {asked} keeps it"
    return (Problem("W403", text, help=help, severity="warning"),)


def recorded(topology: Topology) -> Cluster:
    """Returns a cluster as plan files record it."""
    return Cluster(source_name(topology.name), "\n".join(printer.lines(topology)) + "\n")


def _verified(program: Program) -> Proof:
    c = program.collective
    detail: dict[str, int | str] = {
        "transfers": len(program),
        "ranks": c.n_ranks,
        "chunks": c.n_chunks,
    }
    return Proof("program", f"the transfers perform {c.name}", detail)
