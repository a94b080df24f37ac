"""progress: reports phases of work to a listener, however deep the code that does the work.

    with listening(print):
        ...                          # anywhere below:
        tell("Scheduling")           # a step of the request begins
        with quiet():                # its own steps are not reported,
            tell("Lowering")
            note("Compiling loops, once")  # but work that takes seconds is

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


def _nobody(phase: str) -> None:
    pass


_phases: ContextVar[OnPhase] = ContextVar("phases", default=_nobody)
_notes: ContextVar[OnPhase] = ContextVar("notes", default=_nobody)


def tell(phase: str) -> None:
    """Reports that a phase begins."""
    _phases.get()(phase)


def note(text: str) -> None:
    """Reports work that happens only once and takes seconds, in any phase."""
    _notes.get()(text)


@contextmanager
def listening(on_phase: OnPhase | None, on_note: OnPhase | None = None) -> Iterator[None]:
    """Reports the phases that begin inside to `on_phase`, and notes to `on_note`, by default
    `on_phase` too; None keeps the present listener."""
    if on_phase is None:
        yield
        return
    phases, notes = _phases.set(on_phase), _notes.set(on_note or on_phase)
    try:
        yield
    finally:
        _phases.reset(phases)
        _notes.reset(notes)


@contextmanager
def quiet() -> Iterator[OnPhase]:
    """Silences the phases inside, which are part of a larger one; notes are still reported. Yields
    the outer listener."""
    on_phase = _phases.get()
    phases = _phases.set(_nobody)
    try:
        yield on_phase
    finally:
        _phases.reset(phases)


@contextmanager
def timed(phase: str, seconds: dict[str, float]) -> Iterator[None]:
    """Reports that a phase begins, and adds the time spent inside to `seconds`."""
    tell(phase)
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
