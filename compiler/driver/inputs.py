"""inputs: what a path or a text holds, and loading it.

An input is a program (`.rccl`), a plan (JSON), MSCCL XML, or a directory that `hccc ALGO -o`
wrote. What a file holds tells it, not its name.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TypeGuard

from hccc.analysis.depth import depth
from hccc.base.diagnostics import Source, fail
from hccc.base.files.reading import HEAD, read_text
from hccc.base.interruptible import interruptible
from hccc.base.version import __version__
from hccc.driver import compilation as driver
from hccc.driver.compilation import Where
from hccc.driver.compiled import Compiled, LoadedPlans
from hccc.driver.options import Options
from hccc.driver.pass_manager import OnPass, OnPhase
from hccc.ir import catalogue_json, plan_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.names import IDENTIFIER, PLAN_FILE, objection
from hccc.ir.plan import Plan
from hccc.ir.program import Program
from hccc.ir.provenance import Provenance
from hccc.ir.topology import Topology
from hccc.lang.cluster import load as cluster
from hccc.lang.cluster.faults import with_faults
from hccc.lang.msccl import load as msccl
from hccc.lang.transfer import load as transfer
from hccc.proofs.proof import Proof
from hccc.proofs.prove import check_plan
from hccc.shipped import find as shipped
from hccc.shipped.hardware import common as hardware
from hccc.shipped.hardware.common import common_device


class Kind(Enum):
    """What a text is."""

    PROGRAM = "program"
    PLAN = "plan"
    XML = "MSCCL XML"
    CLUSTER = "cluster"


_MOST = {
    Kind.PROGRAM: transfer.MAX_BYTES,
    Kind.PLAN: plan_json.MAX_BYTES,
    Kind.XML: msccl.MAX_BYTES,
    Kind.CLUSTER: cluster.MAX_BYTES,
}


def kind_of(text: str, name: str = "") -> Kind:
    """What a text is, by what it holds: no program begins with a brace or an angle bracket.

    A cluster is known by its `define` lines, so that a mistake in the first is told as what it
    is; where nothing tells, a file called `name` that ends in `.cluster` is one.
    """
    head = text[:HEAD]
    if kind := {"{": Kind.PLAN, "<": Kind.XML}.get(head.lstrip("\ufeff \t\r\n")[:1]):
        return kind
    if re.search(r"^\s*(def\s+)?ResCCLAlgo\b", head, re.MULTILINE):
        return Kind.PROGRAM
    defines = re.search(r"^\s*define\b", head, re.MULTILINE)
    return Kind.CLUSTER if defines or name.endswith(".cluster") else Kind.PROGRAM


def read(path: Path) -> Source:
    """The text of a file of any kind, or of what ships by that name, read once; `-` is stdin.

    Raises:
        UserError: E401, E402, E404.
    """
    return shipped.read(path, lambda head: _MOST[kind_of(head, str(path))])


def opened(given: Path | Source) -> Path | Source:
    """A directory of kernels as it is, the text of anything else: what `load` takes.

    Raises:
        UserError: E401, E402, E404.
    """
    if isinstance(given, Source):
        return given
    if not given.is_dir():
        return read(given)
    _plan_file(given)
    return given


def is_cluster(given: Path | Source) -> TypeGuard[Source]:
    """Whether what was opened is a cluster."""
    return isinstance(given, Source) and kind_of(given.text, given.name) is Kind.CLUSTER


def is_xml(given: Path | Source) -> bool:
    """Whether what was opened is MSCCL XML."""
    return isinstance(given, Source) and kind_of(given.text, given.name) is Kind.XML


def is_compiled(given: Path | Source) -> bool:
    """Whether what was opened is compiled already: a directory, a plan, or XML."""
    return isinstance(given, Path) or kind_of(given.text, given.name) in (Kind.PLAN, Kind.XML)


def load_cluster(path: Path, failed: Sequence[str] = (), degraded: Sequence[str] = ()) -> Topology:
    """The cluster in a file, or that ships by that name; `-` is stdin. failed, degraded: as in
    `with_faults`. Raises `UserError`."""
    source = shipped.read(path, cluster.MAX_BYTES, shipped.CLUSTERS)
    return parse_cluster(with_faults(source, failed, degraded))


@interruptible
def parse_cluster(source: Source) -> Topology:
    """The cluster in a text, named as it is. Raises `UserError` for anything wrong with it."""
    return cluster.parse(source)


def common_cluster(program: Program) -> Topology:
    """Nodes of the most common kind of as many GPUs as the program's header has, by hccc's device
    library: for a program that no cluster is given for."""
    c = program.collective
    nodes, gpus = max(1, c.n_ranks // program.gpus_per_node), program.gpus_per_node
    device = common_device(gpus).name
    name = f"{gpus} {device}" if nodes == 1 else f"{nodes} nodes of {gpus} {device}"
    return parse_cluster(Source(name, hardware.common_cluster(nodes, gpus)))


@interruptible
def load(
    given: Path | Source,
    options: Options | None = None,
    topology: Where = None,
    *,
    reschedule: bool = False,
    on_phase: OnPhase = lambda _: None,
    on_pass: OnPass = lambda name, ir: None,
) -> Compiled:
    """Reads what is given, whatever it is, and compiles it if it is not compiled yet.

    topology: the cluster that a program is compiled for, or what makes it of the program; or the
    one that MSCCL XML runs on.
    reschedule: raises MSCCL XML to a program and compiles that.

    Raises:
        UserError: anything wrong with the input.
    """
    kernels, text = (None, given) if isinstance(given, Source) else _directory(given)
    options = options or Options()
    kind = Kind.PLAN if kernels else kind_of(text.text, text.name)
    if reschedule:
        return _rescheduled(text, options, topology, on_phase, on_pass)
    if kind is Kind.CLUSTER:
        help = "`hccc show` draws it; give a program, and this to --cluster"
        raise fail("E416", f"{text.name} is a cluster, and no algorithm", help=help)
    if kind not in (Kind.PLAN, Kind.XML):
        return driver.compile_text(text, options, topology, on_phase=on_phase, on_pass=on_pass)
    site = None if callable(topology) else topology
    seconds: dict[str, float] = {}
    proofs: list[tuple[Proof, ...]]
    with timed("Parsing", seconds, on_phase):
        if kind is Kind.XML:
            plan, carried = _imported(text, site)
            catalogue, proofs = Catalogue.of(plan), [(carried,)]
        else:
            catalogue = catalogue_json.loads(text.text, text.name)
            proofs = [()] * len(catalogue.plans)
            site = None
    if options.prove:
        with timed("Proof", seconds, on_phase):
            proofs = [
                (*known, *check_plan(plan))
                for known, plan in zip(proofs, catalogue.plans, strict=True)
            ]
    loaded = LoadedPlans.of(catalogue, proofs, seconds, site)
    return loaded if kernels is None else loaded.read_from(kernels)


@interruptible
def load_library(
    given: Sequence[Path | Source | Program],
    options: Options | None = None,
    topology: Where = None,
    *,
    name: str = "",
    on_phase: OnPhase = lambda _: None,
    on_pass: OnPass = lambda name, ir: None,
) -> Compiled:
    """Reads several programs of one collective, and compiles them into one library (`driver`).

    name: of the library; without one, the collective's.

    Raises:
        UserError: E321 for what is no program; anything wrong with one.
    """
    check_name(name)
    sources: list[Source | Program] = []
    for one in given:
        text = one if isinstance(one, Program) else opened(one)
        if isinstance(text, Path) or (
            isinstance(text, Source) and kind_of(text.text, text.name) is not Kind.PROGRAM
        ):
            where = text if isinstance(text, Path) else text.name
            help = "only programs are compiled together"
            raise fail("E321", f"{where} is no program", help=help)
        sources.append(text)
    return driver.compile_library(
        sources, options, topology, name=name, on_phase=on_phase, on_pass=on_pass
    )


def check_name(name: str) -> None:
    """Raises E410 for a library's name that is none; "" is for the name that it has anyway."""
    if name and not IDENTIFIER.fullmatch(str(name)):
        raise fail("E410", f"--name {name!r} is not a name that C functions can have")
    if name and (why := objection(name)):
        raise fail("E410", f"--name {name!r}: {why}", help="give another name")


