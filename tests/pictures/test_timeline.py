"""Pictures of runs: bars where the simulator says, alike ranks once, the critical path."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from hccc.driver.compilation import compile_text
from hccc.driver.options import Options
from hccc.ir import text
from hccc.ir.transport import Transport
from hccc.lang.transfer import load as transfer
from hccc.pictures import palette, rows
from hccc.pictures.bars import bars, detail_of
from hccc.pictures.canvas import SMALL, Picture, width_of
from hccc.pictures.carriage import carriage
from hccc.pictures.primitive_text import PrimitiveRole, primitive_text, spans
from hccc.pictures.rows import shown_ranks
from hccc.pictures.source_lines import source_lines
from hccc.pictures.timeline import ROWS, WIDE, timeline
from hccc.sim.critical import critical_path
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, Run, simulate
from tests.marks import slow
from tests.pictures.drawn import EXAMPLES, SVG, compiled, ran, site, texts, tips


@pytest.mark.slow
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
    did, path = primitive_text(run.machine.plan), critical_path(run)
    chosen = shown_ranks(run, did, path, 20)
    shown = {rank.rank for rank in chosen.shown}
    alike = [r for rank in chosen.shown for r in rank.alike]
    assert sorted([*shown, *alike, *chosen.left_out]) == list(range(32))
    assert len(alike) >= 3 and chosen.left_out
    for rank in chosen.shown:
        for other in rank.alike:
            assert np.allclose(_ends(run, rank.rank), _ends(run, other), atol=2e-4 * run.time)
    assert any("alike" in x for x in texts(timeline(run)))


def _ends(run: Run, rank: int) -> NDArray[np.float64]:
    ends: NDArray[np.float64] = run.primitive_end[run.machine.plan.rank_of() == rank]
    return ends


@pytest.mark.slow
def test_many_micro_batches_become_few_bars() -> None:
    run = ran("hm_allreduce", "syccl-a100-32", 1 << 26, micro_batch=1 << 11, window=4)
    assert len(run.end) > 50_000
    picture = timeline(run)
    assert len(picture.svg) < 1_500_000
    assert any(x.startswith("A bar is neighbouring primitives") for x in texts(picture))


@pytest.mark.slow
def test_micro_batches_that_follow_each_other_are_one_bar() -> None:
    run = ran("ring_allreduce", "mi300x", 1 << 24, micro_batch=1 << 16)
    assert run.batches == 32
    picture = timeline(run)
    bars = [tip for tip in tips(picture) if " busy" in tip]
    assert any(", 32 micro-batches: " in tip for tip in bars)
    told = [re.search(r", (\d+) micro-batches", tip) for tip in bars]
    assert sum(int(found[1]) if found else 1 for found in told) == len(run.end)
    assert "White marks in a bar are between its micro-batches." in texts(picture)


@pytest.mark.slow
def test_every_number_that_has_room_is_there() -> None:
    """Two digits need more room than one, and get it."""
    run = ran("hm_allreduce", "resccl-topo4", 1 << 24)
    did = primitive_text(run.machine.plan)
    shown = texts(timeline(run))
    chosen = shown_ranks(run, did, critical_path(run), ROWS)
    rows = [b for rank in chosen.shown for b in rank.blocks]
    detail = detail_of(run, did, rows)
    inches = WIDE / run.time
    wanted: Counter[str] = Counter()
    for block in rows:
        found = bars(run, did, block, detail)
        for i in range(len(found.begin)):
            label = str(run.machine.plan.chunk[found.primitive[i]])
            width = (found.end[i] - found.ready[i]) * inches
            wanted[label] += bool(found.merged[i] == 1 and width > width_of(label, SMALL) + 0.03)
    assert any(len(label) == 2 and n for label, n in wanted.items())
    assert all(shown.count(label) >= n for label, n in wanted.items())


def test_a_number_without_room_stands_behind_its_bar() -> None:
    """Most chunks are written beside narrow bars with gaps, too, with one digit or two."""
    t, file = site("resccl-topo4"), EXAMPLES / "hm_allreduce.rccl"
    plan = compile_text(
        transfer.read(file),
        Options(transport=Transport.DIRECT, fuse="none", prove=False, tune="off"),
        t,
    ).plan
    run = simulate(prepare(plan, t), Request(1 << 26, 1 << 22))
    did = primitive_text(plan)
    chosen = shown_ranks(run, did, critical_path(run), ROWS)
    rows = [b for rank in chosen.shown for b in rank.blocks]
    assert detail_of(run, did, rows).single
    primitives = [range(plan.tb_ptr[b], plan.tb_ptr[b + 1]) for b in rows]
    wanted = Counter(str(plan.chunk[p]) for row in primitives for p in row)
    shown = Counter(texts(timeline(run)))
    assert {len(label) for label in wanted} == {1, 2}
    for label, n in wanted.items():
        assert shown[label] >= 0.75 * n


def test_the_axis_reaches_the_end() -> None:
    run = ran("ring_allreduce", "mi300x", 1 << 20)
    assert text.time(run.time).split()[0] in texts(timeline(run))


@pytest.mark.slow
@pytest.mark.parametrize("size", [1 << 10, slow(1 << 20), slow(1 << 26), 1 << 30])
def test_title_and_axis_say_the_same_time(size: int) -> None:
    run = ran("hm_allreduce", "resccl-topo4", size)
    shown = texts(timeline(run))
    time, unit = text.time(run.time).split()
    assert shown[0].endswith(f" in {time} {unit}")
    assert {time, unit} <= set(shown[1:])


def test_ranks_without_thread_blocks_are_named() -> None:
    """Of a tree the leaves only receive."""
    run = ran("binomial_broadcast", "mi300x", 1 << 20)
    idle = [r for r, blocks in enumerate(run.machine.plan.n_tb.tolist()) if not blocks]
    assert idle
    assert f"R{text.named('rank', idle)[1:]} have no thread blocks." in texts(timeline(run))


@pytest.mark.slow
def test_busy_is_of_the_whole_time() -> None:
    run = ran("ring_allreduce", "mi300x", 1 << 20)
    shown = texts(timeline(run))
    assert shown.count(f"{100 * run.block_busy[0] / run.time:.0f} %") >= 1
    assert "100 %" not in shown  # every block of a ring waits for some of the time


def test_spans_are_the_order_of_execution() -> None:
    found = spans([5, 6], batches=5, window=2)
    assert found.primitive.tolist() == [5, 6, 5, 6, 5, 6]
    assert found.first.tolist() == [25, 30, 27, 32, 29, 34]
    assert found.last.tolist() == [26, 31, 28, 33, 29, 34]


def test_kinds_and_words_of_primitives() -> None:
    staged = primitive_text(compiled("ring_allreduce").plan)
    assert set(np.unique(staged.kind)) <= {
        int(PrimitiveRole.COPY),
        int(PrimitiveRole.REDUCE),
        int(PrimitiveRole.LOCAL),
    }
    for p in range(len(staged.plan)):
        others = {*staged.sources.row(p).tolist(), *staged.targets.row(p).tolist()}
        assert staged.rank[p] not in others
        assert (staged.kind[p] == PrimitiveRole.LOCAL) == (not others)


def test_a_rank_with_more_blocks_than_rows() -> None:
    run = ran("hm_allreduce", "syccl-a100-32", 1 << 20)
    chosen = shown_ranks(run, primitive_text(run.machine.plan), critical_path(run), 3)
    assert len(chosen.shown) == 1
    assert chosen.shown[0].hidden > 0
    assert site("syccl-a100-32").n_ranks - 1 == len(chosen.shown[0].alike) + len(chosen.left_out)


@pytest.mark.slow
def test_proxies_have_a_row_each() -> None:
    """A proxy's row: only if it carries bytes, with its rank and its share of the time."""
    run = ran("ring_allreduce", "resccl-topo1", 1 << 22)
    carried = carriage(run)
    assert sorted(set(carried.rank.tolist())) == [3, 7]
    picture = timeline(run)
    assert texts(picture).count("proxy") == 2
    assert any(tip.startswith("proxy of rank 3, to rank 4") for tip in tips(picture))
    assert palette.tint(palette.CARRIED, 0.8).lower() in picture.svg.lower()
    begin, end = carried.of(3).busy(0.0)
    assert (begin[1:] > end[:-1]).all() and end.max() <= run.time
    assert "proxy" not in texts(timeline(ran("ring_allreduce", "mi300x", 1 << 20)))


