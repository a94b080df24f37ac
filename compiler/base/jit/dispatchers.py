"""dispatchers: loops as numba compiles them, all in the same manner.

They are kept on disk after the first compilation, and run without the interpreter's lock, so that
a thread in one of them keeps no other thread from running.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numba
from numba.core import types
from numba.core.options import DefaultOptions

from hccc.base.jit.loop_cache import keep

parallel_range: Any = numba.prange


def dispatcher(
    loop: Callable[..., Any],
    parallel: bool,
    inline: Literal["never", "always"],
    allocates: bool,
) -> Any:
    """Makes numba's form of `loop`, which compiles it at its first call for each set of types.

    A loop that does not allocate need not count references, which takes most of the time of short
    functions with many arrays.
    """
    compiler: Any = numba.njit
    options = {} if allocates or not hasattr(DefaultOptions, "_nrt") else {"_nrt": False}
    made = compiler(nogil=True, parallel=parallel, inline=inline, **options)(loop)
    _no_literals(made)
    keep(made)
    return made


def _no_literals(made: Any) -> None:
    """Has callers compile `made` for the type of a whole number that they know, not for the number.

    numba else compiles a loop's callees twice: for what a variable is when the loop begins, 0, and
    for what it is afterwards.
    """
    if not hasattr(made, "get_call_template"):  # NUMBA_DISABLE_JIT
        return
    found = made.get_call_template

    def get_call_template(args: Any, kws: Any) -> Any:
        return found([_plain(a) for a in args], {k: _plain(a) for k, a in dict(kws).items()})

    made.get_call_template = get_call_template


def _plain(argument: Any) -> Any:
    whole = isinstance(argument, types.IntegerLiteral)
    return argument.literal_type if whole else argument
