"""laws: tests that a reduction is associative and commutative, as who gives it states.

Programs combine what ranks give in any order and grouping. Integers are tried as they wrap, in
every type that has the reduction; floats as exact fractions, so that a law that only rounding
breaks holds, as it does of `sum`.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.base.diagnostics import Source, Span, fail
from hccc.base.dtypes import ALL
from hccc.base.reductions.evaluate import evaluate
from hccc.base.reductions.expression import OwnReduction
from hccc.base.reductions.parse import own

Array = NDArray[Any]
_INTEGERS, _FRACTIONS = 4096, 400  # triples that are tried
_EDGES = (0, 1, -1, 2, -2, 3)  # as often as other values, so that ties and signs are met
_DENOMINATORS = (1, 1, 2, 4, 3)


@lru_cache(maxsize=256)
def checked(text: str) -> OwnReduction:
    """Returns the reduction of a text, of which no counterexample was found.

    Raises:
        UserError: E332 with a counterexample of one of the laws; as `parse`.
    """
    made = own(text)
    for dtype in ALL:
        if dtype.kind in "iu" and made.has(dtype.name):
            _try(made, _integers(np.dtype(dtype.numpy)), dtype.name)
    if "f" in made.kinds:
        _try(made, _fractions(), "")
    return made


def _integers(dtype: np.dtype[Any]) -> tuple[Array, ...]:
    """Returns three arrays of integers: few, small, or any."""
    rng = np.random.default_rng(1)
    shape = (3, _INTEGERS)
    limits = np.iinfo(dtype)
    values = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    edges = np.array(_EDGES).astype(dtype)[rng.integers(0, len(_EDGES), shape)]
    return tuple(np.where(rng.integers(0, 2, shape) > 0, values, edges))


def _fractions() -> tuple[Array, ...]:
    """Returns three arrays of fractions (objects)."""
    rng = np.random.default_rng(2)
    over = rng.choice(_DENOMINATORS, (3, _FRACTIONS)).tolist()
    shape = (3, _FRACTIONS)
    small, any_ = rng.choice(_EDGES, shape), rng.integers(-40, 41, shape)
    up = np.where(rng.integers(0, 2, shape) > 0, small, any_).tolist()
    rows = zip(up, over, strict=True)
    made = [[Fraction(p, q) for p, q in zip(*row, strict=True)] for row in rows]
    return tuple(np.array(row, object) for row in made)


def _try(made: OwnReduction, triples: tuple[Array, ...], dtype: str) -> None:
    """Raises UserError E332 for the first pair or triple that breaks a law."""
    x, y, z = triples

    def of(p: Array, q: Array) -> Array:
        return evaluate(made.expression, p, q)

    xy = of(x, y)
    _compare(made, "commutative", (x, y), ("(a, b)", xy), ("(b, a)", of(y, x)), dtype)
    left, right = of(xy, z), of(x, of(y, z))
    shown = (f"({made.name}(a, b), c)", left), (f"(a, {made.name}(b, c))", right)
    _compare(made, "associative", (x, y, z), *shown, dtype)


def _compare(
    made: OwnReduction,
    law: str,
    given: tuple[Array, ...],
    left: tuple[str, Array],
    right: tuple[str, Array],
    dtype: str,
) -> None:
    known = (left[1] == left[1]) & (right[1] == right[1])  # not divided by 0
    wrong = np.flatnonzero(np.asarray((left[1] != right[1]) & known, np.bool_))
    if not wrong.size:
        return
    k = min(wrong.tolist(), key=lambda i: _length(given, i))
    values = ", ".join(f"{name} = {one[k]}" for name, one in zip("abc", given, strict=False))
    results = ", ".join(f"{made.name}{call} = {value[k]}" for call, value in (left, right))
    of = f" of {dtype}" if dtype else ""
    span = Span(Source("--op", made.text), 1, 1, len(made.name) + 1)
    help = "programs combine ranks in any order and grouping: give both the same result"
    raise fail("E332", f"{made.name}{of} is not {law}: {values}: {results}", span, help=help)


def _length(given: tuple[Array, ...], i: int) -> int:
    """Returns how long a counterexample is to read."""
    return sum(len(str(one[i])) for one in given)
