"""compiled: the loops that numba compiles, all in the same manner.

They are kept on disk after the first compilation, and run without the interpreter's lock, so that
a thread in one of them keeps no other thread from running.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, ParamSpec, TypeVar, overload

import numba
from numba import prange

from hccc.loop_cache import keep

__all__ = ["njit", "prange"]

P = ParamSpec("P")
R = TypeVar("R")


@overload
def njit(loop: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def njit(
    *, parallel: bool = False, inline: Literal["never", "always"] = "never"
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def njit(
    loop: Callable[P, R] | None = None,
    /,
    *,
    parallel: bool = False,
    inline: Literal["never", "always"] = "never",
) -> Callable[P, R] | Callable[[Callable[P, R]], Callable[P, R]]:
    """Compiles `loop` at its first call for each set of argument types: `@njit`, or with options.

    parallel: `prange` runs in several threads; inline: "always" puts the loop into its callers.
    """

    def compiled(loop: Callable[P, R]) -> Callable[P, R]:
        made: Callable[P, R] = numba.njit(nogil=True, parallel=parallel, inline=inline)(loop)
        keep(made)
        return made

    return compiled if loop is None else compiled(loop)
