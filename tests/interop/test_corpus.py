"""The yardstick: schedules that other tools wrote, and an independent interpreter's verdicts.

msccl-tools' own Check() runs on its source programs, not on the XML, and passes files that are
wrong. hccc reads the XML.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from hccc.analysis.execution_order import execution_order
from hccc.analysis.waits import enforced
from hccc.base.diagnostics import UserError
from hccc.cli.main import cli
from hccc.ir import plan_json
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer
from tests.interop import corpus
from tests.marks import LONG

needs_corpus = pytest.mark.skipif(not corpus.entries(), reason=corpus.MISSING)
FILES = 97
KNOWN = 92  # files with a known result; the others are custom, without a specification
KEY = "largest_message_without_fifo_deadlock_bytes"
# In place, a custom collective's buffers are one memory; the manifest's verdicts keep them apart.
RACE_IN_PLACE = {f"msccl_xml/alltonext_fwd_2x8_i{k}.xml" for k in (1, 2)}
# These six do what their name says: rank r's buffer goes to rank r + 1, or r - 1.
NEXT = {"fwd": -1, "bwd": 1}

OWN = {  # file: (race, result, largest message)
    "allgather_deep_n2": (None, None, 2 * 6 * (2**21 // 3)),  # 6 chunks in 2 messages of 2 MiB
    "allreduce_pair_n2": (None, None, None),
    "allreduce_parked_n2": (None, None, None),
    "allreduce_race_n3": ("E304", None, None),
    "allreduce_scratch_n3": (None, None, None),
    "alltoall_pair_n2": (None, None, None),
    "custom_alias_n2": ("E304", None, None),
    "custom_gather_n3": (None, None, None),
    "reducescatter_ring_n3": (None, None, None),
    "reducescatter_wrong_n3": (None, "E307", None),
}


def contents(plan: Plan) -> dict[tuple[int, int], tuple[int, int] | None]:
    """Returns the final (rank, send slot) of each receive slot: for plans that only move data."""
    held: dict[tuple[int, int, int], tuple[int, int] | None] = {}
    for i in execution_order(plan, enforced(plan)):
        value = None
        for k in range(plan.src.ptr[i], plan.src.ptr[i + 1]):
            place = int(plan.src.rank[k]), int(plan.src.buffer[k]), int(plan.src.slot[k])
            initial = (place[0], place[2]) if place[1] == Buffer.INPUT else None
            value = held.get(place, initial)
        for k in range(plan.dst.ptr[i], plan.dst.ptr[i + 1]):
            held[int(plan.dst.rank[k]), int(plan.dst.buffer[k]), int(plan.dst.slot[k])] = value
    return {(r, s): v for (r, b, s), v in held.items() if b == Buffer.OUTPUT}


def goes_to_the_next(plan: Plan, step: int) -> bool:
    """Tells whether every rank with a neighbour at distance `step` ends with its buffer."""
    found, n = contents(plan), plan.n_ranks
    slots = range(plan.collective.chunks_per_rank)
    want = {(r, s): (r + step, s) for r in range(n) if 0 <= r + step < n for s in slots}
    return all(found.get(place) == value for place, value in want.items())


def postcondition(entry: dict[str, Any], plan: Plan, verdict: corpus.Verdict) -> bool | None:
    """Tells whether hccc finds the result right; None where no specification exists."""
    if entry["collective"] != "custom":
        return verdict.result is None
    for name, step in NEXT.items():
        if f"alltonext_{name}" in entry["file"]:
            return goes_to_the_next(plan, step)
    return None


def races(entry: dict[str, Any]) -> bool:
    """Tells whether a file has unordered conflicting accesses."""
    return bool(entry["races"]) or entry["file"] in RACE_IN_PLACE


@pytest.mark.slow
@needs_corpus
def test_verdicts_agree_with_the_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    right: Counter[str] = Counter()
    wrong: dict[str, list[str]] = {"postcondition": [], "races": [], "FIFO limit": []}
    for entry in corpus.entries():
        plan, verdict = corpus.verdict((corpus.ROOT / entry["file"]).read_text(), entry["file"])
        post = postcondition(entry, plan, verdict)
        agrees = {
            "postcondition": post == entry["postcondition"],
            "races": (verdict.race is not None) == races(entry),
            "FIFO limit": verdict.largest == entry[KEY] and verdict.deadlock is None,
        }
        if post is None and entry["postcondition"] is None:
            del agrees["postcondition"]  # custom: only its author knows
        for question, good in agrees.items():
            right[question] += good
            wrong[question] += [] if good else [entry["file"]]
    with capsys.disabled():
        print(f"\n{'':16}{'files':>7}{'right':>7}{'wrong':>7}")
        for question, files in wrong.items():
            print(f"{question:16}{right[question] + len(files):7}{right[question]:7}{len(files):7}")
    assert wrong == {"postcondition": [], "races": [], "FIFO limit": []}
    assert dict(right) == {"postcondition": KNOWN, "races": FILES, "FIFO limit": FILES}


@needs_corpus
def test_the_alltonext_check_can_fail() -> None:
    """The other direction's schedule does not pass for this one's."""
    for name, step in NEXT.items():
        text = (corpus.ROOT / f"msccl_xml/alltonext_{name}_2x8_i1.xml").read_text()
        plan, _ = corpus.verdict(text)
        assert goes_to_the_next(plan, step)
        assert not goes_to_the_next(plan, -step)


def test_own_files_get_the_verdicts_they_were_written_for() -> None:
    found = {}
    for path in sorted(corpus.OWN.glob("*.xml")):
        _, verdict = corpus.verdict(path.read_text(), path.name)
        assert verdict.deadlock is None and not verdict.hangs
        found[path.stem] = (verdict.race, verdict.result, verdict.largest)
    assert found == OWN


def runs(path: Path) -> int:
    """Returns the number of wrong elements over all sizes and modes of `hccc run`."""
    sizes = ["-b", "64K", "-e", "1M", "-f", "16"]
    shown = CliRunner().invoke(
        cli, ["run", str(path), "--json", "-n", "1", "-w", "1", "-d", "int32", *sizes]
    )
    assert shown.exit_code == 0, shown.output
    rows = json.loads(shown.stdout)["results"]
    halves = [row[kind] for row in rows for kind in ("out_of_place", "in_place") if row[kind]]
    assert halves
    return int(np.sum([half["nwrong"] or 0 for half in halves]))


def correct(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the entries with a known and right result."""
    good = [e for e in entries if e["postcondition"] and not e["races"]]
    return [e for e in good if e["collective"] != "custom"]


