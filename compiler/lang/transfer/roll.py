"""roll: the transfers of a Program as nested loops, where they follow a pattern.

An *item* is a loop nest of one transfer, or a single transfer. Its *shape* holds the count of each
loop and what a turn adds; its *values* hold where it starts. Successive items of one shape whose
values change alike form a loop around that shape. This is done level by level: first within every
step, in program order, then over the items of successive steps.

A field is `value + Σ digit % modulus`; a turn of a loop adds to the value and to each digit. So
ranks go round a node (`8 * n + (r + s) % 8`), or round all of them (`(r + 1) % n`). A modulus is
found where a difference changes once round: from 7 back to 0, ranks that go up by 1 go down by 7.

The order of transfers within every step is that of the Program; between steps it is free, as a
Program is sorted by step. O(transfers · log).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I8, places, places_among
from hccc.ir.program import Program
from hccc.lang.transfer.item_order import ordered_items

STEP, SRC, DST, CHUNK = range(4)
FIELDS = 4
DIGITS = 3  # of each field but the step
WIDTH = FIELDS + 3 * DIGITS
WITHIN = 3  # loops within a step
ACROSS = 2  # loops over steps
SURE = 5  # turns that show a modulus that divides neither ranks nor chunks
FEWEST = 3  # turns of a loop over steps, one more around a single transfer


@dataclass(slots=True)
class LoopShape:
    """A loop nest. child: the shape in the loop, None for a transfer; count: the loop's turns;
    slope: i8[WIDTH] what a turn adds; mods: i8[WIDTH] the modulus of each digit (0: no digit; 1: an
    unused one); used: i8[3] digits in use of each field but the step; rows: transfers; span: steps
    between the first and last transfer."""

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
    """Items in the order of the text: item i has shape `shape[i]` and starts at `values[i]`
    (i8[WIDTH])."""

    shapes: list[LoopShape]
    shape: I8
    values: I8


@dataclass(slots=True)
class _Shapes:
    """All shapes so far, each once. sizes: divisors of these are accepted as moduli without further
    evidence."""

    sizes: I8
    shapes: list[LoopShape] = field(default_factory=list)
    known: dict[bytes, int] = field(default_factory=dict)

    def column(self, name: str) -> I8:
        """Returns one attribute of every shape."""
        return np.array([getattr(shape, name) for shape in self.shapes])


@dataclass(slots=True)
class _Runs:
    """Runs of items. begin: i8[runs + 1]; slope: i8[runs, WIDTH]; modulus, turn, base, i8[runs, 4]:
    of new digits their modulus (0: no digit), what a turn adds to the digit, and the value under
    it."""

    begin: I8
    slope: I8
    modulus: I8
    turn: I8
    base: I8

    @property
    def count(self) -> I8:
        return np.diff(self.begin)


class _Run(NamedTuple):
    """A run while it grows, by field: i8[FIELDS] each, slope i8[WIDTH].

    In item k of a run, a field is slope · k plus a *rest*. The rest is the same in all items of a
    straight field, which has modulus 0. In other fields it goes up by `turn`, modulo `modulus`, so
    that all rests, from `low` to `high`, lie within one modulus:

        field            5  6  7  0  1      5  14  23  24  33
        differences        1  1 -7  1         9   9   1   9
        slope                0                   8
        rests            5  6  7  0  1      5   6   7   0   1
        turn, modulus        1, 8                1, 8

    wrapped: the item whose difference showed the modulus.
    """

    slope: I8
    modulus: I8
    turn: I8
    low: I8
    high: I8
    wrapped: I8


@njit
def _continues(
    run: _Run, longer: _Run, first: int, item: int, values: I8, mods: I8, used: I8, sizes: I8
) -> bool:
    """Tells whether `item` continues the run of items from `first` on; `longer` becomes the run
    with it. mods: i8[WIDTH], used: i8[3] of the items' shape."""
    turns = item - first
    for digit in range(FIELDS, WIDTH):
        if mods[digit] > 1:
            delta = (values[item, digit] - values[item - 1, digit]) % mods[digit]
            if turns == 1:
                run.slope[digit] = delta
            elif delta != run.slope[digit]:
                return False
    for f in range(FIELDS):
        slope, modulus, turn = run.slope[f], run.modulus[f], run.turn[f]
        low, high = run.low[f], run.high[f]
        delta = values[item, f] - values[item - 1, f]
        if turns == 1:
            slope = delta
        elif modulus != 0:
            rest = values[item, f] - slope * turns
            low, high = min(low, rest), max(high, rest)
            if (delta - slope - turn) % modulus != 0 or high - low >= modulus:
                return False
        elif delta != slope:
            if f == STEP or used[f - 1] == DIGITS:
                return False
            larger = max(delta, slope)
            modulus = abs(delta - slope)
            turn = larger % modulus
            slope = larger - turn
            start = values[first, f]
            before = values[item - 1, f] - slope * (turns - 1)
            rest = values[item, f] - slope * turns
            low, high = min(start, before, rest), max(start, before, rest)
            longer.wrapped[f] = item
            if turn == 0 or high - low >= modulus:
                return False
            unusual = sizes[0] % modulus != 0 and sizes[1] % modulus != 0
            if unusual and modulus % min(turn, modulus - turn) != 0:
                return False
        longer.slope[f], longer.modulus[f], longer.turn[f] = slope, modulus, turn
        longer.low[f], longer.high[f] = low, high
    return True