def _rows_of_the_path(picture: Picture) -> set[str]:
    """Returns the names of the rows that the critical path runs along."""
    root = ET.fromstring(picture.svg)
    style = next(root.iter(f"{SVG}style")).text or ""
    looks = rf"\.(timeline-\d+){{fill:none;stroke:{palette.CRITICAL.lower()};stroke-width:1.8"
    found = re.search(looks, style)
    assert found
    names = {
        float(e.get("y", "0")): e.text or ""
        for e in root.iter(f"{SVG}text")
        if re.fullmatch(r"tb \d+|proxy", e.text or "")
    }
    along = set()
    for path in root.iter(f"{SVG}path"):
        ends = re.fullmatch(r"M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)", path.get("d", ""))
        if found[1] in path.get("class", "").split() and ends and ends[1] != ends[3]:
            distance = {abs(y + 4 - float(ends[2])): y for y in names}
            nearest = distance[min(distance)]
            along.add(names[nearest])
    return along


@pytest.mark.slow
def test_the_critical_path_runs_along_the_proxies_that_it_waits_for() -> None:
    far = timeline(ran("ring_allreduce", "resccl-topo1", 1 << 22))
    assert "proxy" in _rows_of_the_path(far)
    assert "proxy" not in _rows_of_the_path(timeline(ran("ring_allreduce", "mi300x", 1 << 20)))


