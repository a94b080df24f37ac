"""random_numbers: pseudo-random numbers for compiled loops, the same on every machine."""

from __future__ import annotations

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import I8


@njit(allocates=False)
def next_random(random: I8) -> int:
    """Returns a number of 31 bits (Marsaglia's xorshift). random: i8[1], not 0; it changes."""
    x = np.uint64(random[0])
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    random[0] = np.int64(x)
    return int(x >> np.uint64(33))
