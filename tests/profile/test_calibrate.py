"""Costs are found again in launches made up from them; disturbed samples change little."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.profile.calibrate import DECILE, FASTEST, FEWEST, Case, Work, fit, measure

SMALL = 64


class Made:
    """A session whose launches take what they are told to."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.launches = seconds, 0

    def put(self) -> None: ...

    def get(self) -> None: ...

    def run(self, launches: int) -> float:
        self.launches += launches
        return self.seconds * launches


def case(work: Work, samples: list[float]) -> Case:
    return Case("made up", work, Made(0.0), samples)


def works(cores: int) -> list[Work]:
    """Of the shapes that probes have: few and many blocks, steps, bytes, sources."""
    found = []
    for blocks, steps, moved, combined in ((7, 7, 7, 0), (7, 7, 10.5, 7), (1, 1, 4.5, 7),
                                           (24, 104, 17, 7), (8, 16, 8, 0)):  # fmt: skip
        for size in (SMALL, 1 << 16, 1 << 20, 1 << 23):
            for used in {1, cores}:
                found.append(Work(size, used, blocks, steps, moved * size, combined * size))
    return found


def time_of(w: Work, costs: tuple[float, float, float, float, float, float]) -> float:
    """The formula of the module, written once more."""
    launch, wake, entry, alpha, block, reduce = costs
    per_core = (
        entry * w.blocks + alpha * w.steps + w.moved / block / 1e3 + w.combined / reduce / 1e3
    )
    return launch + (wake if w.cores > 1 else 0) + per_core / w.cores


@settings(max_examples=30, deadline=None)
@given(
    st.tuples(
        st.floats(1, 20), st.floats(10, 200), st.floats(0.02, 1), st.floats(0.02, 2),
        st.floats(0.5, 80), st.floats(1, 500),
    ),
    st.integers(1, 64), st.integers(0, 1 << 30),
)  # fmt: skip
def test_costs_are_found_again(
    costs: tuple[float, float, float, float, float, float], cores: int, seed: int
) -> None:
    noise = random.Random(seed)
    cases = []
    for w in works(cores):
        samples = [time_of(w, costs) * noise.choice([1, 1, 1.3, 2, 9]) for _ in range(40)]
        cases.append(case(w, samples))
    found = fit(cases, SMALL)
    for w in works(cores):
        assert found.overhead(w) + found.bytes(w) == pytest.approx(time_of(w, costs), rel=0.02)
    assert found.block == pytest.approx(costs[4], rel=0.05)
    assert found.error(cases) < 0.02


def test_what_costs_nothing_is_not_negative() -> None:
    costs = (3.0, 0.0, 0.0, 0.1, 8.0, float("inf"))
    cases = [case(w, [time_of(w, costs) * (0.97 if w.combined else 1)]) for w in works(1)]
    found = fit(cases, SMALL)
    assert found.reduce == FASTEST
    assert min(found.launch, found.wake, found.entry, found.alpha) >= 0
    assert found.block == pytest.approx(8, rel=0.05)


def test_one_wild_case_does_not_move_the_rest() -> None:
    costs = (3.0, 50.0, 0.1, 0.1, 8.0, 40.0)
    cases = [case(w, [time_of(w, costs)]) for w in works(4)]
    cases[-1].samples[0] *= 30
    found = fit(cases, SMALL)
    assert found.block == pytest.approx(8, rel=0.02)
    assert found.reduce == pytest.approx(40, rel=0.05)


def test_all_cases_take_turns() -> None:
    work = Work(0, 1, 1, 1, 0, 0)
    quick, slow = Made(1e-5), Made(1.0)
    cases = [Case("quick", work, quick), Case("slow", work, slow)]
    seen: list[int] = []
    assert measure(cases, 0.0, seen.append) == FEWEST == len(seen)
    assert slow.launches == 2 * FEWEST  # one that warms up, one that counts
    assert len(cases[1].samples) == FEWEST < len(cases[0].samples)
    assert cases[0].time == pytest.approx(10)


def test_a_launch_takes_what_few_took_less_than() -> None:
    found = case(Work(0, 1, 1, 1, 0, 0), [float(i) for i in range(1, 102)])
    assert found.time == 1 + 100 * DECILE
    assert found.spread == pytest.approx(51 / 11 - 1)
