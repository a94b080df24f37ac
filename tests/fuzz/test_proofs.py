"""The attack on the proofs finds no fault in them, and the faults of a proof left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hccc.ir import plan_check
from hccc.testing import judge

from . import proofs

Work = Callable[[int], proofs.Count]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Shrinks batches and keeps their findings apart."""
    monkeypatch.setattr(proofs, "BATCH", 150)
    monkeypatch.setattr(proofs, "BASES", 8)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("work", [proofs.plan_mutants, proofs.xml_mutants])
def test_what_is_accepted_is_right(work: Work) -> None:
    count = work(11)
    assert count.tried == proofs.BATCH
    assert count.accepted and not count.wrong


@pytest.mark.slow
@pytest.mark.parametrize("work", [proofs.plan_mutants, proofs.xml_mutants])
def test_without_proofs_much_is_wrong(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "check_plan", plan_check.check)
    wrong = [path for seed in (11, 13, 17) for path in work(seed).wrong]
    assert len(wrong) >= 10
    for path in wrong:
        assert Path(path).stat().st_size > 0


@pytest.mark.slow
def test_without_lengths_a_slot_that_is_too_short_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding 1 of the attack that this module came from: other proofs do not look at lengths."""
    monkeypatch.setattr(plan_check, "_length_fits", lambda *_: None)
    monkeypatch.setattr(judge, "check_plan", plan_check.check)
    reasons = " ".join(reason for k in range(3) for reason in proofs.plan_mutants(k).wrong.values())
    assert "leaves the buffer" in reasons or "which holds nothing" in reasons
