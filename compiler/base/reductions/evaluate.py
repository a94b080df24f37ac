"""evaluate: what reductions of one's own give, over arrays.

Integers wrap, a NaN of either makes the result of min and max one (of two the right one), and min
and max keep the left of two equals, as kernels do. Arrays of objects hold exact fractions, and None
where a value was divided by 0.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.base.reductions.expression import Expression

Array = NDArray[Any]


def evaluate(expression: Expression, a: Array, b: Array) -> Array:
    """Returns the value for each pair of two arrays of one type, in that type."""
    with np.errstate(all="ignore"):
        return np.asarray(_value(expression, a, b))


def _value(e: Expression, a: Array, b: Array) -> Array:
    if e.operation in ("a", "b"):
        return a if e.operation == "a" else b
    if e.operation == "number":
        exact = Fraction(e.number) if a.dtype == object else _number(e.number, a.dtype)
        return np.full(a.shape, exact, a.dtype)
    return _OPERATIONS[e.operation](*(_value(part, a, b) for part in e.parts))


def _number(text: str, dtype: np.dtype[Any]) -> Any:
    return dtype.type(float(text) if dtype.kind == "f" else int(text))


def _isnan(x: Array) -> Array:
    return np.asarray(x != x)  # of fractions none is


def _smaller(x: Array, y: Array) -> Array:
    return np.where(_isnan(y), y, np.where(_true(y < x), y, x))


def _larger(x: Array, y: Array) -> Array:
    return np.where(_isnan(y), y, np.where(_true(x < y), y, x))


def _true(x: Any) -> Array:
    return np.asarray(x).astype(np.bool_)


def _pick(chosen: Array, x: Array, y: Array) -> Array:
    return np.where(chosen, x, y)


def _divide(x: Array, y: Array) -> Array:
    if x.dtype != object:
        return np.asarray(np.divide(x, y))
    return np.array([_fraction(p, q) for p, q in zip(x, y, strict=True)], object)


def _fraction(x: Any, y: Any) -> Any:
    return x / y if y and x == x and y == y else float("nan")


_OPERATIONS: dict[str, Callable[..., Array]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": _divide,
    "negate": np.negative,
    "magnitude": np.abs,
    "smaller": _smaller,
    "larger": _larger,
    "both": np.bitwise_and,
    "either": np.bitwise_or,
    "differ": np.bitwise_xor,
    "flip": np.invert,
    "equal": lambda x, y: _true(x == y),
    "unequal": lambda x, y: _true(x != y),
    "less": lambda x, y: _true(x < y),
    "more": lambda x, y: _true(x > y),
    "most": lambda x, y: _true(x <= y),
    "least": lambda x, y: _true(x >= y),
    "any": np.logical_or,
    "every": np.logical_and,
    "deny": np.logical_not,
    "pick": _pick,
}