def families() -> list[dict[str, Any]]:
    """Returns the last of the correct files whose names differ in numbers alone; all with HCCC_LONG
    above 1."""
    files = correct(corpus.entries())
    return files if LONG > 1 else list({re.sub(r"\d+", "", e["file"]): e for e in files}.values())


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", [n for n, v in OWN.items() if v[:2] == (None, None)][::2])
def test_own_files_run_right(name: str) -> None:
    assert runs(corpus.OWN / f"{name}.xml") == 0


@pytest.mark.quick(2)
@needs_corpus
@pytest.mark.parametrize("entry", correct(corpus.small())[::28], ids=lambda e: Path(e["file"]).stem)
def test_correct_files_run_right(entry: dict[str, Any]) -> None:
    assert runs(corpus.ROOT / entry["file"]) == 0


@needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("entry", families(), ids=lambda e: Path(e["file"]).stem)
def test_every_family_of_correct_files_runs_right(entry: dict[str, Any]) -> None:
    assert runs(corpus.ROOT / entry["file"]) == 0


@pytest.mark.slow
@needs_corpus
def test_plans_are_well_formed_and_survive_their_file() -> None:
    """All but two wrong schedules, which leave receive slots unwritten."""
    refused = []
    for entry in corpus.entries():
        plan, _ = corpus.verdict((corpus.ROOT / entry["file"]).read_text(), entry["file"])
        try:
            text = plan_json.dumps(plan)
            assert plan_json.dumps(plan_json.loads(text)) == text
        except UserError as error:
            refused.append((Path(entry["file"]).stem, error.problem.code))
    assert sorted(refused) == [
        ("pipeline_allpairs_2x4_i1", "E315"),
        ("pipeline_ring_2x8_ch1_i1", "E315"),
    ]


def broken(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the entries that are wrong or race."""
    bad = [e for e in entries if e["postcondition"] is False or e["races"]]
    return [e for e in bad if e["races"] or e["collective"] != "custom"]


@needs_corpus
@pytest.mark.parametrize("entry", broken(corpus.entries()), ids=lambda e: Path(e["file"]).stem)
def test_broken_files_are_refused_with_the_reason(entry: dict[str, Any], tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    shown = CliRunner().invoke(cli, [str(corpus.ROOT / entry["file"]), "-o", str(kernels)])
    assert isinstance(shown.exception, UserError)
    reasons = {"E304"} if entry["races"] else {"E306", "E307", "E315"}
    assert shown.exception.problem.code in reasons
    assert not kernels.exists()
