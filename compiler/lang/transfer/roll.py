"""roll: the transfers of a Program as nested loops, where they follow a pattern.

An *item* is a loop nest of one transfer, or a transfer alone. Its *shape* says how often each loop
turns and what a turn adds; its *values* say where it begins. Items that follow each other, of one
shape, whose values go on alike are a loop around that shape. This is done level by level: first
within every step, in program order, then over the items of successive steps.

A field is `value + Σ digit % modulus`; a turn of a loop adds to the value and to each digit. So
ranks go round a node (`8 * n + (r + s) % 8`), or round all of them (`(r + 1) % n`). A modulus is
found where a difference changes once round: from 7 back to 0, ranks that go up by 1 go down by 7.

The order of transfers within every step is that of the Program; between steps it is free, as a
Program is sorted by step. O(transfers · log).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I8, places, places_among
from hccc.ir.program import Program
from hccc.lang.transfer.item_order import ordered

STEP, SRC, DST, CHUNK = range(4)
FIELDS = 4
DIGITS = 3  # of each field but the step
WIDTH = FIELDS + 3 * DIGITS
WITHIN = 3  # loops within a step
ACROSS = 2  # loops over steps
SURE = 5  # turns that show a modulus which is neither of ranks nor of chunks
FEWEST = 3  # turns of a loop over steps; of any around one transfer, one more


@dataclass(slots=True)
class Shape:
    """A loop nest. child: the shape in the loop, None for a transfer; count: the loop's turns;
    slope: i8[WIDTH] what a turn adds; mods: i8[WIDTH] what each digit is taken modulo (0: no digit;
    1: none there); rows: transfers; span: of the last transfer's step beyond the first's."""

    child: int | None
    count: int
    slope: I8
    mods: I8
    used: I8
    rows: int
    span: int
    depth: int
    reduces: bool


@dataclass(slots=True)
class Rolled:
    """Items in the order of the text: `shape[i]` begins at `values[i]` (i8[WIDTH])."""

    shapes: list[Shape]
    shape: I8
    values: I8


@dataclass(slots=True)
class _Shapes:
    """All shapes so far, each once. sizes: the moduli that need no evidence divide these."""

    sizes: I8
    shapes: list[Shape] = field(default_factory=list)
    known: dict[bytes, int] = field(default_factory=dict)

    def column(self, name: str) -> I8:
        """One attribute of every shape."""
        return np.array([getattr(shape, name) for shape in self.shapes])


@dataclass(slots=True)
class _Runs:
    """Runs of items. begin: i8[runs + 1]; slope: i8[runs, WIDTH]; modulus, turn, base, i8[runs, 4]:
    of new digits what they are modulo (0: no digit), what a turn adds, and what lies under them."""

    begin: I8
    slope: I8
    modulus: I8
    turn: I8
    base: I8

    @property
    def count(self) -> I8:
        return np.diff(self.begin)


@njit
def _runs(
    group: I8, shape: I8, values: I8, mods: I8, used: I8, sizes: I8
) -> tuple[int, I8, I8, I8, I8, I8]:
    """The longest runs from the first item on; only items of one `group` share a run."""
    n = len(group)
    begin = np.zeros(n + 1, np.int64)
    slope = np.zeros((n, WIDTH), np.int64)
    modulus, turn, base = np.zeros((3, n, FIELDS), np.int64)
    low, high, wrapped = np.zeros((3, FIELDS), np.int64)
    new_m, new_c, new_a, new_low, new_high = np.zeros((5, FIELDS), np.int64)
    count = i = 0
    while i < n:
        begin[count] = i
        key = shape[i]
        m, c, a, j = modulus[count], turn[count], slope[count], i + 1
        while j < n and group[j] == group[i]:
            ok = True
            for d in range(FIELDS, WIDTH):
                if mods[key, d] > 1:
                    delta = (values[j, d] - values[j - 1, d]) % mods[key, d]
                    if j == i + 1:
                        a[d] = delta
                    elif delta != a[d]:
                        ok = False
            for f in range(FIELDS):
                delta = values[j, f] - values[j - 1, f]
                new_m[f], new_c[f], new_a[f] = m[f], c[f], a[f]
                new_low[f], new_high[f] = low[f], high[f]
                if j == i + 1:
                    new_a[f] = delta
                elif m[f] == 0 and delta != a[f]:
                    if f == 0 or used[key, f - 1] == DIGITS:
                        ok = False
                        continue
                    larger = max(delta, a[f])
                    new_m[f] = abs(delta - a[f])
                    new_c[f] = larger % new_m[f]
                    new_a[f] = larger - new_c[f]
                    u = values[i, f]
                    v = values[j - 1, f] - new_a[f] * (j - 1 - i)
                    w = values[j, f] - new_a[f] * (j - i)
                    new_low[f], new_high[f] = min(u, v, w), max(u, v, w)
                    wrapped[f] = j
                    ok &= new_c[f] != 0 and new_high[f] - new_low[f] < new_m[f]
                    if ok and sizes[0] % new_m[f] and sizes[1] % new_m[f]:
                        ok = new_m[f] % min(new_c[f], new_m[f] - new_c[f]) == 0
                elif m[f] != 0:
                    w = values[j, f] - a[f] * (j - i)
                    new_low[f], new_high[f] = min(low[f], w), max(high[f], w)
                    ok &= (delta - a[f] - c[f]) % m[f] == 0 and new_high[f] - new_low[f] < m[f]
            if not ok:
                break
            m[:], c[:], low[:], high[:] = new_m, new_c, new_low, new_high
            a[:FIELDS] = new_a
            j += 1
        for f in range(1, FIELDS):
            if m[f] and j - i < SURE and sizes[0] % m[f] and sizes[1] % m[f]:
                j = min(j, wrapped[f])
        for f in range(1, FIELDS):
            if m[f] and wrapped[f] >= j:
                a[f] = values[i + 1, f] - values[i, f] if j > i + 1 else 0
                m[f] = c[f] = 0
            if m[f]:
                lo = hi = values[i, f]
                for k in range(i + 1, j):
                    w = values[k, f] - a[f] * (k - i)
                    lo, hi = min(lo, w), max(hi, w)
                base[count, f] = lo // m[f] * m[f]
                if hi >= base[count, f] + m[f]:
                    base[count, f] = lo
        # Steps 0, 3, 4, 5: the pair gives way to the longer run that its second item begins.
        if j == i + 2 and j + 1 < n and group[j + 1] == group[i]:
            on = values[j, 0] - values[i + 1, 0]
            if on == values[j + 1, 0] - values[j, 0] and on != values[i + 1, 0] - values[i, 0]:
                j = i + 1
                m[:] = 0
        if j == i + 1:
            a[:] = 0
        count += 1
        i = j
    begin[count] = n
    return count, begin[: count + 1], slope[:count], modulus[:count], turn[:count], base[:count]


def roll(p: Program) -> Rolled:
    """The transfers of `p` as loop nests, in an order that gives `p` again."""
    t, c = p.transfers, p.collective
    values: I8 = np.zeros((len(t), WIDTH), np.int64)
    for f, name in enumerate(("step", "src", "dst", "chunk")):
        values[:, f] = t[name]
    shapes = _Shapes(np.array([c.n_ranks, c.n_chunks], np.int64))
    mods = np.zeros(WIDTH, np.int64)
    mods[FIELDS:] = 1
    for reduces in (False, True):
        none = np.zeros(WIDTH, np.int64), mods, np.zeros(3, np.int64)
        shapes.shapes.append(Shape(None, 1, *none, 1, 0, 0, reduces))
    shape: I8 = t["op"].astype(np.int64)
    for level in range(WITHIN):
        shape, values, _ = _level(shapes, shape, values, _neighbours(shape, values, level))
    found = [_across(shapes, shape, values, pairs) for pairs in (False, True)]
    return min(found, key=lambda rolled: len(rolled.shape))


def _neighbours(shape: I8, values: I8, level: int) -> I8:
    """Numbers of groups of successive items of one shape in one step; a transfer that no loop took
    at the first level stays alone at others."""
    other = (np.diff(shape) != 0) | (np.diff(values[:, STEP]) != 0)
    if level:
        other |= shape[1:] < 2
    return np.cumsum(np.concatenate([[False][: len(shape)], other]))


def _level(
    shapes: _Shapes, shape: I8, values: I8, group: I8, across: bool = False
) -> tuple[I8, I8, I8]:
    """One more loop around items of one group: the new items, and the new item of each old."""
    if not len(shape):
        return shape, values, shape
    mods, used = shapes.column("mods"), shapes.column("used")
    _, *arrays = _runs(group, shape, values, mods, used, shapes.sizes)
    runs = _alike(_Runs(*arrays), shape, values, shapes)
    runs = _worthwhile(runs, shape, group, shapes, across)
    first, count = runs.begin[:-1], runs.count
    new_values = values[first].copy()
    slope = runs.slope.copy()
    new_mods = mods[shape[first]].copy()
    for f in range(1, FIELDS):
        rows = np.flatnonzero(runs.modulus[:, f])
        at = FIELDS + (f - 1) * DIGITS + used[shape[first[rows]], f - 1]
        m = runs.modulus[rows, f]
        new_values[rows, f] = runs.base[rows, f]
        new_values[rows, at] = values[first[rows], f] - runs.base[rows, f]
        slope[rows, at], new_mods[rows, at] = runs.turn[rows, f], m
    found = np.column_stack([shape[first], count, slope, new_mods])
    new_shape = shape[first].copy()
    looped = np.flatnonzero(count > 1)
    new_shape[looped] = _interned(shapes, found[looped])
    return new_shape, new_values, np.repeat(np.arange(len(first)), count)


def _interned(shapes: _Shapes, found: I8) -> I8:
    """The number of each row's shape; new ones are added. found: child, count, slope, mods."""
    if not len(found):
        return np.zeros(0, np.int64)
    rows = np.ascontiguousarray(found).view(np.dtype((np.void, found.shape[1] * 8))).ravel()
    different, where, back = np.unique(rows, return_index=True, return_inverse=True)
    numbers = np.zeros(len(different), np.int64)
    for k, (key, i) in enumerate(zip(different, where, strict=True)):
        text = key.tobytes()
        if text not in shapes.known:
            child, count = (int(x) for x in found[i, :2])
            inner, slope, mods = (
                shapes.shapes[child],
                found[i, 2 : 2 + WIDTH],
                found[i, 2 + WIDTH :],
            )
            used = (mods[FIELDS:].reshape(3, DIGITS) > 1).sum(axis=1)
            shapes.known[text] = len(shapes.shapes)
            shapes.shapes.append(
                Shape(
                    child,
                    count,
                    slope,
                    mods,
                    used,
                    inner.rows * count,
                    inner.span + int(slope[STEP]) * (count - 1),
                    inner.depth + 1,
                    inner.reduces,
                )
            )
        numbers[k] = shapes.known[text]
    return numbers[back.ravel()]


