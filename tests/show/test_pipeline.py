"""Pictures of pipelines: every cell of the grid, or what it was put together with."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc import testing
from hccc.ir.program import Program
from hccc.passes.depend import depend
from hccc.passes.hpds import hpds
from hccc.passes.verify import verify
from hccc.show.grid import grid
from hccc.show.pipeline import pipeline
from tests.show.drawn import compiled, texts, tips


@given(testing.correct_programs(), st.sampled_from([0, 1000]))
@settings(max_examples=30, deadline=None)
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
