"""Costs are found again in launches made up from them; disturbed samples change little."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.ir.device import Cached
from hccc.profile.calibrate import (
    DECILE,
    FASTEST,
    FEWEST,
    LaunchCase,
    UnitCosts,
    Work,
    fit,
    measure,
    together,
)

SMALL = 64
TOUCHED = (1 << 16, 1 << 20, 1 << 23)
CACHE = 1 << 20  # bytes


class TimedSession:
    """A session whose launches take the given times."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.launches = seconds, 0

    def put(self) -> None: ...

    def get(self) -> None: ...

    def run(self, launches: int) -> float:
        self.launches += launches
        return self.seconds * launches


def case(work: Work, samples: list[float]) -> LaunchCase:
    return LaunchCase("made up", work, TimedSession(0.0), samples)


def works(cores: int) -> list[Work]:
    """Lists work of the probes' shapes: few and many blocks, steps, bytes, sources."""
    found = []
    shapes = (
        (7, 7, 7, 7, 0),
        (7, 7, 14, 7, 7),
        (1, 1, 8, 1, 7),
        (24, 104, 18, 16, 7),
        (8, 16, 8, 8, 0),
        (32, 32, 8, 8, 0),
    )
    for blocks, steps, read, written, combined in shapes:
        for size in (SMALL, *TOUCHED):
            for used in {1, cores}:
                bytes = read * size, written * size, combined * size
                found.append(Work(size, used, blocks, steps, *bytes))
    return found


def time_of(w: Work, costs: tuple[float, ...]) -> float:
    """Computes the module's formula once more; a cache makes work that fits into it faster."""
    launch, wake, entry, alpha, block, reduce, read, cached = costs
    block *= cached if w.touched <= CACHE else 1
    copied = w.read * read + w.written * (1 - read)
    per_core = entry * w.blocks + alpha * w.steps + copied / block / 1e3 + w.combined / reduce / 1e3
    return launch + (wake if w.cores > 1 else 0) + per_core / w.cores


def parts(cases: list[LaunchCase]) -> tuple[list[LaunchCase], list[LaunchCase]]:
    """Launches of few bytes and of many."""
    few = [c for c in cases if c.work.touched <= SMALL]
    return few, [c for c in cases if c not in few]


@settings(max_examples=8, deadline=None)
@given(
    st.tuples(
        st.floats(1, 20),
        st.floats(10, 200),
        st.floats(0.02, 1),
        st.floats(0.02, 2),
        st.floats(0.5, 80),
        st.floats(1, 500),
        st.sampled_from([0.3, 0.5, 0.7]),
        st.floats(1, 8),
    ),
    st.integers(1, 64),
    st.integers(0, 1 << 30),
)
def test_costs_are_found_again(costs: tuple[float, ...], cores: int, seed: int) -> None:
    noise = random.Random(seed)
    cases = []
    for w in works(cores):
        samples = [time_of(w, costs) * noise.choice([1, 1, 1.3, 2, 9]) for _ in range(40)]
        cases.append(case(w, samples))
    found = fit(*parts(cases), TOUCHED)
    for w in works(cores):
        assert found.overhead(w) + found.bytes(w) == pytest.approx(time_of(w, costs), rel=0.03)
    assert found.block == pytest.approx(costs[4], rel=0.1)
    assert found.error(cases) < 0.02
    assert [level.size for level in found.cache] == list(TOUCHED)


def test_without_sizes_memory_is_all_alike() -> None:
    costs = (3.0, 50.0, 0.1, 0.1, 8.0, 40.0, 0.5, 1.0)
    found = fit(*parts([case(w, [time_of(w, costs)]) for w in works(1)]))
    assert (found.cache, found.read) == ((), 0.5)
    assert found.block == pytest.approx(8, rel=0.02)


def test_what_costs_nothing_is_not_negative() -> None:
    costs = (3.0, 0.0, 0.0, 0.1, 8.0, float("inf"), 0.5, 1.0)
    cases = [case(w, [time_of(w, costs) * (0.97 if w.combined else 1)]) for w in works(1)]
    found = fit(*parts(cases))
    assert found.reduce == FASTEST
    assert min(found.launch, found.wake, found.entry, found.alpha) >= 0
    assert found.block == pytest.approx(8, rel=0.05)


def test_one_wild_case_does_not_move_the_rest() -> None:
    costs = (3.0, 50.0, 0.1, 0.1, 8.0, 40.0, 0.3, 4.0)
    cases = [case(w, [time_of(w, costs)]) for w in works(4)]
    cases[-1].samples[0] *= 30
    found = fit(*parts(cases), TOUCHED)
    assert found.block == pytest.approx(8, rel=0.03)
    assert found.reduce == pytest.approx(40, rel=0.1)


@given(st.floats(0.5, 6), st.floats(0, 0.5))
def test_all_cores_together_copy_what_they_did_at_best(gain: float, noise: float) -> None:
    """No less than one core, no more than as many times that as there are cores."""
    costs = (3.0, 50.0, 0.1, 0.1, 8.0, 40.0, 0.3, 4.0)
    alone = UnitCosts(*costs[:6], 0.3, tuple(Cached(size, 8.0) for size in TOUCHED))
    several = []
    for size in TOUCHED:
        w = Work(size, 4, 8, 8, 8 * size, 8 * size, 0)
        took = alone.overhead(w) + 4 * alone.bytes(w) / gain
        several.append(case(w, [took * (1 + noise), took, took * 9]))
    for level, all in zip(alone.cache, together(alone, several), strict=True):
        assert all.all == pytest.approx(all.block * min(max(gain, 1), 4), rel=1e-3)
        assert (all.size, all.block) == (level.size, level.block)


def test_one_core_has_no_other_limit() -> None:
    found = UnitCosts(1, 1, 1, 1, 7, 7, 0.3, (Cached(10, 8), Cached(20, 7)))
    assert together(found, []) == found.cache


def test_all_cases_take_turns() -> None:
    work = Work(0, 1, 1, 1, 0, 0, 0)
    quick, slow = TimedSession(1e-5), TimedSession(1.0)
    cases = [LaunchCase("quick", work, quick), LaunchCase("slow", work, slow)]
    assert measure(cases, 0.0) == FEWEST
    assert slow.launches == 2 * FEWEST  # one that warms up, one that counts
    assert len(cases[1].samples) == FEWEST < len(cases[0].samples)
    assert cases[0].time == pytest.approx(10)


def test_a_launch_takes_what_few_took_less_than() -> None:
    found = case(Work(0, 1, 1, 1, 0, 0, 0), [float(i) for i in range(1, 102)])
    assert found.time == 1 + 100 * DECILE
    assert found.spread == pytest.approx(51 / 11 - 1)
