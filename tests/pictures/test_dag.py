"""Pictures of DAGs: no line passes behind a box."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from hccc.pictures.canvas import Picture
from hccc.pictures.dag import dag
from hccc.pictures.routes import bezier
from tests.pictures.drawn import SVG, compiled


def _points(path: str) -> list[tuple[float, float]]:
    values = [float(x) for x in re.findall(r"-?[\d.]+", path)]
    return list(zip(values[::2], values[1::2], strict=True))


def _lines_and_boxes(
    picture: Picture,
) -> tuple[list[list[tuple[float, float]]], list[tuple[float, float, float, float]]]:
    """Points along every edge; left, top, right and bottom of every box."""
    lines, boxes = [], []
    for path in ET.fromstring(picture.svg).iter(f"{SVG}path"):
        found = path.get("d", "")
        if path.find(f"{SVG}title") is not None:
            corners = np.array(_points(found))
            boxes.append((*corners.min(0).tolist(), *corners.max(0).tolist()))
        elif "C" in found and not found.endswith("z"):
            way = _points(found)
            curves = [bezier(way[i : i + 4]) for i in range(0, len(way) - 1, 3)]
            lines.append(
                [(x, y) for c in curves for x, y in zip(*map(np.ndarray.tolist, c), strict=True)]
            )
    return lines, boxes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "on"),
    [("hm_allreduce", "resccl-topo4"), ("rhd_allreduce", None), ("ring_allreduce", "mi300x")],
)
def test_no_line_passes_behind_a_box(name: str, on: str | None) -> None:
    """Whoever reads it would take the box for the line's begin."""
    lines, boxes = _lines_and_boxes(dag(compiled(name, on).dag))
    assert lines and boxes
    for line in lines:
        for x, y in line:
            assert not any(a + 0.5 < x < c - 0.5 and b + 0.5 < y < d - 0.5 for a, b, c, d in boxes)
