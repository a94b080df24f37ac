"""ranges: the iterations of a range or over a list, for all iterations of the outer loops at
once."""

from __future__ import annotations

import numpy as np

from hccc.base.diagnostics import InternalError
from hccc.ir.arrays import I8
from hccc.lang.transfer.budget import MAX_ITERATIONS
from hccc.lang.transfer.lists import Lists
from hccc.lang.transfer.values import EvaluationFault, Ints, Value, as_array, bounds, first

Range = tuple[Value, Value, Value]
LoopSource = Range | Lists


def lengths(over: LoopSource, iterations: int) -> Value:
    """Returns the number of iterations in each outer one. Raises `EvaluationFault` for stride 0 or
    excessive length."""
    if isinstance(over, Lists):
        return over.length
    start, stop, step = over
    if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int):
        return _length(start, stop, step)
    a, b, s = (as_array(value, iterations) for value in over)
    if (s == 0).any():
        raise _zero_step(first(s == 0))
    up = s > 0
    # Modulo 2**64 the distance is exact wherever the range is not empty.
    distance = np.where(up, b - a, a - b).astype(np.uint64)
    stride = np.where(up, s, -s).astype(np.uint64)
    filled = np.where(up, b > a, b < a)
    count = np.where(filled, (distance - np.uint64(1)) // stride + np.uint64(1), np.uint64(0))
    if (count > MAX_ITERATIONS).any():
        iteration = first(count > MAX_ITERATIONS)
        raise _too_long(iteration, int(count[iteration]))
    return Ints(count.astype(np.int64), 0, int(count.max()))


def _length(start: int, stop: int, step: int) -> int:
    if step == 0:
        raise _zero_step(0)
    count = max(0, (stop - start + step - (1 if step > 0 else -1)) // step)
    if count > MAX_ITERATIONS:
        raise _too_long(0, count)
    return count


def _zero_step(iteration: int) -> EvaluationFault:
    return EvaluationFault(iteration, "E115", "the stride of a range must not be 0")


def _too_long(iteration: int, count: int) -> EvaluationFault:
    message = f"this range has {count:,} iterations; at most {MAX_ITERATIONS:,} are possible"
    return EvaluationFault(iteration, "E104", message)


def owners(counts: Value, begin: int, end: int) -> tuple[I8, I8]:
    """Returns for the iterations `begin:end`, numbered over all outer ones, their outer iteration
    and round."""
    number = np.arange(begin, end)
    if isinstance(counts, int):
        iteration = number // counts
        return iteration, number - iteration * counts
    ends = np.cumsum(counts.data)
    iteration = np.searchsorted(ends, number, side="right")
    return iteration, number - (ends - counts.data)[iteration]


def variable(over: LoopSource, iteration: I8, round_: I8) -> Ints:
    """Returns the loop variable in round `round_` of each outer iteration `iteration`."""
    if isinstance(over, Lists):
        begin = over.begin if isinstance(over.begin, int) else over.begin.data[iteration]
        return _elements(over, begin + round_)
    start, stop, step = over
    a = start if isinstance(start, int) else start.data[iteration]
    s = step if isinstance(step, int) else step.data[iteration]
    up, down = bounds(step)[1] > 0, bounds(step)[0] < 0
    low = min([bounds(start)[0]] * up + [bounds(stop)[0] + 1] * down)
    high = max([bounds(stop)[1] - 1] * up + [bounds(start)[1]] * down)
    return Ints(a + round_ * s, low, high)


def in_round(over: LoopSource, round_: int, iterations: I8) -> Value:
    """Returns the loop variable in round `round_` of the given outer iterations."""
    if isinstance(over, Lists):
        if isinstance(over.begin, int):
            element = _elements(over, np.array([over.begin + round_]))
            return int(element.data[0])
        return _elements(over, over.begin.data[iterations] + round_)
    start, _, step = over
    if isinstance(start, int) and isinstance(step, int):
        return start + round_ * step
    return variable(over, iterations, np.full(len(iterations), round_))


def _elements(over: Lists, where: I8) -> Ints:
    """Returns the numbers at these positions of the pool, which holds no lists."""
    numbers = over.items
    if isinstance(numbers, Lists):
        raise InternalError("a loop over a list of lists")
    return Ints(numbers.data[where], numbers.low, numbers.high)


def total(counts: Value, iterations: int) -> int:
    """Returns the number of iterations of all outer ones; none of these has more than
    `MAX_ITERATIONS`."""
    return counts * iterations if isinstance(counts, int) else int(counts.data.sum())