def _alike(runs: _Runs, shape: I8, values: I8, shapes: _Shapes) -> _Runs:
    """Runs that never got as far as round once take the modulus of runs like them, if it fits."""
    first, count = runs.begin[:-1], runs.count
    kind = np.unique(shape[first] * (len(shape) + 1) + count, return_inverse=True)[1].ravel()
    for f in range(1, FIELDS):
        known = _usual(runs, kind, f)
        straight = np.flatnonzero((runs.modulus[:, f] == 0) & (count > 1) & (known[kind, 0] > 0))
        straight = straight[shapes.column("used")[shape[first[straight]], f - 1] < DIGITS]
        m, a, c = known[kind[straight]].T
        rest = runs.slope[straight, f] - a
        begin = values[first[straight], f]
        end = begin + rest * (count[straight] - 1)
        fits = ((rest == c) | (rest == c - m)) & (begin // m == end // m)
        rows = straight[fits]
        runs.modulus[rows, f], runs.slope[rows, f], runs.turn[rows, f] = m[fits], a[fits], c[fits]
        runs.base[rows, f] = begin[fits] // m[fits] * m[fits]
    return runs


def _usual(runs: _Runs, kind: I8, f: int) -> I8:
    """The modulus, slope and turn that most runs of each kind have that have a modulus: i8[kinds,
    3]; of straight runs with two slopes the one that makes them one."""
    n = int(kind.max()) + 1
    known = np.zeros((n, 3), np.int64)
    slope = runs.slope[:, f]
    low, high = np.full(n, np.iinfo(np.int64).max), np.full(n, np.iinfo(np.int64).min)
    np.minimum.at(low, kind, slope)
    np.maximum.at(high, kind, slope)
    third = np.zeros(n, np.bool_)
    np.logical_or.at(third, kind, (slope != low[kind]) & (slope != high[kind]))
    m = np.maximum(high - low, 1)
    pair = ~third & (low < high) & (high % m != 0)
    known[pair] = np.stack([m, high - high % m, high % m], axis=1)[pair]
    rows = np.flatnonzero(runs.modulus[:, f])
    if len(rows):
        what = np.stack(
            [kind[rows], runs.modulus[rows, f], slope[rows], runs.turn[rows, f]], axis=1
        )
        each, often = np.unique(what, axis=0, return_counts=True)
        each = each[np.argsort(often, kind="stable")]
        known[each[:, 0]] = each[:, 1:]  # of several the last, the most frequent, stays
    return known


def _worthwhile(runs: _Runs, shape: I8, group: I8, shapes: _Shapes, across: bool) -> _Runs:
    """Without loops that would not be shorter than what they stand for: of a few transfers with
    nothing alike beside them, over few steps, and of nests over steps that overlap."""
    first, count = runs.begin[:-1], runs.count
    single = shape[first] < 2
    if across:
        span = shapes.column("span")[shape[first]]
        bad = (count < FEWEST + single) | (runs.slope[:, STEP] <= span)
    else:
        what = np.column_stack([shape[first], count, runs.slope, runs.modulus, runs.turn])
        same = (what[1:] == what[:-1]).all(axis=1)
        ends = [False][: len(first)]
        beside = np.concatenate([ends, same]) | np.concatenate([same, ends])
        bad = single & (count < FEWEST + 1) & ~beside
    bad &= count > 1
    parts = np.where(bad, count, 1)
    begin = np.repeat(first, parts) + places(parts)
    keep = np.repeat(~bad, parts)[:, None]

    def kept(a: I8) -> I8:
        return np.repeat(a, parts, axis=0) * keep

    ends_at = np.append(begin, runs.begin[-1])
    return _Runs(ends_at, kept(runs.slope), kept(runs.modulus), kept(runs.turn), kept(runs.base))


def _across(shapes: _Shapes, shape: I8, values: I8, pairs: bool) -> Rolled:
    """Loops over steps, and all items in an order that keeps that of every step.

    What goes on in the next step is the item of the same shape in the same place among its like;
    pairs: the one between the same ranks.
    """
    owner = np.arange(len(shape))
    new_shape, new_values = shape, values
    for level in range(ACROSS):
        step = new_values[:, STEP]
        like = new_shape
        if pairs:
            ends = new_values[:, [SRC, DST]]
            like = _numbered(np.column_stack([new_shape, ends]))
        nth = places_among(like * (int(step.max(initial=0)) + 1) + step)
        order = np.lexsort((step, nth, like))
        s, v = new_shape[order], new_values[order]
        other = (np.diff(like[order]) != 0) | (np.diff(nth[order]) != 0)
        if level:  # what no loop took before stays alone
            span = shapes.column("span")[s]
            other |= span[1:] == 0
        group = np.cumsum(np.concatenate([[False][: len(s)], other]))
        new_shape, new_values, into = _level(shapes, s, v, group, across=True)
        back = np.empty(len(order), np.int64)
        back[order] = into
        owner = back[owner]
    inner = shape, values, values[:, STEP]
    return Rolled(shapes.shapes, *ordered(inner, (new_shape, new_values), owner))


def _numbered(rows: I8) -> I8:
    """A number for each row, the same for equal ones: i8[n]."""
    order = np.lexsort(rows.T)
    new = np.concatenate([[False][: len(rows)], (np.diff(rows[order], axis=0) != 0).any(axis=1)])
    number = np.empty(len(rows), np.int64)
    number[order] = np.cumsum(new)
    return number
