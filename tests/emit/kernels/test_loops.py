"""Runs cover a sequence exactly, and find the repeats in it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hccc.emit.kernels.loops import Repeat, repeats


@given(st.lists(st.integers(0, 3), max_size=60))
def test_runs_spell_the_sequence(shapes: list[int]) -> None:
    found = repeats(np.array(shapes, np.int32))
    spelt = [x for r in found for x in shapes[r.start : r.start + r.period] * r.count]
    assert spelt == shapes


@pytest.mark.parametrize(
    ("shapes", "found"),
    [
        ([], []),
        ([5], [Repeat(0, 1, 1)]),
        ([1, 1, 1, 1], [Repeat(0, 1, 4)]),
        ([1, 2, 1, 2, 1, 2], [Repeat(0, 2, 3)]),
        ([0, 1, 2, 1, 2, 0], [Repeat(0, 1, 1), Repeat(1, 2, 2), Repeat(5, 1, 1)]),
        ([1, 1, 2, 1, 1, 2], [Repeat(0, 3, 2)]),
    ],
)
def test_repeats(shapes: list[int], found: list[Repeat]) -> None:
    assert repeats(np.array(shapes, np.int32)) == found
