"""timeline: the picture of a Run: a row for every thread block, bars for its primitives, the
critical path; and a row for the proxy of a rank, with its transfers over the network.

Ranks with the same timeline are drawn once, and the critical path of all of them runs along the
rows of the one that is drawn. While it waits for the network, it runs along the proxy's row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.ticker import MaxNLocator

from hccc.ir import text
from hccc.ir.arrays import B1, I8, Csr, starts
from hccc.ir.program import Program
from hccc.pictures import palette
from hccc.pictures.bars import Bars, Detail, bars, detail_of
from hccc.pictures.canvas import NORMAL, NOTE, SMALL, Picture, Sheet, settings, width_of
from hccc.pictures.carriage import Carriage, carriage
from hccc.pictures.legend import LegendEntry, draw_legend
from hccc.pictures.primitive_text import LOOKS, PrimitiveRole, PrimitiveText, primitive_text
from hccc.pictures.rows import RankRows, ShownRanks, shown_ranks
from hccc.pictures.source_lines import lines_of_rank, of_lines, source_lines
from hccc.sim.critical import critical_path, crossings
from hccc.sim.simulate import Run

ROWS = 56  # blocks that are drawn at most
ROW, WIDE = 0.22, 10.5  # inches
MARKS = 0.03  # inches between marks, at least
APART = 2e-3  # of the whole time: gaps between bars of a proxy, at least


@settings()
def timeline(run: Run, note: str = "", program: Program | None = None) -> Picture:
    """Draws a Run. O(instances); the drawing is bounded.

    note: a line to add below it; program: what the plan was compiled from, for the lines of bars.
    """
    plan = run.machine.plan
    texts = primitive_text(plan)
    path = critical_path(run)
    chosen = shown_ranks(run, texts, path, ROWS)
    drawn = [b for rows in chosen.shown for b in rows.blocks]
    detail = detail_of(run, texts, drawn)
    notes = _notes(run, chosen, path, detail)
    notes += [note] if note else []
    carried = carriage(run)
    proxies = {rows.rank: carried.of(rows.rank) for rows in chosen.shown}
    proxies = {rank: found for rank, found in proxies.items() if len(found)}
    n_rows = len(drawn) + len(proxies) + 0.45 * len(chosen.shown)
    head = f"{text.clean(plan.name, 48)}: {text.size(run.size)} in {text.time(run.time)}"
    says = f"simulated: algbw {text.number(run.algbw)} GB/s, busbw {text.number(run.busbw)} GB/s"
    says += f"; {text.count(run.batches, 'micro-batch')} of {text.size(run.payload)}"
    height = 1.65 + ROW * n_rows + NOTE * len(notes)
    left = 1.3
    sheet = Sheet(left + WIDE + 1.0, height)
    sheet.heading(head, says)
    draw_legend(sheet, [_legend(run, texts, drawn, bool(proxies))], height - 0.82)
    scale = _Scale(left, WIDE / max(run.time, 1e-12), run.launch)
    top = height - 1.15
    tall = ROW * n_rows
    sheet.set_view((left, top - tall, WIDE, tall + 0.2), {"data-us": f"{run.time:.6g}"})
    with sheet.viewed():
        _axis(sheet, run, scale, top, tall)
    found = _Found(run, texts, source_lines(texts, program), proxies, detail)
    places = _draw_ranks(sheet, found, chosen, scale, top)
    with sheet.viewed():
        _draw_path(sheet, run, path, places, scale)
    sheet.notes(notes, 0.3)
    return sheet.picture("timeline", head, f"{head}, {says}.")


@dataclass(frozen=True, slots=True)
class _Scale:
    left: float
    per_us: float
    launch: float  # µs before the first primitive, from which times of primitives count

    def __call__(self, us: float) -> float:
        return self.left + (us + self.launch) * self.per_us


@dataclass(frozen=True, slots=True)
class _Found:
    """What rows are drawn from. lines: of each primitive; proxies: what those of ranks carry."""

    run: Run
    texts: PrimitiveText
    lines: Csr
    proxies: Mapping[int, Carriage]
    detail: Detail


@dataclass(frozen=True, slots=True)
class _Places:
    """The middles of the rows of blocks, numbered over all ranks, and of the proxies of ranks; a
    rank that is not drawn has those of the rank that stands for it."""

    block: dict[int, float]
    proxy: dict[int, float]


def _draw_ranks(
    sheet: Sheet, found: _Found, chosen: ShownRanks, scale: _Scale, top: float
) -> _Places:
    """Draws the rows of all ranks."""
    run = found.run
    first_block = starts(run.machine.plan.n_tb)
    y, row, places = top, 0, _Places({}, {})
    sheet.text(
        scale(run.time - run.launch) + 0.1, top + 0.1, "busy", ha="left", color=palette.FAINT
    )
    for rows in chosen.shown:
        y -= 0.45 * ROW
        _rank_label(sheet, rows, y)
        lines = lines_of_rank(found.lines, found.texts, rows)
        first = int(run.machine.plan.tb_ptr[rows.blocks.start])
        for i, b in enumerate(rows.blocks):
            y -= ROW
            places.block.update(
                (int(first_block[r]) + i, y + ROW / 2) for r in (rows.rank, *rows.alike)
            )
            share = run.block_busy[b] / run.time if run.time > 0 else 0.0
            _row_label(sheet, run, scale, y, f"tb {b - first_block[rows.rank]}", share)
            of_block = bars(run, found.texts, b, found.detail)
            data = [
                {"data-row": str(row), **of_lines(lines.take(members - first).index.tolist())}
                for members in of_block.members
            ]
            with sheet.viewed():
                _draw_block(sheet, found.texts, of_block, data, scale, y)
            row += 1
        if rows.rank in found.proxies:
            y -= ROW
            places.proxy.update((r, y + ROW / 2) for r in (rows.rank, *rows.alike))
            _draw_proxy(sheet, run, found.proxies[rows.rank], {"data-row": str(row)}, scale, y)
            row += 1
    return places


def _row_label(sheet: Sheet, run: Run, scale: _Scale, y: float, name: str, busy: float) -> None:
    """Draws the name of a row before it, and behind it the part of the whole time it is busy."""
    middle = y + ROW / 2
    sheet.text(scale.left - 0.08, middle, name, ha="right", color=palette.FAINT)
    end = scale(run.time - run.launch) + 0.1
    sheet.text(end, middle, f"{100 * busy:.0f} %", ha="left", color=palette.FAINT)


def _draw_proxy(
    sheet: Sheet, run: Run, found: Carriage, data: Mapping[str, str], scale: _Scale, y: float
) -> None:
    """Draws when the proxy of a rank carries anything."""
    begins, ends = found.busy(0.0)
    _row_label(sheet, run, scale, y, "proxy", float((ends - begins).sum()) / max(run.time, 1e-12))
    begins, ends = found.busy(APART * run.time)
    peers = text.named("rank", sorted(set(found.peer.tolist())))
    fill = palette.tint(palette.CARRIED, 0.8)
    with sheet.viewed():
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            at = (scale(begin), y + 0.05, max(scale(end) - scale(begin), 0.006), ROW - 0.1)
            tip = f"proxy of rank {found.rank[0]}, to {peers}: {text.time(end - begin)}"
            sheet.box(at, fill, "none", round=0, line=0, tip=tip, data=data)


def _rank_label(sheet: Sheet, rows: RankRows, y: float) -> None:
    middle = y - ROW * len(rows.blocks) / 2
    up = 0.07 if rows.alike else 0
    sheet.text(0.3, middle + up, f"rank {rows.rank}", NORMAL, ha="left", weight="bold")
    if rows.alike:
        label = f"× {len(rows.alike)} alike"
        sheet.text(0.3, middle - 0.09, label, ha="left", color=palette.FAINT)
    sheet.line([0.3, sheet.width - 0.25], [y + 0.04, y + 0.04], palette.RULE, 0.5)


def _draw_block(
    sheet: Sheet,
    texts: PrimitiveText,
    found: Bars,
    data: Sequence[Mapping[str, str]],
    scale: _Scale,
    y: float,
) -> None:
    named: set[int] = set()  # primitives whose chunk is written already
    for i in range(len(found.begin)):
        begin, ready, end = (scale(float(x[i])) for x in (found.begin, found.ready, found.end))
        if ready - begin > 0.004:
            at = (begin, y + 0.05, ready - begin, ROW - 0.1)
            sheet.box(at, palette.WAIT, "none", round=0, line=0)
        if end <= ready:
            continue
        fill = palette.tint(
            LOOKS[PrimitiveRole(int(found.kind[i]))][1], 0.18 + 0.62 * float(found.share[i])
        )
        line = 0.5 if end - ready > 0.03 else 0
        at = (ready, y + 0.02, max(end - ready, 0.006), ROW - 0.04)
        edge = palette.PAPER if line else "none"
        sheet.box(at, fill, edge, round=0, line=line, tip=found.tip(i, texts), data=data[i])
        primitive = int(found.primitive[i])
        if found.merged[i] > 1:
            continue
        label = str(texts.plan.chunk[primitive])
        middle, wide = y + ROW / 2 - 0.005, width_of(label, SMALL)
        if wide < end - ready - 0.02:
            sheet.text((ready + end) / 2, middle, label, color=palette.ink_on(fill))
        elif primitive not in named and wide + 0.05 < scale(found.next_ready(i)) - end:
            sheet.text(end + 0.02, middle, label, ha="left", color=palette.FAINT)
        else:
            continue
        named.add(primitive)
    _draw_marks(sheet, found, scale, y)


def _draw_marks(sheet: Sheet, found: Bars, scale: _Scale, y: float) -> None:
    """Draws marks at both edges of bars, where one micro-batch ends and the next begins."""
    middles = [scale(float(us)) for us in found.marks]
    if len(middles) < 1 or min(np.diff(middles), default=MARKS) < MARKS:
        return
    xs = [x for middle in middles for x in (middle, middle, np.nan) * 2]
    ys = [y + 0.02, y + 0.05, np.nan, y + ROW - 0.05, y + ROW - 0.02, np.nan] * len(middles)
    sheet.line(xs, ys, palette.PAPER, 0.8, solid_capstyle="butt", zorder=2)


def _draw_path(sheet: Sheet, run: Run, path: I8, places: _Places, scale: _Scale) -> None:
    """Draws a line below the bars of the critical path, along the rows that it waits for, and hops
    from one row to the next."""
    before: tuple[float, float] | None = None
    for y, begin, end in _stretches(run, path, places):
        if y is None:
            before = None
            continue
        y -= ROW / 2 - 0.02
        xs = [scale(begin), scale(end)]
        sheet.line(xs, [y, y], palette.CRITICAL, 1.8, solid_capstyle="butt", zorder=4)
        if before:
            sheet.line([before[0], xs[0]], [before[1], y], palette.CRITICAL, 0.7, zorder=4)
        before = xs[1], y


def _stretches(run: Run, path: I8, places: _Places) -> Iterator[tuple[float | None, float, float]]:
    """Yields the middle of each row that the path runs along, None if it is not drawn, with the µs
    from when to when: a thread block's, or that of a proxy that brings what a block waits for."""
    if not len(path):
        return
    block = run.machine.plan.block_of()[path // run.batches]
    carried, found = run.machine.transfers, crossings(run, path)
    source = carried.src[carried.pair[found.transfer]].tolist()
    crosses = dict(zip(found.after.tolist(), range(len(found)), strict=True))
    cut = {0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), *(i + 1 for i in crosses)}
    begins = sorted(cut - {len(path)})
    for a, stop in zip(begins, [*begins[1:], len(path)], strict=True):
        b = stop - 1
        yield places.block.get(int(block[a])), float(run.ready[path[a]]), float(run.end[path[b]])
        if (i := crosses.get(b)) is not None:
            yield places.proxy.get(source[i]), float(found.begin[i]), float(found.end[i])


