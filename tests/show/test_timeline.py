"""Pictures of runs: bars where the simulator says, alike ranks once, the critical path."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hccc.show import palette
from hccc.show.primitive_text import Kind, moves, spans
from hccc.show.rows import lanes
from hccc.show.timeline import timeline
from hccc.sim.critical import critical_path
from hccc.sim.simulate import Run
from tests.show.drawn import compiled, ran, site, texts, tips


def test_every_primitive_has_a_bar_and_says_what_it_does() -> None:
    run = ran("ring_allreduce", "mi300x", 1 << 20, 1 << 20)
    picture = timeline(run, "a note")
    bars = [tip for tip in tips(picture) if " busy" in tip]
    assert len(bars) == len(run.machine.plan)
    assert any(tip.startswith("reduce chunk 7 ← 7") for tip in bars)
    assert {"rank 0", "rank 7", "tb 0", "a note"} <= set(texts(picture))
    assert palette.CRITICAL.lower() in picture.svg
    assert timeline(run, "a note").svg == picture.svg


def test_alike_ranks_are_drawn_once() -> None:
    run = ran("hm_allreduce", "syccl-a100-32", 1 << 26, 1 << 20)
    did, path = moves(run.machine.plan), critical_path(run)
    chosen = lanes(run, did, path, 20)
    shown = {lane.rank for lane in chosen.shown}
    alike = [r for lane in chosen.shown for r in lane.alike]
    assert sorted([*shown, *alike, *chosen.left_out]) == list(range(32))
    assert len(alike) == 3 and len(chosen.left_out) == 28
    for lane in chosen.shown:
        for other in lane.alike:
            assert np.allclose(_ends(run, lane.rank), _ends(run, other), atol=2e-4 * run.time)
    assert any("alike" in x for x in texts(timeline(run)))


def _ends(run: Run, rank: int) -> NDArray[np.float64]:
    ends: NDArray[np.float64] = run.primitive_end[run.machine.plan.rank_of() == rank]
    return ends


def test_many_micro_batches_become_few_bars() -> None:
    run = ran("hm_allreduce", "syccl-a100-32", 1 << 28, micro_batch=1 << 14, window=4)
    assert len(run.end) > 200_000
    picture = timeline(run)
    assert len(picture.svg) < 1_500_000
    assert any(x.startswith("A bar is neighbouring primitives") for x in texts(picture))


def test_a_bar_for_the_micro_batches_of_a_primitive() -> None:
    run = ran("ring_allreduce", "mi300x", 1 << 24, micro_batch=1 << 16)
    assert run.batches == 32
    picture = timeline(run)
    assert any("micro-batches of a primitive" in x for x in texts(picture))
    assert len([tip for tip in tips(picture) if " busy" in tip]) == len(run.machine.plan)


def test_spans_are_the_order_of_execution() -> None:
    found = spans([5, 6], batches=5, window=2)
    assert found.primitive.tolist() == [5, 6, 5, 6, 5, 6]
    assert found.first.tolist() == [25, 30, 27, 32, 29, 34]
    assert found.last.tolist() == [26, 31, 28, 33, 29, 34]


def test_kinds_and_words_of_primitives() -> None:
    staged = moves(compiled("ring_allreduce").plan)
    assert set(np.unique(staged.kind)) <= {int(Kind.COPY), int(Kind.REDUCE), int(Kind.LOCAL)}
    for p in range(len(staged.plan)):
        others = {*staged.sources.row(p).tolist(), *staged.targets.row(p).tolist()}
        assert staged.rank[p] not in others
        assert (staged.kind[p] == Kind.LOCAL) == (not others)


def test_a_rank_with_more_blocks_than_rows() -> None:
    run = ran("hm_allreduce", "syccl-a100-32", 1 << 20)
    chosen = lanes(run, moves(run.machine.plan), critical_path(run), 3)
    assert len(chosen.shown) == 1
    assert chosen.shown[0].hidden > 0
    assert site("syccl-a100-32").n_ranks - 1 == len(chosen.shown[0].alike) + len(chosen.left_out)
