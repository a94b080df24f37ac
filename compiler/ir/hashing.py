"""hashing: maps numbers to pseudo-random numbers, element by element, the same on every machine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

U8 = NDArray[np.uint64]
GOLDEN = np.uint64(
    0x9E3779B97F4A7C15
)  # splitmix64's step: consecutive numbers times this are far apart


def mixed(x: NDArray[Any]) -> U8:
    """Applies splitmix64's finaliser: every bit of the result depends on every bit of `x`.
    u8[n]."""
    x = x.astype(np.uint64, copy=False)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: U8 = x ^ (x >> np.uint64(31))
    return found
