"""own_patterns: values for which a reduction of one's own is exact in any order, found by trying.

What a reduction computes nobody knows but its author. So several kinds of values are tried on a few
elements: folded from the first rank, from the last, and in pairs, with partial results rounded to
the dtype and kept in the type of arithmetic. The first kind that gives the same bits in all of them
is taken. Integers wrap, so any will do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.base.dtypes import BY_NAME
from hccc.base.reductions.evaluate import evaluate
from hccc.base.reductions.parse import own
from hccc.runtime.layout import DTYPES

Array = NDArray[Any]


def folded(op: str, dtype: str, values: Sequence[Array], *, rounds: bool = False) -> Array:
    """Reduces arrays of a dtype from left to right, in the type that kernels do it in.

    rounds: partial results to the dtype.
    """
    expression, kept, wide = own(op).expression, DTYPES[dtype], DTYPES[BY_NAME[dtype].accumulate]
    total = values[0].astype(wide)
    with np.errstate(over="ignore"):
        for value in values[1:]:
            total = evaluate(expression, total, value.astype(wide))
            total = total.astype(kept).astype(wide) if rounds else total
        return total.astype(kept)


def is_exact(op: str, dtype: str, values: Sequence[Array]) -> bool:
    """Tells whether every order that is tried reduces arrays of a dtype to the same bits."""
    first = folded(op, dtype, values)
    others = (
        folded(op, dtype, values, rounds=True),
        folded(op, dtype, values[::-1], rounds=True),
        folded(op, dtype, [*values[1::2], *values[::2]]),
        _paired(op, dtype, values),
    )
    return bool(np.isfinite(first.astype(np.float64)).all()) and all(
        np.array_equal(first.view(np.uint8), other.view(np.uint8)) for other in others
    )


def _paired(op: str, dtype: str, values: Sequence[Array]) -> Array:
    """Reduces pairs, then pairs of these, and so on."""
    left = list(values)
    while len(left) > 1:
        odd = [left[-1]] if len(left) % 2 else []
        pairs = zip(left[::2], left[1::2], strict=False)
        left = [folded(op, dtype, pair) for pair in pairs] + odd
    return left[0]


def first_exact(
    op: str, dtype: str, candidates: Sequence[Callable[[], Sequence[Array]]]
) -> int | None:
    """Returns the number of the first candidate whose values, an array of each rank, are exact."""
    for k, make in enumerate(candidates):
        if is_exact(op, dtype, make()):
            return k
    return None
