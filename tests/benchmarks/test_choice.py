"""`benchmarks/choice.py`: its choice beside the best, on one pair and one size."""

from __future__ import annotations

import pytest

from benchmarks import choice


@pytest.mark.slow
def test_the_best_is_found_and_nothing_is_far_from_it() -> None:
    row = choice.row(("binomial_reduce", "mi300x"), (1 << 16,), quick=False)
    assert row.best is not None
    assert row.best[0] < float("inf")
    assert 0.999 * row.best[0] <= row.chosen[0] <= 1.2 * row.best[0]
    assert row.bound[0] <= row.best[0] <= row.default[0] * 1.001
