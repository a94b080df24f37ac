"""hccc.balance: whole shares of a batch, and no division ends sooner."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hccc

SPEEDS = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=4)


def _end(shares: tuple[int, ...], speeds: list[float]) -> Fraction:
    return max(share / Fraction(speed) for share, speed in zip(shares, speeds, strict=True))


@given(SPEEDS, st.integers(0, 9), st.integers(0, 2))
def test_no_division_ends_sooner(speeds: list[float], more: int, least: int) -> None:
    batch = least * len(speeds) + more
    shares = hccc.balance(speeds, batch, least=least)
    assert sum(shares) == batch and min(shares) >= least
    others = product(range(least, least + more + 1), repeat=len(speeds))
    best = min(_end(other, speeds) for other in others if sum(other) == batch)
    assert _end(shares, speeds) == best


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=40), st.integers(0, 1 << 50))
def test_shares_are_in_proportion(speeds: list[float], batch: int) -> None:
    shares = hccc.balance(speeds, batch, least=0)
    whole = sum(map(Fraction, speeds))
    assert sum(shares) == batch
    for share, speed in zip(shares, speeds, strict=True):
        exact = batch * Fraction(speed) / whole
        assert exact - 1 < share < exact + len(speeds)


def test_a_short_run_tells_speeds() -> None:
    assert hccc.balance([(16, 0.5), (8, 1.0)], 40) == hccc.balance([32, 8], 40) == (32, 8)
    assert hccc.balance([1000, 1], 8) == (7, 1)  # a rank that is there has something to do
    assert hccc.balance([2, 2, 2], 8) == (3, 3, 2)


@pytest.mark.parametrize(
    ("speeds", "batch", "words"),
    [
        ([], 8, "speeds are of no rank"),
        ([1, 0], 8, "rank 1 has 0"),
        ([1, float("nan")], 8, "rank 1 has nan"),
        ([(8, 0.0)], 8, r"rank 0 has \(8, 0.0\)"),
        ([1, 1, 1], 2, "batch 2 is not 3 or more"),
    ],
)
def test_what_cannot_be_divided(speeds: list[float], batch: int, words: str) -> None:
    with pytest.raises(hccc.UserError, match=words) as error:
        hccc.balance(speeds, batch)
    assert error.value.problem.code == "E410"
