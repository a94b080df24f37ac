"""Laws: what holds is taken, and what does not is refused with a counterexample that is one."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest

from hccc.base.diagnostics import UserError
from hccc.base.reductions.evaluate import evaluate
from hccc.base.reductions.laws import checked
from hccc.base.reductions.parse import own
from tests.base.reductions.test_parse import ABSMAX


@pytest.mark.parametrize(
    "text",
    [
        ABSMAX,
        "plus: a + b",
        "odds: a + b + a * b",
        "parallel: a * b / (a + b)",
        "mean_like: max(a, b) + min(a, b)",
        "common: a & b",
        "differ: (a | b) & ~(a & b)",
        "least: a < b ? a : b",
    ],
)
def test_what_holds_is_taken(text: str) -> None:
    assert checked(text) == own(text)


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("absmax: fabs(a) > fabs(b) ? a : b", "commutative"),
        ("minus: a - b", "commutative"),
        ("first: a", "commutative"),
        ("mean: (a + b) / 2", "associative"),
        ("dist: abs(a - b)", "associative"),
        ("masked: min(a, b) & 3", "associative"),
        ("clipped: min(a + b, 100)", "associative"),
    ],
)
def test_what_does_not_is_told_by_a_counterexample(text: str, law: str) -> None:
    with pytest.raises(UserError) as error:
        checked(text)
    problem = error.value.problem
    assert problem.code == "E332" and f"is not {law}: " in problem.message
    given = dict(re.findall(r"\b([abc]) = ([-\d/]+)", problem.message))
    kind = re.search(r" of (u?int\d+) ", problem.message)
    exact = {name: Fraction(value) for name, value in given.items()}
    values = {name: np.array([value], kind[1] if kind else object) for name, value in exact.items()}

    def of(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return evaluate(own(text).expression, x, y)

    a, b = values["a"], values["b"]
    if law == "commutative":
        assert of(a, b)[0] != of(b, a)[0]
    else:
        c = values["c"]
        assert of(of(a, b), c)[0] != of(a, of(b, c))[0]
