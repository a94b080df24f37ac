"""outputs: prints the stages of a compilation (`--emit`), and writes directories of kernels."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

from hccc.base.diagnostics import UserError, fail
from hccc.base.files.plain import is_plain
from hccc.base.files.reading import read_text_in
from hccc.base.files.writing import named_errors, replace_all
from hccc.base.interruptible import interruptible
from hccc.base.progress import timed
from hccc.driver.assumed import ASSUMED
from hccc.driver.compiled import Compiled, CompiledProgram, LoadedDirectory
from hccc.driver.options import Output
from hccc.driver.pass_manager import Ir
from hccc.emit import directory
from hccc.emit.compare import compare
from hccc.emit.kernels import source
from hccc.emit.mscclpp import execution_plan
from hccc.emit.targets import TARGETS, Target
from hccc.interop.export_library import export_library
from hccc.interop.export_msccl import XmlOptions, export_msccl
from hccc.ir import blocks, catalogue_json, dag, pipeline, plan_json, primitives, program
from hccc.ir.blocks import Blocks
from hccc.ir.catalogue import Catalogue
from hccc.ir.dag import Dag
from hccc.ir.names import PLAN_FILE
from hccc.ir.pipeline import Pipeline
from hccc.ir.plan import Plan
from hccc.ir.primitives import Primitives
from hccc.ir.program import Program
from hccc.ir.provenance import Cluster
from hccc.proofs.prove import check_plan
from hccc.validate.validate import validate, validate_present
from hccc.validate.validated import Validated

PROVED = {"deadlock", "race", "result"}  # of every plan that kernels are written of
Lines = Callable[[Compiled, XmlOptions], Iterable[str]]


def lines(ir: Ir) -> Iterable[str]:
    """Prints an IR."""
    match ir:
        case Program():
            return program.lines(ir)
        case Dag():
            return dag.lines(ir)
        case Pipeline():
            return pipeline.lines(ir)
        case Primitives():
            return primitives.lines(ir)
        case Blocks():
            return blocks.lines(ir)
        case Plan():
            return _text(interruptible(plan_json.dumps)(ir))


def _before_the_plan(name: str, ir: Callable[[CompiledProgram], Ir]) -> Lines:
    def printed(compiled: Compiled, xml: XmlOptions) -> Iterable[str]:
        if not isinstance(compiled, CompiledProgram):
            message = f"--emit={name}: the input is a plan, which is made from it"
            raise fail("E416", message, help="give the program")
        return lines(ir(compiled))

    return printed


def _kernels(emit: Callable[[Plan], str]) -> Lines:
    return lambda compiled, xml: _text(interruptible(emit)(compiled.plan))


def _mscclpp(compiled: Compiled, xml: XmlOptions) -> Iterable[str]:
    if xml.in_place is None:
        raise fail("E524", "an MSCCL++ plan is for calls in place or out of place")
    return _text(interruptible(execution_plan.dumps)(compiled.plan, xml.in_place))


def _text(text: str) -> Iterable[str]:
    yield text.removesuffix("\n")


OUTPUTS: Mapping[str, Lines] = {
    Output.PROGRAM: _before_the_plan(Output.PROGRAM, lambda made: made.program),
    Output.DAG: _before_the_plan(Output.DAG, lambda made: made.dag),
    Output.PIPELINE: _before_the_plan(Output.PIPELINE, lambda made: made.pipeline),
    Output.PLAN: lambda compiled, xml: _text(
        interruptible(catalogue_json.dumps)(compiled.catalogue)
    ),
    Output.CPU: _kernels(source.cpu),
    Output.CUDA: _kernels(source.cuda),
    Output.HIP: _kernels(source.hip),
    Output.MSCCL_XML: lambda compiled, xml: _text(export_msccl(compiled.plan, xml)),
    Output.MSCCLPP_JSON: _mscclpp,
}


@dataclass(frozen=True, slots=True)
class Written:
    """A directory that was written: all its files and their bytes, and the seconds it took.

    validated: what its texts do, where that was asked for.
    """

    files: Mapping[str, int]
    seconds: Mapping[str, float]
    validated: Validated | None = None


def write(
    compiled: Compiled,
    output: Path,
    targets: Sequence[str] = (),
    *,
    validated: bool = False,
    overwrite: bool = False,
) -> Written:
    """Writes the kernels of `compiled` into the directory `output`, whole or not at all.

    targets: any of cuda, hip, cpu; all without. validated: run the texts on the host before
    anything is written, and hold all they do against the plan (`validate/`). overwrite: also a
    directory that was made for another cluster.

    Raises:
        UserError: E410 for another target; the place is taken, or cannot be written
            (`emit/directory`); E478 it was made for another cluster; a proof that was not made yet
            fails; E412, E438, E439 the texts are not validated.
    """
    if not overwrite:
        _check_cluster(compiled.catalogue, output)
    seconds: dict[str, float] = {}
    if unproved := _unproved(compiled):
        with timed("Proof", seconds):
            for plan in unproved:
                check_plan(plan)
    with timed("Emission", seconds):
        chosen = _targets(targets)
        files = kernels(compiled.catalogue, chosen)
    found = None
    if validated:
        with timed("Validation", seconds):
            texts = {name: text.encode() for name, text in files.items()}
            found = validate(texts, compiled.catalogue, chosen)
    with timed("Writing", seconds):
        directory.write(output, files)
    return Written({name: len(text.encode()) for name, text in files.items()}, seconds, found)


def check_directory(output: Path) -> None:
    """Checks before any work that kernels can be written there. Raises as `write` for the place."""
    directory.check(output)


def _check_cluster(new: Catalogue, place: Path) -> None:
    """Raises UserError E478 where a directory was made for a cluster that somebody gave, and the
    new one is for another or none."""
    old, made = _cluster_of(place), new.provenance or new.plans[0].provenance
    now = made.cluster if made else None
    if old is None or old.name.endswith(ASSUMED) or (now and _same(now, old)):
        return
    told = f"these would be for {now.name}" if now else "these would be for none"
    help = "say --overwrite, or --cluster as before, or give another directory"
    raise fail("E478", f"{place}: has kernels for {old.name}, and {told}", help=help)


def _cluster_of(place: Path) -> Cluster | None:
    """Returns the cluster that a directory was made for; None where nothing there tells."""
    if not is_plain(place, PLAN_FILE):
        return None
    try:
        data = json.loads(read_text_in(place, PLAN_FILE, plan_json.MAX_BYTES))
        made = data["provenance"]["cluster"]
        return Cluster(str(made["name"]), str(made["text"]))
    except (UserError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _same(one: Cluster, other: Cluster) -> bool:
    """Tells whether two clusters are of one file, which may have changed, or have one text."""
    return Path(one.name).name == Path(other.name).name or one.text == other.text


def _unproved(compiled: Compiled) -> list[Plan]:
    """Returns the plans that have not been proved yet."""
    both = zip(compiled.catalogue.plans, compiled.catalogue_proofs, strict=True)
    return [plan for plan, proofs in both if not {proof.name for proof in proofs} >= PROVED]


def write_xml(compiled: Compiled, output: Path, options: XmlOptions) -> list[str]:
    """Writes MSCCL XML of every plan into the directory `output`; the names of the files.

    What an earlier call wrote there of the same library, and this one does not, is removed.

    Raises:
        UserError: E431 it cannot be written; what `export_library` raises.
    """
    library = compiled.catalogue
    made = export_library(library, options)
    with named_errors(output, "give -o a directory that can be written"):
        output.mkdir(exist_ok=True)
        ours = re.compile(rf"{re.escape(library.name)}(_\d+)*(_in_place|_out_of_place)?\.xml")
        found = [path for path in output.iterdir() if ours.fullmatch(path.name)]
        writes = {output / name: partial(_put, text) for name, text in made.items()}
        replace_all(writes, [path for path in found if path.name not in made])
    return list(made)


def _put(text: str, file: TextIO) -> None:
    file.write(text)


def _targets(names: Sequence[str]) -> list[Target]:
    """Returns the targets of these names; all without. Raises UserError E410 for another."""
    wanted = {names} if isinstance(names, str) else set(names)
    known = [target.name for target in TARGETS]
    for name in sorted(wanted.difference(known)):
        raise fail("E410", f"target {name!r} is not one of {', '.join(known)}")
    return [target for target in TARGETS if not wanted or target.name in wanted]


@interruptible
def kernels(catalogue: Catalogue, targets: Sequence[Target]) -> dict[str, str]:
    """Returns all files of the directory of kernels of a library, by name."""
    return directory.files(catalogue, targets, catalogue_json.dumps(catalogue))


def compared(compiled: Compiled) -> Compiled:
    """Compares the files of a directory with what its plan emits, and runs on the host the texts
    that were emitted. Other libraries are returned as they are.

    Nothing of the directory is compiled: a text that differs is refused, and one that does not is
    the same as the one emitted here.

    Raises:
        UserError: E427, E428 (`emit/compare`); E438, E439 (`validate/`).
    """
    if not isinstance(compiled, LoadedDirectory):
        return compiled
    seconds, catalogue = dict(compiled.seconds), compiled.catalogue
    with timed("Emission", seconds):
        sources, made = interruptible(compare)(compiled.directory, catalogue)
    with timed("Validation", seconds):
        validated = validate_present(
            {name: text.encode() for name, text in made.items()}, catalogue
        )
    return compiled.checked(sources, validated, seconds)
