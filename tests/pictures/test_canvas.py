"""Rules of all pictures: sizes of text, colours on light and on dark pages, legends, PNG."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

from hccc.pictures import palette
from hccc.pictures.bandwidth import bandwidth
from hccc.pictures.canvas import DPI, SMALL, Picture, width_of
from hccc.pictures.dag import dag
from hccc.pictures.legend import LegendEntry, legend_rows
from hccc.pictures.line_widths import LineWidths
from hccc.pictures.pipeline import pipeline
from hccc.pictures.svg_picture import Curve
from hccc.pictures.timeline import timeline
from hccc.pictures.topology import topology
from tests.pictures.drawn import SVG, compiled, ran, site, texts

NAMES = ("topology", "dag", "pipeline", "timeline", "bandwidth")
FILLS = [palette.kind(i) for i in range(9)] + [palette.PAPER, palette.STRIPE, palette.WAIT]


@cache
def _drawn(name: str) -> Picture:
    stops = compiled("ring_allreduce", "mi300x")
    if name == "topology":
        return topology(site("heteccl-h20-4x2+8-fault-4-8"))
    if name == "bandwidth":
        times = {1 << k: 2.0**k for k in range(10, 20, 3)}
        curves = [Curve(who, times) for who in ("hccc", "NCCL", "lower bound")]
        return bandwidth(curves, 1.75, "a name")
    if name == "timeline":
        return timeline(ran("hm_allreduce", "resccl-topo4", 1 << 24))
    return dag(stops.dag) if name == "dag" else pipeline(stops.pipeline)


def _styles(picture: Picture) -> str:
    style = next(ET.fromstring(picture.svg).iter(f"{SVG}style"))
    return style.text or ""


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", NAMES)
def test_no_text_is_smaller_than_the_least_size(name: str) -> None:
    sizes = [float(x) for x in re.findall(r"font-size:([\d.]+)px", _styles(_drawn(name)))]
    assert sizes and min(sizes) >= SMALL


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_everything_has_a_colour_for_dark_pages(name: str) -> None:
    """Each class that has a colour has another one below `prefers-color-scheme: dark`."""
    light, _, dark = _styles(_drawn(name)).partition(
        "@media screen and (prefers-color-scheme:dark)"
    )
    coloured = set(re.findall(r"\.([\w-]+)\{[^}]*(?:fill|stroke):#", light))
    text = set(re.findall(r"\.([\w-]+)\{[^}]*font-size:", light))
    assert coloured | text == set(re.findall(r"\.([\w-]+)\{", dark))
    svg = _drawn(name).svg
    assert not re.search(r"(?:style|fill|stroke)=\"", svg)  # nothing that a class cannot change


@pytest.mark.parametrize("name", NAMES)
def test_classes_of_two_pictures_never_meet(name: str) -> None:
    """They may stand in one page, where a style is the whole page's."""
    names = re.findall(r"\.([a-zA-Z][\w-]*)\{", _styles(_drawn(name)))
    assert names and all(found.split("-")[0] == name for found in names)


@pytest.mark.parametrize("fill", sorted(set(FILLS)))
def test_text_can_be_read_on_every_fill(fill: str) -> None:
    """WCAG 2.2 asks for a contrast of 4.5."""
    assert palette.contrast(palette.INK, fill) >= 4.5
    assert palette.contrast(palette.dark(palette.INK), palette.dark(fill)) >= 4.5


@pytest.mark.parametrize("colour", [palette.COPY, palette.REDUCE, palette.LOCAL])
@given(share=st.floats(0, 1))
def test_numbers_can_be_read_on_bars(colour: str, share: float) -> None:
    """However pale a bar is: 3 is WCAG's least contrast for graphics and large text."""
    fill = palette.tint(colour, 0.18 + 0.62 * share)
    ink = palette.ink_on(fill)
    assert palette.contrast(ink, fill) >= 3
    assert palette.contrast(palette.dark(ink), palette.dark(fill)) >= 3


def test_contrast_is_that_of_wcag() -> None:
    assert palette.contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert palette.contrast("#767676", "#FFFFFF") == pytest.approx(4.54, abs=0.01)


def test_faint_and_marked_text_can_be_read() -> None:
    for ink in (palette.FAINT, palette.ALERT):
        for fill in (palette.PAPER, palette.STRIPE):
            assert palette.contrast(ink, fill) >= 4.5
            assert palette.contrast(palette.dark(ink), palette.dark(fill)) >= 4.5


def test_dotted_lines_can_be_seen() -> None:
    """WCAG asks for a contrast of 3."""
    assert f"stroke:{palette.ORDER.lower()}" in _styles(_drawn("dag"))
    assert palette.contrast(palette.ORDER, palette.PAPER) >= 3
    assert palette.contrast(palette.dark(palette.ORDER), palette.dark(palette.PAPER)) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_png_is_the_drawing_at_its_resolution(name: str) -> None:
    picture = _drawn(name)
    raw = picture.png()
    assert raw == picture.png()
    image = imread(io.BytesIO(raw), format="png")
    width, height = (
        float(x) for x in re.findall(r'(?:width|height)="([\d.]+)pt"', picture.svg)[:2]
    )
    assert image.shape[1] == pytest.approx(width / 72 * DPI, abs=2)
    assert image.shape[0] == pytest.approx(height / 72 * DPI, abs=2)
    assert (image[0, 0, :3] == 1).all()  # paper
    assert 0.002 < (image[:, :, :3].min(axis=2) < 0.6).mean() < 0.5


@pytest.mark.slow
def test_legends_have_what_occurs() -> None:
    stops = compiled("hm_allgather")
    for picture in (dag(stops.dag), pipeline(stops.pipeline)):
        assert "copy" in texts(picture) and "reduce" not in texts(picture)
    assert "reduce" not in texts(timeline(ran("hm_allgather", "resccl-topo4", 1 << 20)))
    both = compiled("ring_allreduce")
    assert {"copy", "reduce"} <= set(texts(dag(both.dag))) & set(texts(pipeline(both.pipeline)))


@given(st.lists(st.text("abc ", min_size=1, max_size=30), max_size=12), st.floats(1, 9))
def test_legends_keep_their_entries_and_their_width(labels: list[str], width: float) -> None:
    entries = [LegendEntry(label, palette.COPY) for label in labels]
    rows = legend_rows(entries, width)
    assert [entry for row in rows for entry in row] == entries
    for row in rows:
        assert len(row) == 1 or sum(entry.width for entry in row) <= width


@given(st.lists(st.floats(0.1, 900), min_size=1, max_size=9))
def test_a_line_is_as_wide_as_its_sample(capacities: list[float]) -> None:
    line = LineWidths.of(capacities)
    ordered = sorted(set(capacities))
    widths = [line(c) for c in ordered]
    assert widths == sorted(widths)
    samples = [entry.line for entry in line.legend()]
    assert set(samples) <= set(widths)
    assert samples[0] == widths[0] and samples[-1] == widths[-1]


def test_widths_of_text_are_those_of_the_font() -> None:
    assert width_of("WW", 8) > width_of("ii", 8) > 0
    assert width_of("12", 16) == pytest.approx(2 * width_of("12", 8))
    assert width_of("12", 8, bold=True) > width_of("12", 8)
    assert width_of("\N{CJK UNIFIED IDEOGRAPH-4E2D}\x00", 72) > 1  # of another font; of none
