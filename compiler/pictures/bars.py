"""bars: the bars of a thread block: its work over time, in as much detail as a picture holds.

While micro-batches are few, a bar is those of one primitive that follow each other without a wait.
If they are too many, all of one primitive in one window are one bar, with the share of its time
that is work; if there are too many of those, neighbouring primitives are one bar as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hccc.ir import text
from hccc.ir.arrays import B1, I8
from hccc.ir.topology import F8
from hccc.pictures.primitive_text import PrimitiveText, Spans, spans
from hccc.sim.simulate import Run

LOOKED, SINGLE, MOST = 20_000, 1200, 3000  # micro-batches looked at one by one, their bars; bars
_TOUCHING = 1e-4  # of the whole time: a shorter gap is not seen


@dataclass(frozen=True, slots=True)
class Detail:
    """The detail of a picture. single: micro-batches are looked at one by one; bins: parts of the
    whole time by which primitives are gathered, 0: they are not."""

    single: bool
    bins: int


@dataclass(frozen=True, slots=True, eq=False)
class Bars:
    """The bars of one block, by time.

    A bar waits from `begin` until `ready`, and works, `share` of the time, until `end`: f8[n] each.
    primitive: the first, merged: the number of primitives in it, batches: the micro-batches of one
    in it, 1 if they are not looked at: i8[n] each. members: all primitives of each. marks: f8, the
    times when within a bar one micro-batch ends and the next begins.
    """

    begin: F8
    ready: F8
    end: F8
    share: F8
    primitive: I8
    kind: I8
    merged: I8
    batches: I8
    members: tuple[I8, ...]
    marks: F8

    def next_ready(self, i: int) -> float:
        """Returns when the bar after bar `i` begins; the end of bar `i` if it is the last."""
        return float(self.ready[i + 1] if i + 1 < len(self.ready) else self.end[i])

    def tip(self, i: int, texts: PrimitiveText) -> str:
        """Describes bar `i` in full."""
        tip = texts.text(int(self.primitive[i]))
        if self.merged[i] > 1:
            tip += f" and {self.merged[i] - 1} more"
        if self.batches[i] > 1:
            tip += f", {self.batches[i]} micro-batches"
        if (wait := float(self.ready[i] - self.begin[i])) > 0:
            tip += f": waits {text.time(wait)}, then"
        else:
            tip += ":"
        took = float(self.end[i] - self.ready[i])
        return f"{tip} {text.time(took)}, {100 * self.share[i]:.0f} % busy"


def detail_of(run: Run, texts: PrimitiveText, drawn: Sequence[int]) -> Detail:
    """Returns the detail that fits the rows of the blocks `drawn`."""
    ptr = run.machine.plan.tb_ptr
    primitives = int(sum(ptr[b + 1] - ptr[b] for b in drawn))
    if primitives * run.batches <= LOOKED:
        single = Detail(True, 0)
        if sum(len(bars(run, texts, b, single).begin) for b in drawn) <= SINGLE:
            return single
    windows = -(-run.batches // run.window)
    merged = primitives * windows > MOST
    return Detail(False, MOST // max(len(drawn), 1) if merged else 0)


def bars(run: Run, texts: PrimitiveText, block: int, detail: Detail) -> Bars:
    """Returns the bars of one block. O(its instances)."""
    ptr = run.machine.plan.tb_ptr
    rows = np.arange(ptr[block], ptr[block + 1])
    found = spans(rows, run.batches, run.window)
    if detail.single:
        each = [np.arange(a, b + 1) for a, b in zip(found.first, found.last, strict=True)]
        instance = np.concatenate([np.zeros(0, np.int64), *each])
        found = Spans(instance // run.batches, instance, instance)
    work = np.concatenate([[0.0], np.cumsum(run.end - run.ready)])
    busy = work[found.last + 1] - work[found.first]
    begin, ready, end = run.begin[found.first], run.ready[found.first], run.end[found.last]
    new = _begins(run, detail, found, begin, ready, end)
    cut = np.flatnonzero(new)
    if not len(cut):
        none, no = np.zeros(0), np.zeros(0, np.int64)
        return Bars(none, none, none, none, no, no, no, no, (), none)
    last = np.r_[cut[1:], len(found)] - 1
    total = np.add.reduceat(busy, cut)
    length = np.maximum(end[last] - ready[cut], 1e-12)
    many, one = last - cut + 1, np.ones(len(cut), np.int64)
    merged, batches = (one, many) if detail.single else (many, one)
    primitive = found.primitive[cut]
    marks = end[:-1][~new[1:]] if detail.single else np.zeros(0)
    return Bars(
        begin[cut],
        ready[cut],
        end[last],
        np.minimum(total / length, 1.0),
        primitive,
        texts.kind[primitive],
        merged,
        batches,
        tuple(np.unique(each) for each in np.split(found.primitive, cut[1:])),
        marks,
    )


def _begins(run: Run, detail: Detail, found: Spans, begin: F8, ready: F8, end: F8) -> B1:
    """Marks the spans that begin a bar: b1[spans]."""
    new = np.ones(len(found), np.bool_)
    if detail.single:
        gap = ready[1:] - end[:-1] > _TOUCHING * run.time
        new[1:] = gap | (np.diff(found.primitive) != 0)
    elif detail.bins:
        at = np.floor(begin / max(run.time, 1e-12) * detail.bins)
        new[1:] = np.diff(at) != 0
    return new
