"""hccc.torch: what goes wrong at one rank is an error at the others, with its reason."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.torch.job import needs_torch, outputs, run
from tests.torch.libraries import environment

pytestmark = [pytest.mark.slow, needs_torch]


def test_errors_have_their_reason() -> None:
    run(2, "faults", ("again", "other_calls", "missing", "late"), {})  # by standard libraries


def test_a_killed_rank_is_named(tmp_path: Path) -> None:
    words = ["-m", "tests.torch.job", "faults", "killed"]
    found = outputs(3, words, environment(3, tmp_path))
    assert [code for code, _ in found] == [0, -signal.SIGKILL, 0], found
    assert "ok killed" in found[0][1]
