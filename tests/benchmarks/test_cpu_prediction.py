"""Correlation and agreement of measured and predicted times, by counting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import cpu_prediction


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=30))
def test_correlations_by_counting(pairs: list[tuple[int, int]]) -> None:
    x, y = ([p[i] for p in pairs] for i in range(2))
    if len(set(x)) == 1 or len(set(y)) == 1:
        return
    signs = [
        (np.sign(a - c), np.sign(b - d)) for i, (a, b) in enumerate(pairs) for c, d in pairs[:i]
    ]
    agree = sum(a * b for a, b in signs)
    apart = sum(a * a for a, _ in signs) * sum(b * b for _, b in signs)
    assert cpu_prediction.kendall(x, y) == pytest.approx(agree / np.sqrt(apart))
    assert cpu_prediction.spearman(x, x) == pytest.approx(1)
    assert cpu_prediction.spearman(x, [-v for v in x]) == pytest.approx(-1)
    ordered = [sorted(x).index(v) + (x.count(v) - 1) / 2 for v in x]
    assert cpu_prediction.ranks(x).tolist() == ordered


def test_agreement_by_counting() -> None:
    rows = [cpu_prediction.PredictionRow("a", 1, 10.0, x) for x in (13.0, 13.1, 7.7, 7.6, 10.0)]
    near, error = cpu_prediction.agreement(rows)
    assert near == pytest.approx(0.6) and error == pytest.approx(0.24, rel=0.3)
