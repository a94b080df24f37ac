"""The picture of a Run: a row for every thread block, bars for its primitives, the critical path.

Ranks with the same timeline are drawn once. Where there are too many micro-batches for bars of
their own, those of one primitive are one bar, paler the more it waits between them; where there
are too many of those, neighbours are one bar as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.ticker import MaxNLocator

from hccc import text as words
from hccc.ir.arrays import B1, I8, starts
from hccc.ir.topology import F8
from hccc.show import palette
from hccc.show.canvas import Picture, Sheet, settings, width_of
from hccc.show.primitive_text import LOOKS, Kind, Moves, Spans, moves, spans
from hccc.show.rows import Lane, Lanes, lanes
from hccc.sim.critical import critical_path
from hccc.sim.simulate import Run

ROWS, SINGLE, BARS = 56, 1200, 3000  # drawn at most: blocks, micro-batches, bars
ROW, WIDE = 0.21, 10.5  # inches


@dataclass(frozen=True, slots=True, eq=False)
class _Bars:
    """What is drawn of one block, by time: from `begin` it waits until `ready`; works, `share` of
    the time, until `end`. primitive: the first, `merged`: how many are in it."""

    begin: F8
    ready: F8
    end: F8
    share: F8
    primitive: I8
    kind: I8
    merged: I8


@settings()
def timeline(run: Run, note: str = "") -> Picture:
    """A Run drawn. `note`: something more to say below it. O(instances); the drawing is bounded."""
    plan = run.machine.plan
    did = moves(plan)
    path = critical_path(run)
    chosen = lanes(run, did, path, ROWS)
    drawn = [b for lane in chosen.shown for b in lane.blocks]
    single, merged = _detail(run, drawn)
    notes = _notes(run, did, chosen, path, single, merged)
    notes += [note] if note else []
    n_rows = len(drawn) + 0.45 * len(chosen.shown)
    head = f"{words.clean(plan.name, 48)}: {words.size(run.size)} in {words.time(run.time)}"
    says = f"simulated: algbw {words.number(run.algbw)} GB/s, busbw {words.number(run.busbw)} GB/s"
    says += f"; {words.count(run.batches, 'micro-batch')} of {words.size(run.payload)}"
    height = 1.65 + ROW * n_rows + 0.17 * len(notes)
    left = 1.3
    sheet = Sheet(left + WIDE + 0.85, height)
    sheet.heading(head, says)
    _legend(sheet, height - 0.82)
    scale = _Scale(left, WIDE / max(run.time, 1e-12), run.launch)
    top = height - 1.15
    _axis(sheet, run, scale, top, ROW * n_rows)
    rows = _draw_lanes(sheet, run, did, chosen, scale, top, single, merged)
    _draw_path(sheet, run, path, rows, scale)
    sheet.notes(notes, 0.3)
    return sheet.picture("timeline", head, f"{head}, {says}.")


@dataclass(frozen=True, slots=True)
class _Scale:
    left: float
    per_us: float
    launch: float  # µs before the first primitive, from which times of primitives count

    def __call__(self, us: float) -> float:
        return self.left + (us + self.launch) * self.per_us


def _detail(run: Run, drawn: list[int]) -> tuple[bool, bool]:
    """Whether micro-batches are bars of their own, and whether neighbours must be merged."""
    ptr = run.machine.plan.tb_ptr
    primitives = int(sum(ptr[b + 1] - ptr[b] for b in drawn))
    windows = -(-run.batches // run.window)
    single = primitives * run.batches <= SINGLE
    return single, not single and primitives * windows > BARS


def _draw_lanes(
    sheet: Sheet, run: Run, did: Moves, chosen: Lanes, scale: _Scale, top: float,
    single: bool, merged: bool,
) -> dict[int, float]:  # fmt: skip
    """The rows; returns the middle of each block's."""
    total = sum(len(lane.blocks) for lane in chosen.shown)
    bins = BARS // max(total, 1) if merged else 0
    first_block = starts(run.machine.plan.n_tb)
    y, rows = top, {}
    busy, ends = run.block_busy, run.block_end
    for lane in chosen.shown:
        y -= 0.45 * ROW
        _lane_label(sheet, lane, y, len(lane.blocks))
        for b in lane.blocks:
            y -= ROW
            rows[b] = y + ROW / 2
            sheet.text(scale.left - 0.08, y + ROW / 2, f"tb {b - first_block[lane.rank]}", 7,
                       ha="right", color=palette.FAINT)  # fmt: skip
            share = busy[b] / ends[b] if ends[b] > 0 else 0.0
            right = scale(run.time - run.launch) + 0.1
            sheet.text(right, y + ROW / 2, f"{100 * share:.0f} % busy", 7, ha="left",
                       color=palette.FAINT)  # fmt: skip
            _draw_block(sheet, did, _bars(run, did, b, single, bins), scale, y)
    return rows