def renamed(compiled: Compiled, name: str) -> Compiled:
    """`compiled`, whose library is called `name`; as it is for "".

    Raises:
        UserError: E410 for what C functions cannot be called.
    """
    check_name(name)
    if not name:
        return compiled
    return compiled.renamed(name)


def _imported(text: Source, topology: Topology | None) -> tuple[Plan, Proof]:
    """The Plan of MSCCL XML, which says what cluster it runs on, and what its FIFOs carry."""
    from hccc.interop.import_msccl import import_msccl

    plan, carried = import_msccl(text, topology)
    if topology is not None:
        made = Provenance(__version__, cluster=driver.recorded(topology))  # no option had a say
        plan = replace(plan, provenance=made)
    return plan, carried


def recorded_cluster(compiled: Compiled) -> Topology | None:
    """The cluster that the Plan was made for, as its file tells it; None where it does not.

    Raises:
        UserError: E1xx what the file says is no cluster, or not one of so many ranks.
    """
    made = compiled.catalogue.provenance or compiled.plan.provenance
    if compiled.topology is not None or made is None or made.cluster is None:
        return compiled.topology
    return parse_cluster(Source(made.cluster.name or "cluster", made.cluster.text))


def _directory(path: Path) -> tuple[Path | None, Source]:
    """The directory of kernels, if `path` is one, and the text of what is compiled."""
    if not path.is_dir():
        return None, read(path)
    file = _plan_file(path)
    return path, Source(str(file), read_text(file, plan_json.MAX_BYTES))


def _plan_file(path: Path) -> Path:
    """The plan of a directory of kernels. Raises E401 where there is none."""
    file = path / PLAN_FILE
    if not file.is_file():
        raise fail("E401", f"{path}: a directory without {PLAN_FILE}", help="`hccc ALGO -o DIR`")
    return file


def _rescheduled(
    text: Source, options: Options, topology: Where, on_phase: OnPhase, on_pass: OnPass
) -> Compiled:
    """MSCCL XML, proved as it is, raised to a program, compiled like any other."""
    if kind_of(text.text, text.name) is not Kind.XML:
        help = "compile its program again" if text.text.lstrip()[:1] == "{" else "leave it out"
        raise fail("E416", f"--reschedule: {text.name} is not MSCCL XML", help=help)
    from hccc.interop.import_msccl import import_msccl
    from hccc.interop.raise_program import raise_program

    before, _ = import_msccl(text)
    check_plan(before)
    after = driver.compile_program(
        raise_program(before), options, topology, on_phase=on_phase, on_pass=on_pass
    )
    changes = {
        "thread blocks per rank": (int(before.n_tb.max()), int(after.plan.n_tb.max())),
        "primitives": (len(before), len(after.plan)),
        "steps one after the other": (depth(before), depth(after.plan)),
    }
    return replace(after, changes=changes)


@contextmanager
def timed(phase: str, seconds: dict[str, float], on_phase: OnPhase) -> Iterator[None]:
    """Times what is done in it as one phase."""
    on_phase(phase)
    begin = time.perf_counter()
    yield
    seconds[phase] = time.perf_counter() - begin
