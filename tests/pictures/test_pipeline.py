"""Pictures of pipelines: every use of every link is in a cell, or counted with its class."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc import testing
from hccc.base.diagnostics import Source
from hccc.ir.program import Op, Program
from hccc.lang.transfer import load as transfer
from hccc.passes.depend import depend
from hccc.passes.hpds import hpds
from hccc.passes.verify import verify
from hccc.pictures.grid import class_grid, grid
from hccc.pictures.pipeline import NUMBERED, pipeline
from tests.pictures.drawn import EXAMPLES, SVG, compiled, texts, tips


@pytest.mark.slow
@given(testing.correct_programs(), st.sampled_from([0, 1000]))
@settings(max_examples=15, deadline=None)
def test_the_grid_has_every_use_of_every_link(program: Program, one_by_one: int) -> None:
    value = hpds(depend(verify(program), None))
    dag = value.dag
    table = grid(value, one_by_one)
    used = np.unique(np.concatenate([dag.tx, dag.rx]))
    assert table.total == len(used) == sum(row.alike for row in table.rows)
    assert table.busy == len(dag) + int((dag.tx != dag.rx).sum())
    assert table.busy == sum(row.alike * len(row.sub) for row in table.rows)
    sub_of = np.empty(len(dag), np.int64)
    sub_of[value.order] = value.sub_of_position()
    for row in table.rows:
        assert (np.diff(row.sub) > 0).all()
        assert (sub_of[row.task] == row.sub).all()
        assert (program.transfers["chunk"][row.task] == row.chunk).all()
    pipeline(value)


@given(testing.correct_programs(), st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_classes_of_links_count_every_use_once(program: Program, most: int) -> None:
    value = hpds(depend(verify(program), None))
    table = class_grid(value, most)
    one_by_one = grid(value, 1000)
    assert (table.total, table.busy) == (one_by_one.total, one_by_one.busy)
    assert sum(row.resources for row in table.rows) == table.total
    bounds = table.bounds.tolist()
    assert bounds[0] == 0 and bounds[-1] == value.n_sub and len(bounds) - 1 <= most
    copies = [(row.op == Op.RECV, row.sub) for row in one_by_one.rows]
    for i, (first, stop) in enumerate(itertools.pairwise(bounds)):
        within = [mine & (sub >= first) & (sub < stop) for mine, sub in copies]
        assert sum(int(row.copies[i]) for row in table.rows) == sum(int(x.sum()) for x in within)
    assert sum(int((row.copies + row.reductions).sum()) for row in table.rows) == table.busy


def test_a_large_pipeline_is_counted_by_class_of_link() -> None:
    text = (EXAMPLES / "ring_allreduce.rccl").read_text().replace("nRanks=8", "nRanks=48")
    value = hpds(depend(verify(transfer.parse(Source("ring", text))), None))
    assert value.n_sub > NUMBERED
    shown = texts(pipeline(value))
    assert {"links inside nodes", "NICs out", "NICs in"} & set(shown)
    counts = [int(x.replace(",", "")) for x in shown if re.fullmatch(r"[\d,]{3,}", x)]
    assert len(counts) > 10 and max(counts) <= len(value.order)
    assert any("× reduce in sub-pipelines 0 to " in tip for tip in tips(pipeline(value)))


def test_no_line_crosses_a_number() -> None:
    """Bars of all heights grow below the numbers of a large broadcast tree."""
    tree = (EXAMPLES / "binomial_broadcast.rccl").read_text()
    for old, new in (
        ("nRanks=8", "nRanks=64"),
        ("nChunks=1", "nChunks=32"),
        ("range(3)", "range(6)"),
        ("step, 0, recv", "step, c, recv"),
        ("            transfer", "            for c in range(32): transfer"),
    ):
        assert old in tree
        tree = tree.replace(old, new)
    picture = pipeline(hpds(depend(verify(transfer.parse(Source("tree", tree))), None)))
    root, crossed, bars = ET.fromstring(picture.svg), 0, []
    for path in root.iter(f"{SVG}path"):
        if path.find(f"{SVG}title") is not None:
            left, low, right, high, _ = map(float, re.findall(r"[\d.]+", path.get("d", "")))
            bars.append((left, right, low, high))
    for number in root.iter(f"{SVG}text"):
        if re.fullmatch(r"[\d,.kM]+", number.text or ""):
            x, y = float(number.get("x", "")), float(number.get("y", ""))
            edges = [edge for a, b, *both in bars if a < x < b for edge in both]
            crossed += any(y - 6.3 < edge < y + 0.7 for edge in edges)
    assert bars and not crossed


def test_every_chunk_of_a_ring_is_in_its_cell() -> None:
    value = compiled("ring_allreduce").pipeline
    picture = pipeline(value)
    cells = [tip for tip in tips(picture) if "sub-pipeline" in tip]
    assert len(cells) == len(value.order) == 112
    assert "reduce 0 → 1, chunk 0, sub-pipeline 0" in cells
    assert {"0 → 1", "7 → 0"} <= set(texts(picture))


def test_alike_links_are_one_row() -> None:
    picture = pipeline(compiled("hm_allreduce", "resccl-topo4").pipeline)
    shown = texts(picture)
    assert any("(28 alike)" in x for x in shown)
    assert any("links of one kind copy and reduce in the same" in x for x in shown)
    assert len(picture.svg) < 120_000