def _lane_label(sheet: Sheet, lane: Lane, y: float, rows: int) -> None:
    middle = y - ROW * rows / 2
    sheet.text(0.3, middle + (0.07 if lane.alike else 0), f"rank {lane.rank}", 8.5, ha="left",
               weight="bold")  # fmt: skip
    if lane.alike:
        sheet.text(0.3, middle - 0.08, f"× {len(lane.alike)} alike", 7, ha="left",
                   color=palette.FAINT)  # fmt: skip
    sheet.line([0.3, sheet.width - 0.25], [y + 0.04, y + 0.04], palette.RULE, 0.5)


def _bars(run: Run, did: Moves, block: int, single: bool, bins: int) -> _Bars:
    ptr = run.machine.plan.tb_ptr
    rows = np.arange(ptr[block], ptr[block + 1])
    found = spans(rows, run.batches, 1 if single and run.window == 1 else run.window)
    if single:
        each = [np.arange(a, b + 1) for a, b in zip(found.first, found.last, strict=True)]
        instance = np.concatenate([np.zeros(0, np.int64), *each])
        found = Spans(instance // run.batches, instance, instance)
    work = np.concatenate([[0.0], np.cumsum(run.end - run.ready)])
    busy = work[found.last + 1] - work[found.first]
    begin, ready, end = run.begin[found.first], run.ready[found.first], run.end[found.last]
    cut = np.arange(len(found))
    if bins and len(found):
        at = np.floor(begin / max(run.time, 1e-12) * bins)
        cut = np.flatnonzero(np.r_[True, np.diff(at) != 0])
    if not len(cut):
        none, no = np.zeros(0), np.zeros(0, np.int64)
        return _Bars(none, none, none, none, no, no, no)
    last = np.r_[cut[1:], len(found)] - 1
    total = np.add.reduceat(busy, cut)
    length = np.maximum(end[last] - ready[cut], 1e-12)
    primitive = found.primitive[cut]
    kind = did.kind[primitive]
    return _Bars(begin[cut], ready[cut], end[last], np.minimum(total / length, 1.0), primitive,
                 kind, last - cut + 1)  # fmt: skip


def _draw_block(sheet: Sheet, did: Moves, bars: _Bars, scale: _Scale, y: float) -> None:
    for i in range(len(bars.begin)):
        begin, ready, end = (scale(float(x[i])) for x in (bars.begin, bars.ready, bars.end))
        if ready - begin > 0.004:
            at = (begin, y + 0.05, ready - begin, ROW - 0.1)
            sheet.box(at, palette.WAIT, "none", round=0, line=0)
        if end <= ready:
            continue
        p, share = int(bars.primitive[i]), float(bars.share[i])
        colour = LOOKS[Kind(int(bars.kind[i]))][1]
        tip = did.text(p)
        if bars.merged[i] > 1:
            tip += f" and {bars.merged[i] - 1} more"
        tip += f": waits {words.time(float(bars.ready[i] - bars.begin[i]))}, then"
        tip += f" {words.time(float(bars.end[i] - bars.ready[i]))}, {100 * share:.0f} % busy"
        at = (ready, y + 0.02, max(end - ready, 0.006), ROW - 0.04)
        fill = palette.tint(colour, 0.18 + 0.62 * share)
        line = 0.5 if end - ready > 0.03 else 0
        sheet.box(at, fill, "white" if line else "none", round=0, line=line, tip=tip)
        label = str(did.plan.chunk[p])
        if bars.merged[i] == 1 and width_of(label, 6.5) < end - ready - 0.03:
            ink = "#FFFFFF" if colour == palette.COPY and share > 0.6 else palette.INK
            sheet.text((ready + end) / 2, y + ROW / 2 - 0.005, label, 6.5, color=ink)


def _draw_path(sheet: Sheet, run: Run, path: I8, rows: dict[int, float], scale: _Scale) -> None:
    """A line below the bars of the critical path, and hops from one block to the next."""
    if not len(path):
        return
    block = run.machine.plan.block_of()[path // run.batches]
    cut = np.flatnonzero(np.r_[True, np.diff(block) != 0])
    stop = np.r_[cut[1:], len(path)] - 1
    before: tuple[float, float] | None = None
    for a, b in zip(cut.tolist(), stop.tolist(), strict=True):
        y = rows.get(int(block[a]))
        if y is None:
            before = None
            continue
        y -= ROW / 2 - 0.02
        xs = [scale(float(run.ready[path[a]])), scale(float(run.end[path[b]]))]
        sheet.line(xs, [y, y], palette.CRITICAL, 1.8, solid_capstyle="butt", zorder=4)
        if before:
            sheet.line([before[0], xs[0]], [before[1], y], palette.CRITICAL, 0.7, zorder=4)
        before = xs[1], y


def _axis(sheet: Sheet, run: Run, scale: _Scale, top: float, tall: float) -> None:
    unit, factor = ("ms", 1e3) if run.time >= 2e3 else ("µs", 1.0)
    for tick in (float(x) for x in MaxNLocator(9).tick_values(0, run.time / factor)):
        if 0 <= tick * factor <= run.time * 1.001:
            x = scale(tick * factor - run.launch)
            sheet.line([x, x], [top, top - tall], palette.RULE, 0.5, zorder=0.4)
            sheet.text(x, top + 0.1, f"{tick:g}", 7, color=palette.FAINT)
    sheet.text(scale.left - 0.08, top + 0.1, unit, 7, ha="right", color=palette.FAINT)


def _legend(sheet: Sheet, y: float) -> None:
    x = 0.3
    looks = [*LOOKS.values(), ("waiting", palette.WAIT)]
    for text, colour in looks:
        fill = colour if colour == palette.WAIT else palette.tint(colour, 0.8)
        sheet.box((x, y - 0.06, 0.2, 0.12), fill, "none", round=0, line=0)
        sheet.text(x + 0.27, y, text, 8, ha="left")
        x += 0.45 + width_of(text, 8)
    sheet.line([x, x + 0.22], [y, y], palette.CRITICAL, 1.8)
    sheet.text(x + 0.29, y, "critical path", 8, ha="left")
    x += 0.47 + width_of("critical path", 8)
    sheet.text(x, y, "numbers: chunks", 8, ha="left", color=palette.FAINT)


def _notes(run: Run, did: Moves, chosen: Lanes, path: I8, single: bool, merged: bool) -> list[str]:
    plan, notes = run.machine.plan, []
    if plan.channels > 1:
        notes.append(f"One of {plan.channels} lanes is drawn; all are alike.")
    if not single:
        what = "neighbouring primitives" if merged else "the micro-batches of a primitive"
        notes.append(f"A bar is {what}; the paler, the more of it is waiting.")
    if chosen.left_out:
        notes.append(f"Not drawn: {words.named('rank', chosen.left_out)}, unlike those that are.")
    if hidden := sum(lane.hidden for lane in chosen.shown):
        notes.append(f"Not drawn: {words.count(hidden, 'thread block')} of the ranks that are.")
    shown = _on(run, path, [b for lane in chosen.shown for b in lane.blocks])
    spent = run.end[path] - run.ready[path]
    if len(path) and not shown.all():
        share = 100 * float(spent[~shown].sum()) / max(float(spent.sum()), 1e-12)
        notes.append(f"{share:.0f} % of the critical path runs on thread blocks not drawn.")
    return notes


def _on(run: Run, path: I8, blocks: list[int]) -> B1:
    block = run.machine.plan.block_of()[path // run.batches]
    found: B1 = np.isin(block, blocks)
    return found
