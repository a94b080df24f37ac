"""Lines through times: what is a line is found, and what is none is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hccc.profile.lines import FASTEST, GOOD_R2, fit, slope
from hccc.profile.links import SIZES, rounds


@given(st.floats(0.1, 1e4), st.floats(1e-3, 1e3))
def test_a_line_is_found(alpha: float, rate: float) -> None:
    times = [alpha + size / rate * 1e-3 for size in SIZES]
    line = fit(SIZES, times)
    assert line.alpha == pytest.approx(alpha, rel=1e-3)
    assert line.r2 > 0.999 and line.worst < 1e-3
    assert [line.time(size) for size in SIZES] == pytest.approx(times, rel=1e-3)
    assert slope(SIZES[-2:], times[-2:]) == pytest.approx(rate, rel=1e-3)


@given(st.floats(0.8, 1.25), st.lists(st.floats(0.9, 1.1), min_size=8, max_size=8))
def test_noise_stays_small(scale: float, noise: list[float]) -> None:
    """No size outweighs the others, as it would with absolute errors."""
    times = [n * (30 * scale + size / 0.117e3) for n, size in zip(noise, SIZES, strict=True)]
    line = fit(SIZES, times)
    assert line.worst < 0.25 and line.r2 > GOOD_R2
    assert line.alpha == pytest.approx(30 * scale, rel=0.25)
    assert line.rate == pytest.approx(0.117, rel=0.25)


@given(st.floats(1, 1e3), st.floats(1e-2, 10), st.integers(0, 1 << 20))
def test_what_goes_on_counts_and_not_bursts(alpha: float, rate: float, burst: int) -> None:
    """A shaper lets so many bytes pass at once: only what is beyond them takes the line's time."""
    line = fit(SIZES, [alpha + max(0, size - burst) / rate * 1e-3 for size in SIZES])
    assert line.rate == pytest.approx(rate, rel=0.07)
    assert line.alpha <= alpha * 1.001


def test_what_is_no_line() -> None:
    assert fit(SIZES, [10, 900, 30, 2000, 15, 700, 60, 1500]).r2 < GOOD_R2
    flat = fit(SIZES, [7.0] * len(SIZES))
    assert (flat.rate, flat.r2) == (FASTEST, 1.0) and flat.alpha == pytest.approx(7)
    assert slope([100, 1000], [9.0, 5.0]) == pytest.approx(0.2)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 7, 8, 9, 16])
def test_rounds_of_pairs(n: int) -> None:
    """Every pair of few hosts once, of more a ring; no host twice in a round."""
    found = rounds(n)
    for pairs in found:
        hosts = [host for pair in pairs for host in pair]
        assert len(hosts) == len({*hosts})
    pairs = [pair for of_round in found for pair in of_round]
    assert len(pairs) == len({*pairs}) and all(a < b for a, b in pairs)
    assert len(pairs) == (n * (n - 1) // 2 if n <= 8 else n)
    assert {host for pair in pairs for host in pair} == (set(range(n)) if n > 1 else set())