@njit
def _settled(run: _Run, base: I8, first: int, end: int, values: I8, sizes: I8) -> int:
    """Ends the run before a modulus that too few items show, makes fields straight again that do
    not wrap before the end, and finds the `base` under the digits of others. Returns the end."""
    for f in range(1, FIELDS):
        modulus = run.modulus[f]
        short = modulus != 0 and end - first < SURE
        if short and sizes[0] % modulus != 0 and sizes[1] % modulus != 0:
            end = min(end, run.wrapped[f])
    for f in range(1, FIELDS):
        if run.modulus[f] != 0 and run.wrapped[f] >= end:
            run.slope[f] = values[first + 1, f] - values[first, f] if end > first + 1 else 0
            run.modulus[f] = run.turn[f] = 0
        modulus = run.modulus[f]
        if modulus != 0:
            low = high = values[first, f]
            for item in range(first + 1, end):
                rest = values[item, f] - run.slope[f] * (item - first)
                low, high = min(low, rest), max(high, rest)
            base[f] = low // modulus * modulus
            if high >= base[f] + modulus:
                base[f] = low
    return end


@njit
def _runs(
    group: I8, shape: I8, values: I8, mods: I8, used: I8, sizes: I8
) -> tuple[I8, I8, I8, I8, I8]:
    """Finds the longest runs from the first item on, as the fields of `_Runs`; only items of one
    `group` share a run."""
    n = len(group)
    begin = np.zeros(n + 1, np.int64)
    slope = np.zeros((n, WIDTH), np.int64)
    modulus, turn, base = np.zeros((3, n, FIELDS), np.int64)
    low, high, wrapped = np.zeros((3, FIELDS), np.int64)
    new_modulus, new_turn, new_low, new_high = np.zeros((4, FIELDS), np.int64)
    longer = _Run(np.zeros(WIDTH, np.int64), new_modulus, new_turn, new_low, new_high, wrapped)
    count = first = 0
    while first < n:
        begin[count] = first
        run = _Run(slope[count], modulus[count], turn[count], low, high, wrapped)
        key, end = shape[first], first + 1
        while end < n and group[end] == group[first]:
            if not _continues(run, longer, first, end, values, mods[key], used[key], sizes):
                break
            run.slope[:FIELDS] = longer.slope[:FIELDS]
            run.modulus[:], run.turn[:] = longer.modulus, longer.turn
            run.low[:], run.high[:] = longer.low, longer.high
            end += 1
        end = _settled(run, base[count], first, end, values, sizes)
        # Steps 0, 3, 4, 5: the pair gives way to the longer run that its second item begins.
        if end == first + 2 and end + 1 < n and group[end + 1] == group[first]:
            delta = values[end, STEP] - values[first + 1, STEP]
            longer_run = delta == values[end + 1, STEP] - values[end, STEP]
            if longer_run and delta != values[first + 1, STEP] - values[first, STEP]:
                end = first + 1
                run.modulus[:] = 0
        if end == first + 1:
            run.slope[:] = 0
        count += 1
        first = end
    begin[count] = n
    return begin[: count + 1], slope[:count], modulus[:count], turn[:count], base[:count]


