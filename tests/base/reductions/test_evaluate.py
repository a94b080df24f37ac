"""Values: what an expression gives is what Python makes of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.reductions.evaluate import evaluate
from hccc.base.reductions.expression import FUNCTIONS, Expression
from hccc.base.reductions.parse import own
from tests.marks import LONG

BINARY = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "any": "or",
    "every": "and",
    "equal": "==",
    "unequal": "!=",
    "less": "<",
    "more": ">",
    "most": "<=",
    "least": ">=",
}
UNARY = {"negate": "-", "deny": "not "}


def written(e: Expression) -> str:
    """Writes an expression of floats as Python has it, all in brackets."""
    parts = [written(part) for part in e.parts]
    if e.operation == "pick":
        return f"({parts[1]} if {parts[0]} else {parts[2]})"
    if e.operation in ("smaller", "larger"):
        return f"{e.operation}({', '.join(parts)})"
    if e.operation == "magnitude":
        return f"abs({parts[0]})"
    if e.operation in UNARY:
        return f"({UNARY[e.operation]}{parts[0]})"
    if e.operation == "divide":
        return f"quotient({', '.join(parts)})"
    if not parts:
        return e.number or e.operation
    return f"({parts[0]} {BINARY[e.operation]} {parts[1]})"


def plain(text: str) -> Callable[[float, float], float]:
    """Returns a reduction as a function of two Python floats."""

    def smaller(x: float, y: float) -> float:
        return y if math.isnan(y) or y < x else x

    def larger(x: float, y: float) -> float:
        return y if math.isnan(y) or x < y else x

    def quotient(x: float, y: float) -> float:
        with np.errstate(all="ignore"):
            return float(np.divide(np.float64(x), np.float64(y)))

    names: dict[str, Any] = {"smaller": smaller, "larger": larger, "quotient": quotient, "abs": abs}
    code = compile(written(own(text).expression), "reduction", "eval")
    return lambda a, b: float(eval(code, {"__builtins__": {}}, names | {"a": a, "b": b}))


def _call(function: str, x: str, y: str) -> str:
    return f"{function}({x})" if FUNCTIONS[function][1] == 1 else f"{function}({x}, {y})"


def numbers(depth: int) -> st.SearchStrategy[str]:
    """Makes texts of numbers."""
    leaf = st.sampled_from(["a", "b", "0", "1", "2.5", "3"])
    if not depth:
        return leaf
    below = numbers(depth - 1)
    signs = st.sampled_from(["+", "-", "*", "/"])
    called = st.sampled_from(sorted(FUNCTIONS))
    return st.one_of(
        leaf,
        st.builds("({} {} {})".format, below, signs, below),
        st.builds("-{}".format, below),
        st.builds(_call, called, below, below),
        st.builds("({} ? {} : {})".format, truths(depth - 1), below, below),
    )


def truths(depth: int) -> st.SearchStrategy[str]:
    """Makes texts of truth values."""
    below = numbers(depth)
    signs = st.sampled_from(["<", ">", "<=", ">=", "==", "!="])
    compared = st.builds("({} {} {})".format, below, signs, below)
    if not depth:
        return compared
    inner = truths(depth - 1)
    both = st.builds("({} {} {})".format, inner, st.sampled_from(["&&", "||"]), inner)
    return st.one_of(compared, both, st.builds("!{}".format, inner))


def test_random_expressions_are_what_python_makes_of_them() -> None:
    special = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, math.inf, -math.inf, math.nan, 1e308])
    value = st.one_of(special, st.floats(width=32))

    @settings(max_examples=15 * LONG, deadline=None)
    @given(numbers(3), st.lists(st.tuples(value, value), min_size=1, max_size=4))
    def check(text: str, pairs: list[tuple[float, float]]) -> None:
        expression, one = own(f"x: {text}").expression, plain(f"x: {text}")
        a, b = (np.array(column) for column in zip(*pairs, strict=True))
        want = np.array([one(p, q) for p, q in pairs])
        np.testing.assert_array_equal(evaluate(expression, a, b), want, strict=True)

    check()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint16"])
def test_integers_wrap(dtype: str) -> None:
    limits = np.iinfo(dtype)
    edges = np.array([limits.min, limits.max, 0, 1, 2, limits.max - 1], dtype)
    a, b = (one.ravel() for one in np.meshgrid(edges, edges))
    wide = a.astype(object), b.astype(object)

    def wrapped(values: Any) -> np.ndarray:
        return np.array([int(v) % (1 << 64) for v in values], np.uint64).astype(dtype)

    for text, exact in (
        ("a * b - 3", wide[0] * wide[1] - 3),
        ("-a + ~b", -wide[0] - wide[1] - 1),
        ("(a ^ b) | (a & b)", wide[0] | wide[1]),
    ):
        got = evaluate(own(f"x: {text}").expression, a, b)
        np.testing.assert_array_equal(got, wrapped(exact), strict=True)


def test_precedence_is_that_of_c() -> None:
    same = {
        "a - b - 1": "(a - b) - 1",
        "a | b ^ a & b + 1": "a | (b ^ (a & (b + 1)))",
        "a > 0 || b > 0 && a > b ? a : b": "(a > 0 || (b > 0 && a > b)) ? a : b",
        "-a * b": "(-a) * b",
        "a > b ? a : b > 0 ? b : a": "a > b ? a : (b > 0 ? b : a)",
    }

    def shape(e: Expression) -> object:
        return (e.operation, e.number, *map(shape, e.parts))

    for text, bracketed in same.items():
        assert shape(own(f"x: {text}").expression) == shape(own(f"x: {bracketed}").expression)
