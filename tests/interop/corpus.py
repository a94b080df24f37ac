"""The corpus of other tools' schedules beside this repository, and hccc's verdicts on one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hccc.base.diagnostics import Source, UserError
from hccc.interop import msccl_plan
from hccc.interop.label import label
from hccc.ir.plan import Plan
from hccc.lang.msccl import load as msccl_xml
from hccc.proofs.deadlock import deadlock
from hccc.proofs.fifo import fifo, with_enough_slots
from hccc.proofs.race import race
from hccc.proofs.result import result

HERE = Path(__file__).resolve().parent
OWN = HERE / "data"
ROOT = HERE.parents[2] / "shared" / "corpus"  # CI has it beside the clone
MISSING = f"the corpus of foreign schedules is not at {ROOT}"
SMALL = 30_000  # bytes of a file that the fast tests look at


def entries() -> list[dict[str, Any]]:
    """Returns the manifest's entries; none without a corpus."""
    manifest = ROOT / "manifest.json"
    if not manifest.is_file():
        return []
    found: list[dict[str, Any]] = json.loads(manifest.read_text())["entries"]
    return found


def small() -> list[dict[str, Any]]:
    """Returns the entries with small files."""
    return [e for e in entries() if (ROOT / e["file"]).stat().st_size < SMALL]


@dataclass(frozen=True, slots=True)
class Verdict:
    """hccc's verdict on a schedule: the code of each error, or None."""

    largest: int | None
    hangs: bool
    deadlock: str | None
    race: str | None
    result: str | None


def verdict(text: str, name: str = "x.xml") -> tuple[Plan, Verdict]:
    """Returns the Plan of an XML text, and the verdict of the proofs. Raises as the import does."""
    algo = msccl_xml.parse(Source(name, text))
    plan = label(msccl_plan.to_plan(algo))
    carried = fifo(plan, algo.protocol, algo.chunks_per_loop)
    plan = with_enough_slots(plan)
    refusals: list[str | None] = []
    for proof in (deadlock, race, result):
        try:
            proof(plan)
            refusals.append(None)
        except UserError as error:
            refusals.append(error.problem.code)
    return plan, Verdict(carried.largest, carried.hangs, *refusals)
