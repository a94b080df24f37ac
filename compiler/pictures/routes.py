"""routes: routes of edges between columns of boxes: one that skips columns passes between their
boxes.

An edge is one smooth curve where that meets no box. In a column where it meets one, it passes
straight through the free track nearest to it, one that no other edge has where there is any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hccc.ir.topology import F8

TRACK = 0.03  # inches between tracks, and between a track and a box
TRACKS = 12  # on each side of a box, at most
_T = np.linspace(0, 1, 65)
_TAKEN = 0.4  # inches of detour that a track of its own is worth

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, eq=False)
class BoxColumn:
    """Boxes of one height, one below the other, between x `left` and `right`. middles: f8[boxes],
    the y of each."""

    left: float
    right: float
    middles: F8


class EdgeRoutes:
    """Routes through columns, from left to right; edges avoid a track that another has."""

    def __init__(self, columns: Sequence[BoxColumn], height: float) -> None:
        self.columns, self.half = columns, height / 2
        self._tracks = [_tracks(column, height / 2) for column in columns]
        self._taken = [np.zeros(len(tracks), np.bool_) for tracks in self._tracks]

    def route(self, a: Point, b: Point, skipped: range) -> list[Point]:
        """Returns a route from a to b through the columns `skipped`: cubic Bézier curves, 3 n + 1
        points. O(columns² + columns · boxes).

        O(columns² + columns · boxes).
        """
        curve = _smooth(a, b)
        for k in skipped:
            column = self.columns[k]
            if self._meets(curve, column):
                y = self._track(k, _height_at(curve, (column.left + column.right) / 2))
                enters, leaves = (column.left, y), (column.right, y)
                before = self.route(a, enters, range(skipped.start, k))
                after = self.route(leaves, b, range(k + 1, skipped.stop))
                return [*before, *_smooth(enters, leaves)[1:], *after[1:]]
        return curve

    def _meets(self, curve: Sequence[Point], column: BoxColumn) -> bool:
        x, y = bezier(curve)
        y = y[(x >= column.left) & (x <= column.right)]
        near = np.abs(y[:, None] - column.middles) < self.half + TRACK / 2
        return bool(near.any())

    def _track(self, k: int, y: float) -> float:
        """Returns the y of the track of column k for an edge that would like to be at `y`."""
        tracks, taken = self._tracks[k], self._taken[k]
        best = int(np.argmin(np.abs(tracks - y) + _TAKEN * taken))
        taken |= np.abs(tracks - tracks[best]) < TRACK / 2
        return float(tracks[best])


def bezier(curve: Sequence[Point]) -> tuple[F8, F8]:
    """Returns points of one cubic Bézier curve: x and y, f8[65] each."""
    p, t = np.array(curve), _T[:, None]
    xy = (1 - t) ** 3 * p[0] + 3 * t * (1 - t) ** 2 * p[1] + 3 * t**2 * (1 - t) * p[2] + t**3 * p[3]
    return xy[:, 0], xy[:, 1]


def _smooth(a: Point, b: Point) -> list[Point]:
    """Returns a curve that begins and ends level, and never leaves the rectangle between its
    ends."""
    middle = (a[0] + b[0]) / 2
    return [a, (middle, a[1]), (middle, b[1]), b]


def _height_at(curve: Sequence[Point], x: float) -> float:
    xs, ys = bezier(curve)
    return float(np.interp(x, xs, ys))


def _tracks(column: BoxColumn, half: float) -> F8:
    """Returns the y of all tracks that no box of the column is in: f8[tracks]."""
    away = half + TRACK * np.arange(1, TRACKS + 1)
    tracks = (column.middles[:, None] + np.r_[-away, away]).ravel()
    free = (np.abs(tracks[:, None] - column.middles) > half + 0.9 * TRACK).all(1)
    found: F8 = tracks[free]
    return found
