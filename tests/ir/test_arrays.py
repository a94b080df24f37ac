"""Positions within groups, by a loop that is told the same."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hccc.ir.arrays import places, places_among, places_of, starts

COUNTS = st.lists(st.integers(0, 5), max_size=20)


@given(COUNTS)
def test_groups_begin_where_the_ones_before_end(counts: list[int]) -> None:
    found = starts(np.array(counts, np.int32))
    assert found.dtype == np.int64
    assert found.tolist() == [sum(counts[:i]) for i in range(len(counts) + 1)]


@given(COUNTS)
def test_places_count_from_nought_in_each_group(counts: list[int]) -> None:
    want = [i for count in counts for i in range(count)]
    assert places(np.array(counts, np.int32)).tolist() == want


@given(st.lists(st.integers(-3, 6), max_size=40))
def test_places_among_equals(keys: list[int]) -> None:
    seen: Counter[int] = Counter()
    want = []
    for key in keys:
        want.append(seen[key])
        seen[key] += 1
    array = np.array(keys, np.int64)
    assert places_among(array).tolist() == want
    counts = np.unique(array, return_counts=True)[1]
    assert places_of(np.argsort(array, kind="stable"), counts).tolist() == want
