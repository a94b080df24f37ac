"""road: what the commands have in common: an input, the way it goes, and what comes out.

An input is a program (`.rccl`), a plan (JSON), MSCCL XML, or a directory that `hccc ALGO -o`
wrote. What a file holds tells it, not its name.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from hccc import driver
from hccc.analysis.depth import depth
from hccc.diagnostics import Source, fail
from hccc.driver import Options, Stops, XmlOptions
from hccc.emit import directory
from hccc.emit.compare import Sources, compare
from hccc.emit.kernels import source
from hccc.emit.mscclpp import execution_plan as mscclpp_json
from hccc.emit.targets import TARGETS, Target
from hccc.files.reading import HEAD, read_text
from hccc.interop.raise_program import raise_program
from hccc.interruptible import interruptible
from hccc.ir import dag, pipeline, plan_json, program
from hccc.ir.plan import Plan
from hccc.lang.cluster import load as cluster
from hccc.lang.msccl import load as msccl_xml
from hccc.lang.transfer import load as transfer
from hccc.library import shipped
from hccc.proofs.proof import Proof

PLAN_STOPS = ("plan", "cpu", "cuda", "hip")


class Kind(Enum):
    """What a text is."""

    PROGRAM = "program"
    PLAN = "plan"
    XML = "MSCCL XML"
    CLUSTER = "cluster"


_MOST = {
    Kind.PROGRAM: transfer.MAX_BYTES,
    Kind.PLAN: plan_json.MAX_BYTES,
    Kind.XML: msccl_xml.MAX_BYTES,
    Kind.CLUSTER: cluster.MAX_BYTES,
}


@dataclass(frozen=True, slots=True)
class Made:
    """A Plan and how it came about.

    `stops` is None where the input was a plan already; `kernels` is the directory it came from,
    `sources` what was found there (`compared`); `changes`: what rescheduling an imported plan did
    to it, before and after.
    """

    plan: Plan
    stops: Stops | None
    proofs: tuple[Proof, ...]
    seconds: dict[str, float]
    kernels: Path | None = None
    sources: Sources | None = None
    changes: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def plan_file(self) -> Path | None:
        """The plan's file in the directory it came from."""
        return self.kernels / directory.PLAN if self.kernels else None


def kind_of(text: str) -> Kind:
    """What a text is, by how it begins: no program begins with a brace or an angle bracket."""
    head = text[:HEAD]
    if re.match(r"(?:\s|#[^\n]*\n)*define\b", head):
        return Kind.CLUSTER
    return {"{": Kind.PLAN, "<": Kind.XML}.get(head.lstrip()[:1], Kind.PROGRAM)


def read(path: Path) -> Source:
    """The text of a file of any kind, or of what ships by that name, read once.

    Raises `UserError` E401, E402, E404."""
    return shipped.read(path, lambda head: _MOST[kind_of(head)])


@interruptible
def walk(
    path: Path | Source,
    options: Options,
    given: Iterable[str],
    on_phase: driver.OnPhase,
    *,
    reschedule: bool = False,
) -> Made:
    """Reads `path` and makes its Plan; a `Source` was read already.

    given: options that would change how it is made. reschedule: raise MSCCL XML
    to a program and walk the road with that.

    Raises:
        UserError: anything wrong with the input; E416 for options that would have no effect.
    """
    kernels, text = (None, path) if isinstance(path, Source) else _found(path)
    kind = Kind.PLAN if kernels else kind_of(text.text)
    if reschedule:
        return _rescheduled(text, options, on_phase)
    if kind not in (Kind.PLAN, Kind.XML):
        stops = driver.compile_text(text, options, on_phase)
        return Made(stops.plan, stops, stops.proofs, stops.seconds)
    if names := ", ".join(f"--{name.replace('_', '-')}" for name in sorted(given)):
        help = "give it when you compile the program"
        place = kernels or text.name
        raise fail("E416", f"{names} has no effect: {place} is compiled already", help=help)
    seconds: dict[str, float] = {}
    proofs: tuple[Proof, ...] = ()
    with _timed("Parsing", seconds, on_phase):
        if kind is Kind.XML:
            plan, carried = driver.import_msccl(text)
            proofs = (carried,)
        else:
            plan = plan_json.loads(text.text, text.name)
    if options.prove:
        with _timed("Proof", seconds, on_phase):
            proofs += driver.check_plan(plan)
    return Made(plan, None, proofs, seconds, kernels)


