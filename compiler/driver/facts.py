"""facts: the figures of a Plan and of a compilation, by name, for reports, pages and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from hccc.driver.compiled import CheckedDirectory, Compiled, CompiledProgram, LoadedDirectory
from hccc.ir.choices import PlanProtocol
from hccc.ir.names import file_read
from hccc.ir.transport import Transport

if TYPE_CHECKING:
    from hccc.ir.catalogue import Catalogue
    from hccc.ir.plan import Plan
    from hccc.ir.provenance import Provenance
    from hccc.proofs.proof import Proof
    from hccc.validate.validated import Unvalidated, Validated

Facts = dict[str, object]


def title(catalogue: Catalogue) -> str:
    """Says what a library does: `ring: Allreduce over 8 ranks`."""
    return f"{catalogue.name}: {catalogue.collective.title}"


def plan_facts(plan: Plan) -> Facts:
    """Returns the figures of a Plan; those per rank are the largest of any rank."""
    c = plan.collective
    facts: Facts = {
        "name": plan.name,
        "collective": c.name,
        "ranks": c.n_ranks,
        "chunks": c.n_chunks,
        "transport": plan.transport.name.lower(),
        "channels": plan.channels,
        "warps": plan.warps,
        "thread_blocks_per_rank": plan.blocks_per_rank,
        "thread_blocks": int(plan.n_tb.sum()) * plan.channels,
        "primitives": len(plan),
        "waits": len(plan.waits.index),
        "flags_per_rank": int(plan.n_flags.max()),
        "scratch_chunks_per_rank": int((plan.scratch_slots + plan.stage_slots).max()),
        "accumulate": plan.accumulate.stated,
    }
    if plan.multicast is not None:
        facts["multicast"] = plan.multicast.value
    if plan.protocol is PlanProtocol.LL:
        facts |= {"protocol": plan.protocol.value, "largest_bytes": plan.max_bytes}
    memory, network = plan.connections()
    if network:
        facts |= {"memory_connections": memory, "network_connections": network}
    return {**facts, **_network_facts(plan), **({"root": c.root} if c.rooted else {})}


def _network_facts(plan: Plan) -> Facts:
    """Returns the memory domains of a mixed plan, and the queues and puts that proxies carry."""
    if plan.transport is not Transport.MIXED:
        return {}
    return {
        "memory_domains": len(set(plan.memory_domain.tolist())),
        "network_queues": int(plan.network_queues().sum()),
        "network_puts": int(plan.network_puts().sum()),
    }


def provenance_facts(made: Provenance | None) -> Facts:
    """Tells how a plan or a catalogue was made; nothing where its file does not."""
    if made is None:
        return {}
    return {
        "made": {
            "hccc": made.version,
            "options": dict(made.options),
            "scheduler": made.scheduler,
            "cluster": made.cluster.name if made.cluster else None,
        }
    }


def made_by(made: Provenance | None) -> str | None:
    """Tells in a line how a plan or a catalogue was made; None where its file does not."""
    if made is None:
        return None
    given = ((f"--{name.replace('_', '-')}", value) for name, value in made.options.items())
    options = [flag if value is True else f"{flag} {value}" for flag, value in given]
    on = f" for {made.cluster.name}" if made.cluster else ""
    scheduled = f", scheduled by {made.scheduler}" if made.scheduler else ""
    return f"by hccc {made.version}{on}{scheduled}: {' '.join(options) or 'imported'}"


def compiled_facts(compiled: Compiled) -> Facts:
    """Returns all figures of a library: its plan, proofs, origin and tuning."""
    facts = plan_facts(compiled.plan)
    if isinstance(compiled, CompiledProgram):
        facts["transfers"] = len(compiled.program)
        facts["sub_pipelines"] = compiled.pipeline.n_sub
        facts["scheduler"] = compiled.options.scheduler
    facts["proofs"] = proofs_facts(compiled.proofs)
    facts |= catalogue_facts(compiled)
    if isinstance(compiled, LoadedDirectory):
        facts["plan"] = str(file_read(compiled.directory))
    if isinstance(compiled, CheckedDirectory):
        facts["sources"] = {
            "files": compiled.sources.files,
            "targets": list(compiled.sources.targets),
        }
        facts |= validated_facts(compiled.validated)
    if isinstance(compiled, CompiledProgram) and compiled.changes:
        facts["rescheduled"] = {
            name: {"before": before, "after": after}
            for name, (before, after) in compiled.changes.items()
        }
    if compiled.warnings:
        facts["warnings"] = [problem.as_json() for problem in compiled.warnings]
    facts |= provenance_facts(compiled.catalogue.provenance)
    if isinstance(compiled, CompiledProgram) and compiled.tuned:
        from hccc.driver.tune import report  # the simulator takes its time to load

        facts["tuned"] = report.facts(compiled.tuned)
    return {**facts, "seconds": dict(compiled.seconds)}


def catalogue_facts(compiled: Compiled) -> Facts:
    """Returns a catalogue's plans, their proofs and their sizes (bytes; end null for any above);
    nothing for a plan alone."""
    catalogue = compiled.catalogue
    if catalogue.alone:
        return {}
    return {
        "name": catalogue.name,
        "catalogue": {
            "ranges": [
                {
                    "in_place": one.in_place,
                    "begin": one.begin,
                    "end": catalogue.end(one),
                    "plan": catalogue.plans[one.plan].name,
                    "window": one.window,
                    "grain": one.grain,
                }
                for one in catalogue.ranges
            ],
            "plans": [
                {**plan_facts(plan), "source": plan.source, "proofs": proofs_facts(made)}
                for plan, made in zip(catalogue.plans, compiled.catalogue_proofs, strict=True)
            ],
        },
    }


def spans(catalogue: Catalogue, plan: int) -> str:
    """Lists the sizes that a plan serves: `out of place 0 to 65,535 bytes; in place from 4,096
    bytes`; without the kind of call if both kinds have the same."""
    kinds = {kind: _sizes(catalogue, plan, kind) for kind in (False, True)}
    if kinds[False] == kinds[True]:
        return "; ".join(kinds[False])
    names = {False: "out of place", True: "in place"}
    return "; ".join(f"{names[kind]} {sizes}" for kind, found in kinds.items() for sizes in found)


def _sizes(catalogue: Catalogue, plan: int, in_place: bool) -> list[str]:
    """Lists the sizes of one kind of call that a plan serves. Ranges that meet are joined: they
    differ only in how calls are cut."""
    found = list[tuple[int, int | None]]()
    for one in catalogue.ranges:
        if (one.plan, one.in_place) == (plan, in_place):
            meets = found and found[-1][1] == one.begin
            begin = found.pop()[0] if meets else one.begin
            found.append((begin, catalogue.end(one)))
    return [_span(begin, end) for begin, end in found]


def _span(begin: int, end: int | None) -> str:
    if end is None:
        return f"from {begin:,} bytes" if begin else "all sizes"
    return f"{begin:,} to {end - 1:,} bytes"


def proofs_facts(proofs: Sequence[Proof]) -> list[Facts]:
    """Returns the name, the claim and the counts of each proof."""
    return [{"name": p.name, "claim": p.claim, "detail": p.detail} for p in proofs]


def validated_facts(found: Validated | Unvalidated | None) -> Facts:
    """Returns the counts of a validation; nothing if there was none."""
    return {"validated": asdict(found)} if found else {}


def file_facts(files: Mapping[str, int]) -> Facts:
    """Returns the files written, with their bytes."""
    return {"files": [{"path": path, "bytes": size} for path, size in files.items()]}


def figures(proof: Proof) -> str:
    """Lists the counts of a proof: `112 transfers, 8 ranks, 8 chunks`."""
    return ", ".join(
        f"{value:,} {key}" if isinstance(value, int) else f"{key} {value}"
        for key, value in proof.detail.items()
    )
