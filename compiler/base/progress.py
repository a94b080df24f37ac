"""progress: reports phases of work to a listener, however deep the code that does the work.

    with listening(print):
        ...                          # anywhere below:
        tell("Simulating")           # a step of the request begins
        far(3, 12)                   # how much of it is done
        with quiet():                # its own steps are not reported,
            tell("Lowering")
            with once("Building engine.cpp"):  # but work of the first time is
                ...

The listener is a context variable, which `interruptible` copies to the thread that computes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
OnPhase = Callable[[str], None]


class Listener:
    """Hears of work. Threads may call it at once."""

    def phase(self, name: str) -> None:
        """Hears that a phase begins."""

    def far(self, done: int, of: int) -> None:
        """Hears how much of the present phase is done."""

    def begin_once(self, what: str) -> None:
        """Hears that work begins, in any phase, that later calls find done."""

    def end_once(self, what: str) -> None:
        """Hears that it has ended."""


class _Called(Listener):
    """Calls a function with phases, and with work of the first time."""

    def __init__(self, on_phase: OnPhase) -> None:
        self._on_phase = on_phase

    def phase(self, name: str) -> None:
        self._on_phase(name)

    def begin_once(self, what: str) -> None:
        self._on_phase(f"{what}, once")


class _Quiet(Listener):
    """Passes on only what happens once."""

    def __init__(self, outside: Listener) -> None:
        self._outside = outside

    def begin_once(self, what: str) -> None:
        self._outside.begin_once(what)

    def end_once(self, what: str) -> None:
        self._outside.end_once(what)


class _Within(_Quiet):
    """Passes on phases as parts of a larger one, and how far each is."""

    def __init__(self, outside: Listener, whole: str) -> None:
        super().__init__(outside)
        self._whole = whole

    def phase(self, name: str) -> None:
        self._outside.phase(f"{self._whole}: {name[:1].lower()}{name[1:]}")

    def far(self, done: int, of: int) -> None:
        self._outside.far(done, of)


_NOBODY = Listener()
_listener: ContextVar[Listener] = ContextVar("listener", default=_NOBODY)


def tell(phase: str) -> None:
    """Reports that a phase begins."""
    _listener.get().phase(phase)


def far(done: int, of: int) -> None:
    """Reports how many parts of the present phase are done."""
    _listener.get().far(done, of)


@contextmanager
def once(what: str) -> Iterator[None]:
    """Reports work that later calls find done."""
    begin_once(what)
    try:
        yield
    finally:
        end_once(what)


def begin_once(what: str) -> None:
    """Reports as `once` that work begins, where no block of code has it whole."""
    _listener.get().begin_once(what)


def end_once(what: str) -> None:
    """Reports that it has ended."""
    _listener.get().end_once(what)


@contextmanager
def listening(to: Listener | OnPhase | None) -> Iterator[None]:
    """Reports what happens inside to a listener, or to a function; None keeps the present
    listener."""
    if to is None:
        yield
        return
    before = _listener.set(to if isinstance(to, Listener) else _Called(to))
    try:
        yield
    finally:
        _listener.reset(before)


@contextmanager
def quiet() -> Iterator[None]:
    """Silences the phases inside, which are part of a larger one."""
    with listening(_Quiet(_listener.get())):
        yield


@contextmanager
def within(phase: str) -> Iterator[None]:
    """Reports the phases inside as parts of a larger one: `Simulating ring: lowering`."""
    tell(phase)
    with listening(_Within(_listener.get(), phase)):
        yield


@contextmanager
def timed(phase: str, seconds: dict[str, float], says: str = "") -> Iterator[None]:
    """Reports that a phase begins, as what it `says`, and adds the time spent inside to
    `seconds`."""
    tell(says or phase)
    begin = time.perf_counter()
    yield
    seconds[phase] = seconds.get(phase, 0.0) + time.perf_counter() - begin


def reporting(function: Callable[P, R]) -> Callable[P, R]:
    """Makes calls of `function` report the phases inside to their argument `on_phase`."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        on_phase: Any = kwargs.get("on_phase")
        with listening(on_phase):
            return function(*args, **kwargs)

    return call
