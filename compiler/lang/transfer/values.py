"""values: checked 64-bit integers: one for all iterations (`int`), or one per iteration (`Ints`).

Every `Ints` has bounds of its numbers. If the bounds of a result fit 64 bits nothing is checked, so
an operation is one pass over the data; if not, the exact bounds are computed, and only if even
those do not fit is every iteration checked.

A failing operation raises `EvaluationFault` with the first iteration that fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import B1, I8
from hccc.lang.mistakes import At, Mistake

LOW, HIGH = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Ints:
    """One integer per iteration: data i8[n]; low <= data <= high, not necessarily reached."""

    data: I8
    low: int
    high: int


Value = int | Ints


class EvaluationFault(Mistake):
    """A mistake in one iteration. loops: (name, value) of the loops around, outermost first; calls:
    the functions around, innermost first, and the place of each call."""

    def __init__(self, iteration: int, code: str, message: str, help: str | None = None) -> None:
        super().__init__(code, message, None, help)
        self.iteration = iteration
        self.loops: list[tuple[str, int]] = []
        self.calls: list[tuple[str, At]] = []

    def placed(self, at: At) -> EvaluationFault:
        """Returns this fault, at `at` unless it has a place already."""
        self.at = self.at or at
        return self


def bounds(value: Value) -> tuple[int, int]:
    """Returns known bounds of a value."""
    return (value, value) if isinstance(value, int) else (value.low, value.high)


def iteration_value(value: Value, iteration: int) -> int:
    """Returns the value in one iteration."""
    return value if isinstance(value, int) else int(value.data[iteration])


def take(value: Value, iterations: I8 | slice) -> Value:
    """Returns the value in the given iterations."""
    return value if isinstance(value, int) else Ints(value.data[iterations], value.low, value.high)


def tight(value: Value) -> Value:
    """Returns the value with its exact bounds."""
    if isinstance(value, int):
        return value
    return Ints(value.data, int(value.data.min()), int(value.data.max()))


def truth(value: Value) -> bool | B1:
    """Tells whether a value is nonzero."""
    return value != 0 if isinstance(value, int) else np.not_equal(value.data, 0)


def as_array(value: Value, iterations: int) -> I8:
    """Returns the value in every iteration: i8[n]."""
    return np.full(iterations, value, np.int64) if isinstance(value, int) else value.data


def first(bad: B1) -> int:
    """Returns the first iteration where `bad` holds; there must be one."""
    return int(np.argmax(bad))


def raw(value: Value) -> int | I8:
    """Returns the value as NumPy computes with it."""
    return value if isinstance(value, int) else value.data


def _show(op: str, a: Value, b: Value, iteration: int) -> str:
    return f"{iteration_value(a, iteration)} {op} {iteration_value(b, iteration)}"


def _overflow(op: str, a: Value, b: Value, iteration: int) -> EvaluationFault:
    return EvaluationFault(
        iteration, "E103", f"{_show(op, a, b, iteration)} does not fit in 64 bits"
    )


def _corners(f: Callable[[int, int], int], a: Value, b: Value) -> tuple[int, int]:
    """Returns the bounds of a function that is monotone in each argument."""
    (a0, a1), (b0, b1) = bounds(a), bounds(b)
    values = f(a0, b0), f(a0, b1), f(a1, b0), f(a1, b1)
    return min(values), max(values)


def _fits(low: int, high: int) -> bool:
    return low >= LOW and high <= HIGH


def _linear(
    op: str,
    exact: Callable[[int, int], int],
    wrapping: Callable[..., I8],
    a: Value,
    b: Value,
) -> Value:
    """Computes `+ - *`: without checks if the bounds fit, else with a check of dangerous
    iterations."""
    if isinstance(a, int) and isinstance(b, int):
        result = exact(a, b)
        if not _fits(result, result):
            raise _overflow(op, a, b, 0)
        return result
    low, high = _corners(exact, a, b)
    if not _fits(low, high):
        a, b = tight(a), tight(b)
        low, high = _corners(exact, a, b)
    if not _fits(low, high):
        _find_overflow(op, exact, wrapping, a, b)
        low, high = max(low, LOW), min(high, HIGH)
    return Ints(wrapping(raw(a), raw(b)), low, high)


def _find_overflow(
    op: str, exact: Callable[[int, int], int], wrapping: Callable[..., I8], a: Value, b: Value
) -> None:
    left, right = (np.asarray(raw(x), np.float64) for x in (a, b))
    for iteration in np.flatnonzero(np.abs(wrapping(left, right)) > 2.0**62.99).tolist():
        result = exact(iteration_value(a, iteration), iteration_value(b, iteration))
        if not _fits(result, result):
            raise _overflow(op, a, b, iteration)


def add(a: Value, b: Value) -> Value:
    """Returns a + b."""
    return _linear("+", int.__add__, np.add, a, b)


def subtract(a: Value, b: Value) -> Value:
    """Returns a - b."""
    return _linear("-", int.__sub__, np.subtract, a, b)


def multiply(a: Value, b: Value) -> Value:
    """Returns a * b."""
    return _linear("*", int.__mul__, np.multiply, a, b)


def _check_divisor(op: str, a: Value, b: Value) -> None:
    low, high = bounds(b)
    if low > 0 or high < 0:
        return
    zero = np.equal(raw(b), 0)
    if np.any(zero):
        iteration = first(np.atleast_1d(zero))
        raise EvaluationFault(iteration, "E110", f"{_show(op, a, b, iteration)} divides by zero")


def _check_quotient(op: str, a: Value, b: Value) -> None:
    """Raises E103 for -2**63 / -1, the only quotient that overflows."""
    if bounds(a)[0] == LOW and bounds(b)[0] <= -1 <= bounds(b)[1]:
        bad = np.atleast_1d(np.equal(raw(a), LOW) & np.equal(raw(b), -1))
        if bad.any():
            raise _overflow(op, a, b, first(bad))


def floor_divide(a: Value, b: Value, op: str = "//") -> Value:
    """Returns a // b, rounded down as in Python."""
    _check_divisor(op, a, b)
    _check_quotient(op, a, b)
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if isinstance(b, int) and b > 0:
        low, high = bounds(a)[0] // b, bounds(a)[1] // b
    else:
        most = max(map(abs, bounds(a)))
        low, high = max(-most, LOW), min(most, HIGH)
    return Ints(np.floor_divide(raw(a), raw(b)), low, high)


