"""load: compiles a program that was given, or reads plans that were compiled before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hccc.analysis.depth import depth
from hccc.base.diagnostics import Source, fail
from hccc.base.interruptible import interruptible
from hccc.base.progress import timed
from hccc.base.version import __version__
from hccc.driver import compilation as driver
from hccc.driver.compilation import Where
from hccc.driver.compiled import Compiled, CompiledProgram, LoadedPlans
from hccc.driver.inputs import (
    ClusterInput,
    DirectoryInput,
    Input,
    JobInput,
    PlanInput,
    ProgramInput,
    XmlInput,
    name_of,
    opened,
)
from hccc.driver.options import Options
from hccc.driver.orders import require_one_order
from hccc.ir import catalogue_json, plan_check
from hccc.ir.catalogue import Catalogue
from hccc.ir.collective import OpType
from hccc.ir.names import IDENTIFIER, objection
from hccc.ir.program import Program
from hccc.ir.provenance import Provenance
from hccc.ir.topology import Topology
from hccc.lang.transfer.load import parse
from hccc.passes.assemble import assemble
from hccc.passes.verify import verify
from hccc.proofs.proof import Proof
from hccc.proofs.prove import check_plan


@interruptible
def load(
    given: Input,
    options: Options | None = None,
    topology: Where = None,
    *,
    reschedule: bool = False,
) -> Compiled:
    """Compiles what was given if it is a program, else reads and proves its plans.

    topology: the cluster that a program is compiled for, or what makes it of the program; or the
    one that MSCCL XML runs on. reschedule: raises MSCCL XML to a program and compiles that. A Plan,
    which somebody has in hand, is not proved.

    Raises:
        UserError: anything wrong with the input.
    """
    options = options or Options()
    if reschedule:
        return _rescheduled(given, options, topology)
    match given:
        case ProgramInput(program):
            return _program(program, options, topology)
        case PlanInput(plan):
            if isinstance(plan, Source):
                return _plans(plan, options)
            plan_check.check(plan)
            return LoadedPlans.of(Catalogue.of(plan))
        case DirectoryInput(directory, text):
            return _plans(text, options).read_from(directory)
        case XmlInput(text):
            return _xml(text, options, None if callable(topology) else topology)
        case JobInput():
            message = (
                f"{name_of(given)} is a job, which calls vendors' libraries: it has no kernels"
            )
            help = (
                "`hccc compile` writes its table, run, check, sim, explain, show take it, and in "
                "Python `hccc.load_job`"
            )
            raise fail("E481", message, help=help)
        case ClusterInput():
            help = "`hccc show` draws it; give a program, and this to --cluster"
            raise fail("E416", f"{name_of(given)} is a cluster, and no algorithm", help=help)


@interruptible
def load_library(
    given: Sequence[Input],
    options: Options | None = None,
    topology: Where = None,
    *,
    name: str = "",
) -> CompiledProgram:
    """Compiles several programs of one collective into one library. name: of the library; without
    one, the collective's.

    Raises:
        UserError: E321 for what is no program; anything wrong with one.
    """
    check_name(name)
    programs: list[Source | Program] = []
    for one in given:
        if not isinstance(one, ProgramInput):
            help = "only programs are compiled together"
            raise fail("E321", f"{name_of(one)} is no program", help=help)
        programs.append(one.program)
    return driver.compile_library(programs, options, topology, name=name)


@interruptible
def program_of(given: object) -> Program:
    """Returns the program that was given, proved.

    Raises:
        UserError: E321 it is something else; anything wrong with it.
    """
    match found := opened(given):
        case ProgramInput(Source() as text):
            return verify(parse(text))
        case ProgramInput(Program() as program):
            return verify(program)
        case _:
            raise fail("E321", f"{name_of(found)} is no program", help="give a program")


def assembled(given: object, op: OpType) -> Program:
    """Returns a collective that is assembled of the Allgather that was given. Raises as
    `program_of` and `assemble`."""
    return assemble(program_of(given), op)


def check_name(name: str) -> None:
    """Raises E410 for a library's name that is none; "" is for the name that it has anyway."""
    if name and not IDENTIFIER.fullmatch(str(name)):
        raise fail("E410", f"--name {name!r} is not a name that C functions can have")
    if name and (why := objection(name)):
        raise fail("E410", f"--name {name!r}: {why}", help="give another name")


def renamed(compiled: Compiled, name: str) -> Compiled:
    """Returns a library under another name; as it is for "".

    Raises:
        UserError: E410 for what C functions cannot be called.
    """
    check_name(name)
    return compiled.renamed(name) if name else compiled


def _program(program: Source | Program, options: Options, topology: Where) -> CompiledProgram:
    if isinstance(program, Source):
        return driver.compile_text(program, options, topology)
    return driver.compile_program(program, options, topology)


def _plans(text: Source, options: Options) -> LoadedPlans:
    """Reads the JSON of a plan or a catalogue, and proves its plans."""
    seconds: dict[str, float] = {}
    with timed("Parsing", seconds):
        catalogue = catalogue_json.loads(text.text, text.name)
    if not options.prove:
        return LoadedPlans.of(catalogue, seconds=seconds)
    with timed("Proof", seconds):
        proofs = [check_plan(plan) for plan in catalogue.plans]
        made = catalogue.provenance
        if options.deterministic or (made and made.options.get("deterministic")):
            require_one_order(catalogue)
    return LoadedPlans.of(catalogue, proofs, seconds)


def _xml(text: Source, options: Options, topology: Topology | None) -> LoadedPlans:
    """Imports MSCCL XML and proves it. topology: the cluster that it runs on."""
    from hccc.interop.import_msccl import import_msccl

    seconds: dict[str, float] = {}
    with timed("Parsing", seconds):
        plan, carried = import_msccl(text, topology)  # carried: what its FIFOs hold
    if topology is not None:  # no option had a say
        made = Provenance(__version__, cluster=driver.recorded(topology))
        plan = replace(plan, provenance=made)
    proofs: tuple[Proof, ...] = (carried,)
    if options.prove:
        with timed("Proof", seconds):
            proofs += check_plan(plan)
            if options.deterministic:
                require_one_order(Catalogue.of(plan))
    return LoadedPlans.of(Catalogue.of(plan), [proofs], seconds, topology)


def _rescheduled(given: Input, options: Options, topology: Where) -> CompiledProgram:
    """Proves MSCCL XML as it is, raises it to a program, and compiles that like any other."""
    if not isinstance(given, XmlInput):
        compiled = isinstance(given, PlanInput | DirectoryInput)
        help = "compile its program again" if compiled else "leave it out"
        name = given.plan.name if isinstance(given, DirectoryInput) else name_of(given)
        raise fail("E416", f"--reschedule: {name} is not MSCCL XML", help=help)
    from hccc.interop.import_msccl import import_msccl
    from hccc.interop.raise_program import raise_program

    before, _ = import_msccl(given.xml)
    check_plan(before)
    made = driver.compile_program(raise_program(before), options, topology)
    after = made.plan
    changes = {
        "thread blocks per rank": (before.blocks_per_rank, after.blocks_per_rank),
        "primitives": (len(before), len(after)),
        "steps one after the other": (depth(before), depth(after)),
    }
    return replace(made, changes=changes)