def _found(path: Path) -> tuple[Path | None, Source]:
    """The directory of kernels, if `path` is one, and the text of what is compiled."""
    if not path.is_dir():
        return None, read(path)
    file = path / directory.PLAN
    if not file.is_file():
        raise fail(
            "E401", f"{path}: a directory without {directory.PLAN}", help="`hccc ALGO -o DIR`"
        )
    return path, Source(str(file), read_text(file, plan_json.MAX_BYTES))


def _rescheduled(text: Source, options: Options, on_phase: driver.OnPhase) -> Made:
    """MSCCL XML, proved as it is, raised to a program, compiled like any other."""
    if kind_of(text.text) is not Kind.XML:
        raise fail(
            "E416", f"--reschedule: {text.name} is not MSCCL XML", help="programs always are"
        )
    before, _ = driver.import_msccl(text)
    driver.check_plan(before)
    stops = driver.compile_program(raise_program(before), options, on_phase)
    changes = {
        "thread blocks per rank": (int(before.n_tb.max()), int(stops.plan.n_tb.max())),
        "primitives": (len(before), len(stops.plan)),
        "steps one after the other": (depth(before), depth(stops.plan)),
    }
    return Made(stops.plan, stops, stops.proofs, stops.seconds, changes=changes)


@contextmanager
def _timed(phase: str, seconds: dict[str, float], on_phase: driver.OnPhase) -> Iterator[None]:
    on_phase(phase)
    begin = time.perf_counter()
    yield
    seconds[phase] = time.perf_counter() - begin


def compared(made: Made, on_phase: driver.OnPhase) -> Made:
    """`made`, after its directory's files were held against what its plan emits.

    Raises:
        UserError: E427, E428 (`emit/compare`).
    """
    if made.kernels is None:
        return made
    with _timed("Emission", made.seconds, on_phase):
        return replace(made, sources=interruptible(compare)(made.kernels, made.plan))


def stop(made: Made, name: str, xml: XmlOptions) -> Iterator[str]:
    """The lines of one stop, `--emit=name`; `xml`: how to write that."""
    if name == "msccl-xml":
        yield driver.export_msccl(made.plan, xml).removesuffix("\n")
    elif name == "mscclpp-json":
        yield _mscclpp(made.plan, xml.in_place).removesuffix("\n")
    elif name == "plan":
        yield interruptible(plan_json.dumps)(made.plan).removesuffix("\n")
    elif name in PLAN_STOPS:
        emit = {"cpu": source.cpu, "cuda": source.cuda, "hip": source.hip}[name]
        yield interruptible(emit)(made.plan).removesuffix("\n")
    elif made.stops is None:
        raise fail("E416", f"--emit={name}: the input is a plan, which comes later on the road")
    elif name == "program":
        yield from program.lines(made.stops.program)
    elif name == "dag":
        yield from dag.lines(made.stops.dag)
    else:
        yield from pipeline.lines(made.stops.pipeline)


def _mscclpp(plan: Plan, in_place: bool | None) -> str:
    if in_place is None:
        raise fail("E524", "an MSCCL++ plan is for calls in place or out of place")
    return interruptible(mscclpp_json.dumps)(plan, in_place)


def write(
    made: Made, output: Path, targets: Sequence[str], on_phase: driver.OnPhase
) -> dict[str, int]:
    """Writes the kernels of `made` into `output`; all its files and their bytes."""
    with _timed("Emission", made.seconds, on_phase):
        wanted = [target for target in TARGETS if target.name in targets]
        files = kernels(made.plan, wanted)
        directory.write(output, files)
    return {name: len(text.encode()) for name, text in files.items()}


@interruptible
def kernels(plan: Plan, targets: Sequence[Target]) -> dict[str, str]:
    """All files of the directory of kernels of `plan`."""
    return directory.files(plan, targets, plan_json.dumps(plan))