def modulo(a: Value, b: Value) -> Value:
    """Returns a % b, with b's sign as in Python."""
    _check_divisor("%", a, b)
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    if isinstance(b, int) and b > 0:
        return _modulo_positive(a, b)
    low, high = bounds(b)
    # x86 traps on -2**63 % -1, so -1 is replaced by 1, which leaves 0 as well.
    divisor = np.where(np.equal(raw(b), -1), 1, raw(b))
    return Ints(np.remainder(raw(a), divisor), min(low + 1, 0), max(high - 1, 0))


def _modulo_positive(a: Value, b: int) -> Value:
    low, high = bounds(a)
    if low >= 0 and high < b:
        return a
    data = np.asarray(raw(a))
    if b & (b - 1) == 0:
        return Ints(data & (b - 1), 0, b - 1)
    # NumPy divides by a scalar with multiplications, but has no such remainder.
    return Ints(data - np.floor_divide(data, b) * b, 0, b - 1)


def divide(a: Value, b: Value) -> Value:
    """Returns a / b, which must leave no remainder."""
    result = floor_divide(a, b, "/")
    if isinstance(a, int) and isinstance(b, int) and a % b == 0:
        return result
    rest = np.atleast_1d(np.not_equal(np.multiply(raw(result), raw(b)), raw(a)))
    if rest.any():
        iteration = first(rest)
        raise EvaluationFault(
            iteration,
            "E102",
            f"{_show('/', a, b, iteration)} leaves a remainder",
            "`/` is exact; use `//` to round down",
        )
    return result


def power(a: Value, b: Value) -> Value:
    """Returns a ** b for b >= 0; 0 ** 0 is 1."""
    if bounds(b)[0] < 0:
        negative = np.atleast_1d(np.less(raw(b), 0))
        if negative.any():
            iteration = first(negative)
            raise EvaluationFault(
                iteration, "E111", f"{_show('**', a, b, iteration)}: the exponent is negative"
            )
    # Beyond 2 the exponents of 0, 1 and -1 matter only by parity; of others, beyond 64 not at all.
    base, exponent = np.asarray(raw(a)), np.asarray(raw(b))
    small = np.where(exponent == 0, 0, 2 - exponent % 2)
    times: I8 = np.where((base >= -1) & (base <= 1), small, np.minimum(exponent, 64))
    if isinstance(a, int) and isinstance(b, int):
        result = int(a ** int(times))
        if not _fits(result, result):
            raise _overflow("**", a, b, 0)
        return result
    return _repeated(a, b, times)