def test_the_path_of_folded_ranks_runs_along_the_row_that_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = ran("ring_allreduce", "mi300x", 1 << 20)
    did, path = primitive_text(run.machine.plan), critical_path(run)
    along = set(did.rank[path // run.batches].tolist())
    assert len(along) > 1
    before = _rows_of_the_path(timeline(run))
    monkeypatch.setattr(rows, "EACH", 1)
    chosen = shown_ranks(run, did, path, ROWS)
    assert along - {shown.rank for shown in chosen.shown}
    assert _rows_of_the_path(timeline(run)) == before
    assert not any("critical path runs on" in x for x in texts(timeline(run)))


@pytest.mark.parametrize("fuse", ["none", slow("full")])
def test_primitives_know_their_lines(fuse: str) -> None:
    """Those of transfers of its rank and chunk; together all lines with transfers, and an unfused
    primitive has one."""
    made = compiled("ring_allreduce", "mi300x", fuse)
    plan, t = made.plan, made.program.transfers
    did = primitive_text(plan)
    lines = source_lines(did, made.program)
    assert set(lines.index.tolist()) - {0} == set(t["line"].tolist())
    fused = False
    for p in range(len(plan)):
        mine = set(lines.row(p).tolist()) - {0}
        assert int(plan.line[p]) in mine | {0}
        others = {*did.sources.row(p).tolist(), *did.targets.row(p).tolist()}
        near = (t["chunk"] == plan.chunk[p]) & (
            (t["src"] == did.rank[p]) | (t["dst"] == did.rank[p])
        )
        assert mine <= set(t["line"][near].tolist())
        fused = fused or len(mine) > 1
        assert len(others) > 1 or len(mine) <= 1
    assert fused == (fuse == "full")
