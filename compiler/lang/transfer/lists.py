"""lists: in every iteration a stretch of one pool of elements, so that indexing is one gather.

`[0, 2, 1, 3]` is one pool of four numbers and the same stretch of it in every iteration; with a
loop variable inside, each iteration has a stretch of its own. The elements of a list of lists are
stretches of a pool themselves. Lists never change; a variable can get another list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import I8
from hccc.lang.transfer.budget import TooMuch
from hccc.lang.transfer.values import (
    EvaluationFault,
    Ints,
    Value,
    as_array,
    bounds,
    first,
    iteration_value,
    raw,
)
from hccc.lang.transfer.values import take as take_numbers

MAX_ELEMENTS = 1 << 24  # of one pool
MAX_DEPTH = 8
NOTHING = Ints(np.zeros(0, np.int64), 0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """A list per iteration: the elements `begin` to `begin + length` of `items`."""

    items: Pool
    begin: Value
    length: Value


Pool = Ints | Lists  # of Lists, `begin` and `length` are arrays, an element of the pool each


@dataclass(frozen=True, slots=True)
class Mixed:
    """A list in some iterations and a number, or a list of another kind, in others."""


MIXED = Mixed()
AnyValue = Value | Lists | Mixed


def take(any_value: AnyValue, iterations: I8 | slice) -> AnyValue:
    """Returns the values in the given iterations."""
    match any_value:
        case Lists(items, begin, length):
            return Lists(items, take_numbers(begin, iterations), take_numbers(length, iterations))
        case Mixed():
            return any_value
        case _:
            return take_numbers(any_value, iterations)


def at_iteration(any_value: AnyValue, iteration: int) -> AnyValue:
    """Returns the value in one iteration."""
    match any_value:
        case Lists(items, begin, length):
            here = iteration_value(begin, iteration), iteration_value(length, iteration)
            return Lists(items, *here)
        case Mixed():
            return any_value
        case _:
            return iteration_value(any_value, iteration)


def list_of_items(values: Sequence[AnyValue], n: int) -> Lists:
    """Evaluates `[a, b, …]` in n iterations. Raises E119 for mixtures, E006 for too deep lists."""
    numbers = [value for value in values if isinstance(value, int | Ints)]
    if len(numbers) == len(values):
        wide = n if any(isinstance(value, Ints) for value in numbers) else 1
        return _rows(_stacked(numbers, wide), wide)
    lists = [value for value in values if isinstance(value, Lists)]
    pool = _joined([value.items for value in lists])
    if len(lists) != len(values) or pool is None:
        raise EvaluationFault(0, "E119", "a list holds numbers, or lists of one kind, not both")
    if _depth(pool) >= MAX_DEPTH:
        raise EvaluationFault(0, "E006", f"lists nest more than {MAX_DEPTH} deep")
    sizes = np.cumsum([0, *(_size(value.items) for value in lists)]).tolist()
    begins = [_plus(value.begin, size) for value, size in zip(lists, sizes, strict=False)]
    lengths = [value.length for value in lists]
    wide = n if any(isinstance(value, Ints) for value in (*begins, *lengths)) else 1
    return _rows(Lists(pool, _stacked(begins, wide), _stacked(lengths, wide)), wide)


def _rows(pool: Pool, wide: int) -> Lists:
    """Cuts the pool into `wide` lists of one length."""
    length = _size(pool) // wide
    if wide == 1:
        return Lists(pool, 0, length)
    begin = np.arange(wide) * length
    return Lists(pool, Ints(begin, 0, (wide - 1) * length), length)


def _stacked(values: Sequence[Value], wide: int) -> Ints:
    """Returns the values of iteration 0, those of iteration 1, …"""
    if not values:
        return NOTHING
    _check_size(len(values) * wide)
    data = np.stack([as_array(value, wide) for value in values], axis=1).reshape(-1)
    return Ints(data, int(data.min()), int(data.max()))


def _check_size(elements: int) -> None:
    if elements > MAX_ELEMENTS:
        raise TooMuch("E114", f"the lists of this program take more than {MAX_ELEMENTS:,} numbers")


def elements(any_value: AnyValue | None) -> int:
    """Returns the number of elements in the pool of a list; 0 for numbers."""
    return _size(any_value.items) if isinstance(any_value, Lists) else 0


def varies(any_value: AnyValue) -> bool:
    """Tells whether a value may differ between iterations."""
    if isinstance(any_value, Lists):
        return isinstance(any_value.begin, Ints) or isinstance(any_value.length, Ints)
    return isinstance(any_value, Ints)


def _size(pool: Pool) -> int:
    if isinstance(pool, Lists):
        return 1 if isinstance(pool.begin, int) else len(pool.begin.data)
    return len(pool.data)


def _depth(pool: Pool) -> int:
    return 1 if isinstance(pool, Ints) else 1 + _depth(pool.items)


def _plus(value: Value, more: int) -> Value:
    if isinstance(value, int):
        return value + more
    return Ints(value.data + more, value.low + more, value.high + more) if more else value


def _joined(pools: Sequence[Pool]) -> Pool | None:
    """Joins the pools, one after the other; None if some hold numbers and others lists."""
    filled = [pool for pool in pools if _size(pool)]
    if len(filled) < 2:
        return filled[0] if filled else NOTHING
    _check_size(sum(map(_size, filled)))
    numbers = [pool for pool in filled if isinstance(pool, Ints)]
    if len(numbers) == len(filled):
        return _concatenated(numbers)
    lists = [pool for pool in filled if isinstance(pool, Lists)]
    inner = _joined([pool.items for pool in lists])
    if len(lists) != len(filled) or inner is None:
        return None
    sizes = np.cumsum([0, *(_size(pool.items) for pool in lists)]).tolist()
    begins = [_plus(pool.begin, size) for pool, size in zip(lists, sizes, strict=False)]
    return Lists(inner, _concatenated(begins), _concatenated([pool.length for pool in lists]))


def _concatenated(values: Sequence[Value]) -> Ints:
    arrays = [np.atleast_1d(np.asarray(v if isinstance(v, int) else v.data)) for v in values]
    ends = [bounds(value) for value in values]
    return Ints(np.concatenate(arrays), min(a for a, _ in ends), max(b for _, b in ends))


def index(lists: Lists, position: Value) -> AnyValue:
    """Evaluates `list[position]`; negative positions count from the end. Raises E116 out of
    range."""
    length = lists.length
    low, high = bounds(position)
    if not (low >= 0 and high < bounds(length)[0]):
        _check_range(position, length)
        position = _from_start(position, length)
    if isinstance(lists.begin, int) and isinstance(position, int):
        return at_iteration(lists.items, lists.begin + position)
    return take(lists.items, np.add(raw(lists.begin), raw(position)))


def _check_range(position: Value, length: Value) -> None:
    where, long = raw(position), raw(length)
    bad = np.atleast_1d(np.greater_equal(where, long) | np.less(where, np.negative(long)))
    if bad.any():
        iteration = first(bad)
        count = iteration_value(length, iteration)
        has = f"has {count} element{'s' if count > 1 else ''}" if count else "is empty"
        shown = iteration_value(position, iteration)
        help = f"positions are 0 to {count - 1}, or -{count} to -1 from its end" if count else None
        raise EvaluationFault(
            iteration, "E116", f"the list {has}, so there is no element {shown}", help
        )


def _from_start(position: Value, length: Value) -> Value:
    if isinstance(position, int) and isinstance(length, int):
        return position + length * (position < 0)
    where = np.asarray(raw(position))
    data = where + np.where(where < 0, raw(length), 0)
    return Ints(data, 0, bounds(length)[1])


def merged(old: AnyValue | None, new: AnyValue, target: I8, n: int) -> AnyValue:
    """Returns `old` in n iterations, but `new` in the iterations `target`; any value if both are
    missing."""
    if isinstance(old, int | Ints | None) and isinstance(new, int | Ints):
        return _merged_numbers(0 if old is None else old, new, target, n)
    if not isinstance(old, Lists | None) or not isinstance(new, Lists):
        return MIXED
    if old is None:
        old = Lists(new.items, 0, 0)
    pool: Pool | None = new.items
    if old.items is not new.items:
        pool = _joined([old.items, new.items])
        new = Lists(new.items, _plus(new.begin, _size(old.items)), new.length)
    if pool is None:
        return MIXED
    begin = _merged_numbers(old.begin, new.begin, target, n)
    found = Lists(pool, begin, _merged_numbers(old.length, new.length, target, n))
    return found if old.items is new.items else _compact(found)


def _merged_numbers(old: Value, new: Value, target: I8, n: int) -> Value:
    data = as_array(old, n).copy()
    data[target] = new if isinstance(new, int) else new.data
    (low, high), (old_low, old_high) = bounds(new), bounds(old)
    return Ints(data, min(low, old_low), max(high, old_high))


def _compact(lists: Lists) -> Lists:
    """Returns the same lists over a smaller pool of used elements, if that at least halves it."""
    begin, length = np.asarray(raw(lists.begin)), np.asarray(raw(lists.length))
    pairs, which = np.unique(np.stack([begin, length], axis=1), axis=0, return_inverse=True)
    total = int(pairs[:, 1].sum())
    if 2 * total > _size(lists.items):
        return lists
    ends = np.cumsum(pairs[:, 1])
    new_begin = ends - pairs[:, 1]
    gathered = np.arange(total) + np.repeat(pairs[:, 0] - new_begin, pairs[:, 1])
    items = take(lists.items, gathered)
    if isinstance(items, Lists):
        items = _compact(items)
    assert isinstance(items, Ints | Lists)
    return Lists(items, Ints(new_begin[which.reshape(-1)], 0, total), lists.length)
