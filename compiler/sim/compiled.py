"""compiled: runs the engine: the library of C++, or what numba compiles where there is none.

Both give the same results; `engine.cpp` is compiled in a second, `engine.py` in fifteen.
"""

from __future__ import annotations

import ctypes
import math
import sys
from contextlib import suppress
from functools import cache

from hccc.base.diagnostics import UserError
from hccc.sim.library import library
from hccc.sim.state import HEAP, LATE, TODO, State


class Tables(ctypes.Structure):
    """`State` of engine.cpp."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in State._fields),
        *((name, ctypes.c_int64) for name in ("flags", "queues", "pairs", "width")),
    ]


class Progress(ctypes.Structure):
    """`Progress` of engine.cpp."""

    _fields_ = [("left", ctypes.c_int64), ("stamp", ctypes.c_int64), ("now", ctypes.c_double)]


def run(s: State, channels: float, limit: float = math.inf) -> int:
    """Runs to the end, or until `State.work` is done; how many blocks have not finished, LATE after
    `limit` µs."""
    found = library()
    if not isinstance(found, UserError):
        return run_compiled(found, s, channels, limit)
    _tell(found)
    from hccc.sim import engine  # only now: numba takes its time to import

    return engine.run(s, channels, limit)


def run_compiled(found: ctypes.CDLL, s: State, channels: float, limit: float = math.inf) -> int:
    """As `run`, in the library. Between two calls of it Ctrl-C is heard."""
    rows = len(s.flag), len(s.queue), len(s.pair), s.lists.shape[1]
    tables = Tables(*(array.ctypes.data for array in s), *rows)
    progress = Progress(found.hccc_sim_begin(ctypes.byref(tables)), 1, 0.0)
    while (s.length[TODO] > 0 or s.length[HEAP] > 0) and s.work[0] <= s.work[1]:
        found.hccc_sim_go_on(ctypes.byref(tables), ctypes.byref(progress), channels, limit)
        if progress.now > limit:
            return LATE
    return int(progress.left)


@cache
def _tell(error: UserError) -> None:
    """Says once that numba compiles the engine, and why."""
    if sys.stderr is not None:
        why = error.problem.message
        with suppress(OSError):
            print(f"note: the simulator is compiled without C++, slowly: {why}", file=sys.stderr)
