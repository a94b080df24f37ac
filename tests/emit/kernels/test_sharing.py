"""A shared table gives every thread block its own numbers."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hccc.emit.kernels import sharing
from hccc.emit.kernels.sharing import PlanBlocks, entries_needed, shared
from hccc.ir.arrays import places, starts

LAST = -1
sequences = st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=12)


def blocks(lengths: list[int]) -> PlanBlocks:
    """Makes blocks of these numbers of primitives, each the first of a rank."""
    n = len(lengths)
    of = np.repeat(np.arange(n, dtype=np.int32), lengths)
    rank = np.arange(n, dtype=np.int32)
    return PlanBlocks(
        rank, np.zeros(n, np.int64), starts(np.array(lengths)), of, places(np.array(lengths))
    )


@given(sequences, st.booleans())
def test_every_block_finds_its_own(rows: list[list[int]], collide: bool) -> None:
    b = blocks([len(r) for r in rows])
    column = np.array([x for row in rows for x in row], np.int64)
    digest = (lambda values, position: np.zeros(len(values), np.uint64)) if collide else None
    with patch.object(sharing, "_mixed", digest or sharing._mixed):
        found = shared(b, column, np.ones(len(rows), np.bool_), LAST)
    for at, row in zip(found.at.tolist(), rows, strict=True):
        assert found.values[at : at + len(row) + 1].tolist() == [*row, LAST]


@given(sequences)
def test_equal_ones_are_stored_once(rows: list[list[int]]) -> None:
    b = blocks([len(r) for r in rows])
    column = np.array([x for row in rows for x in row], np.int64)
    different = {tuple(row) for row in rows}
    found = shared(b, column, np.ones(len(rows), np.bool_), LAST)
    assert len(found.values) == sum(len(row) + 1 for row in different)
    if len(column):
        needed = entries_needed(b, np.arange(len(column)), column)
        assert needed == sum(map(len, different))


def test_blocks_without_the_column_take_no_place() -> None:
    found = shared(blocks([2, 2]), np.array([1, 2, 0, 0]), np.array([True, False]))
    assert found.values.tolist() == [1, 2] and found.at.tolist() == [0, 0]
