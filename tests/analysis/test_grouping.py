"""Rows by their keys, and edge lists, against their definitions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hccc.analysis.grouping import graph, group, transpose

N = 6
EDGES = st.lists(st.tuples(st.integers(0, N - 1), st.integers(0, N - 1)), max_size=30)


@given(st.lists(st.integers(0, N - 1), max_size=30))
def test_groups_have_their_rows_in_order(keys: list[int]) -> None:
    ptr, rows = group(np.array(keys, np.int32), N)
    found = [rows[ptr[k] : ptr[k + 1]].tolist() for k in range(N)]
    assert found == [[i for i, key in enumerate(keys) if key == k] for k in range(N)]


@given(EDGES, st.booleans())
def test_a_graph_has_its_edges_ascending(edges: list[tuple[int, int]], repeated: bool) -> None:
    row, value = (np.array([edge[k] for edge in edges], np.int32) for k in (0, 1))
    found = graph(row, value, N, repeated=repeated)
    kept = edges if repeated else set(edges)
    assert [found.row(r).tolist() for r in range(N)] == [
        sorted(v for u, v in kept if u == r) for r in range(N)
    ]


@given(EDGES)
def test_turning_a_graph_round_twice_changes_nothing(edges: list[tuple[int, int]]) -> None:
    row, value = (np.array([edge[k] for edge in edges], np.int32) for k in (0, 1))
    there = graph(row, value, N)
    back = transpose(there)
    assert {(v, u) for u in range(N) for v in there.row(u).tolist()} == {
        (u, v) for u in range(N) for v in back.row(u).tolist()
    }
    again = transpose(back)
    assert np.array_equal(again.ptr, there.ptr) and np.array_equal(again.index, there.index)
