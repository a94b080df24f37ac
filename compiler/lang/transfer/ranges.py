"""The iterations of `range(start, stop, step)`, for every lane at once."""

from __future__ import annotations

import numpy as np

from hccc.ir.arrays import I8
from hccc.lang.transfer.budget import MAX_ITERATIONS
from hccc.lang.transfer.values import Fault, Ints, Value, as_array, bounds, first

Range = tuple[Value, Value, Value]


def lengths(over: Range, lanes: int) -> Value:
    """How many iterations each lane makes. Raises `Fault` for stride 0 or absurd length."""
    start, stop, step = over
    if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int):
        return _length(start, stop, step)
    a, b, s = (as_array(value, lanes) for value in over)
    if (s == 0).any():
        raise _zero_step(first(s == 0))
    up = s > 0
    # Modulo 2**64 the distance is exact wherever the range is not empty.
    distance = np.where(up, b - a, a - b).astype(np.uint64)
    stride = np.where(up, s, -s).astype(np.uint64)
    filled = np.where(up, b > a, b < a)
    count = np.where(filled, (distance - np.uint64(1)) // stride + np.uint64(1), np.uint64(0))
    if (count > MAX_ITERATIONS).any():
        lane = first(count > MAX_ITERATIONS)
        raise _too_long(lane, int(count[lane]))
    return Ints(count.astype(np.int64), 0, int(count.max()))


def _length(start: int, stop: int, step: int) -> int:
    if step == 0:
        raise _zero_step(0)
    count = max(0, (stop - start + step - (1 if step > 0 else -1)) // step)
    if count > MAX_ITERATIONS:
        raise _too_long(0, count)
    return count


def _zero_step(lane: int) -> Fault:
    return Fault(lane, "E115", "the stride of a range must not be 0")


def _too_long(lane: int, count: int) -> Fault:
    message = f"this range has {count:,} iterations; at most {MAX_ITERATIONS:,} are possible"
    return Fault(lane, "E104", message)


def owners(counts: Value, first_one: int, end: int) -> tuple[I8, I8]:
    """Of iterations `first_one:end`, numbered over all lanes: the lane of each, and its turn."""
    number = np.arange(first_one, end)
    if isinstance(counts, int):
        lane = number // counts
        return lane, number - lane * counts
    ends = np.cumsum(counts.data)
    lane = np.searchsorted(ends, number, side="right")
    return lane, number - (ends - counts.data)[lane]


def variable(over: Range, lane: I8, turn: I8) -> Ints:
    """The loop variable in turn `turn` of each lane `lane`."""
    start, stop, step = over
    a = start if isinstance(start, int) else start.data[lane]
    s = step if isinstance(step, int) else step.data[lane]
    up, down = bounds(step)[1] > 0, bounds(step)[0] < 0
    low = min([bounds(start)[0]] * up + [bounds(stop)[0] + 1] * down)
    high = max([bounds(stop)[1] - 1] * up + [bounds(start)[1]] * down)
    return Ints(a + turn * s, low, high)


def in_turn(over: Range, turn: int, lanes: I8) -> Value:
    """The loop variable in turn `turn` of the given lanes."""
    start, _, step = over
    if isinstance(start, int) and isinstance(step, int):
        return start + turn * step
    return variable(over, lanes, np.full(len(lanes), turn))


def total(counts: Value, lanes: int) -> int:
    """All iterations of all lanes; no lane has more than `MAX_ITERATIONS`."""
    return counts * lanes if isinstance(counts, int) else int(counts.data.sum())
