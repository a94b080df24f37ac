"""compiled: runs the engine: the C++ library, or numba's compilation if there is no compiler.

Both give the same results; `engine.cpp` is compiled in a second, `engine.py` in fifteen.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import NamedTuple, Protocol

from hccc.base.diagnostics import UserError
from hccc.sim.bound import RunBound
from hccc.sim.library import library
from hccc.sim.state import HEAP, TODO, State

AT_ONCE = 1 << 16  # moments between two checks for Ctrl-C
# Moments between two checks whether a run can still keep its limit: so many, or so many primitives
# for each moment where a plan is large, since a check looks at all of them.
LOOK, LOOKED_AT = 1 << 8, 1


class Ended(NamedTuple):
    """How a run ended. left: unfinished blocks; now: µs of its last moment; late: whether it takes
    longer than its limit."""

    left: int
    now: float
    late: bool = False


class Engine(Protocol):
    """A run that can be continued. left: unfinished blocks; now: µs so far."""

    @property
    def left(self) -> int: ...

    @property
    def now(self) -> float: ...

    def go_on(self, latest: float, moments: int) -> None:
        """Runs `moments` moments, or all there are until `latest` µs or until work is done."""


def run(s: State, channels: float, limit: float = math.inf) -> Ended:
    """Runs to the end, until `State.work` is done, or until it must take more than `limit` µs."""
    return ended(_engine()(s, channels), s, limit)


def ended(engine: Engine, s: State, limit: float) -> Ended:
    """Continues `engine`, begun with `s`, to the end as `run` does. Ctrl-C is noticed between
    steps."""
    bound = RunBound(s) if limit < math.inf else None
    moments = max(LOOK, len(s.primitive) // LOOKED_AT) if bound else AT_ONCE
    while (s.length[TODO] > 0 or s.length[HEAP] > 0) and s.work[0] <= s.work[1]:
        if bound and bound.exceeds(limit, engine.now):
            return Ended(engine.left, engine.now, late=True)
        engine.go_on(limit, moments)
        if engine.now > limit:
            return Ended(engine.left, engine.now, late=True)
    return Ended(engine.left, engine.now)


def _engine() -> Callable[[State, float], Engine]:
    """Returns the function that begins a run, given its state and the plan's number of channels."""
    found = library()
    if not isinstance(found, UserError):
        return lambda s, channels: InCpp(found, s, channels)
    _tell(found)
    from hccc.sim.engine import InNumba  # only now: numba takes its time to import

    return InNumba


@cache
def _tell(error: UserError) -> None:
    """Prints once that numba compiles the engine, and why."""
    if sys.stderr is not None:
        why = error.problem.message
        with suppress(OSError):
            print(f"note: the simulator is compiled without C++, slowly: {why}", file=sys.stderr)


class Tables(ctypes.Structure):
    """The struct `State` of engine.cpp."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in State._fields),
        *((name, ctypes.c_int64) for name in ("flags", "queues", "pairs", "width")),
    ]


class Progress(ctypes.Structure):
    """The struct `Progress` of engine.cpp."""

    _fields_ = [("left", ctypes.c_int64), ("stamp", ctypes.c_int64), ("now", ctypes.c_double)]


class InCpp:
    """A run in the C++ library."""

    def __init__(self, engine: ctypes.CDLL, s: State, channels: float) -> None:
        rows = len(s.flag), len(s.queue), len(s.pair), s.lists.shape[1]
        self._library, self._channels, self._arrays = engine, channels, s
        self._tables = Tables(*(array.ctypes.data for array in s), *rows)
        self._progress = Progress(engine.hccc_sim_begin(ctypes.byref(self._tables)), 1, 0.0)

    @property
    def left(self) -> int:
        return int(self._progress.left)

    @property
    def now(self) -> float:
        return float(self._progress.now)

    def go_on(self, latest: float, moments: int) -> None:
        tables, progress = ctypes.byref(self._tables), ctypes.byref(self._progress)
        self._library.hccc_sim_go_on(tables, progress, self._channels, latest, moments)
