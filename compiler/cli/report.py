"""report: what the commands tell, as text for people and as JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hccc import __version__

if TYPE_CHECKING:
    from hccc.inputs import Made
    from hccc.ir.plan import Plan

Facts = dict[str, object]


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Yields what to tell each phase to; it is shown only while stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield status.update


def dumps(facts: Mapping[str, object]) -> str:
    """`facts` as JSON, with the version in front."""
    return json.dumps({"hccc": __version__, **facts}, indent=2)


def as_json(facts: Mapping[str, object]) -> None:
    """`facts` on stdout, with the version in front."""
    print(dumps(facts))


def plan_facts(plan: Plan) -> Facts:
    """The figures of a Plan. Per rank: the most of any rank."""
    c = plan.collective
    facts: Facts = {
        "name": plan.name,
        "collective": c.op.value,
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
        "accumulate": plan.accumulate,
    }
    return {**facts, "root": c.root} if c.rooted else facts


def facts(made: Made) -> Facts:
    """Everything known about what a command made, for JSON."""
    found = plan_facts(made.plan)
    if made.stops:
        found["transfers"] = len(made.stops.program)
        found["sub_pipelines"] = made.stops.pipeline.n_sub
        found["scheduler"] = made.stops.scheduler
    found["proofs"] = [{"name": p.name, "claim": p.claim, "detail": p.detail} for p in made.proofs]
    if made.plan_file:
        found["plan"] = str(made.plan_file)
    if made.sources:
        found["sources"] = {"files": made.sources.files, "targets": list(made.sources.targets)}
    for name, (before, after) in made.changes.items():
        found.setdefault("rescheduled", {})[name] = {"before": before, "after": after}  # type: ignore[index]
    return {**found, "seconds": made.seconds}


def file_facts(files: Mapping[str, int]) -> Facts:
    """Files written and their bytes, for JSON."""
    return {"files": [{"path": path, "bytes": size} for path, size in files.items()]}


def title(plan: Plan) -> str:
    """`ring: Allreduce over 8 ranks`."""
    c = plan.collective
    root = f", root {c.root}" if c.rooted else ""
    return f"{plan.name}: {c.op.value} over {c.n_ranks} ranks{root}"


def summary(made: Made, output: str, files: Mapping[str, int]) -> None:
    """What a compilation made, on stdout."""
    f = facts(made)
    subs = f"{f['sub_pipelines']:,} ({f['scheduler']})" if made.stops else None
    each = f" in {f['channels']} channels" if f["channels"] != 1 else ""
    rows = {
        "transfers": f.get("transfers"),
        "sub-pipelines": subs,
        "thread blocks": f"{f['thread_blocks_per_rank']} per rank{each}",
        "primitives": f"{f['primitives']:,}, {f['transport']}",
        "flags": f"{f['flags_per_rank']} per rank and channel",
        "scratch": f"{f['scratch_chunks_per_rank']} chunks per rank",
        "proved": ", ".join(p.name for p in made.proofs),
        "written": f"{len(files)} files, {sum(files.values()):,} bytes",
        "seconds": ", ".join(f"{phase.lower()} {s:.2f}" for phase, s in made.seconds.items()),
    }
    print(f"{title(made.plan)} → {output}")
    for key, value in rows.items():
        if value is not None:
            print(f"  {key:<14} {value:,}" if isinstance(value, int) else f"  {key:<14} {value}")
    changes(made)


def changes(made: Made) -> None:
    """What rescheduling changed, on stdout."""
    for name, (before, after) in made.changes.items():
        print(f"  rescheduled    {name}: {before:,} before, {after:,} after")


def proofs(made: Made) -> None:
    """What was proved and over how much, on stdout."""
    of = f" (proofs of {made.plan_file})" if made.plan_file else ""
    print(f"{title(made.plan)}{of}")
    changes(made)
    rows = [(proof.name, proof.claim, _figures(proof.detail)) for proof in made.proofs]
    if made.sources:
        claim = f"{made.sources.files:,} files are what this plan emits"
        rows.append(("sources", claim, f"for {', '.join(made.sources.targets)}"))
    for name, claim, over in rows:
        print(f"  {name:<9} {claim}\n  {'':<9} ({over})")


def _figures(detail: Mapping[str, int | str]) -> str:
    return ", ".join(
        f"{value:,} {key}" if isinstance(value, int) else f"{key} {value}"
        for key, value in detail.items()
    )


def phases(seconds: Mapping[str, float]) -> None:
    """`--time-phases`: on stderr, so that stdout stays the result."""
    for phase, s in seconds.items():
        print(f"{phase:<12} {s:9.3f} s", file=sys.stderr)
    print(f"{'total':<12} {sum(seconds.values()):9.3f} s", file=sys.stderr)
