"""report: the output of commands, as text for people and as JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from hccc.base.diagnostics import Problem
from hccc.base.version import __version__
from hccc.cli.progress import progress as progress
from hccc.driver.compiled import CheckedDirectory, Compiled, CompiledProgram, LoadedDirectory
from hccc.driver.facts import compiled_facts, figures, made_by, spans, title
from hccc.driver.options import Options
from hccc.ir.choices import PlanProtocol
from hccc.validate.validated import Unvalidated

if TYPE_CHECKING:
    from hccc.driver.orders import DeclaredOrders
    from hccc.driver.outputs import Written
    from hccc.ir.catalogue import Catalogue
    from hccc.validate.validated import Validated


def dumps(facts: Mapping[str, object]) -> str:
    """Returns `facts` as JSON, with the version in front."""
    return json.dumps({"hccc": __version__, **facts}, indent=2)


def as_json(facts: Mapping[str, object]) -> None:
    """Prints `facts` as JSON, with the version in front."""
    print(dumps(facts))


def summary(compiled: Compiled, output: str, written: Written) -> None:
    """Prints the outcome of a compilation."""
    seconds = {**compiled.seconds, **written.seconds}
    rows: dict[str, int | str | None] = {"cluster": cluster_text(compiled)}
    rows |= _one_plan(compiled) if compiled.catalogue.alone else _several(compiled.catalogue)
    rows |= {
        "sums": compiled.plan.unusual_sums,
        "proved": ", ".join(proof.name for proof in compiled.proofs),
        "validated": validation_text(written.validated) if written.validated else None,
        "written": f"{len(written.files)} files, {sum(written.files.values()):,} bytes",
        "seconds": ", ".join(f"{phase.lower()} {s:.2f}" for phase, s in seconds.items()),
    }
    print(f"{title(compiled.catalogue)} → {output}")
    for key, value in rows.items():
        if value is not None:
            print(f"  {key:<14} {value:,}" if isinstance(value, int) else f"  {key:<14} {value}")
    changes(compiled)
    _tuned(compiled)


def cluster_text(compiled: Compiled) -> str | None:
    """Names the cluster that a program is compiled for; None for what was compiled before, and with
    `--tune off`."""
    if compiled.topology is not None:
        return compiled.topology.name or "a cluster"
    made = compiled.plan.provenance
    off = made is None or not Options.from_text(made.options).tuned
    if off or not isinstance(compiled, CompiledProgram):
        return None
    return "none: so many transfers are tuned only for a --cluster"


def _one_plan(compiled: Compiled) -> dict[str, int | str | None]:
    f = compiled_facts(compiled)
    between = None
    if "network_connections" in f:
        between = f"{f['memory_connections']:,} memory, {f['network_connections']:,} network"
    from hccc.ir.text import count  # NumPy below it takes its time to load

    scratch = int(str(f["scratch_chunks_per_rank"]))
    each = f" in {f['channels']} channels" if f["channels"] != 1 else ""
    rows: dict[str, int | str | None] = {}
    if isinstance(compiled, CompiledProgram):
        rows["transfers"] = len(compiled.program)
        rows["sub-pipelines"] = f"{f['sub_pipelines']:,} ({f['scheduler']})"
    return {
        **rows,
        "thread blocks": f"{f['thread_blocks_per_rank']} per rank{each}",
        "primitives": f"{f['primitives']:,}, {'packets' if 'protocol' in f else f['transport']}",
        "connections": between,
        "flags": f"{f['flags_per_rank']} per rank and channel",
        "scratch": f"{count(scratch, 'chunk')} per rank",
    }


def _several(catalogue: Catalogue) -> dict[str, int | str | None]:
    plans = catalogue.plans
    ways = ("packets" if p.protocol is PlanProtocol.LL else p.transport.name.lower() for p in plans)
    told = (f"{p.name}: {len(p):,} primitives, {way}" for p, way in zip(plans, ways, strict=True))
    return {"plans": f"{len(plans)}, {'; '.join(told)}"}


def _tuned(compiled: Compiled) -> None:
    """Prints the plans chosen for each range of sizes, and the times that were compared."""
    if not isinstance(compiled, CompiledProgram) or compiled.tuned is None:
        return
    from hccc.driver.tune import report

    named, taken = "chosen for", report.what_blocks_take(compiled.topology)
    for line in report.range_lines(compiled.tuned, compiled.plan_names(), taken):
        print(f"  {named:<14} {line}")
        named = ""
    print(f"  weighed        {report.WEIGHED}")
    for line in report.structure_lines(compiled.tuned):
        print(f"    {line}")


def changes(compiled: Compiled) -> None:
    """Prints the effect of rescheduling."""
    known = compiled.changes if isinstance(compiled, CompiledProgram) else {}
    for name, (before, after) in known.items():
        print(f"  rescheduled    {name}: {before:,} before, {after:,} after")


def proofs(compiled: Compiled, declared: DeclaredOrders | None, whole: bool) -> None:
    """Prints the proofs of a library, with their counts. declared: the orders of its sums; whole:
    each of them."""
    of = ""
    if isinstance(compiled, LoadedDirectory):
        of = f" (proofs of {compiled.directory / 'plan.json'})"
    print(f"{title(compiled.catalogue)}{of}")
    changes(compiled)
    rows: list[tuple[str, ...]]
    rows = [(proof.name, proof.claim, f"({figures(proof)})") for proof in compiled.proofs]
    if not compiled.catalogue.alone:
        rows = list(_plans(compiled))
    if compiled.topology is not None:
        rows.insert(0, ("cluster", cluster_text(compiled) or ""))
    rows += [*(_sums(declared, whole) if declared else ()), *_origin(compiled)]
    width = max(9, *(len(name) for name, *_ in rows))
    for name, claim, *over in rows:
        print(f"  {name:<{width}} {claim}")
        for line in over:
            print(f"  {'':<{width}} {line}")


def _origin(compiled: Compiled) -> Iterator[tuple[str, ...]]:
    """Yields a row on how a library was made, and two on the files of a directory."""
    made = made_by(compiled.catalogue.provenance)
    if made and not isinstance(compiled, CompiledProgram):
        how, _, options = made.partition(": ")
        yield "made", how, f"({options})"
    if isinstance(compiled, CheckedDirectory):
        claim = f"{compiled.sources.files:,} files are what this plan emits"
        yield "sources", claim, f"(for {', '.join(compiled.sources.targets)})"
        claim, over = _kernels_row(compiled.validated)
        yield "kernels", claim, f"({over})"


def _sums(declared: DeclaredOrders, whole: bool) -> Iterator[tuple[str, ...]]:
    """Yields a row for each plan, with the type and the orders of its sums, and one that says
    whether an element has one order."""
    for k, plan in enumerate(declared.catalogue.plans):
        of = "" if declared.catalogue.alone else f"{plan.name}: "
        yield "sums", f"{of}{plan.sums}", *declared.lines(k, whole)
    if declared.varies:
        told = f"an element has several: {declared.varies.reason}"
        yield "order", told, "(--deterministic refuses that)"
    else:
        told = "an element has one, for every size and at every rank that gets it"
        yield "order", told, "(--deterministic asks for that)"


def _plans(compiled: Compiled) -> Iterator[tuple[str, ...]]:
    """Yields a row for each plan of a catalogue: its proofs and the sizes that it serves."""
    catalogue = compiled.catalogue
    for k, (plan, made) in enumerate(zip(catalogue.plans, compiled.catalogue_proofs, strict=True)):
        claim = f"{', '.join(proof.name for proof in made)}: {len(plan):,} primitives"
        yield plan.name, claim, f"({plan.source}; {spans(catalogue, k)})"


def validation_text(found: Validated) -> str:
    """Returns `the text of 3 targets does what the plan says: 104 primitives, 296 operands`."""
    n = len(found.targets)
    return (
        f"the text of {n} target{'s' * (n > 1)} does what the plan says: "
        f"{found.primitives:,} primitives, {found.operands:,} operands"
    )


def _kernels_row(found: Validated | Unvalidated) -> tuple[str, str]:
    """Returns what validation says of the texts of a directory, and its counts."""
    targets = ", ".join(found.targets)
    if isinstance(found, Unvalidated):
        return f"not run, only compared: {found.why}", f"for {targets}"
    return validation_text(found), f"for {targets}; {found.waits:,} waits, {found.posts:,} posts"


def warnings(problems: Iterable[Problem]) -> None:
    """Prints warnings on stderr."""
    for problem in problems:
        print(problem.render(), file=sys.stderr)


def phases(seconds: Mapping[str, float]) -> None:
    """Prints the seconds of each phase (`--time-phases`) on stderr, so that stdout stays the
    result."""
    for phase, s in seconds.items():
        print(f"{phase:<12} {s:9.3f} s", file=sys.stderr)
    print(f"{'total':<12} {sum(seconds.values()):9.3f} s", file=sys.stderr)