def roll(p: Program) -> Rolled:
    """Rolls the transfers of `p` into loop nests, in an order that gives `p` again."""
    t, c = p.transfers, p.collective
    values: I8 = np.zeros((len(t), WIDTH), np.int64)
    for f, name in enumerate(("step", "src", "dst", "chunk")):
        values[:, f] = t[name]
    shapes = _Shapes(np.array([c.n_ranks, c.n_chunks], np.int64))
    mods = np.zeros(WIDTH, np.int64)
    mods[FIELDS:] = 1
    for reduces in (False, True):
        none = np.zeros(WIDTH, np.int64), mods, np.zeros(3, np.int64)
        shapes.shapes.append(LoopShape(None, 1, *none, 1, 0, 0, reduces))
    shape: I8 = t["op"].astype(np.int64)
    for level in range(WITHIN):
        shape, values, _ = _level(shapes, shape, values, _neighbours(shape, values, level))
    found = [_across(shapes, shape, values, pairs) for pairs in (False, True)]
    return min(found, key=lambda rolled: len(rolled.shape))


def _neighbours(shape: I8, values: I8, level: int) -> I8:
    """Returns numbers for groups of successive items of one shape in one step; a transfer that no
    loop took at the first level stays alone at later ones."""
    other = (np.diff(shape) != 0) | (np.diff(values[:, STEP]) != 0)
    if level:
        other |= shape[1:] < 2
    return np.cumsum(np.concatenate([[False][: len(shape)], other]))


def _level(
    shapes: _Shapes, shape: I8, values: I8, group: I8, across: bool = False
) -> tuple[I8, I8, I8]:
    """Puts one more loop around items of one group. Returns the new items, and the new item of each
    old one."""
    if not len(shape):
        return shape, values, shape
    mods, used = shapes.column("mods"), shapes.column("used")
    arrays = _runs(group, shape, values, mods, used, shapes.sizes)
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
    """Returns the number of each row's shape, adding new shapes. found: child, count, slope,
    mods."""
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
                LoopShape(
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
    """Gives runs too short to wrap around the modulus of similar runs, if it fits."""
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
    """Returns the most frequent modulus, slope and turn of the runs of each kind: i8[kinds, 3]. Of
    straight runs with exactly two slopes it is the one that unites them."""
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
        rows_of_kind = np.stack(
            [kind[rows], runs.modulus[rows, f], slope[rows], runs.turn[rows, f]], axis=1
        )
        distinct, times = np.unique(rows_of_kind, axis=0, return_counts=True)
        distinct = distinct[np.argsort(times, kind="stable")]
        known[distinct[:, 0]] = distinct[:, 1:]  # the last one of a kind stays: the most frequent
    return known


def _worthwhile(runs: _Runs, shape: I8, group: I8, shapes: _Shapes, across: bool) -> _Runs:
    """Dissolves loops that would not be shorter than their transfers: of few transfers without
    equals beside them, over few steps, or of nests over steps that overlap."""
    first, count = runs.begin[:-1], runs.count
    single = shape[first] < 2
    if across:
        span = shapes.column("span")[shape[first]]
        bad = (count < FEWEST + single) | (runs.slope[:, STEP] <= span)
    else:
        kind = np.column_stack([shape[first], count, runs.slope, runs.modulus, runs.turn])
        same = (kind[1:] == kind[:-1]).all(axis=1)
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
    """Makes loops over steps, and orders all items so that the order within every step stays.

    An item continues in the next step as the item of the same shape (pairs: and between the same
    ranks) in the same place among its equals.
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
        if level:  # an item that no loop took before stays alone
            span = shapes.column("span")[s]
            other |= span[1:] == 0
        group = np.cumsum(np.concatenate([[False][: len(s)], other]))
        new_shape, new_values, into = _level(shapes, s, v, group, across=True)
        back = np.empty(len(order), np.int64)
        back[order] = into
        owner = back[owner]
    inner = shape, values, values[:, STEP]
    return Rolled(shapes.shapes, *ordered_items(inner, (new_shape, new_values), owner))


def _numbered(rows: I8) -> I8:
    """Returns a number for each row, equal for equal rows: i8[n]."""
    order = np.lexsort(rows.T)
    new = np.concatenate([[False][: len(rows)], (np.diff(rows[order], axis=0) != 0).any(axis=1)])
    number = np.empty(len(rows), np.int64)
    number[order] = np.cumsum(new)
    return number
