"""Greedy schedules: right, reproducible, and of as few steps as is known to be possible."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.synth.chunked import Chunked
from hccc.synth.greedy import greedy
from hccc.synth.least_steps import least_steps
from hccc.synth.schedule import Schedule, violations
from tests.synth.chunked_clusters import clusters, example, gather


def same(a: Schedule, b: Schedule) -> bool:
    names = ("chunk", "src", "dst", "step")
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


@settings(max_examples=60, deadline=None)
@given(clusters(), st.integers(1, 3), st.integers(0, 99), st.booleans())
def test_schedules_are_right_and_the_same_every_time(
    c: Chunked, chunks: int, seed: int, again: bool
) -> None:
    demand = gather(c, chunks)
    made = greedy(c, demand, seed, again=again)
    assert made is not None
    assert violations(made, c, demand) == []
    assert made.steps >= least_steps(c, demand)
    repeated = greedy(c, demand, seed, again=again)
    assert repeated is not None and same(made, repeated)


@pytest.mark.parametrize(
    ("name", "steps"),
    [("4+8", 3), ("4x3", 3), ("4x2+8", 4), ("4x3+8", 5), ("4x2+8x2", 6)],
)
def test_h20_clusters_take_the_least_steps_there_are(name: str, steps: int) -> None:
    """HeteCCL's clusters, one chunk a rank: proved minima (`least_steps`)."""
    c = example(f"heteccl-h20-{name}")
    demand = gather(c)
    found = [s for seed in range(32) if (s := greedy(c, demand, seed))]
    assert least_steps(c, demand) == steps == min(s.steps for s in found)


def test_more_steps_than_allowed_is_none() -> None:
    c = example("heteccl-h20-4+8")
    assert greedy(c, gather(c), 0, most=2) is None
    assert greedy(c, gather(c), 0, most=3) is not None