def _repeated(a: Value, b: Value, times: I8) -> Value:
    result: Value = 1
    for done in range(int(times.max())):
        factor = Ints(np.where(times > done, raw(a), 1), min(bounds(a)[0], 1), max(bounds(a)[1], 1))
        try:
            result = multiply(result, factor)
        except EvaluationFault as fault:
            raise _overflow("**", a, b, fault.iteration) from None
    return result if isinstance(result, Ints) else Ints(np.ones(times.shape, np.int64), 1, 1)


def _check_shift(op: str, a: Value, b: Value) -> None:
    low, high = bounds(b)
    if low < 0 or high > 63:
        bad = np.atleast_1d(np.less(raw(b), 0) | np.greater(raw(b), 63))
        if bad.any():
            iteration = first(bad)
            message = f"{_show(op, a, b, iteration)}: a shift is by 0 to 63 bits"
            raise EvaluationFault(iteration, "E111", message)


def shift_left(a: Value, b: Value) -> Value:
    """Returns a << b."""
    _check_shift("<<", a, b)
    if isinstance(a, int) and isinstance(b, int):
        if not _fits(a << b, a << b):
            raise _overflow("<<", a, b, 0)
        return a << b
    result = np.left_shift(raw(a), raw(b))
    lost = np.right_shift(result, raw(b)) != raw(a)
    if lost.any():
        raise _overflow("<<", a, b, first(lost))
    return tight(Ints(result, LOW, HIGH))


def shift_right(a: Value, b: Value) -> Value:
    """Returns a >> b, rounding down."""
    _check_shift(">>", a, b)
    if isinstance(a, int) and isinstance(b, int):
        return a >> b
    low, high = bounds(a)
    return Ints(np.right_shift(raw(a), raw(b)), min(low, 0), max(high, 0))


def _bitwise(exact: Callable[[int, int], int], ufunc: Callable[..., I8]) -> Callable[..., Value]:
    def operation(a: Value, b: Value) -> Value:
        if isinstance(a, int) and isinstance(b, int):
            return exact(a, b)
        both = (*bounds(a), *bounds(b))
        bits = max(x.bit_length() for x in both)
        low = 0 if min(both) >= 0 else max(-(1 << bits), LOW)
        return Ints(ufunc(raw(a), raw(b)), low, min((1 << bits) - 1, HIGH))

    return operation


def _compare(exact: Callable[[int, int], bool], ufunc: Callable[..., B1]) -> Callable[..., Value]:
    def operation(a: Value, b: Value) -> Value:
        if isinstance(a, int) and isinstance(b, int):
            return int(exact(a, b))
        return Ints(ufunc(raw(a), raw(b)).astype(np.int64), 0, 1)

    return operation


def _select(exact: Callable[[int, int], int], ufunc: Callable[..., I8]) -> Callable[..., Value]:
    def operation(a: Value, b: Value) -> Value:
        if isinstance(a, int) and isinstance(b, int):
            return exact(a, b)
        (a0, a1), (b0, b1) = bounds(a), bounds(b)
        return Ints(ufunc(raw(a), raw(b)), exact(a0, b0), exact(a1, b1))

    return operation


def negate(a: Value) -> Value:
    """Returns -a."""
    return subtract(0, a)


def invert(a: Value) -> Value:
    """Returns ~a, which always fits."""
    return subtract(-1, a)


def absolute(a: Value) -> Value:
    """Returns abs(a), which overflows for the lowest number only."""
    if bounds(a)[0] == LOW and (lowest := np.atleast_1d(np.equal(raw(a), LOW))).any():
        raise EvaluationFault(first(lowest), "E103", f"abs({LOW}) does not fit in 64 bits")
    return maximum(a, negate(a)) if bounds(a)[0] < 0 else a


minimum = _select(min, np.minimum)
maximum = _select(max, np.maximum)

BINARY: dict[str, Callable[[Value, Value], Value]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "//": floor_divide,
    "%": modulo,
    "**": power,
    "<<": shift_left,
    ">>": shift_right,
    "&": _bitwise(int.__and__, np.bitwise_and),
    "|": _bitwise(int.__or__, np.bitwise_or),
    "^": _bitwise(int.__xor__, np.bitwise_xor),
    "==": _compare(int.__eq__, np.equal),
    "!=": _compare(int.__ne__, np.not_equal),
    "<": _compare(int.__lt__, np.less),
    "<=": _compare(int.__le__, np.less_equal),
    ">": _compare(int.__gt__, np.greater),
    ">=": _compare(int.__ge__, np.greater_equal),
}
