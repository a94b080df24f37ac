"""The search for the fastest Setting, and for the best structure."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from hccc.driver.tune.explore import explore
from hccc.driver.tune.search import descend, exhaustive
from hccc.driver.tune.setting import Setting, Space

SPACE = Space((1, 2, 4, 8, 16, 33), (0, 1, 2, 4))


@given(
    st.sampled_from(SPACE.channels), st.sampled_from(SPACE.grains), st.sampled_from(SPACE.windows)
)
def test_a_valley_is_found_from_anywhere(channels: int, grain: int, window: int) -> None:
    """Times that grow along every axis from one Setting on; far from it they do not change."""

    def time(at: Setting, limit: float) -> float:
        steps = abs(SPACE.grains.index(at.grain) - SPACE.grains.index(grain))
        steps = min(steps, 5)
        across = abs(SPACE.channels.index(at.channels) - SPACE.channels.index(channels))
        took = 10.0 + steps + across + (at.window != window)
        return took if took <= limit else math.inf

    least = exhaustive(SPACE, time)
    assert least == (Setting(channels, window, grain), 10.0)
    for start in (SPACE.middle(), SPACE.fine(), Setting(1, 0, SPACE.grains[-1])):
        found, took = descend(SPACE, time, start)
        assert took == 10.0 and found == least[0]
        assert descend(SPACE, time, start, enough=12.0)[1] <= 12.0
        assert descend(SPACE, time, start, enough=99.0) == (start, time(start, math.inf))


def test_a_channel_alone_is_tried_though_few_channels_are_slower_than_many() -> None:
    """Short calls take hardly less through more channels, but less through one of one block."""

    def time(at: Setting, _: float) -> float:
        return 9.0 if at.channels == 1 else 10.0 + 1.0 / at.channels

    alone = SPACE._replace(alone=True)
    for start in (alone.middle(), alone.fine()):
        assert descend(alone, time, start)[0].channels == 1
        assert descend(SPACE, time, start)[1] == 10.0 + 1.0 / 33


def test_what_cannot_run_is_left() -> None:
    def time(at: Setting, _: float) -> float:
        return math.inf if at.grain < SPACE.grains[-2] else 1.0 / at.channels

    for start in (SPACE.middle(), SPACE.fine()):
        assert descend(SPACE, time, start)[1] == 1.0 / 33


@given(st.lists(st.lists(st.floats(0, 10), min_size=1, max_size=4), max_size=4))
def test_axes_are_tried_one_after_the_other(savings: list[list[float]]) -> None:
    """Each choice of an axis saves something; the best of each is kept, and all are tried once."""
    tried: list[tuple[int, ...]] = []

    def probe(choice: tuple[int, ...]) -> float:
        tried.append(choice)
        return 100.0 - sum(savings[axis][k] for axis, k in enumerate(choice) if k >= 0)

    axes = [
        lambda best, axis=axis, values=values: [
            (*best[:axis], k, *best[axis + 1 :]) for k in range(len(values))
        ]
        for axis, values in enumerate(savings)
    ]
    made: list[tuple[int, ...]] = []

    def make(choice: tuple[int, ...]) -> tuple[int, ...]:
        made.append(choice)
        return choice

    def explored(enough: float = -math.inf) -> tuple[int, ...]:
        return explore(tuple(-1 for _ in savings), axes, make, probe, enough)

    best = explored()
    assert made == tried
    assert len(tried) == len(set(tried)) == 1 + sum(map(len, savings))
    assert probe(best) <= 100.0 - sum(max(values) - 0.01 for values in savings)
    tried.clear()
    assert probe(explored(95.0)) <= max(95.0, probe(best))
    assert explored(100.0) == (-1,) * len(savings)