def _axis(sheet: Sheet, run: Run, scale: _Scale, top: float, tall: float) -> None:
    """Draws ticks at round times, and one at the end; ticks too close to that are left out."""
    unit, factor = text.time_unit(run.time)
    end = text.time(run.time).removesuffix(f" {unit}")  # as the title has it
    free = scale(run.time - run.launch) - width_of(end, SMALL, bold=True) / 2 - 0.1
    for tick in (float(x) for x in MaxNLocator(9).tick_values(0, run.time / factor)):
        label, x = text.number(tick), scale(tick * factor - run.launch)
        if tick >= 0 and x + width_of(label, SMALL) / 2 < free:
            sheet.line([x, x], [top, top - tall], palette.RULE, 0.5, zorder=0.4)
            sheet.text(x, top + 0.1, label, color=palette.FAINT)
    x = scale(run.time - run.launch)
    sheet.line([x, x], [top, top - tall], palette.FAINT, 0.8, zorder=0.4)
    sheet.text(x, top + 0.1, end, weight="bold", ha="right")
    sheet.text(scale.left - 0.08, top + 0.1, unit, ha="right", color=palette.FAINT)


def _legend(
    run: Run, texts: PrimitiveText, drawn: Sequence[int], proxies: bool
) -> list[LegendEntry]:
    """Returns samples of the colours that occur."""
    plan, kinds, waits = run.machine.plan, set(), False
    for block in drawn:
        rows = slice(int(plan.tb_ptr[block]), int(plan.tb_ptr[block + 1]))
        kinds |= set(texts.kind[rows].tolist())
        instances = slice(rows.start * run.batches, rows.stop * run.batches)
        waits = waits or bool((run.ready[instances] > run.begin[instances]).any())
    found = [
        LegendEntry(what, palette.tint(colour, 0.8))
        for kind, (what, colour) in LOOKS.items()
        if kind in kinds
    ]
    found += (
        [LegendEntry("carried by a proxy", palette.tint(palette.CARRIED, 0.8))] if proxies else []
    )
    found += [LegendEntry("waiting", palette.WAIT)] if waits else []
    found.append(LegendEntry("critical path", palette.CRITICAL, line=1.8))
    return [*found, LegendEntry("number: the chunk of a bar; busy: share of the whole time")]


