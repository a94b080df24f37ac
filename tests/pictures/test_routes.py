"""Routes of edges: on free tracks, from end to end, each on a track of its own."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hccc.pictures.routes import BoxColumn, EdgeRoutes, Point, bezier

HEIGHT, WIDE, APART, ROW = 0.28, 0.5, 0.9, 0.4


def _columns(shape: list[tuple[int, float]]) -> list[BoxColumn]:
    return [
        BoxColumn(APART * i, APART * i + WIDE, middle + ROW * np.arange(boxes, dtype=np.float64))
        for i, (boxes, middle) in enumerate(shape)
    ]


def _curves(way: list[Point]) -> list[list[Point]]:
    return [way[i : i + 4] for i in range(0, len(way) - 1, 3)]


SHAPES = st.lists(st.tuples(st.integers(1, 9), st.floats(-2, 2)), min_size=2, max_size=9)


@given(SHAPES, st.data())
def test_an_edge_passes_no_box(shape: list[tuple[int, float]], data: st.DataObject) -> None:
    columns = _columns(shape)
    routes = EdgeRoutes(columns, HEIGHT)
    for _ in range(data.draw(st.integers(1, 12))):
        a = data.draw(st.integers(0, len(columns) - 2))
        b = data.draw(st.integers(a + 1, len(columns) - 1))
        begin = columns[a].right, float(data.draw(st.sampled_from(columns[a].middles.tolist())))
        end = columns[b].left, float(data.draw(st.sampled_from(columns[b].middles.tolist())))
        way = routes.route(begin, end, range(a + 1, b))
        assert (way[0], way[-1]) == (begin, end) and len(way) % 3 == 1
        xs, ys = (np.concatenate(v) for v in zip(*map(bezier, _curves(way)), strict=True))
        assert (np.diff(xs) >= -1e-9).all()  # always onwards
        for column in columns[a + 1 : b]:
            inside = (xs > column.left) & (xs < column.right)
            assert (np.abs(ys[inside, None] - column.middles) > HEIGHT / 2).all()


def test_edges_between_the_same_boxes_have_tracks_of_their_own() -> None:
    columns = _columns([(3, 0.0), (3, 0.0), (3, 0.0)])
    routes = EdgeRoutes(columns, HEIGHT)
    middle = (columns[1].left + columns[1].right) / 2
    heights = []
    for _ in range(6):
        way = routes.route((WIDE, ROW), (2 * APART, ROW), range(1, 2))
        xs, ys = (np.concatenate(v) for v in zip(*map(bezier, _curves(way)), strict=True))
        heights.append(float(np.interp(middle, xs, ys)))
    assert min(abs(x - y) for x, y in itertools.combinations(heights, 2)) > 0.02


def test_an_edge_that_meets_nothing_is_one_curve() -> None:
    columns = _columns([(1, 0.0), (1, 2.0), (1, 0.0)])
    assert len(EdgeRoutes(columns, HEIGHT).route((WIDE, 0.0), (2 * APART, 0.0), range(1, 2))) == 4
