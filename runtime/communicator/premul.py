"""premul: the reduction that adds what each rank gives times a scalar of its own.

comm.all_reduce(x, op=hccc.premul_sum(0.5))
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.base.diagnostics import fail
from hccc.base.dtypes import BY_NAME
from hccc.runtime.communicator.buffers import TYPES, buffer_on, reduction_of
from hccc.runtime.communicator.errors import check
from hccc.runtime.communicator.runtime_library import library
from hccc.runtime.layout import DTYPES

_DEVICE, _IMMEDIATE = 0, 1  # hcccScalarResidence_t


@dataclass(frozen=True, slots=True, eq=False)
class PremulSum:
    """The reduction; `scalar` is this rank's. It serves any communicator and type that has it."""

    scalar: Any

    def made(self, handle: int, platform: str, dtype: str) -> tuple[int, object]:
        """Makes it for calls of a dtype; returns its hcccRedOp_t, and what keeps a scalar in memory
        alive.

        Raises CommunicatorError for a dtype that has none, UserError E421 for a number that is no
        value of it, E473 for an array that is no scalar.
        """
        owner: object
        if isinstance(self.scalar, int | float | np.generic):
            owner = value = _value(self.scalar, dtype)
            pointer, residence = value.ctypes.data, _IMMEDIATE
        else:
            found = buffer_on(platform, "premul_sum", "scalar", self.scalar)
            if found.elements != 1 or found.dtype != dtype:
                message = f"premul_sum: the scalar is {found.elements} elements of {found.dtype}"
                raise fail("E473", message, help=f"the call takes one of {dtype}")
            owner, pointer, residence = found.owner, found.pointer, _DEVICE
        made = ctypes.c_int()
        words = (ctypes.byref(made), pointer, TYPES.index(dtype), residence, handle)
        check(library().call("RedOpCreatePreMulSum", *words))
        return made.value, owner


def premul_sum(scalar: Any) -> PremulSum:
    """Makes a reduction for `op` of a communicator's calls: the sum of what each rank gives times
    its own scalar, which other ranks may give otherwise.

    scalar: a number; or an array of one element, of the type of the call and in memory that its
    buffers may be in, which is read when the call runs.
    """
    return PremulSum(scalar)


def word_of(op: str | PremulSum) -> int | PremulSum:
    """Returns the number of a reduction that has a name, any other as it is. Raises UserError
    E411."""
    return op if isinstance(op, PremulSum) else reduction_of(op)


def end(made: int, handle: int) -> None:
    """Ends a reduction that was made; calls that were made with it keep it."""
    check(library().call("RedOpDestroy", made, handle))


def _value(number: Any, dtype: str) -> NDArray[Any]:
    """Returns a number as an array of one element. Raises UserError E421."""
    kind, into = BY_NAME[dtype].kind, DTYPES[dtype]
    try:
        given = math.nan if np.iscomplexobj(number) else float(number)
    except OverflowError:  # of integers of Python's
        given = math.nan
    if math.isnan(given) and not number != number:
        raise fail("E421", f"premul_sum: the scalar is no {dtype}", help="a number that it has")
    if kind in "iu":
        bits = 8 * BY_NAME[dtype].bytes - (kind == "i")
        least, most = -(1 << bits) if kind == "i" else 0, (1 << bits) - 1
        if math.isfinite(given) and number == int(number) and least <= int(number) <= most:
            return np.array([int(number)], into)
        help = f"a whole number from {least} to {most}"
        raise fail("E421", f"premul_sum: {number} is no {dtype}", help=help)
    with np.errstate(all="ignore"):
        value = np.array([given]).astype(into)
        if kind == "f" and math.isfinite(given) and not np.isfinite(value.astype(np.float64))[0]:
            raise fail("E421", f"premul_sum: {number} is too large for {dtype}")
    return value