def _notes(run: Run, chosen: ShownRanks, path: I8, detail: Detail) -> list[str]:
    plan, notes = run.machine.plan, []
    if plan.channels > 1:
        notes.append(f"One of {plan.channels} channels is drawn; all are alike.")
    if detail.single and run.batches > 1:
        notes.append("White marks in a bar are between its micro-batches.")
    if not detail.single:
        what = "neighbouring primitives" if detail.bins else "the micro-batches of a primitive"
        notes.append(f"A bar is {what}; the paler, the more of it is waiting.")
    if chosen.left_out:
        notes.append(f"Not drawn: {text.named('rank', chosen.left_out)}, unlike those that are.")
    if chosen.idle:
        have = "has" if len(chosen.idle) == 1 else "have"
        ranks = text.named("rank", chosen.idle)
        notes.append(f"{ranks[0].upper()}{ranks[1:]} {have} no thread blocks.")
    if hidden := sum(rows.hidden for rows in chosen.shown):
        notes.append(f"Not drawn: {text.count(hidden, 'thread block')} of the ranks that are.")
    first_block = starts(plan.n_tb)
    shifts = [
        (rows, int(first_block[r] - first_block[rows.rank]))
        for rows in chosen.shown
        for r in (rows.rank, *rows.alike)
    ]
    shown = _on(run, path, [b + shift for rows, shift in shifts for b in rows.blocks])
    spent = run.end[path] - run.ready[path]
    if len(path) and not shown.all():
        share = 100 * float(spent[~shown].sum()) / max(float(spent.sum()), 1e-12)
        notes.append(f"{share:.0f} % of the critical path runs on thread blocks not drawn.")
    return notes


def _on(run: Run, path: I8, blocks: list[int]) -> B1:
    block = run.machine.plan.block_of()[path // run.batches]
    found: B1 = np.isin(block, blocks)
    return found
